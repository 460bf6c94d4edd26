//go:build unix

package cli

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// leaveDeadSocket creates a socket on which no process listens any more.
func (h *sessionsEnv) leaveDeadSocket(path string) {
	h.t.Helper()
	l := h.bind(path)
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		h.t.Fatal(err)
	}
}

// bindSilentSocket creates a socket that accepts connections and never answers.
func (h *sessionsEnv) bindSilentSocket(path string) {
	h.t.Helper()
	l := h.bind(path)
	h.t.Cleanup(func() { _ = l.Close() })
}

func (h *sessionsEnv) bind(path string) *net.UnixListener {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		h.t.Fatal(err)
	}
	return l
}

func TestSessionsAreFoundWhereverTheyAre(t *testing.T) {
	t.Parallel()
	h := newSessionsEnv(t)
	serve := h.serveSessions(h.serveSocket(), map[string]string{"night": limited, "twice": limited})
	one := h.serveSessions(h.watchSocket("one"), map[string]string{"noon": limited})
	two := h.serveSessions(h.watchSocket("two"), map[string]string{"twice": limited})
	h.leaveDeadSocket(h.watchSocket("left"))
	if err := os.MkdirAll(filepath.Join(h.state, "tideover", "watch", "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.state, "tideover", "watch", "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for k, name := range map[*sessionServer]string{serve: "night", one: "noon", two: "twice"} {
		k.until(name, "waiting")
	}
	serve.until("twice", "waiting")

	lines := strings.Split(h.mustRun("ls"), "\n")
	if len(lines) != 5 {
		t.Fatalf("ls:\n%s", strings.Join(lines, "\n"))
	}
	for i, want := range [][2]string{{"night", " serve "}, {"noon", " watch "}, {"twice", " serve "}, {"twice", " watch "}} {
		if line := lines[i+1]; !strings.HasPrefix(line, want[0]) || !strings.Contains(line, want[1]) {
			t.Errorf("line %d is %q, want %q", i+1, line, want)
		}
	}
	wantIn(t, "one of a watch", h.mustRun("pause", "noon"), "noon paused")
	one.until("noon", "paused")
	wantIn(t, "one of the server", h.mustRun("pause", "night"), "night paused")

	got := h.runCommand("pause", "twice")
	wantCode(t, got, codeNoRun)
	for _, part := range []string{`"twice" matches 2 sessions`, "\n  serve at " + h.serveSocket(), "\n  watch at " + h.watchSocket("two"), "--server"} {
		wantIn(t, "an ambiguous name", got.stderr, part)
	}
	wantIn(t, "the one that is meant", h.mustRun("pause", "twice", "--server", "unix:"+h.watchSocket("two")), "twice paused")
	two.until("twice", "paused")
	serve.until("twice", "waiting")
	if text := h.mustRun("ls", "--server", "unix:"+h.watchSocket("one")); !strings.Contains(text, "watch") || strings.Contains(text, "night") {
		t.Errorf("ls of one watch:\n%s", text)
	}
}

func TestAWatchNeedsNoServer(t *testing.T) {
	t.Parallel()
	h := newSessionsEnv(t)
	got := h.runCommand("ls")
	wantCode(t, got, 0)
	wantIn(t, "no host", got.out, "no sessions")

	h.serveSessions(h.watchSocket("w"), map[string]string{"noon": limited}).until("noon", "waiting")
	wantIn(t, "ls", h.mustRun("ls"), "noon  waiting")
	wantIn(t, "show", h.mustRun("show", "noon"), "watch at "+h.watchSocket("w"))
	wantIn(t, "stop", h.mustRun("stop", "noon"), "noon stopped")
}

func TestAWatchThatHangsIsNamed(t *testing.T) {
	t.Parallel()
	h := newSessionsEnv(t)
	h.bindSilentSocket(h.watchSocket("hangs"))
	h.leaveDeadSocket(h.watchSocket("left"))
	h.serveSessions(h.watchSocket("well"), map[string]string{"noon": limited}).until("noon", "waiting")
	warning := "watch at " + h.watchSocket("hangs") + ": no answer for 10s"
	var all sync.WaitGroup // run the commands at once: each of them waits for the watch that hangs
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"show", "noon"}, {"pause", "noon"}} {
		all.Go(func() {
			got := h.runCommand(append(args, "--timeout", "10s")...)
			wantCode(t, got, 0)
			wantIn(t, "stdout", got.out, "noon")
			want := "tideover: " + warning + "\n"
			if slices.Contains(args, "--json") {
				want = `{"warning":{"message":"` + warning + "\"}}\n"
			}
			if got.stderr != want {
				t.Errorf("%q: stderr %q, want %q", args, got.stderr, want)
			}
		})
	}
	all.Wait()
}

func TestWatchesAreWhereTheConfigurationSays(t *testing.T) {
	t.Parallel()
	h := newSessionsEnv(t)
	data := filepath.Join(h.state, "elsewhere")
	h.serveSessions(filepath.Join(data, "watch", "w", "control.sock"), map[string]string{"noon": limited}).until("noon", "waiting")
	h.serveSessions(h.watchSocket("w"), map[string]string{"night": limited}).until("night", "waiting")
	if err := os.WriteFile(filepath.Join(h.state, "tideover.yaml"), []byte("version: 1\nserver: {data: "+data+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := h.mustRun("ls")
	wantIn(t, "by the file", text, "noon")
	wantIn(t, "by default", text, "night")
	if err := os.WriteFile(filepath.Join(h.state, "tideover.yaml"), []byte("nonsense: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	got := h.runCommand("ls")
	wantCode(t, got, 0)
	wantIn(t, "with a file that is wrong", got.out, "night")
	wantIn(t, "with a file that is wrong", got.stderr, "tideover: tideover.yaml:1:")
	wantIn(t, "with a file that is wrong", got.stderr, "the address of the server is unknown: name it with --server\n")
	if got := h.mustRun("ls", "--server", "unix:"+h.watchSocket("w")); !strings.Contains(got, "night") {
		t.Errorf("ls of a server that is named: %s", got)
	}
}

// The configuration refers to secrets that only the server can read. Commands still find the server
// with it.
func TestSecretsOfTheServerAreNotNeeded(t *testing.T) {
	t.Parallel()
	h := newSessionsEnv(t)
	data := filepath.Join(h.state, "elsewhere")
	h.serveSessions(filepath.Join(data, "tideover.sock"), map[string]string{"noon": limited}).until("noon", "waiting")
	text := "version: 1\nserver: {data: " + data + ", token: '${env:NOT_HERE}'}\nnotify: {ops: {slack: '${env:NOT_HERE}'}}\nfuture: 1\n"
	if err := os.WriteFile(filepath.Join(h.state, "tideover.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	wantIn(t, "sessions ls", h.mustRun("ls"), "noon")
	cmd, _ := command(t, "runs")
	got := finish(t, h.env(cmd))
	wantCode(t, got, 0)
}

// There is no configuration file, and a variable sets the data folder of the server. Commands find
// the server there.
func TestVariablesOfTheServerSayWhereItIs(t *testing.T) {
	t.Parallel()
	h := newSessionsEnv(t)
	data := filepath.Join(h.state, "elsewhere")
	h.serveSessions(filepath.Join(data, "tideover.sock"), map[string]string{"noon": limited}).until("noon", "waiting")
	cmd, _ := command(t, "sessions", "ls")
	h.env(cmd).Env = append(cmd.Env, "TIDEOVER_SERVER_DATA="+data, "TIDEOVER_SERVER_LISTEN=nonsense")
	got := finish(t, cmd)
	wantCode(t, got, 0)
	wantIn(t, "ls", got.out, "noon")
}

func TestAFileThatCantBeReadIsNamed(t *testing.T) {
	t.Parallel()
	h := newSessionsEnv(t)
	if err := os.WriteFile(filepath.Join(h.state, "tideover.yaml"), []byte("version: 1\nserver: {data: [}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, _ := command(t, "runs")
	got := finish(t, h.env(cmd))
	wantCode(t, got, codeOwn)
	wantIn(t, "runs", got.stderr, "tideover: tideover.yaml:2:")
	if strings.Contains(got.stderr, "no tideover serve") {
		t.Errorf("stderr %q", got.stderr)
	}
}
