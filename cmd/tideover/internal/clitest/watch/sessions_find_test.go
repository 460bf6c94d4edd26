//go:build unix

package watch_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
)

// leaveDeadSocket creates a socket on which no process listens any more.
func leaveDeadSocket(h *clitest.SessionsEnv, path string) {
	h.T.Helper()
	l := bind(h, path)
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		h.T.Fatal(err)
	}
}

// bindSilentSocket creates a socket that accepts connections and never answers.
func bindSilentSocket(h *clitest.SessionsEnv, path string) {
	h.T.Helper()
	l := bind(h, path)
	h.T.Cleanup(func() { _ = l.Close() })
}

func bind(h *clitest.SessionsEnv, path string) *net.UnixListener {
	h.T.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.T.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		h.T.Fatal(err)
	}
	return l
}

func TestSessionsAreFoundWhereverTheyAre(t *testing.T) {
	t.Parallel()
	h := clitest.NewSessionsEnv(t)
	serve := serveSessions(h, h.ServeSocket(), map[string]string{"night": limited, "twice": limited})
	one := serveSessions(h, watchSocket(h, "one"), map[string]string{"noon": limited})
	two := serveSessions(h, watchSocket(h, "two"), map[string]string{"twice": limited})
	leaveDeadSocket(h, watchSocket(h, "left"))
	if err := os.MkdirAll(filepath.Join(h.State, "tideover", "watch", "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.State, "tideover", "watch", "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for k, name := range map[*sessionServer]string{serve: "night", one: "noon", two: "twice"} {
		k.until(name, "waiting")
	}
	serve.until("twice", "waiting")

	lines := strings.Split(mustRun(h, "ls"), "\n")
	if len(lines) != 5 {
		t.Fatalf("ls:\n%s", strings.Join(lines, "\n"))
	}
	for i, want := range [][2]string{{"night", " serve "}, {"noon", " watch "}, {"twice", " serve "}, {"twice", " watch "}} {
		if line := lines[i+1]; !strings.HasPrefix(line, want[0]) || !strings.Contains(line, want[1]) {
			t.Errorf("line %d is %q, want %q", i+1, line, want)
		}
	}
	clitest.WantIn(t, "one of a watch", mustRun(h, "pause", "noon"), "noon paused")
	one.until("noon", "paused")
	clitest.WantIn(t, "one of the server", mustRun(h, "pause", "night"), "night paused")

	got := runCommand(h, "pause", "twice")
	clitest.WantCode(t, got, cli.CodeUnknown)
	for _, part := range []string{`"twice" matches 2 sessions`, "\n  serve at " + h.ServeSocket(), "\n  watch at " + watchSocket(h, "two"), "--server"} {
		clitest.WantIn(t, "an ambiguous name", got.Stderr, part)
	}
	clitest.WantIn(t, "the one that is meant", mustRun(h, "pause", "twice", "--server", "unix:"+watchSocket(h, "two")), "twice paused")
	two.until("twice", "paused")
	serve.until("twice", "waiting")
	if text := mustRun(h, "ls", "--server", "unix:"+watchSocket(h, "one")); !strings.Contains(text, "watch") || strings.Contains(text, "night") {
		t.Errorf("ls of one watch:\n%s", text)
	}
}

func TestAWatchNeedsNoServer(t *testing.T) {
	t.Parallel()
	h := clitest.NewSessionsEnv(t)
	got := runCommand(h, "ls")
	clitest.WantCode(t, got, 0)
	clitest.WantIn(t, "no host", got.Out, "no sessions")

	serveSessions(h, watchSocket(h, "w"), map[string]string{"noon": limited}).until("noon", "waiting")
	clitest.WantIn(t, "ls", mustRun(h, "ls"), "noon  waiting")
	clitest.WantIn(t, "show", mustRun(h, "show", "noon"), "watch at "+watchSocket(h, "w"))
	clitest.WantIn(t, "stop", mustRun(h, "stop", "noon"), "noon stopped")
}

func TestAWatchThatHangsIsNamed(t *testing.T) {
	t.Parallel()
	h := clitest.NewSessionsEnv(t)
	bindSilentSocket(h, watchSocket(h, "hangs"))
	leaveDeadSocket(h, watchSocket(h, "left"))
	serveSessions(h, watchSocket(h, "well"), map[string]string{"noon": limited}).until("noon", "waiting")
	warning := "watch at " + watchSocket(h, "hangs") + ": no answer for 10s"
	var all sync.WaitGroup // run the commands at once: each of them waits for the watch that hangs
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"show", "noon"}, {"pause", "noon"}} {
		all.Go(func() {
			got := runCommand(h, append(args, "--timeout", "10s")...)
			clitest.WantCode(t, got, 0)
			clitest.WantIn(t, "stdout", got.Out, "noon")
			want := "tideover: " + warning + "\n"
			if slices.Contains(args, "--json") {
				want = `{"warning":{"message":"` + warning + "\"}}\n"
			}
			if got.Stderr != want {
				t.Errorf("%q: stderr %q, want %q", args, got.Stderr, want)
			}
		})
	}
	all.Wait()
}

func TestWatchesAreWhereTheConfigurationSays(t *testing.T) {
	t.Parallel()
	h := clitest.NewSessionsEnv(t)
	data := filepath.Join(h.State, "elsewhere")
	serveSessions(h, filepath.Join(data, "watch", "w", "control.sock"), map[string]string{"noon": limited}).until("noon", "waiting")
	serveSessions(h, watchSocket(h, "w"), map[string]string{"night": limited}).until("night", "waiting")
	if err := os.WriteFile(filepath.Join(h.State, "tideover.yaml"), []byte("version: 1\nserver: {data: "+data+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := mustRun(h, "ls")
	clitest.WantIn(t, "by the file", text, "noon")
	clitest.WantIn(t, "by default", text, "night")
	if err := os.WriteFile(filepath.Join(h.State, "tideover.yaml"), []byte("nonsense: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	got := runCommand(h, "ls")
	clitest.WantCode(t, got, 0)
	clitest.WantIn(t, "with a file that is wrong", got.Out, "night")
	clitest.WantIn(t, "with a file that is wrong", got.Stderr, "tideover: tideover.yaml:1:")
	clitest.WantIn(t, "with a file that is wrong", got.Stderr, "the address of the server is unknown: name it with --server\n")
	if got := mustRun(h, "ls", "--server", "unix:"+watchSocket(h, "w")); !strings.Contains(got, "night") {
		t.Errorf("ls of a server that is named: %s", got)
	}
}

// The configuration refers to secrets that only the server can read. Commands still find the server
// with it.
func TestSecretsOfTheServerAreNotNeeded(t *testing.T) {
	t.Parallel()
	h := clitest.NewSessionsEnv(t)
	data := filepath.Join(h.State, "elsewhere")
	serveSessions(h, filepath.Join(data, "tideover.sock"), map[string]string{"noon": limited}).until("noon", "waiting")
	text := "version: 1\nserver: {data: " + data + ", token: '${env:NOT_HERE}'}\nnotify: {ops: {slack: '${env:NOT_HERE}'}}\nfuture: 1\n"
	if err := os.WriteFile(filepath.Join(h.State, "tideover.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	clitest.WantIn(t, "sessions ls", mustRun(h, "ls"), "noon")
	cmd, _ := clitest.Command(t, "runs")
	got := clitest.Finish(t, h.Env(cmd))
	clitest.WantCode(t, got, 0)
}

// There is no configuration file, and a variable sets the data folder of the server. Commands find
// the server there.
func TestVariablesOfTheServerSayWhereItIs(t *testing.T) {
	t.Parallel()
	h := clitest.NewSessionsEnv(t)
	data := filepath.Join(h.State, "elsewhere")
	serveSessions(h, filepath.Join(data, "tideover.sock"), map[string]string{"noon": limited}).until("noon", "waiting")
	cmd, _ := clitest.Command(t, "sessions", "ls")
	h.Env(cmd).Env = append(cmd.Env, "TIDEOVER_SERVER_DATA="+data, "TIDEOVER_SERVER_LISTEN=nonsense")
	got := clitest.Finish(t, cmd)
	clitest.WantCode(t, got, 0)
	clitest.WantIn(t, "ls", got.Out, "noon")
}

func TestAFileThatCantBeReadIsNamed(t *testing.T) {
	t.Parallel()
	h := clitest.NewSessionsEnv(t)
	if err := os.WriteFile(filepath.Join(h.State, "tideover.yaml"), []byte("version: 1\nserver: {data: [}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, _ := clitest.Command(t, "runs")
	got := clitest.Finish(t, h.Env(cmd))
	clitest.WantCode(t, got, cli.CodeOwn)
	clitest.WantIn(t, "runs", got.Stderr, "tideover: tideover.yaml:2:")
	if strings.Contains(got.Stderr, "no tideover serve") {
		t.Errorf("stderr %q", got.Stderr)
	}
}
