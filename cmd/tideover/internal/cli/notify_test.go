//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
)

func hookFile(t *testing.T, url, policy string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tideover.yaml")
	write(t, path, "version: 1\nnotify:\n  hook: {webhook: \""+url+"/${env:SECRET_PATH}\", policy: "+policy+"}\n")
	return path
}

func TestNotifyTest(t *testing.T) {
	t.Parallel()
	server := newWebhook(t, 200, 500, 503, 503)
	file := hookFile(t, server.URL, "fixed(1ms) attempts=5")
	for _, tt := range []struct {
		name  string
		args  []string
		code  int
		texts []string
		tries int // number of requests that the server has got so far
	}{
		{"sent", []string{"hook"}, 0, []string{"sent by hook (webhook)"}, 1},
		{"refused", []string{"hook"}, 1, []string{`notify "hook"`, "500"}, 2},
		{"refused, as JSON", []string{"hook", "--json"}, 1, []string{`"sent":false`, `"attempts":1`}, 3},
		{"tried again", []string{"hook", "--retry", "--json"}, 0, []string{`"sent":true`, `"attempts":2`}, 5},
		{"unknown", []string{"fone"}, 125, []string{`unknown notifier "fone"`, "defines hook"}, 5},
	} {
		cmd, _ := command(t, append([]string{"notify", "test", "--config", file}, tt.args...)...)
		cmd.Env = append(cmd.Env, "SECRET_PATH=planted-secret")
		got := finish(t, cmd)
		wantCode(t, got, tt.code)
		for _, text := range tt.texts {
			wantIn(t, tt.name, got.out+got.stderr, text)
		}
		if strings.Contains(got.out+got.stderr, "planted-secret") {
			t.Errorf("%s: a secret is printed: %q", tt.name, got.out+got.stderr)
		}
		if n := len(server.all()); n != tt.tries {
			t.Errorf("%s: the server was asked %d times, want %d", tt.name, n, tt.tries)
		}
	}
}

func TestExecNotify(t *testing.T) {
	t.Parallel()
	server := newWebhook(t, 503, 503)
	file := hookFile(t, server.URL, "fixed(10ms) attempts=5")
	run := func(args ...string) outcome {
		cmd, _ := command(t, append([]string{"exec", "--policy", quick, "--attempts", "2", "--config", file}, args...)...)
		cmd.Env = append(cmd.Env, "SECRET_PATH=planted-secret")
		return finish(t, cmd)
	}
	wantCode(t, run("--notify", "hook", "--name", "backup", "--", "sh", "-c", "exit 7"), 7)
	bodies := server.all()
	if len(bodies) != 3 {
		t.Fatalf("the server was asked %d times: %q", len(bodies), bodies)
	}
	wantIn(t, "message", bodies[2], `"title":"backup gave up"`)
	wantIn(t, "message", bodies[2], `2 attempts`)
	wantCode(t, run("--notify", "hook", "--", "true"), 0)
	if n := len(server.all()); n != 3 {
		t.Errorf("a message about a success: %q", server.all()[3:])
	}
	got := run("--notify", "fone", "--", "touch", filepath.Join(t.TempDir(), "ran"))
	wantCode(t, got, 125)
	wantIn(t, "stderr", got.stderr, `--notify: unknown notifier "fone": `)
	wantIn(t, "stderr", got.stderr, " defines hook")
	got = tideover(t, "exec", "--notify", "hook", "--", "true")
	wantCode(t, got, 125)
	wantIn(t, "stderr", got.stderr, `--notify: unknown notifier "hook": no configuration was found: name a file with --config`)

	server.Close() // messages fail from now on
	got = run("--notify", "hook", "--", "sh", "-c", "exit 7")
	wantCode(t, got, 7)
	wantIn(t, "stderr", got.stderr, "notification not sent")
	if strings.Contains(got.stderr, "planted-secret") {
		t.Errorf("a secret is printed: %q", got.stderr)
	}
}

// A server is killed between giving up and sending the message. The next server sends it, once.
func TestServeIsKilledBetweenGivingUpAndTelling(t *testing.T) {
	t.Parallel()
	server := newWebhook(t)
	addr := server.Listener.Addr().String()
	server.Close() // messages fail for now
	file := `version: 1
notify: {hook: {webhook: "http://` + addr + `", policy: fixed(50ms) attempts=unlimited}}
sessions:
  night: {start: [sh, -c, "echo oops; exit 7"], policy: fixed(10ms) attempts=3, notify: [hook]}
workflows:
  bad:
    steps: [{id: a, run: ["false"], policy: fixed(10ms) attempts=2}]
    on-give-up: {notify: [hook]}
`
	s := serveFile(t, file, "")
	id := strings.TrimSpace(s.runCommand("run", "bad").out)
	testwait.Until(t, "the end", func() bool {
		return strings.Contains(s.runCommand("sessions", "ls", "--json").out, `"gave-up"`) && strings.Contains(s.runCommand("show", id, "--json").out, `"dead"`)
	})
	_ = s.Process.Kill()
	_ = s.Wait()

	l := listenAgain(t, addr)
	var mu sync.Mutex
	told := map[string]int{}
	late := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m struct{ Event, Subject string }
		text, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(text, &m)
		mu.Lock()
		defer mu.Unlock()
		told[m.Event+" "+m.Subject]++
	})}
	go func() { _ = late.Serve(l) }()
	defer late.Close()
	s = serveFile(t, file, s.dir)
	testwait.Until(t, "two messages", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(told) == 2
	})
	mu.Lock()
	defer mu.Unlock()
	if got := fmt.Sprint(told); got != "map[gave-up bad:1 gave-up night:1]" {
		t.Errorf("told %s", got)
	}
	info, err := os.Stat(filepath.Join(s.data, "audit.jsonl"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the audit log: %v, %v", info, err)
	}
}

func TestServeTakesOverSessionsOfAnotherFile(t *testing.T) {
	t.Parallel()
	s := serveFile(t, "version: 1\n", "")
	wantIn(t, "sessions", s.runCommand("sessions", "ls", "--json").out, `[]`)
	write(t, s.file, `version: 1
sessions:
  night: {start: [sh, -c, "echo retry after 3600s; exit 1"]}
`)
	testwait.Until(t, "the session waits", func() bool { return strings.Contains(s.runCommand("sessions", "ls", "--json").out, `"waiting"`) })
	wantIn(t, "log", s.runCommand("sessions", "show", "night").out, "retry after 3600s")
	wantCode(t, s.runCommand("sessions", "pause", "night"), 0)
	wantIn(t, "sessions", s.runCommand("sessions", "ls").out, "paused")
	wantCode(t, s.runCommand("sessions", "resume", "night"), 0)
	wantCode(t, s.runCommand("sessions", "retry-now", "night"), 0)
	testwait.Until(t, "another window", func() bool {
		return strings.Contains(s.runCommand("sessions", "show", "night", "--json").out, `"windows":2`)
	})
	// A session that is removed from the file continues, and can be shown and stopped, also after a
	// restart.
	write(t, s.file, "version: 1\n")
	s.signal(syscall.SIGTERM)
	s.wait()
	s = serveFile(t, "version: 1\n", s.dir)
	wantIn(t, "sessions", s.runCommand("sessions", "ls").out, "2/10")
	wantCode(t, s.runCommand("sessions", "stop", "night"), 0)
	wantIn(t, "sessions", s.runCommand("sessions", "ls").out, "stopped")
}

// The link in a message has the address at which the server actually listens.
func TestMessagesLinkToThePage(t *testing.T) {
	t.Parallel()
	server := newWebhook(t)
	s := serveFile(t, `version: 1
notify: {hook: {webhook: "`+server.URL+`"}}
workflows: {bad: {steps: [{id: a, run: ["false"], policy: fixed(10ms) attempts=1}], on-give-up: {notify: [hook]}}}
`, "")
	id := strings.TrimSpace(s.runCommand("run", "bad").out)
	testwait.Until(t, "the message", func() bool { return len(server.all()) > 0 })
	address, _, _ := strings.Cut(s.page(), "?")
	wantIn(t, "message", server.all()[0], `"url":"`+address+"runs/"+id+`"`)
}
