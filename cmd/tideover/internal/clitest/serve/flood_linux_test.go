//go:build unix

package serve_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// serveWithDescriptors starts a server with a limit on open files, including sockets.
func serveWithDescriptors(t *testing.T, descriptors int, text string) *clitest.Server {
	t.Helper()
	dir := clitest.ShortDir(t)
	s := &clitest.Server{Background: &clitest.Background{T: t, Folder: dir}, File: filepath.Join(dir, "tideover.yaml"), Data: filepath.Join(dir, "data"), Log: new(clitest.SyncBuffer)}
	clitest.WriteFile(t, s.File, text)
	s.Cmd, s.Mark = clitest.Command(t, "serve", "--config", s.File, "--data", s.Data, "--listen", "127.0.0.1:0")
	s.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$@"`, descriptors), "sh", s.Path}, s.Args[1:]...)
	s.Path = "/bin/sh"
	s.Env = append(s.Env, "DIR="+dir)
	s.Stdout, s.Stderr = s.Log, s.Log
	s.Begin()
	s.AwaitReady()
	return s
}

// tcp returns the host and port of the server's TCP listener.
func tcp(s *clitest.Server) string {
	return strings.Trim(strings.TrimPrefix(s.Address(), "http://"), "/")
}

// flood is a set of connections that stay open.
type flood struct {
	conns   []net.Conn
	handled atomic.Int32 // connections that were answered or closed
	readers sync.WaitGroup
}

// newFlood opens n connections to a server, from the local address from. Each sends a request for
// /healthz and stays open.
func newFlood(t *testing.T, to, from string, n int) *flood {
	t.Helper()
	f := new(flood)
	t.Cleanup(f.close)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	for range n {
		c, err := dialer.DialContext(t.Context(), "tcp", to)
		if err != nil {
			t.Fatalf("connection %d: %v", len(f.conns), err)
		}
		f.conns = append(f.conns, c)
		f.readers.Go(func() {
			_, _ = fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", to) // fails if the server has closed the connection
			_, _ = c.Read(make([]byte, 1))
			f.handled.Add(1)
			_, _ = io.Copy(io.Discard, c)
		})
	}
	return f
}

// close closes the connections.
func (f *flood) close() {
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.readers.Wait()
}

// get sends a request over a new TCP connection from the local address from. It returns the status
// and the body.
func get(t *testing.T, url, from string) (int, string) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(testwait.Context(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for {
		resp, err := client.Do(req)
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
			continue // during a flood, a connection may be closed for another one before the request is sent
		}
		if err != nil {
			t.Fatalf("GET %s from %s: %v", url, from, err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
}

// refusal connects to a server that rejects the connection, and returns the status and the body of
// its answer. It sends nothing, because the server may close the connection before it reads a
// request.
func refusal(t *testing.T, to, from string) (int, string) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.DialContext(testwait.Context(t), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("a connection to %s from %s is not answered: %v", to, from, err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// Idle connections without a token use as many file descriptors as the server allows. Runs that
// become due meanwhile succeed, and clients of the Unix socket and at other addresses still get
// answers.
func TestAFloodOfConnectionsStopsNothing(t *testing.T) {
	t.Parallel()
	const due = 20
	s := serveWithDescriptors(t, 400, `version: 1
server: {concurrency: 8}
workflows: {w: {steps: [{id: a, run: [echo, done], policy: fixed(1s) attempts=1}]}}
`)
	var ids []string
	for range due {
		o := s.RunCommand("run", "w", "--in", "3s")
		clitest.WantCode(t, o, 0)
		ids = append(ids, strings.TrimSpace(o.Out))
	}
	f := newFlood(t, tcp(s), "127.0.0.1", 1000)
	testwait.Until(t, "many connections are answered or closed", func() bool { return f.handled.Load() >= 250 })
	for _, id := range ids {
		testwait.Until(t, "a run ends", func() bool { return s.Show(id).Finished() })
		if i := s.Show(id); i.State != engine.StateSucceeded || i.Attempts != 1 {
			t.Errorf("during the flood a run is %s after %d attempts: %s", i.State, i.Attempts, i.Error)
		}
	}
	clitest.WantCode(t, s.RunCommand("run", "w", "--wait"), 0)
	clitest.WantCode(t, s.RunCommand("status"), 0)
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		if status, _ := get(t, s.Address()+"healthz", from); status != http.StatusOK {
			t.Errorf("a caller at %s gets %d", from, status)
		}
	}
	if m := s.Metrics(); !strings.Contains(m, `tideover_connections_closed_total{listener="tcp",reason="address-limit"}`) {
		t.Errorf("the metrics do not have the connections that were closed")
	}
	f.close()
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
	clitest.WantNoProcess(t, s.Mark)
}

// The server does not close connections with a request in progress to accept new ones. It rejects
// new connections, except from other addresses and on the Unix socket.
func TestConnectionsBeyondTheLimitAreRefused(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(up.Close)
	s := clitest.Serve(t, `version: 1
server: {max-connections: 8, max-connections-per-address: 4}
providers: {up: {base-url: `+up.URL+`, auth: none}}
workflows: {w: {steps: [{id: a, run: [echo, done]}]}}
`, "")
	var all sync.WaitGroup
	codes := make(chan int, 4)
	for range 4 {
		all.Go(func() {
			status, _ := get(t, s.Address()+"p/up/x", "127.0.0.1")
			codes <- status
		})
	}
	testwait.Until(t, "four requests are under way", func() bool {
		return strings.Contains(metricsFrom(s, "127.0.0.2"), "tideover_gateway_in_flight{provider=\"up\"} 4\n")
	})
	if status, text := refusal(t, tcp(s), "127.0.0.1"); status != http.StatusServiceUnavailable || !strings.Contains(text, "too many connections") {
		t.Errorf("the fifth connection of an address gets %d: %s", status, text)
	}
	if status, _ := get(t, s.Address()+"healthz", "127.0.0.2"); status != http.StatusOK {
		t.Errorf("another address gets %d", status)
	}
	clitest.WantCode(t, s.RunCommand("run", "w", "--wait"), 0)
	clitest.WantIn(t, "metrics", metricsFrom(s, "127.0.0.2"), `tideover_connections_refused_total{listener="tcp",reason="address-limit"} 1`)
	close(hold)
	all.Wait()
	for range 4 {
		if status := <-codes; status != http.StatusOK {
			t.Errorf("a request that was under way ends with %d", status)
		}
	}
}

// metricsFrom requests the metrics over a connection from the local address from.
func metricsFrom(s *clitest.Server, from string) string {
	s.T.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	req, _ := http.NewRequestWithContext(testwait.Context(s.T), http.MethodGet, s.Address()+"metrics", nil)
	req.Header.Set("Authorization", "Bearer "+s.Token())
	resp, err := client.Do(req)
	if err != nil {
		s.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

// unixClient returns a client of the Unix socket that uses a single connection.
func unixClient(s *clitest.Server) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxConnsPerHost: 1, IdleConnTimeout: 0,
		Dial: func(string, string) (net.Conn, error) {
			return net.Dial("unix", filepath.Join(s.Data, "tideover.sock"))
		},
	}}
}

// As many event streams as the server allows are open, over TCP and then over the Unix socket.
// Clients of the socket can still read events and send requests.
func TestStreamsDoNotLockTheOwnerOut(t *testing.T) {
	t.Parallel()
	s := clitest.Serve(t, "version: 1\nworkflows: {w: {steps: [{id: a, run: [echo, done]}]}}\n", "")
	token := s.Token()
	follow := func(network, address string) int {
		c, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		fmt.Fprintf(c, "GET %sevents HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", api.Prefix, token)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil) //nolint:bodyclose // closed with the connection
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	fill := func(network, address string) {
		for n := range 400 {
			if status := follow(network, address); status == http.StatusServiceUnavailable {
				if n < 255 { // one of 256 streams was opened before
					t.Errorf("%s: only %d streams", network, n)
				}
				return
			}
		}
	}
	socket := filepath.Join(s.Data, "tideover.sock")
	fill("tcp", tcp(s))
	if status := follow("unix", socket); status != http.StatusOK {
		t.Errorf("streams over TCP lock the owner out: %d", status)
	}
	fill("unix", socket)
	clitest.WantCode(t, s.RunCommand("run", "w", "--wait"), 0)
	clitest.WantCode(t, s.RunCommand("status"), 0)
}

// fewDescriptors leaves the server only a few free descriptors, until the returned function is
// called.
func fewDescriptors(s *clitest.Server, free int) (restore func()) {
	s.T.Helper()
	var old unix.Rlimit
	pid := s.Process.Pid
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old); err != nil {
		s.T.Fatal(err)
	}
	files, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		s.T.Fatal(err)
	}
	var open []int
	for _, f := range files {
		n, _ := strconv.Atoi(f.Name())
		open = append(open, n)
	}
	// The system uses the lowest free number next, which must be below the limit.
	limit := 0
	for ; free > 0 || slices.Contains(open, limit); limit++ {
		if !slices.Contains(open, limit) {
			free--
		}
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(limit), Max: old.Max}, nil); err != nil {
		s.T.Fatal(err)
	}
	return func() {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil); err != nil {
			s.T.Error(err)
		}
	}
}

// The server has no free file descriptor when a step, a request to the API, a request to a provider
// and a message are due. None of them uses the only attempt that its policy allows: all of them
// succeed when descriptors are free again.
func TestAShortageOfDescriptorsSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(up.Close)
	s := clitest.Serve(t, `version: 1
providers: {up: {base-url: `+up.URL+`, auth: none}}
notify: {told: {run: [sh, -c, 'echo told >> $DIR/told'], env: {DIR: "${env:DIR}"}, policy: fixed(1s) attempts=1}}
workflows:
  command: {steps: [{id: a, run: [echo, done], policy: fixed(1s) attempts=1}]}
  request: {steps: [{id: a, http: {get: "`+up.URL+`/x"}, policy: fixed(1s) attempts=1}]}
  provider: {steps: [{id: a, http: {provider: up, get: /x}, policy: fixed(1s) attempts=1}]}
  message: {timeout: 100ms, steps: [{id: a, run: ["false"], policy: fixed(1s) attempts=1}], on-give-up: {notify: [told]}}
`, "")
	client := unixClient(s)
	call := func(method, path, body string, v any) {
		t.Helper()
		req, _ := http.NewRequestWithContext(testwait.Context(t), method, "http://localhost"+api.Prefix+path, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if err := json.Unmarshal(text, v); err != nil || resp.StatusCode >= 300 {
			t.Fatalf("%s %s: %s %s", method, path, resp.Status, text)
		}
	}
	run := func(id string) (i engine.Info) {
		t.Helper()
		call("GET", "runs/"+id, "", &i)
		return i
	}
	var status any
	call("GET", "status", "", &status) // opens the connection that later calls use
	call("GET", "runs?internal=true", "", &status)
	caller := bufio.NewReadWriter(nil, nil)
	tcp, err := net.Dial("tcp", tcp(s))
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	caller.Reader, caller.Writer = bufio.NewReader(tcp), bufio.NewWriter(tcp)
	ask := func(path string) (int, string) {
		t.Helper()
		fmt.Fprintf(caller, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
		_ = caller.Flush()
		resp, err := http.ReadResponse(caller.Reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	if code, text := ask("/healthz"); code != http.StatusOK {
		t.Fatalf("healthz: %d %s", code, text)
	}
	restore := fewDescriptors(s, 0)
	ids := map[string]string{}
	for _, workflow := range []string{"message", "command", "request", "provider"} {
		var i struct{ ID string }
		call("POST", "runs", `{"workflow":"`+workflow+`"}`, &i)
		ids[workflow] = i.ID
	}
	if code, text := ask("/p/up/x"); code != http.StatusServiceUnavailable || !strings.Contains(text, `"shortage"`) {
		t.Errorf("a caller of the gateway gets %d: %s", code, text)
	}
	// The message has a run of its own, which the first run starts when it times out.
	testwait.Until(t, "there is a message", func() bool {
		var list struct{ Runs []engine.Info }
		call("GET", "runs?internal=true", "", &list)
		for _, i := range list.Runs {
			if i.Workflow != "message" && strings.Contains(i.Workflow, "message") {
				ids["message"] = i.ID
				return true
			}
		}
		return false
	})
	for workflow, id := range ids {
		testwait.Until(t, workflow+" waits", func() bool {
			i := run(id)
			return i.Finished() || len(i.Steps) > 0 && len(i.Steps[0].Attempts) > 0 && i.Steps[0].Attempts[0].Outcome != "running"
		})
		i := run(id)
		if i.Finished() {
			t.Errorf("%s is %s: %s", workflow, i.State, i.Error)
			continue
		}
		a := i.Steps[0].Attempts[0]
		if a.Outcome != "snoozed" || i.Steps[0].Spent != 0 || !strings.Contains(a.Error, "too many open files") || !strings.Contains(a.Error, "no attempt is spent") {
			t.Errorf("%s: the attempt is %s, %d are spent: %s", workflow, a.Outcome, i.Steps[0].Spent, a.Error)
		}
	}
	restore()
	for workflow, id := range ids {
		testwait.Until(t, workflow+" ends", func() bool { i := run(id); return i.Finished() })
		if i := run(id); i.State != engine.StateSucceeded || i.Steps[0].Spent > 1 {
			t.Errorf("%s is %s after %d attempts: %s", workflow, i.State, i.Steps[0].Spent, i.Error)
		}
	}
	if asked.Load() != 2 {
		t.Errorf("the server was asked %d times, want 2", asked.Load())
	}
	if n := clitest.CountLines(filepath.Join(s.Folder, "told")); n != 1 {
		t.Errorf("the message was sent %d times", n)
	}
	if st := s.Provider("up"); st.State != gateway.Up {
		t.Errorf("the provider is %s", st.State)
	}
}
