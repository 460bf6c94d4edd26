package retryhttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

const (
	soakWorkers = 32
	soakSpooled = 300 << 10 // more than is kept in memory

	soakUncollected = soakRequests / 5 // requests made with the garbage collector off
)

// fault is a kind of request, and what fails during it.
type fault struct {
	name  string
	share int // per cent of the requests
	body  int // bytes of the request's body, which has no GetBody

	// serve answers the n-th attempt.
	serve func(w http.ResponseWriter, r *http.Request, n int)

	// ask is what the client does with its answer; nil means to read all of it.
	ask func(resp *http.Response, cancel context.CancelFunc) error

	leave time.Duration // when the client cancels; 0 means never
	fails bool          // the client gets no complete answer
	slow  bool          // the attempt timeout is short, so the result depends on the speed of the machine
}

// faults are all kinds of requests, with their shares of the load.
var faults = []fault{
	{name: "nothing", share: 67, serve: fine},
	{name: "503 twice", share: 10, serve: until(3, busy)},
	{name: "503 for good, not read", share: 2, serve: long503, ask: unread},
	{name: "reset before the answer", share: 5, serve: until(2, reset)},
	// These have a body, because net/http itself repeats a GET on all idle connections
	// before it reports a reset.
	{name: "reset for good", share: 1, body: 1000, serve: readThen(reset), fails: true},
	{name: "a body that ends too early", share: 4, serve: truncated, fails: true},
	{name: "no answer in time", share: 1, serve: until(2, hang), slow: true},
	{name: "a client that goes away before the answer", share: 3, serve: hang, leave: 5 * time.Millisecond, fails: true},
	{name: "a client that goes away after the headers", share: 3, serve: dripping, ask: leaving, fails: true},
	{name: "a long body, and 503", share: 1, body: soakSpooled, serve: until(2, readThen(busy))},
	{name: "a long body, and 503 before it was read", share: 1, body: soakSpooled, serve: until(2, busy)},
	{name: "a long body, and a reset in the middle", share: 1, body: soakSpooled, serve: until(2, halfThenReset)},
	{name: "a long body, and a client that goes away", share: 1, body: soakSpooled, serve: readThen(hang), leave: 20 * time.Millisecond, fails: true},
}

func fine(w http.ResponseWriter, r *http.Request, _ int) {
	n, _ := io.Copy(io.Discard, r.Body)
	fmt.Fprint(w, n)
}

// until runs bad for all attempts before the n-th.
func until(n int, bad func(http.ResponseWriter, *http.Request, int)) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, r *http.Request, attempt int) {
		if attempt < n {
			bad(w, r, attempt)
			return
		}
		fine(w, r, attempt)
	}
}

func busy(w http.ResponseWriter, _ *http.Request, _ int) {
	http.Error(w, "busy", http.StatusServiceUnavailable)
}

func long503(w http.ResponseWriter, _ *http.Request, _ int) {
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(make([]byte, 70<<10)) // more than the transport reads ahead
}

func reset(w http.ResponseWriter, _ *http.Request, _ int) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

func halfThenReset(w http.ResponseWriter, r *http.Request, n int) {
	_, _ = io.CopyN(io.Discard, r.Body, soakSpooled/2)
	reset(w, r, n)
}

func truncated(w http.ResponseWriter, _ *http.Request, _ int) {
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, "too little")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func hang(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() }

func readThen(next func(http.ResponseWriter, *http.Request, int)) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, r *http.Request, n int) {
		_, _ = io.Copy(io.Discard, r.Body)
		next(w, r, n)
	}
}

func dripping(w http.ResponseWriter, r *http.Request, _ int) {
	_, _ = io.WriteString(w, "more to come")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func unread(*http.Response, context.CancelFunc) error { return nil }

func leaving(resp *http.Response, cancel context.CancelFunc) error {
	cancel()
	_, err := io.Copy(io.Discard, resp.Body)
	return err
}

// soak is a server and a client that count open connections and bodies.
type soak struct {
	*httptest.Server
	timed    *rig                 // has a long attempt timeout
	hasty    *retryhttp.Transport // has a short attempt timeout; uses the same connections
	plain    *retryhttp.Transport // has no attempt timeout; uses the same connections
	payload  []byte
	attempts [soakRequests]atomic.Int32
	ended    []atomic.Int64 // by fault: requests that ended as they should
	dialed   atomic.Int64   // open connections of the client
	accepted atomic.Int64   // open connections of the server
	total    atomic.Int64   // connections that the server has ever had
	bodies   atomic.Int64   // request bodies that are not closed
	most     atomic.Int64   // greatest number of open connections of the server
	mixed    []int          // the fault of a request, by the last two digits of its number
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{payload: pattern(soakSpooled), ended: make([]atomic.Int64, len(faults))}
	for i := range faults {
		for range faults[i].share {
			s.mixed = append(s.mixed, i)
		}
	}
	if len(s.mixed) != 100 {
		t.Fatalf("the shares make %d, want 100", len(s.mixed))
	}
	s.timed = newRig(t, quick+" attempt-timeout=1h")
	for policy, transport := range map[string]**retryhttp.Transport{quick: &s.plain, quick + " attempt-timeout=100ms": &s.hasty} {
		p, err := retry.Parse(policy)
		if err != nil {
			t.Fatal(err)
		}
		if *transport, err = retryhttp.New(p, s.timed.net); err != nil {
			t.Fatal(err)
		}
	}
	dialer := new(net.Dialer)
	s.timed.net.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		s.dialed.Add(1)
		return &countedConn{Conn: c, open: &s.dialed}, nil
	}
	s.timed.net.MaxIdleConnsPerHost = soakWorkers
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.accepted.Add(1)
			s.total.Add(1)
		case http.StateClosed, http.StateHijacked: // which we close ourselves
			s.accepted.Add(-1)
		default:
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// of returns the fault of a request. It spreads the numbers, so that all kinds are in
// progress at any time.
func (s *soak) of(i int) int { return s.mixed[i*37%100] }

func (s *soak) serve(w http.ResponseWriter, r *http.Request) {
	i, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
	if err != nil {
		return
	}
	faults[s.of(i)].serve(w, r, int(s.attempts[i].Add(1)))
}

// ask makes a request and reports whether it ended as expected.
func (s *soak) ask(ctx context.Context, i int) bool {
	f, cancel := &faults[s.of(i)], context.CancelFunc(func() {})
	if f.fails { // for others, the end of a context must not clean up for the transport
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
	}
	if f.leave > 0 {
		// real clock: the server never answers these requests
		defer time.AfterFunc(f.leave, cancel).Stop()
	}
	method, body := http.MethodGet, io.Reader(nil)
	if f.body > 0 {
		s.bodies.Add(1)
		method, body = http.MethodPut, &countedBody{Reader: bytes.NewReader(s.payload[:f.body]), open: &s.bodies}
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+"/"+strconv.Itoa(i), body)
	if err != nil {
		return false
	}
	transport := http.RoundTripper(s.timed)
	switch {
	case f.slow:
		transport = s.hasty
	case i%200 >= 100:
		transport = s.plain
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return f.fails || f.slow
	}
	defer resp.Body.Close()
	if f.ask != nil {
		return (f.ask(resp, cancel) != nil) == f.fails
	}
	got, err := io.ReadAll(resp.Body)
	if f.fails {
		return err != nil
	}
	return f.slow || err == nil && resp.StatusCode == http.StatusOK && string(got) == strconv.Itoa(f.body)
}

// run makes the requests with the numbers from one to another.
func (s *soak) run(t *testing.T, from, to int) {
	t.Helper()
	var next atomic.Int64
	next.Store(int64(from))
	var all sync.WaitGroup
	for range soakWorkers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < to; i = int(next.Add(1)) - 1 {
				if s.ask(t.Context(), i) {
					s.ended[s.of(i)].Add(1)
				}
				s.most.Store(max(s.most.Load(), s.accepted.Load())) // about
			}
		})
	}
	all.Wait()
}

// countedConn counts when it is closed.
type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// countedBody is a body without GetBody that counts when it is closed.
type countedBody struct {
	io.Reader
	open *atomic.Int64
	once sync.Once
}

func (b *countedBody) Close() error {
	b.once.Do(func() { b.open.Add(-1) })
	return nil
}

// inUse are resources that a process may leak.
type inUse struct{ goroutines, files int }

// measure counts goroutines and, where the system tells, open files.
func measure() inUse {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		fds = nil
	}
	return inUse{runtime.NumGoroutine(), len(fds)}
}

// real clock: the time that it takes is only logged; a longer pause before the first
// measurement makes the comparison stricter.
func TestD11NothingLeaksOverTenThousandRequests(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	s := newSoak(t)
	for range 2 { // until everything that stays allocated is allocated
		read(t, must(s.timed.RoundTrip(request(t, "GET", s.URL+"/warm", nil))))
	}
	s.timed.CloseIdleConnections()
	testwait.Until(t, "the first connection is closed", func() bool { return s.accepted.Load() == 0 })
	before := measure()
	for range 20 { // closing may take a moment
		time.Sleep(time.Millisecond)
		m := measure()
		before = inUse{min(before.goroutines, m.goroutines), min(before.files, m.files)}
	}

	start := time.Now()
	s.run(t, 0, soakRequests-soakUncollected)
	// The garbage collector closes lost files. It must not hide a leak.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	s.run(t, soakRequests-soakUncollected, soakRequests)
	took := time.Since(start)

	s.timed.CloseIdleConnections()
	var now inUse
	testwait.Until(t, "all connections, bodies, files and goroutines are gone", func() bool {
		s.timed.CloseIdleConnections() // a connection may become idle late
		now = measure()
		left, _ := os.ReadDir(dir)
		return s.dialed.Load() == 0 && s.accepted.Load() == 0 && s.bodies.Load() == 0 && len(left) == 0 &&
			now.goroutines <= before.goroutines && now.files <= before.files
	})
	for i, f := range faults {
		if want := soakRequests * f.share / 100; int(s.ended[i].Load()) != want {
			t.Errorf("%s: %d of %d ended as they should", f.name, s.ended[i].Load(), want)
		}
	}
	t.Logf("%d requests in %v over %d connections, at most %d at once; %+v before, %+v after", soakRequests, took, s.total.Load(), s.most.Load(), before, now)
}

func must(resp *http.Response, err error) *http.Response {
	if err != nil {
		panic(err)
	}
	return resp
}
