package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	commands "github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/cmd/tideover/internal/timeseries"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

const (
	token       = "a-token-of-these-tests"
	callbackKey = "the-key-that-signs-callback-urls-in-these-tests"
)

// TestMain checks for leaked goroutines. The commands of sessions start the test binary as their
// guard, so TestMain also runs the guard.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == commands.Name {
		os.Exit(commands.Main(os.Args[2:]))
	}
	code := m.Run()
	if code == 0 {
		if left := testwait.Goroutines("tideover/tideover", "net/http."); left != "" {
			fmt.Fprintln(os.Stderr, "goroutines are left:\n"+left)
			code = 1
		}
	}
	os.Exit(code)
}

// fixture is a server with its own engine, which listens on a socket and on TCP.
type fixture struct {
	t       *testing.T
	engine  *engine.Engine
	server  *http.Server
	serving sync.WaitGroup
	dir     string // data folder of the engine
	socket  string
	tcp     string // host:port
	gate    chan struct{}
	mu      sync.Mutex
	failed  map[string]int // number of failed attempts by run
	calls   int

	sessions  admin.SessionManager
	providers admin.Gateway
	outputs   *output.Store
	redactor  *secret.Redactor
	judge     *judge
}

type job struct {
	Fail int    `json:"fail"` // number of attempts that fail
	Text string `json:"text"` // of the error or of the output
}

// work is the handler of a step that fails in.Fail times and then succeeds.
func (f *fixture) work(ctx context.Context, in job) (string, error) {
	task, _ := engine.TaskOf(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.failed[task.Run] < in.Fail {
		f.failed[task.Run]++
		return "", errors.New(in.Text)
	}
	return "did " + in.Text, nil
}

// wait is the handler of a step that succeeds when f.gate is closed. It fails if the context ends
// before.
func (f *fixture) wait(ctx context.Context, in job) (string, error) {
	if in.Text == "progress" {
		if err := engine.Progress(ctx, map[string]int{"percent": 50}); err != nil {
			return "", err
		}
	}
	select {
	case <-f.gate:
		return "through", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (f *fixture) workflows() []*engine.Workflow {
	f.t.Helper()
	var list []*engine.Workflow
	for name, parts := range map[string][]engine.Part{
		"echo":  {engine.Step("say", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil })},
		"flaky": {engine.Step("do", f.work, engine.Policy("fixed(1ms) attempts=4"))},
		"never": {engine.Step("do", f.work, engine.Policy("fixed(0s) attempts=2"))},
		"later": {engine.Step("do", f.work, engine.Policy("fixed(1h) attempts=4"))},
		"gate":  {engine.Step("wait", f.wait, engine.Policy("fixed(1ms) attempts=2"))},
		"two": {
			engine.Step("first", f.work, engine.Policy("fixed(0s) attempts=1")),
			engine.Step("second", f.work, engine.After("first"), engine.Policy("fixed(0s) attempts=1")), engine.Timeout(time.Hour),
		},
		"perm": {engine.Step("do", func(_ context.Context, in job) (string, error) { return "", retry.Permanent(errors.New(in.Text)) })},
	} {
		w, err := engine.NewWorkflow(name, parts...)
		if err != nil {
			f.t.Fatal(err)
		}
		list = append(list, w)
	}
	return list
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newOptions returns options with a new service and the token of the tests.
func newOptions(c admin.Config) Options {
	return Options{Control: admin.New(c), Guard: httpserver.GuardOptions{Token: secret.New(token)}, Logger: c.Logger}
}

// serve starts a server for the test. The functions change the configuration of its engine.
func serve(t *testing.T, change ...func(*fixture, *engine.Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), gate: make(chan struct{}), failed: map[string]int{}, redactor: new(secret.Redactor)}
	f.outputs = output.New(output.Config{Dir: filepath.Join(f.dir, "outputs"), Logger: quiet()})
	cfg := engine.Config{Dir: f.dir, Durability: engine.OS, Workflows: f.workflows(), Logger: quiet(), Grace: time.Minute}
	for _, c := range change {
		c(f, &cfg)
	}
	e, err := engine.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.engine = e
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		t.Fatal(err)
	}
	f.socket = filepath.Join(dir, "s")
	t.Cleanup(func() {
		f.close()
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		_ = f.outputs.Close()
		_ = os.RemoveAll(dir)
	})
	f.listen("127.0.0.1:0")
	return f
}

// listen starts to serve the API of the engine, on the TCP address and on the socket.
func (f *fixture) listen(address string) {
	f.t.Helper()
	unix, err := httpserver.ListenUnix(f.socket)
	if err != nil {
		f.t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		f.t.Fatal(err)
	}
	f.tcp = tcp.Addr().String()
	o := newOptions(admin.Config{
		Engine: f.engine, Version: "v1.2.3", Data: f.dir, Logger: quiet(), Sessions: f.sessions, Providers: f.providers, Requests: recordedRequests{},
		Outputs: f.outputs, Charts: timeseries.Open(filepath.Join(f.dir, "charts.json.gz"), quiet()), Redactor: f.redactor,
		CallbackKey: secret.New(callbackKey), Place: func() notify.Place { return notify.Place{Page: "http://" + f.tcp + "/"} },
		Doctor: func() admin.Diagnosis {
			return admin.Diagnosis{Engine: "the folder " + f.dir, Findings: doctor.Folder{Path: f.dir, Keeps: true, Lazy: true}.Check(context.Background())}
		},
	})
	o.Guard.Users = []httpserver.User{
		{Name: "ada", Token: secret.New(token + "-of-ada")}, {Name: "bob", Token: secret.New(token + "-of-bob")},
		{Name: "wall", Token: secret.New(token + "-of-wall"), ReadOnly: true},
	}
	o.Guard.Hosts = []string{"tideover.example", "other.example:99"}
	f.judge = newJudge(f.t)
	f.server = httpserver.NewServer(f.judge.before(httpserver.Guard(o.Guard, New(o))))
	server := f.server
	for _, l := range []net.Listener{unix, tcp} {
		f.serving.Go(func() { _ = server.Serve(l) })
	}
}

// close stops the server, but not the engine.
func (f *fixture) close() {
	f.t.Helper()
	if err := f.server.Shutdown(testwait.Context(f.t)); err != nil {
		f.t.Errorf("shutdown: %v", err)
	}
	f.serving.Wait()
}

// client returns a client over the socket.
func (f *fixture) client() *client.Client {
	f.t.Helper()
	return f.dial(client.Target{Server: "unix:" + f.socket, By: "tester"})
}

func (f *fixture) dial(target client.Target) *client.Client {
	f.t.Helper()
	c, err := client.Dial(target)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.Close)
	return c
}

// answered is the response to a request.
type answered struct {
	status int
	header http.Header
	text   string
}

func (a *answered) problem(t *testing.T) (p control.Error) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.text), &p); err != nil {
		t.Fatalf("not a problem: %v: %d %q", err, a.status, a.text)
	}
	return p
}

// ask sends a request over TCP or over the socket. header alternates names and values.
func (f *fixture) ask(overTCP bool, method, path, body string, header ...string) *answered {
	f.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(f.t.Context(), method, "http://"+f.tcp+path, in)
	if err != nil {
		f.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if !overTCP {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", f.socket)
		}
	}
	resp, err := transport.RoundTrip(r)
	if len(body) > 256<<10 && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
		// The server answers before it has read the body, and closes the connection. On a busy
		// machine the client may see that before it has read the answer.
		return f.ask(overTCP, method, path, body, header...)
	}
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	return &answered{resp.StatusCode, resp.Header, text.String()}
}

// start starts a run and returns its id.
func (f *fixture) start(workflow, input string) string {
	f.t.Helper()
	s, err := f.client().Start(f.t.Context(), control.Start{Workflow: workflow, Input: json.RawMessage(input)})
	if err != nil {
		f.t.Fatalf("start %s %s: %v", workflow, input, err)
	}
	return s.ID
}

// over waits until the run has ended, and returns the run.
func (f *fixture) over(id string) *engine.Info {
	f.t.Helper()
	info, err := f.engine.Wait(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return info
}

// listed waits until lists contain n runs in the state.
func (f *fixture) listed(state string, n int) {
	f.t.Helper()
	testwait.Until(f.t, fmt.Sprintf("%d runs that are %s", n, state), func() bool {
		page, err := f.engine.List(f.t.Context(), engine.Filter{States: []string{state}, Limit: 1000})
		return err == nil && len(page.Runs) == n
	})
}
