//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// fakeGateway is a gateway whose providers the test controls.
type fakeGateway struct {
	mu   sync.Mutex
	list []gateway.Status
}

// Status implements [admin.Providers].
func (f *fakeGateway) Status() []gateway.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list)
}

// Control implements [admin.Providers].
func (f *fakeGateway) Control(name, action string) error {
	state := map[string]string{gateway.Open: gateway.Opened, gateway.Close: gateway.Up, gateway.Reset: gateway.Up, gateway.Drain: gateway.Draining}[action]
	if state == "" {
		return fmt.Errorf("%w: %q", gateway.ErrUnknownAction, action)
	}
	if !f.change(name, func(st *gateway.Status) { st.State, st.Held, st.Recovery = state, action == gateway.Close, nil }) {
		return fmt.Errorf("%w: %q", gateway.ErrUnknownProvider, name)
	}
	return nil
}

func (f *fakeGateway) change(name string, do func(*gateway.Status)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.list {
		if f.list[i].Name == name {
			do(&f.list[i])
			return true
		}
	}
	return false
}

// gatewayEnv is the API of a gateway without an engine, in this process, with its own state folder.
type gatewayEnv struct {
	*clitest.SessionsEnv
	fleet *fakeGateway
	tcp   string
	close func()
}

func newGatewayEnv(t *testing.T, list ...gateway.Status) *gatewayEnv {
	t.Helper()
	p := &gatewayEnv{SessionsEnv: clitest.NewSessionsEnv(t), fleet: &fakeGateway{list: list}}
	unix, err := httpserver.ListenUnix(p.ServeSocket())
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.tcp = "http://" + tcp.Addr().String()
	server := httpserver.NewServer(clitest.NewTestAPI(admin.Config{Providers: p.fleet}))
	var serving sync.WaitGroup
	for _, l := range []net.Listener{unix, tcp} {
		serving.Go(func() { _ = server.Serve(l) })
	}
	p.close = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	t.Cleanup(p.close)
	return p
}

// runCommand runs a command to its end.
func (p *gatewayEnv) runCommand(args ...string) clitest.Outcome {
	p.T.Helper()
	cmd, _ := clitest.Command(p.T, append([]string{"providers"}, args...)...)
	return clitest.Finish(p.T, p.Env(cmd))
}

// mustRun runs a command that must succeed, and returns its output.
func (p *gatewayEnv) mustRun(args ...string) string {
	p.T.Helper()
	got := p.runCommand(args...)
	if got.Code != 0 || got.Stderr != "" {
		p.T.Fatalf("tideover providers %q: code %d, stdout %q, stderr %q", args, got.Code, got.Out, got.Stderr)
	}
	return got.Out
}

// exampleNow returns the example providers, with times relative to now.
func exampleNow() []gateway.Status {
	all := exampleProviders()
	in := time.Now().Add(time.Hour)
	all[0].Recovery.Next, all[0].Keys[1].CoolUntil = &in, &in
	return all
}

func TestProvidersAreListedAndShown(t *testing.T) {
	t.Parallel()
	p := newGatewayEnv(t, exampleNow()...)
	list := p.mustRun()
	for _, part := range []string{"NAME ", "ATTEMPTS/REQ", "anthropic ", " down ", "probe in 59m", "1.84s", "1.34", "up, held", `x\x1b]0;owned\x07`} {
		clitest.WantIn(t, "providers", list, part)
	}
	if n := strings.Count(list, "\n"); n != 9 {
		t.Errorf("%d lines: %s", n, list)
	}
	if got := p.mustRun("openai"); strings.Count(got, "\n") != 2 || !strings.Contains(got, "openai") {
		t.Errorf("providers openai: %q", got)
	}
	var all struct{ Providers []gateway.Status }
	if err := json.Unmarshal([]byte(p.mustRun("--json")), &all); err != nil || len(all.Providers) != 8 || all.Providers[0].Totals.Requests != 1000 {
		t.Errorf("providers --json: %+v, %v", all, err)
	}
	if err := json.Unmarshal([]byte(p.mustRun("openai", "--json")), &all); err != nil || len(all.Providers) != 1 || all.Providers[0].Name != "openai" {
		t.Errorf("providers openai --json: %+v, %v", all, err)
	}
	shown := p.mustRun("show", "anthropic")
	for _, part := range []string{
		"anthropic  down  anthropic at https://api.anthropic.com", "no requests are sent until the next probe", "7: 4 high, 3 lowest", "team-b", "for 59m", `429\x1b[2J`,
		"402 insufficient_quota", "PREDICTED", "+2.25s", "-6m40s", "at least 3.00s", "1340 for its own requests: ", "1290 here, including those for other providers: ", `rate\u202e of failures`, `429 on all keys\nall is well`, "POST /v1/messages", "input-tokens",
	} {
		clitest.WantIn(t, "show", shown, part)
	}
	var one gateway.Status
	if err := json.Unmarshal([]byte(p.mustRun("show", "anthropic", "--json")), &one); err != nil || len(one.Outages) != 5 || one.Keys[1].Reason != "429\x1b[2J" {
		t.Errorf("show --json: %+v, %v", one, err)
	}
	for _, args := range [][]string{nil, {"show", "anthropic"}, {"--json"}, {"show", "anthropic", "--json"}} {
		if got := p.mustRun(args...); strings.ContainsAny(got, "\x1b\x07\u202e") {
			t.Errorf("providers %q lets something through to the terminal: %q", args, got)
		}
	}
}

func TestProvidersAreToldWhatToDo(t *testing.T) {
	t.Parallel()
	p := newGatewayEnv(t, exampleNow()...)
	for _, c := range []struct{ action, want, state string }{
		{"block", "openai opened: no requests are sent until it is forced or reset\n", gateway.Opened},
		{"force", "openai up: it counts as up even if it fails, until it is reset\n", gateway.Up},
		{"drain", "openai draining: requests in flight are finished; new ones go to a fallback or are rejected\n", gateway.Draining},
		{"reset", "openai up: all requests are sent to it\n", gateway.Up},
	} {
		if got := p.mustRun(c.action, "openai"); got != c.want {
			t.Errorf("%s: %q, want %q", c.action, got, c.want)
		}
		if st, err := admin.NewProviders(p.fleet, nil).Get("openai"); err != nil || st.State != c.state {
			t.Errorf("after %s: %+v, %v", c.action, st, err)
		}
	}
	clitest.WantIn(t, "block --json", p.mustRun("block", "openai", "--json"), `"state":"opened"`)
	for other, name := range map[string]string{"close": "force", "open": "block", "unblock": "reset"} {
		got, want := p.runCommand(other, "openai"), p.mustRun(name, "openai")
		if got.Code != 0 || got.Out != want || got.Stderr != "tideover: use "+name+" instead of "+other+"\n" {
			t.Errorf("%s: %+v, want the output of %s, %q", other, got, name, want)
		}
	}
	cmd, _ := clitest.Command(t, "providers", "reset", "openai", "--server", p.tcp)
	p.Env(cmd).Env = append(cmd.Env, "TIDEOVER_TOKEN="+clitest.TestToken)
	if got := clitest.Finish(t, cmd); got.Code != 0 || got.Out != "openai up: all requests are sent to it\n" {
		t.Errorf("over TCP: %+v", got)
	}
}

func TestProvidersThatCannotBeTold(t *testing.T) {
	t.Parallel()
	p := newGatewayEnv(t, exampleNow()[1:3]...)
	for _, c := range []struct {
		name string
		args []string
		code int
		err  string
	}{
		{"one that does not exist", []string{"show", "missing"}, CodeUnknown, `no such provider: "missing"; known providers: openai, internal`},
		{"one that does not exist, in the list", []string{"missing"}, CodeUnknown, `no such provider: "missing"`},
		{"one that does not exist, to watch", []string{"missing", "--watch"}, CodeUnknown, `no such provider: "missing"`},
		{"one that is hostile", []string{"block", "x\x1b[2J"}, CodeUnknown, `no such provider: "x\x1b[2J"`},
		{"no name", []string{"block"}, CodeOwn, "block: no provider given"},
		{"two names", []string{"drain", "openai", "internal"}, CodeOwn, "want one provider"},
		{"two names to list", []string{"openai", "internal"}, CodeOwn, "want one provider"},
		{"a verb that does not exist", []string{"frob", "openai"}, CodeOwn, `"frob" is not a subcommand: the subcommands are block, drain, force, reset, show`},
		{"a verb without a name", []string{"frob"}, CodeUnknown, `no such provider: "frob"; known providers: openai, internal; the subcommands are block, drain`},
		{"two places", []string{"--server", "unix:/nowhere", "--config", "x.yaml"}, CodeOwn, "--server and --config both name a server"},
		{"a flag that does not exist", []string{"--until", "x"}, CodeOwn, "unknown flag"},
		{"a server that is not there", []string{"--server", "unix:/nowhere"}, CodeOwn, "no gateway at /nowhere: start one with `tideover serve` or `tideover gateway`, or name one with --server"},
		{"over TCP without a token", []string{"--server", p.tcp}, CodeOwn, "set TIDEOVER_TOKEN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := p.runCommand(c.args...)
			clitest.WantCode(t, got, c.code)
			clitest.WantIn(t, "stderr", got.Stderr, c.err)
			if got.Out != "" {
				t.Errorf("stdout %q", got.Out)
			}
		})
	}
}

func TestWithoutProviders(t *testing.T) {
	t.Parallel()
	p := newGatewayEnv(t)
	if got := p.mustRun(); got != "no providers: add one under providers: in the configuration; see docs/gateway.md\n" {
		t.Errorf("providers: %q", got)
	}
	if got := p.mustRun("--json"); got != `{"providers":[],"config":{}}`+"\n" {
		t.Errorf("providers --json: %q", got)
	}
	got := p.runCommand("show", "openai")
	clitest.WantCode(t, got, CodeUnknown)
	clitest.WantIn(t, "stderr", got.Stderr, `no such provider: "openai"; no providers are defined`)

	p.close()
	for _, args := range [][]string{nil, {"--watch"}, {"show", "x"}, {"block", "x"}} {
		got := p.runCommand(args...)
		clitest.WantCode(t, got, CodeOwn)
		if want := "tideover: no gateway at " + p.ServeSocket() + ": start one with `tideover serve` or `tideover gateway`, or name one with --server\n"; got.Stderr != want {
			t.Errorf("%q: stderr %q, want %q", args, got.Stderr, want)
		}
	}
}

// Commands about runs fail on a gateway without an engine, with an error that says so.
func TestAGatewayAloneHasNoRuns(t *testing.T) {
	t.Parallel()
	p := newGatewayEnv(t)
	for _, verb := range []string{"runs", "status", "workflows"} {
		cmd, _ := clitest.Command(t, verb)
		got := clitest.Finish(t, p.Env(cmd))
		clitest.WantCode(t, got, CodeOwn)
		clitest.WantIn(t, "stderr", got.Stderr, "this server has no engine; a gateway has only providers (tideover providers), requests (tideover requests) and audit.jsonl")
	}
}

// If the server is not tideover, the commands say so. They do not print an empty list.
func TestAServerThatIsNotTideover(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"hello":"world"}`) }))
	defer other.Close()
	for _, verb := range []string{"providers", "runs", "status", "workflows", "health"} {
		got := clitest.Run(t, verb, "--server", other.URL)
		if got.Code == 0 || got.Out != "" || !strings.Contains(got.Stderr, other.URL+" answers 200 OK, and does not look like tideover") {
			t.Errorf("%s: %+v", verb, got)
		}
	}
}

func TestProvidersAreWatched(t *testing.T) {
	t.Parallel()
	p := newGatewayEnv(t, exampleNow()[:2]...)
	cmd, mark := clitest.Command(t, "providers", "--watch")
	s := clitest.StartOnTerminal(t, p.Env(cmd), mark)
	s.Expect("probe in 59m")
	s.Expect("\x1b[4F") // moves up over 4 lines: the headings, two providers, and the next probe of one
	p.mustRun("drain", "openai")
	s.Expect("draining")
	p.fleet.change("openai", func(st *gateway.Status) { st.InFlight = 4711 })
	s.Expect("4711")
	s.Write("\x03")
	if code := s.Wait(); code != 130 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
}

func TestProvidersAreWatchedInAPipe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		args         []string
		before, then string
	}{
		{"lines", []string{"--watch"}, "openai up in-flight=12", "openai draining in-flight="},
		{"one", []string{"openai", "--watch"}, "openai up in-flight=12", "openai draining in-flight="},
		{"JSON", []string{"--watch", "--json"}, `"name":"openai"`, `"state":"draining"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newGatewayEnv(t, exampleNow()[:2]...)
			x := &clitest.Background{T: t, Folder: t.TempDir()}
			x.Cmd, x.Mark = clitest.Command(t, append([]string{"providers"}, c.args...)...)
			out, err := os.Create(filepath.Join(x.Folder, "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			p.Env(x.Cmd).Stdout, x.Stderr = out, &x.Errors
			x.Begin()
			printed := func() string { b, _ := os.ReadFile(out.Name()); return string(b) }
			testwait.Until(t, "the first lines", func() bool { return strings.Contains(printed(), c.before) })
			p.fleet.change("openai", func(st *gateway.Status) { st.InFlight++ }) // a change for which no line is printed
			p.mustRun("drain", "openai")
			testwait.Until(t, "the change", func() bool { return strings.Contains(printed(), c.then) })
			if err := x.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if got := x.End(); got.Code != 130 || got.Stderr != "" {
				t.Errorf("after an interrupt: %+v", got)
			}
			if text := printed(); strings.Count(text, "\n") > 3 {
				t.Errorf("printed %s", text)
			}
		})
	}
}

// The gateway stops while providers --watch shows it. The display says so, and the command
// continues.
func TestAWatchedGatewayThatGoesAway(t *testing.T) {
	t.Parallel()
	p := newGatewayEnv(t, exampleNow()[1])
	cmd, mark := clitest.Command(t, "providers", "--watch")
	s := clitest.StartOnTerminal(t, p.Env(cmd), mark)
	s.Expect("openai")
	p.close()
	s.Expect("no gateway at")
	s.Write("\x03")
	if code := s.Wait(); code != 130 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
}

func TestTheNamesOfProvidersAreCompleted(t *testing.T) {
	t.Parallel()
	p := newGatewayEnv(t, exampleNow()[:3]...)
	for line, want := range map[string][]string{
		"": {"anthropic", "internal", "openai", "show", "drain"}, "show ": {"anthropic", "internal", "openai"}, "open o": {"openai"}, "drain openai ": nil, "in": {"internal"},
	} {
		// A server that takes long to answer is left out: try again.
		testwait.Until(t, fmt.Sprintf("%q offers %q", line, want), func() bool {
			cmd, _ := clitest.Command(t, append([]string{"__complete", "providers"}, strings.Split(line, " ")...)...)
			return slices.Equal(clitest.Offered(clitest.Finish(t, p.Env(cmd)), "anthropic", "internal", "openai", "show", "drain"), want)
		})
	}
	p.close()
	cmd, _ := clitest.Command(t, "__complete", "providers", "show", "")
	if got := clitest.Finish(t, p.Env(cmd)); got.Code != 0 || strings.Contains(got.Out, "openai") {
		t.Errorf("without a server: %+v", got)
	}
}

func TestTheHelpOnProviders(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, args := range [][]string{{}, {"show"}, {"block"}, {"force"}, {"reset"}, {"drain"}} {
		got := clitest.Run(t, append(append([]string{"providers"}, args...), "--help")...)
		clitest.WantCode(t, got, 0)
		fmt.Fprintf(&all, "$ tideover %s\n%s\n", strings.Join(append(append([]string{"providers"}, args...), "--help"), " "), got.Out)
	}
	golden(t, "providers-help.txt", all.String())
}
