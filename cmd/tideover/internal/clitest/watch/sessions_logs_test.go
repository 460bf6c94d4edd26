//go:build unix

package watch_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// Other processes show the output of a watched session: sessions show, sessions logs -f, and the
// web page of a server, which can also stop the session. After the end of the watch, sessions logs
// still prints it.
func TestTheOutputOfAWatchIsSeenFromElsewhere(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `echo "working $((40+2))"; echo 'a limit' >&2; while ! test -e go; do sleep 0.01; done; printf '\033[1mat\tlast\033[0m\n'; sleep 600`)
	s := clitest.Serve(t, "version: 1\n", w.dir)
	cmd, _ := w.until("working 42", "--data", s.Data, "--name", "night")
	socket := "unix:" + filepath.Join(s.Data, "watch", "night", "control.sock")
	testwait.Until(t, "the output is shown", func() bool {
		return strings.Contains(clitest.InProcess(t, "sessions", "show", "night", "--server", socket).Out, "  a limit\n")
	})
	follower, _ := clitest.Command(t, "sessions", "logs", "--follow", "night", "--server", socket)
	followed := new(clitest.SyncBuffer)
	follower.Stdout = followed
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "logs prints the output", func() bool { return strings.Contains(followed.String(), "working 42\n") })
	if err := os.WriteFile(filepath.Join(w.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "logs goes on", func() bool { return strings.Contains(followed.String(), "at\tlast\n") })

	if page := browse(s, http.MethodGet, "/sessions"); !strings.Contains(page, ">night<") || !strings.Contains(page, "watch") {
		t.Errorf("the session is not on the page:\n%s", page)
	}
	if page := browse(s, http.MethodGet, "/sessions/night"); !strings.Contains(page, "at\tlast") || !strings.Contains(page, "tideover watch") {
		t.Errorf("the page of the session:\n%s", page)
	}
	browse(s, http.MethodPost, "/sessions/night/stop")
	_ = cmd.Wait()
	if code := clitest.ExitCode(cmd); code != 143 {
		t.Errorf("a watch that was stopped exits with %d", code)
	}
	if err := follower.Wait(); err != nil && !strings.Contains(followed.String(), "at\tlast\n") {
		t.Errorf("logs: %v", err)
	}
	show, _ := clitest.Command(t, "sessions", "logs", "night", "-n", "1")
	show.Dir = w.dir // the folder of the configuration
	show.Env = append(show.Env, "XDG_STATE_HOME="+w.dir)
	clitest.WriteFile(t, s.File, "version: 1\nserver: {data: data}\n")
	if got := clitest.Finish(t, show); got.Code != 0 || got.Out != "at\tlast\n" {
		t.Errorf("logs of a session that is not watched: %+v", got)
	}
}

// browse requests a page as a logged-in user.
func browse(s *clitest.Server, method, path string) string {
	s.T.Helper()
	req, err := http.NewRequestWithContext(testwait.Context(s.T), method, s.Address()+path, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Token())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusBadRequest {
		s.T.Fatalf("%s %s: %s, %v: %s", method, path, resp.Status, err, text)
	}
	return string(text)
}

// Sessions that ended more than a day ago are listed only with --all.
func TestOldSessionsAreListedOnDemand(t *testing.T) {
	t.Parallel()
	h := clitest.NewSessionsEnv(t)
	ended := func(name string, ago time.Duration) {
		writeWatchFolder(h, name, `{"command":["true"]}`, event("succeeded", "session."+name, time.Now().Add(-ago), ""))
	}
	ended("old", 25*time.Hour)
	ended("recent", time.Hour)
	text := mustRun(h, "ls")
	clitest.WantIn(t, "ls", text, "recent")
	clitest.WantIn(t, "ls", text, "1 session ended more than a day ago; --all lists it too")
	if strings.Contains(text, "old ") || strings.Contains(mustRun(h, "ls", "--json"), `"old"`) {
		t.Errorf("a session that ended 25 hours ago is listed:\n%s", text)
	}
	clitest.WantIn(t, "ls --all", mustRun(h, "ls", "--all"), "old ")
}

// A notifier that is down does not block the terminal of a session that gave up: the message is
// stored.
func TestANotifierThatIsDownDoesNotHoldAWatch(t *testing.T) {
	t.Parallel()
	server := newWebhook(t)
	address := server.URL
	server.Close()
	w := newWatchEnv(t, "exit 7", "exit 7", "exit 7")
	w.write("tideover.yaml", "version: 1\nnotify: {hook: {webhook: \""+address+"\", policy: fixed(1h) attempts=unlimited, on: [gave-up]}}\n")
	got := clitest.Finish(t, w.command("--config", filepath.Join(w.dir, "tideover.yaml"), "--notify", "hook"))
	clitest.WantCode(t, got, 7)
	clitest.WantIn(t, "stderr", got.Stderr, "a notification is not sent yet (sending failed and is not retried soon); it is stored")
}
