//go:build unix

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// writeWatchFolder creates the folder of a watch that is not running, with this about file and
// these lines of the audit log. It returns the path.
func (h *sessionsEnv) writeWatchFolder(name, about string, trail ...string) string {
	h.t.Helper()
	folder := filepath.Join(h.state, "tideover", "watch", name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		h.t.Fatal(err)
	}
	for file, text := range map[string]string{session.AboutFile: about, trailFile: strings.Join(trail, "\n")} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text+"\n"), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	return folder
}

// event returns a line of an audit log. more has further JSON fields.
func event(kind, name string, at time.Time, more string) string {
	return `{"kind":"` + kind + `","time":"` + at.Format(time.RFC3339Nano) + `","name":"` + name + `"` + more + `}`
}

func TestASessionThatNobodyWatchesIsListed(t *testing.T) {
	t.Parallel()
	h := newSessionsEnv(t)
	now := time.Now()
	until := `,"delay_by":"server","error":"limit reached","until":"` + now.Add(time.Hour).Format(time.RFC3339Nano) + `"`
	h.writeWatchFolder("night", `{"command":["claude","-p","it's late"],"dir":"/src/my shop"}`,
		event("attempt-started", "session.night", now.Add(-time.Hour), ""), event("waiting", "session.night", now.Add(-time.Minute), until),
		event("attempt-started", "notify.phone", now, ""), "nonsense")
	h.writeWatchFolder("went", `{"command":["sleep","9"]}`, event("waiting", "session.went", now.Add(-time.Minute), until), event("attempt-started", "session.went", now, ""))
	h.writeWatchFolder("over", `{}`, event("attempt-started", "session.over", now, ""), event("gave-up", "session.over", now, `,"reason":"attempts","error":"no\nmore"`))
	h.writeWatchFolder("bare", "{")
	h.leaveDeadSocket(h.watchSocket("night"))
	h.serveSessions(h.watchSocket("well"), map[string]string{"noon": limited}).until("noon", "waiting")

	text := h.mustRun("ls")
	for _, want := range []string{
		"night  not-watched  59m", "limit reached", "continue night with: cd '/src/my shop' && tideover watch --name night -- claude -p 'it'\\''s late'",
		"continue went with: tideover watch --name went -- sleep 9", "continue bare with: tideover watch --name bare -- COMMAND",
		"attempts: no …", "noon   waiting",
	} {
		wantIn(t, "ls", text, want)
	}
	if strings.Contains(text, "continue over") {
		t.Errorf("a session that has ended is offered:\n%s", text)
	}
	var list struct {
		Sessions []struct {
			Name, State, Dir string
			Command          []string
			Next             *time.Time
		}
	}
	if err := json.Unmarshal([]byte(h.mustRun("ls", "--json")), &list); err != nil || len(list.Sessions) != 5 {
		t.Fatalf("ls --json: %+v, %v", list, err)
	}
	for _, s := range list.Sessions {
		if s.Name == "night" && (s.State != notWatched || s.Dir != "/src/my shop" || len(s.Command) != 3 || s.Next == nil) ||
			s.Name == "went" && s.Next != nil || s.Name == "over" && s.State != "gave-up" {
			t.Errorf("ls --json: %+v", s)
		}
	}
	text = h.mustRun("show", "night")
	for _, want := range []string{"night  not-watched", "set by      the assistant", "continue    cd '/src/my shop'", "tideover sessions rm night"} {
		wantIn(t, "show", text, want)
	}
	wantIn(t, "show --json", h.mustRun("show", "night", "--json"), `"state":"not-watched"`)
	wantIn(t, "sessions without a command", h.mustRun("--json"), `"name":"night"`)
	got := h.runCommand("pause", "night")
	wantCode(t, got, codeNoRun)
	wantIn(t, "pause", got.stderr, "session night is not watched; continue it with: cd ")
}

func TestNobodyIsNoError(t *testing.T) {
	t.Parallel()
	h := newSessionsEnv(t)
	wantIn(t, "ls", h.mustRun("ls"), "no sessions")
	wantIn(t, "ls --json", h.mustRun("ls", "--json"), `{"sessions":[]}`)
	got := h.runCommand("ls", "--server", "unix:"+h.serveSocket())
	wantCode(t, got, codeOwn)
	wantIn(t, "a named server", got.stderr, "no tideover serve at ")
}

func TestWhatAWatchHasLeftIsRemoved(t *testing.T) {
	t.Parallel()
	h := newSessionsEnv(t)
	folder := h.writeWatchFolder("night", `{"command":["true"]}`)
	h.serveSessions(h.serveSocket(), map[string]string{"day": limited}).until("day", "waiting")
	h.serveSessions(h.watchSocket("w"), map[string]string{"noon": limited}).until("noon", "waiting")
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"unasked", []string{"rm", "night"}, codeOwn, "this would remove session night with its history: add --yes to confirm"},
		{"one of serve", []string{"rm", "day", "--yes"}, codeOwn, "session day runs in serve; remove it from the configuration"},
		{"one that is watched", []string{"rm", "noon", "--yes"}, codeOwn, "session noon is being watched"},
		{"one that does not exist", []string{"rm", "x", "--yes"}, codeNoRun, "no such session"},
		{"a path", []string{"rm", "../watch/night", "--yes"}, codeNoRun, "no such session"},
		{"nothing", []string{"rm"}, codeOwn, "rm: no session given"},
	} {
		got := h.runCommand(tt.args...)
		wantCode(t, got, tt.code)
		wantIn(t, tt.name, got.stderr, tt.want)
	}
	lock, err := os.Create(filepath.Join(folder, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	got := h.runCommand("rm", "night", "--yes")
	wantCode(t, got, codeOwn)
	wantIn(t, "one whose engine runs", got.stderr, "session night is being watched: end its watch first")
	lock.Close()
	wantIn(t, "rm", h.mustRun("rm", "night", "--yes"), "removed "+folder)
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder: %v", err)
	}
}
