//go:build unix

package watch_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// Fake assistants. Each call adds a line to the file calls: the assistant, its folder, the time, and its arguments. Claude
// has a limit until the time in the file reset. Without that file, the limit lasts a few seconds, twice as long each time,
// until codex was called. Codex works while the file hold exists.
const (
	handoverCommon = `#!/bin/sh
here=$(pwd)
cd "$(dirname "$0")" || exit 9
now=$(date +%s)
echo "$(basename "$0") $here $now $(printf '%s ' "$@" | tr '\n' ' ')" >> calls
`
	handoverClaude = handoverCommon + `
if test -f reset; then
	test -f free && { echo "All done."; exit 0; }
	echo "Claude AI usage limit reached|$(cat reset)"; exit 1
fi
test -f until && test $now -ge $(cat until) && grep -q '^codex ' calls && { echo "All done."; exit 0; }
test -f span || echo 4 > span
echo $((now + $(cat span))) > until
echo $(($(cat span) * 2)) > span
echo "Claude AI usage limit reached|$(cat until)"; exit 1
`
	handoverCodex = handoverCommon + `
echo '{"type":"thread.started","thread_id":"0b1a0000-0000-4000-8000-00000000c0de"}'
while test -f hold; do sleep 0.05; done
echo "All done."
`
)

// handedOver is the output of sessions show --json.
type handedOver struct {
	State    string
	Windows  int
	Attempts int
	Next     *time.Time
	Handover *struct {
		Assistant, Session string
		Until              time.Time
	}
	Turns []struct {
		Assistant, Ended string
		From, To         time.Time
	}
}

// handoverEnv is a folder with the fake assistants.
type handoverEnv struct {
	t             *testing.T
	dir, work     string // the folder of the assistants' programs, and the folder that they work in
	claude, codex string
}

func newHandoverEnv(t *testing.T) *handoverEnv {
	t.Helper()
	dir := clitest.ShortDir(t)
	r := &handoverEnv{t, dir, filepath.Join(dir, "work"), filepath.Join(dir, "claude"), filepath.Join(dir, "codex")}
	if err := os.Mkdir(r.work, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{r.claude: handoverClaude, r.codex: handoverCodex} {
		testfile.WriteScript(t, path, text)
	}
	return r
}

func (r *handoverEnv) touch(name, text string) {
	r.t.Helper()
	clitest.WriteFile(r.t, filepath.Join(r.dir, name), text)
}

func (r *handoverEnv) remove(name string) {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.dir, name)); err != nil {
		r.t.Fatal(err)
	}
}

// calls returns the calls of an assistant that contain the words.
func (r *handoverEnv) calls(assistant, words string) (list []string) {
	text, _ := os.ReadFile(filepath.Join(r.dir, "calls")) // fails if there was no call yet
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, assistant+" ") && strings.Contains(line, words) {
			list = append(list, strings.TrimSpace(line))
		}
	}
	return list
}

// Claude reaches a limit of five hours, and the session is handed over to codex. The handover
// continues although the server is killed: while codex works, and while the session waits for the
// reset.
func TestAHandOverSurvivesAKill(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	r := newHandoverEnv(t)
	reset := time.Now().Add(5 * time.Hour).Truncate(time.Second)
	r.touch("reset", strconv.FormatInt(reset.Unix(), 10)+"\n")
	r.touch("hold", "")
	file := fmt.Sprintf("version: 1\nsessions:\n  shop: {dir: %s, start: [%s, -p, Work through TODO.md], fallback: [%s], notify: [phone]}\n"+
		"notify: {phone: {run: [sh, -c, 'echo \"$TIDEOVER_EVENT $TIDEOVER_TITLE\" >> \"$0\"', %s], on: [waiting>30m, resumed], dedupe: 0}}\n",
		r.work, r.claude, r.codex, filepath.Join(r.dir, "messages"))
	s := clitest.Serve(t, file, r.dir)
	status := func() (st handedOver) {
		o := s.RunCommand("sessions", "show", "shop", "--json")
		if err := json.Unmarshal([]byte(o.Out), &st); err != nil {
			t.Fatalf("%v: %+v", err, o)
		}
		return st
	}
	testwait.Until(t, "codex works, and its session is known", func() bool {
		st := status()
		return st.State == "running" && st.Handover != nil && st.Handover.Session != ""
	})
	if st := status(); st.Handover.Assistant != "codex" || !st.Handover.Until.Equal(reset) || st.Windows != 1 {
		t.Errorf("handed over %+v, %d windows", st.Handover, st.Windows)
	}
	s.Signal(syscall.SIGKILL)
	s.End()
	s = clitest.Serve(t, file, r.dir)
	testwait.Until(t, "codex is resumed", func() bool { return len(r.calls("codex", " resume 0b1a")) == 1 })
	r.remove("hold")
	testwait.Until(t, "the session waits for the reset", func() bool { st := status(); return st.State == "waiting" && st.Handover == nil })
	st := status()
	if late := st.Next.Sub(reset); late < 90*time.Second || late > 121*time.Second {
		t.Errorf("the session goes on at %v, want 90s to 121s after %v", st.Next, reset)
	}
	s.Signal(syscall.SIGKILL)
	s.End()
	s = clitest.Serve(t, file, r.dir)
	if again := status(); again.State != "waiting" || !again.Next.Equal(*st.Next) || again.Windows != 1 {
		t.Errorf("after a kill the session is %s until %v, %d windows; want %v", again.State, again.Next, again.Windows, st.Next)
	}
	if starts := r.calls("codex", " exec --json --sandbox workspace-write Another assistant (claude) worked in this folder"); len(starts) != 1 ||
		!strings.Contains(starts[0], "Work through TODO.md") || !strings.HasPrefix(starts[0], "codex "+r.work+" ") || len(r.calls("codex", "")) != 2 {
		t.Errorf("codex was called with %q", r.calls("codex", ""))
	}
	if got := r.calls("claude", ""); len(got) != 1 {
		t.Errorf("claude was called before its reset: %q", got)
	}
	r.touch("free", "")
	clitest.WantCode(t, s.RunCommand("sessions", "retry-now", "shop"), 0)
	testwait.Until(t, "the session is over", func() bool { return slices.Contains([]string{"completed", "stopped", "gave-up"}, status().State) })
	got := r.calls("claude", "")
	if len(got) != 2 || !strings.HasPrefix(got[1], "claude "+r.work+" ") || !strings.Contains(got[1], "another assistant (codex) worked in this folder") || !strings.Contains(got[1], "--resume ") {
		t.Errorf("claude was called with %q", got)
	}
	st = status()
	if len(st.Turns) != 3 || st.State != "completed" || st.Windows != 1 || st.Attempts != 0 {
		t.Errorf("session is %s after %d windows and %d attempts, turns %+v", st.State, st.Windows, st.Attempts, st.Turns)
	}
	for _, message := range []string{"waiting shop was handed over to codex\n", "waiting shop waits ", "resumed shop continues\n"} {
		testwait.Until(t, "the message "+message, func() bool {
			text, _ := os.ReadFile(filepath.Join(r.dir, "messages")) // fails if there is no message yet
			return strings.Contains(string(text), message)
		})
	}
	shown := s.RunCommand("sessions", "show", "shop").Out
	for _, part := range []string{"assistants", "codex ", ", completed", ", rate-limit until "} {
		clitest.WantIn(t, "sessions show", shown, part)
	}
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
	clitest.WantNoProcess(t, s.Mark)
}

// A watch hands over to codex, and is killed and started again while codex works. After the reset,
// the session's own assistant continues.
func TestWatchHandsOverAndIsBackAfterTheReset(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	r := newHandoverEnv(t)
	r.touch("hold", "")
	begin := func() (*clitest.Background, *clitest.SyncBuffer) {
		w := &clitest.Background{T: t, Folder: r.dir}
		w.Cmd, w.Mark = clitest.Command(t, "watch", "--name", "shop", "--dir", r.work, "--data", filepath.Join(r.dir, "data"), "--policy", "fixed(300ms) attempts=3 server-slack=1s", "--account-spread", "1s",
			"--fallback", r.codex, "--fallback-after", "1s", "--", r.claude, "-p", "x")
		out := new(clitest.SyncBuffer)
		w.Stdout, w.Cmd.Stderr = out, out
		w.Begin()
		return w, out
	}
	w, out := begin()
	socket := filepath.Join(r.dir, "data", "watch", "shop", "control.sock")
	testwait.Until(t, "codex works, and its session is known", func() bool {
		var st handedOver
		o := clitest.InProcess(t, "sessions", "show", "shop", "--json", "--server", "unix:"+socket)
		return json.Unmarshal([]byte(o.Out), &st) == nil && st.Handover != nil && st.Handover.Session != ""
	})
	clitest.WantIn(t, "output", out.String(), "; handed over to codex until ")
	w.Signal(syscall.SIGKILL)
	w.End()
	r.remove("hold")
	w, out = begin()
	if got := w.End(); got.Code != 0 {
		t.Errorf("watch ended with %d: %s", got.Code, out)
	}
	if starts := r.calls("codex", " exec --json "); len(starts) != 1 {
		t.Errorf("codex was started as %q", starts)
	}
	until, err := os.ReadFile(filepath.Join(r.dir, "until"))
	if err != nil {
		t.Fatal(err)
	}
	all := r.calls("claude", "")
	last := strings.Fields(all[len(all)-1])
	if last[2] < strings.TrimSpace(string(until)) || !strings.Contains(all[len(all)-1], "--resume ") {
		t.Errorf("the limit ended at %s, and claude went on with %q", until, all)
	}
	clitest.WantNoProcess(t, w.Mark)
}

func TestAFallbackIsChecked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--fallback", "claude", "--", "claude", "-p", "x"}, "--fallback: claude uses the same account (claude-code)"},
		{[]string{"--fallback", "opencode", "--", "claude", "-p", "x"}, `--fallback: "opencode" is not a known assistant`},
		{[]string{"--fallback", "codex exec x", "--", "claude", "-p", "x"}, "--fallback: the command of codex does not contain {{.Prompt}}"},
		{[]string{"--fallback-after", "2h", "--", "claude", "-p", "x"}, "--fallback-after: no effect without fallback"},
		{[]string{"--fallback", "codex", "--fallback-prompt", "{{.Age}}", "--", "claude", "-p", "x"}, "--fallback-prompt: "},
		{[]string{"--fallback", "/nowhere/codex", "--", "true"}, "--fallback: start /nowhere/codex: not found"},
	} {
		got := clitest.InProcess(t, append([]string{"watch"}, tt.args...)...)
		clitest.WantCode(t, got, 125)
		clitest.WantIn(t, "stderr", got.Stderr, tt.want)
	}
	file := filepath.Join(t.TempDir(), "x.yaml")
	clitest.WriteFile(t, file, `version: 1
sessions:
  a: {start: [claude, -p, x], fallback: [claude]}
  b: {start: [claude, -p, x], fallback: [opencode]}
  c: {start: [claude, -p, x], fallback: codex}
  d: {start: [claude, -p, x], fallback: [[codex, exec, x]]}
  e: {start: [claude, -p, x], fallback-after: 2h}
  f: {start: [claude, -p, x], fallback: [codex], fallback-after: 0s}
  g: {start: [claude, -p, x], fallback: []}
  h: {start: [codex, exec, x], fallback: [codex]}
`)
	got := clitest.InProcess(t, "config", "check", "--config", file)
	clitest.WantCode(t, got, 1)
	for _, part := range []string{
		"x.yaml:3:41: sessions.a.fallback: claude uses the same account (claude-code) as the session",
		`x.yaml:4:42: sessions.b.fallback[0]: "opencode" is not a known assistant: want one of claude, codex, gemini, or a command with {{.Prompt}}`,
		"sessions.c.fallback: a text, where a list is expected",
		"sessions.d.fallback[0]: the command of codex does not contain {{.Prompt}}",
		"sessions.e.fallback-after: no effect without fallback",
		"sessions.f.fallback-after", "sessions.g.fallback: the list is empty", "sessions.h.fallback: codex uses the same account (codex",
	} {
		clitest.WantIn(t, "config check", got.Stderr+got.Out, part)
	}
	clitest.WriteFile(t, file, `version: 1
sessions:
  a: {start: [claude, -p, x], fallback: [codex, [aider, --message, "{{.Prompt}}"]], fallback-after: 2h}
`)
	got = clitest.InProcess(t, "config", "check", "--config", file)
	clitest.WantCode(t, got, 0)
	clitest.WantIn(t, "config check", got.Stderr+got.Out, "sessions.a.fallback: aider is not resumed if it is interrupted: how aider resumes a session is unknown")
}
