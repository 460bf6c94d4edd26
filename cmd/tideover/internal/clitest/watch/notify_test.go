//go:build unix

package watch_test

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

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func hookFile(t *testing.T, url, policy string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tideover.yaml")
	clitest.WriteFile(t, path, "version: 1\nnotify:\n  hook: {webhook: \""+url+"/${env:SECRET_PATH}\", policy: "+policy+"}\n")
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
		{"unknown", []string{"fone"}, 3, []string{`unknown notifier "fone"`, "defines hook"}, 5},
	} {
		cmd, _ := clitest.Command(t, append([]string{"notify", "test", "--config", file}, tt.args...)...)
		cmd.Env = append(cmd.Env, "SECRET_PATH=planted-secret")
		got := clitest.Finish(t, cmd)
		clitest.WantCode(t, got, tt.code)
		for _, text := range tt.texts {
			clitest.WantIn(t, tt.name, got.Out+got.Stderr, text)
		}
		if strings.Contains(got.Out+got.Stderr, "planted-secret") {
			t.Errorf("%s: a secret is printed: %q", tt.name, got.Out+got.Stderr)
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
	run := func(args ...string) clitest.Outcome {
		cmd, _ := clitest.Command(t, append([]string{"exec", "--policy", clitest.Quick, "--attempts", "2", "--config", file}, args...)...)
		cmd.Env = append(cmd.Env, "SECRET_PATH=planted-secret")
		return clitest.Finish(t, cmd)
	}
	clitest.WantCode(t, run("--notify", "hook", "--name", "backup", "--", "sh", "-c", "exit 7"), 7)
	bodies := server.all()
	if len(bodies) != 3 {
		t.Fatalf("the server was asked %d times: %q", len(bodies), bodies)
	}
	clitest.WantIn(t, "message", bodies[2], `"title":"backup gave up"`)
	clitest.WantIn(t, "message", bodies[2], `2 attempts`)
	clitest.WantCode(t, run("--notify", "hook", "--", "true"), 0)
	if n := len(server.all()); n != 3 {
		t.Errorf("a message about a success: %q", server.all()[3:])
	}
	clitest.WantCode(t, run("--notify", "hook", "--retry-stderr", "route", "--", "sh", "-c", "echo no route of planted-secret >&2; exit 7"), 7)
	clitest.WantIn(t, "message", server.all()[3], "last: exited with 7: no route of ***")
	got := run("--notify", "fone", "--", "touch", filepath.Join(t.TempDir(), "ran"))
	clitest.WantCode(t, got, 125)
	clitest.WantIn(t, "stderr", got.Stderr, `--notify: unknown notifier "fone": `)
	clitest.WantIn(t, "stderr", got.Stderr, " defines hook")
	got = clitest.Run(t, "exec", "--notify", "hook", "--", "true")
	clitest.WantCode(t, got, 125)
	clitest.WantIn(t, "stderr", got.Stderr, `--notify: unknown notifier "hook": no configuration was found: name a file with --config`)

	server.Close() // messages fail from now on
	got = run("--notify", "hook", "--", "sh", "-c", "exit 7")
	clitest.WantCode(t, got, 7)
	clitest.WantIn(t, "stderr", got.Stderr, "notification not sent")
	if strings.Contains(got.Stderr, "planted-secret") {
		t.Errorf("a secret is printed: %q", got.Stderr)
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
	s := clitest.Serve(t, file, "")
	id := strings.TrimSpace(s.RunCommand("run", "bad").Out)
	testwait.Until(t, "the end", func() bool {
		return strings.Contains(s.RunCommand("sessions", "ls", "--json").Out, `"gave-up"`) && strings.Contains(s.RunCommand("show", id, "--json").Out, `"dead"`)
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
	s = clitest.Serve(t, file, s.Folder)
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
	info, err := os.Stat(filepath.Join(s.Data, "audit.jsonl"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the audit log: %v, %v", info, err)
	}
}

func TestServeTakesOverSessionsOfAnotherFile(t *testing.T) {
	t.Parallel()
	s := clitest.Serve(t, "version: 1\n", "")
	clitest.WantIn(t, "sessions", s.RunCommand("sessions", "ls", "--json").Out, `[]`)
	clitest.WriteFile(t, s.File, `version: 1
sessions:
  night: {start: [sh, -c, "echo retry after 3600s; exit 1"]}
`)
	testwait.Until(t, "the session waits", func() bool { return strings.Contains(s.RunCommand("sessions", "ls", "--json").Out, `"waiting"`) })
	clitest.WantIn(t, "log", s.RunCommand("sessions", "show", "night").Out, "retry after 3600s")
	clitest.WantCode(t, s.RunCommand("sessions", "pause", "night"), 0)
	clitest.WantIn(t, "sessions", s.RunCommand("sessions", "ls").Out, "paused")
	clitest.WantCode(t, s.RunCommand("sessions", "resume", "night"), 0)
	clitest.WantCode(t, s.RunCommand("sessions", "retry-now", "night"), 0)
	testwait.Until(t, "another window", func() bool {
		return strings.Contains(s.RunCommand("sessions", "show", "night", "--json").Out, `"windows":2`)
	})
	// A session that is removed from the file continues, and can be shown and stopped, also after a
	// restart.
	clitest.WriteFile(t, s.File, "version: 1\n")
	s.Signal(syscall.SIGTERM)
	s.End()
	s = clitest.Serve(t, "version: 1\n", s.Folder)
	clitest.WantIn(t, "sessions", s.RunCommand("sessions", "ls").Out, "2/10")
	clitest.WantCode(t, s.RunCommand("sessions", "stop", "night"), 0)
	clitest.WantIn(t, "sessions", s.RunCommand("sessions", "ls").Out, "stopped")
}

// The link in a message has the address at which the server actually listens.
func TestMessagesLinkToThePage(t *testing.T) {
	t.Parallel()
	server := newWebhook(t)
	s := clitest.Serve(t, `version: 1
notify: {hook: {webhook: "`+server.URL+`"}}
workflows: {bad: {steps: [{id: a, run: ["false"], policy: fixed(10ms) attempts=1}], on-give-up: {notify: [hook]}}}
`, "")
	id := strings.TrimSpace(s.RunCommand("run", "bad").Out)
	testwait.Until(t, "the message", func() bool { return len(server.all()) > 0 })
	address, _, _ := strings.Cut(s.PageURL(), "?")
	clitest.WantIn(t, "message", server.all()[0], `"url":"`+address+"runs/"+id+`"`)
}
