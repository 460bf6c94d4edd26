//go:build unix

package watch_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
)

// writeWatchFolder creates the folder of a watch that is not running, with this about file and
// these lines of the audit log. It returns the path.
func writeWatchFolder(h *clitest.SessionsEnv, name, about string, trail ...string) string {
	h.T.Helper()
	folder := filepath.Join(h.State, "tideover", "watch", name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		h.T.Fatal(err)
	}
	for file, text := range map[string]string{session.AboutFile: about, "audit.jsonl": strings.Join(trail, "\n")} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text+"\n"), 0o600); err != nil {
			h.T.Fatal(err)
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
	h := clitest.NewSessionsEnv(t)
	now := time.Now()
	until := `,"delay_by":"server","error":"limit reached","until":"` + now.Add(time.Hour).Format(time.RFC3339Nano) + `"`
	writeWatchFolder(h, "night", `{"command":["claude","-p","it's late"],"dir":"/src/my shop"}`,
		event("attempt-started", "session.night", now.Add(-time.Hour), ""), event("waiting", "session.night", now.Add(-time.Minute), until),
		event("attempt-started", "notify.phone", now, ""), "nonsense")
	writeWatchFolder(h, "went", `{"command":["sleep","9"]}`, event("waiting", "session.went", now.Add(-time.Minute), until), event("attempt-started", "session.went", now, ""))
	writeWatchFolder(h, "over", `{}`, event("attempt-started", "session.over", now, ""), event("gave-up", "session.over", now, `,"reason":"attempts","error":"no\nmore"`))
	writeWatchFolder(h, "bare", "{")
	leaveDeadSocket(h, watchSocket(h, "night"))
	serveSessions(h, watchSocket(h, "well"), map[string]string{"noon": limited}).until("noon", "waiting")

	text := mustRun(h, "ls")
	for _, want := range []string{
		"night  not-watched  59m", "limit reached", "continue night with: cd '/src/my shop' && tideover watch --name night -- claude -p 'it'\\''s late'",
		"continue went with: tideover watch --name went -- sleep 9", "continue bare with: tideover watch --name bare -- COMMAND",
		"attempts: no …", "noon   waiting",
	} {
		clitest.WantIn(t, "ls", text, want)
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
	if err := json.Unmarshal([]byte(mustRun(h, "ls", "--json")), &list); err != nil || len(list.Sessions) != 5 {
		t.Fatalf("ls --json: %+v, %v", list, err)
	}
	for _, s := range list.Sessions {
		if s.Name == "night" && (s.State != "not-watched" || s.Dir != "/src/my shop" || len(s.Command) != 3 || s.Next == nil) ||
			s.Name == "went" && s.Next != nil || s.Name == "over" && s.State != "gave-up" {
			t.Errorf("ls --json: %+v", s)
		}
	}
	text = mustRun(h, "show", "night")
	for _, want := range []string{"night  not-watched", "set by      the assistant", "continue    cd '/src/my shop'", "tideover sessions rm night"} {
		clitest.WantIn(t, "show", text, want)
	}
	clitest.WantIn(t, "show --json", mustRun(h, "show", "night", "--json"), `"state":"not-watched"`)
	clitest.WantIn(t, "sessions without a command", mustRun(h, "--json"), `"name":"night"`)
	got := runCommand(h, "pause", "night")
	clitest.WantCode(t, got, cli.CodeUnknown)
	clitest.WantIn(t, "pause", got.Stderr, "session night is not watched; continue it with: cd ")
}

func TestNobodyIsNoError(t *testing.T) {
	t.Parallel()
	h := clitest.NewSessionsEnv(t)
	clitest.WantIn(t, "ls", mustRun(h, "ls"), "no sessions")
	clitest.WantIn(t, "ls --json", mustRun(h, "ls", "--json"), `{"sessions":[]}`)
	got := runCommand(h, "ls", "--server", "unix:"+h.ServeSocket())
	clitest.WantCode(t, got, cli.CodeOwn)
	clitest.WantIn(t, "a named server", got.Stderr, "no tideover serve at ")
}

func TestWhatAWatchHasLeftIsRemoved(t *testing.T) {
	t.Parallel()
	h := clitest.NewSessionsEnv(t)
	folder := writeWatchFolder(h, "night", `{"command":["true"]}`)
	serveSessions(h, h.ServeSocket(), map[string]string{"day": limited}).until("day", "waiting")
	serveSessions(h, watchSocket(h, "w"), map[string]string{"noon": limited}).until("noon", "waiting")
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"unasked", []string{"rm", "night"}, cli.CodeOwn, "this would remove session night with its history: add --yes to confirm"},
		{"one of serve", []string{"rm", "day", "--yes"}, cli.CodeOwn, "session day runs in serve; remove it from the configuration"},
		{"one that is watched", []string{"rm", "noon", "--yes"}, cli.CodeOwn, "session noon is being watched"},
		{"one that does not exist", []string{"rm", "x", "--yes"}, cli.CodeUnknown, "no such session"},
		{"a path", []string{"rm", "../watch/night", "--yes"}, cli.CodeUnknown, "no such session"},
		{"nothing", []string{"rm"}, cli.CodeOwn, "rm: no session given"},
	} {
		got := runCommand(h, tt.args...)
		clitest.WantCode(t, got, tt.code)
		clitest.WantIn(t, tt.name, got.Stderr, tt.want)
	}
	lock, err := os.Create(filepath.Join(folder, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	got := runCommand(h, "rm", "night", "--yes")
	clitest.WantCode(t, got, cli.CodeOwn)
	clitest.WantIn(t, "one whose engine runs", got.Stderr, "session night is being watched: end its watch first")
	lock.Close()
	clitest.WantIn(t, "rm", mustRun(h, "rm", "night", "--yes"), "removed "+folder)
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder: %v", err)
	}
}
