package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/memnet"
	"github.com/tideover/tideover/retry"
)

// quick is a policy with waits that are short enough for tests.
const quick = "exponential(5ms..20ms) jitter=none attempts=4 attempt-timeout=2s total-timeout=20s"

// seen is a request that a provider got.
type seen struct {
	method, path, query, body string
	header                    http.Header
}

// testServer is a provider that records the requests that it gets.
type testServer struct {
	*httptest.Server
	mu   sync.Mutex
	seen []seen
}

// newTestServer starts a provider. The handler gets the number of the request, from 1.
func newTestServer(t testing.TB, handle func(n int, w http.ResponseWriter, r *http.Request)) *testServer {
	t.Helper()
	u := unstartedTestServer(handle)
	u.Start()
	t.Cleanup(u.Close)
	return u
}

func unstartedTestServer(handle func(n int, w http.ResponseWriter, r *http.Request)) *testServer {
	u := new(testServer)
	u.Server = memnet.NewUnstartedServer(u.note(handle))
	u.Config.ErrorLog = log.New(io.Discard, "", 0)
	return u
}

func (u *testServer) note(handle func(n int, w http.ResponseWriter, r *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body []byte
		if r.Header.Get("Upgrade") == "" && r.Header.Get("X-Test-Stream") == "" {
			body, _ = io.ReadAll(r.Body)
		}
		u.mu.Lock()
		u.seen = append(u.seen, seen{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, string(body), r.Header.Clone()})
		n := len(u.seen)
		u.mu.Unlock()
		handle(n, w, r)
	})
}

// requests returns the requests that the provider got.
func (u *testServer) requests() []seen {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]seen(nil), u.seen...)
}

func (u *testServer) count() int { return len(u.requests()) }

// says returns a handler that always answers 200 with the text.
func says(text string) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}

// fails returns a handler that always answers with the status.
func fails(code int, headers ...string) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"error":{"message":"it is %d"}}`, code)
	}
}

// unreachableURL is an address at which no server listens.
const unreachableURL = "http://127.0.0.1:1"

func policy(t testing.TB, text string) retry.Policy {
	t.Helper()
	p, err := retry.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// spec returns the spec of a provider at the address, with a key and the policy quick.
func spec(t testing.TB, name, preset, address string, change ...func(*Spec)) Spec {
	t.Helper()
	s := Spec{
		Name: name, Preset: preset, BaseURL: mustURL(t, address), Policy: policy(t, quick),
		Keys: []Key{{Name: "key-1", Value: NewSecret("sk-" + name + "-secret-1")}},
	}
	if preset == Generic {
		s.Format = "test"
	}
	for _, f := range change {
		f(&s)
	}
	return s.Fill()
}

func fallback(names ...string) func(*Spec) { return func(s *Spec) { s.Fallback = names } }

func keys(values ...string) func(*Spec) {
	return func(s *Spec) {
		s.Keys = nil
		for i, v := range values {
			s.Keys = append(s.Keys, Key{Name: fmt.Sprintf("key-%d", i+1), Value: NewSecret(v)})
		}
	}
}

func withPolicy(t testing.TB, text string) func(*Spec) {
	t.Helper()
	return func(s *Spec) { s.Policy = policy(t, text) }
}

// withoutBreaker turns the breaker off: no number of failures takes the provider down.
func withoutBreaker(s *Spec) {
	s.Breaker = breaker.Config{FailureRate: breaker.Off, ConsecutiveFailures: 1 << 30}
}

// rig is a gateway that records its log and its events.
type rig struct {
	*Gateway
	*httptest.Server
	t testing.TB

	mu     sync.Mutex
	events []retry.Event
	logged bytes.Buffer
}

func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logged.Write(p)
}

func newRig(t testing.TB, specs []Spec, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t}
	o := Options{
		Logger: slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Observer: func(ev retry.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, ev)
		},
	}
	for _, f := range change {
		f(&o)
	}
	g, err := New(specs, o)
	if err != nil {
		t.Fatal(err)
	}
	r.Gateway = g
	r.base.DialContext, r.h2c.DialContext = memnet.Dial, memnet.Dial
	r.Server = memnet.NewUnstartedServer(g)
	r.Start()
	r.Client().Transport = &http.Transport{DialContext: memnet.Dial}
	t.Cleanup(func() {
		r.Close()
		if err := g.Drain(context.Background()); err != nil {
			t.Errorf("Drain: %v", err)
		}
	})
	return r
}

// kinds returns the number of events of the kind.
func (r *rig) kinds(k retry.EventKind) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range r.events {
		if ev.Kind == k {
			n++
		}
	}
	return n
}

// output returns the log and all events of the gateway as text.
func (r *rig) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	b.Write(r.logged.Bytes())
	for _, ev := range r.events {
		text, _ := json.Marshal(ev)
		b.Write(text)
		fmt.Fprintf(&b, "%+v %#v", ev, ev)
	}
	return b.String()
}

// reply is a response that was read, with the error of reading it.
type reply struct {
	code   int
	header http.Header
	body   string
	err    error
}

// ask sends a request to the gateway. Headers come in pairs.
func (r *rig) ask(method, path, body string, headers ...string) reply {
	r.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, r.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body == "" {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return r.do(req)
}

func (r *rig) do(req *http.Request) reply {
	resp, err := r.Client().Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(text), err}
}

func (r *rig) get(path string, headers ...string) reply {
	r.t.Helper()
	return r.ask(http.MethodGet, path, "", headers...)
}

// status returns the state of a provider.
func (r *rig) status(name string) Status {
	r.t.Helper()
	for _, st := range r.Status() {
		if st.Name == name {
			return st
		}
	}
	r.t.Fatalf("Status: no provider %q", name)
	return Status{}
}

// settled returns the state of a provider when all its requests are counted, which is
// a moment after their callers have got the answers.
func (r *rig) settled(name string) Status {
	r.t.Helper()
	var st Status
	eventually(r.t, "all requests are counted", func() bool {
		st = r.status(name)
		n := st.Totals
		return n.Succeeded+n.Failed+n.Canceled+n.CutShort == n.Requests
	})
	return st
}

// errorCode returns the code of an error response of the gateway.
func (a reply) errorCode(t testing.TB) string {
	t.Helper()
	var body struct {
		Error struct{ Type, Code, Message, Provider string }
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.Error.Type != "tideover_error" {
		t.Errorf("the body %q is none of our answers", a.body)
	}
	return body.Error.Code
}

// eventually waits in a bubble until the condition holds. All other goroutines block
// before the clock of the bubble advances.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	began := time.Now()
	for pause := time.Millisecond; time.Since(began) < time.Hour; pause = min(2*pause, 100*time.Millisecond) {
		synctest.Wait()
		if holds() {
			return
		}
		time.Sleep(pause)
	}
	t.Fatalf("not in an hour: %s", what)
}
