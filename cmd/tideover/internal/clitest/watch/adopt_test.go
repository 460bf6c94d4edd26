//go:build unix

package watch_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// adoptedAssistant is a fake assistant. A call with --open keeps running. Another call adds a line
// to the file calls: the assistant, its folder, the time, and its arguments; and a line to the
// record of its session, as if it had gone on.
const adoptedAssistant = `#!/bin/sh
here=$(pwd)
if test "$1" = --open; then
	echo open > "$HOME/opened"
	while test -f "$HOME/opened"; do sleep 0.05; done
	exit 0
fi
echo "$(basename "$0") $here $(date +%s) $*" >> "$HOME/calls"
for word in "$@"; do
	for record in "$HOME"/.claude/projects/*/"$word.jsonl" "$HOME"/.codex/sessions/2026/11/19/*"$word.jsonl"; do
		test -f "$record" && cat "$HOME/more" >> "$record"
	done
done
echo "Done."
`

// adoptEnv is a home folder with records of assistants, and with fake assistants.
type adoptEnv struct {
	*clitest.SessionsEnv
	home string
}

func newAdoptEnv(t *testing.T) *adoptEnv {
	t.Helper()
	home, err := filepath.EvalSymlinks(testfile.ShortDir(t))
	if err != nil {
		t.Fatal(err)
	}
	e := &adoptEnv{clitest.NewSessionsEnv(t), home}
	for _, name := range []string{"claude", "codex"} {
		e.mkdir("bin")
		testfile.WriteScript(t, filepath.Join(home, "bin", name), adoptedAssistant)
	}
	clitest.WriteFile(t, filepath.Join(home, "more"), `{"type":"assistant","sessionId":"","message":{"model":"m"}}`+"\n"+`{"type":"event_msg","payload":{"type":"task_started"}}`+"\n")
	return e
}

// mkdir creates a folder in the home folder, and returns its path.
func (e *adoptEnv) mkdir(name string) string {
	e.T.Helper()
	path := filepath.Join(e.home, name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		e.T.Fatal(err)
	}
	return path
}

// claude writes the record of a session of Claude Code that stopped at a limit, and returns its path.
// more has further lines.
func (e *adoptEnv) claude(id, folder, message string, more ...string) string {
	e.T.Helper()
	dir := e.mkdir(folder)
	name := strings.Map(func(c rune) rune {
		if strings.ContainsRune("/._ ", c) {
			return '-'
		}
		return c
	}, dir)
	path := filepath.Join(e.mkdir(".claude/projects/"+name), id+".jsonl")
	line := func(kind, content string) string {
		at := time.Now().UTC().Format(time.RFC3339Nano)
		return fmt.Sprintf(`{"type":%q,"sessionId":%q,"cwd":%q,"version":"2.1.197","timestamp":%q,%s}`+"\n", kind, id, dir, at, content)
	}
	text := line("user", `"permissionMode":"acceptEdits","message":{"content":"Build it"}`) +
		line("assistant", `"isApiErrorMessage":true,"message":{"model":"<synthetic>","content":[{"type":"text","text":"`+message+`"}]}`)
	clitest.WriteFile(e.T, path, text+strings.Join(more, ""))
	return path
}

// codex writes the record of a session of Codex that stopped at a limit.
func (e *adoptEnv) codex(id, folder string, reset time.Time) {
	e.T.Helper()
	at := time.Now().UTC().Format(time.RFC3339Nano)
	text := fmt.Sprintf(`{"timestamp":%q,"type":"session_meta","payload":{"id":%q,"cwd":%q,"cli_version":"0.169.0"}}
{"timestamp":%q,"type":"event_msg","payload":{"type":"token_count","rate_limits":{"primary":{"used_percent":100,"resets_at":%d}}}}
{"timestamp":%q,"type":"event_msg","payload":{"type":"task_complete","last_agent_message":null}}
`, at, id, e.mkdir(folder), at, reset.Unix(), at)
	clitest.WriteFile(e.T, filepath.Join(e.mkdir(".codex/sessions/2026/11/19"), "rollout-2026-11-19T10-00-00-"+id+".jsonl"), text)
}

// env lets the command use the home folder and the fake assistants.
func (e *adoptEnv) env(cmd *exec.Cmd) *exec.Cmd {
	cmd = e.Env(cmd)
	cmd.Env = append(cmd.Env, "HOME="+e.home, "PATH="+filepath.Join(e.home, "bin")+":/usr/bin:/bin", "CLAUDE_CONFIG_DIR=", "CODEX_HOME=", "XDG_DATA_HOME=")
	return cmd
}

// adoptFast are the flags with which a session continues within seconds of a reset.
var adoptFast = []string{"--policy", "fixed(1s) attempts=3 server-slack=1s", "--account-spread", "1s"}

func (e *adoptEnv) command(args ...string) (cmd *exec.Cmd, mark string) {
	cmd, mark = clitest.Command(e.T, append([]string{"sessions", "adopt"}, args...)...)
	return e.env(cmd), mark
}

func (e *adoptEnv) run(args ...string) clitest.Outcome {
	e.T.Helper()
	cmd, _ := e.command(args...)
	return clitest.Finish(e.T, cmd)
}

// begin starts sessions adopt in the background.
func (e *adoptEnv) begin(args ...string) (b *clitest.Background, text *clitest.SyncBuffer) {
	e.T.Helper()
	b, text = &clitest.Background{T: e.T, Folder: e.home}, new(clitest.SyncBuffer)
	b.Cmd, b.Mark = e.command(append(args, adoptFast...)...)
	b.Stdout, b.Cmd.Stderr = text, text
	b.Begin()
	return b, text
}

// listed is a session in the output of sessions adopt --json.
type listed struct {
	ID, Assistant, Dir, Name, Account, State string
	LeftAlone                                string `json:"left_alone"`
	Reset                                    time.Time
	Command                                  []string
}

func (e *adoptEnv) list(args ...string) (list []listed) {
	e.T.Helper()
	got := e.run(append(args, "--json")...)
	var result struct{ Sessions []listed }
	if err := json.Unmarshal([]byte(got.Out), &result); err != nil || got.Code != 0 {
		e.T.Fatalf("%v: %+v", err, got)
	}
	return result.Sessions
}

// state returns the state of a session of tideover, and why it waits.
func (e *adoptEnv) state(name string) (state, why string) {
	e.T.Helper()
	cmd, _ := clitest.Command(e.T, "sessions", "show", name, "--json")
	var st struct {
		State, Error string
		WaitFor      string `json:"wait_for"`
	}
	_ = json.Unmarshal([]byte(clitest.Finish(e.T, e.env(cmd)).Out), &st) // an unknown session has no state
	return st.State, st.WaitFor + st.Error
}

func (e *adoptEnv) calls() (list []string) {
	text, _ := os.ReadFile(filepath.Join(e.home, "calls")) // fails if there was no call yet
	return slices.Collect(strings.Lines(string(text)))
}

// keepOpen runs a fake assistant in a folder until the end of the test.
func (e *adoptEnv) keepOpen(name, folder string) {
	e.T.Helper()
	cmd := exec.CommandContext(testwait.Context(e.T), filepath.Join(e.home, "bin", name), "--open")
	cmd.Dir, cmd.Env = e.mkdir(folder), append(os.Environ(), "HOME="+e.home)
	if err := cmd.Start(); err != nil {
		e.T.Fatal(err)
	}
	opened := filepath.Join(e.home, "opened")
	e.T.Cleanup(func() {
		_ = os.Remove(opened)
		_ = cmd.Wait()
	})
	testwait.Until(e.T, name+" runs", func() bool { _, err := os.Stat(opened); return err == nil })
}

const (
	sessionA = "0a000000-0000-4000-8000-000000000001"
	sessionB = "0b000000-0000-4000-8000-000000000002"
	sessionC = "0c000000-0000-4000-8000-000000000003"
	sessionD = "0d000000-0000-4000-8000-000000000004"
)

// otherBoot makes a command run on a machine with another boot id. It skips the test if that is not
// possible.
func otherBoot(t *testing.T, cmd *exec.Cmd, dir string) {
	t.Helper()
	id := filepath.Join(dir, "boot_id")
	clitest.WriteFile(t, id, "aaaaaaaa-0000-4000-8000-000000000000\n")
	const script = `mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`
	args := []string{"unshare", "-m", "sh", "-c", script, id}
	if os.Geteuid() != 0 {
		args = slices.Insert(args, 1, "-r")
	}
	//nolint:noctx // it ends at once
	if out, err := exec.Command(args[0], append(slices.Clone(args[1:]), "cat", "/proc/sys/kernel/random/boot_id")...).CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "aaaa") {
		t.Skipf("no other boot id: %v: %s", err, out)
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		t.Skip(err)
	}
	cmd.Args = append(args, append([]string{cmd.Path}, cmd.Args[1:]...)...)
	cmd.Path = path
}

// Three sessions of two assistants stopped at a limit outside of tideover, and a fourth is open. The
// process that has adopted them is killed, and the machine has started again: each of the three
// continues once, after its reset and in its folder.
func TestAdoptedSessionsContinueOnceAfterAReboot(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	e := newAdoptEnv(t)
	reset := time.Now().Add(15 * time.Second).Truncate(time.Second)
	message := fmt.Sprintf("Claude AI usage limit reached|%d", reset.Unix())
	e.claude(sessionA, "a", message)
	e.claude(sessionB, "b b", message)
	e.codex(sessionC, "c", reset)
	e.claude(sessionD, "d", message)
	e.keepOpen("claude", "d")
	names := map[string]string{}
	for _, s := range e.list() {
		names[s.ID] = s.Name
		if s.ID == sessionD != (s.LeftAlone != "") || s.Account == "" || !s.Reset.Equal(reset) {
			t.Errorf("%+v", s)
		}
	}
	if len(names) != 4 {
		t.Fatalf("the sessions are %v", names)
	}
	first, said := e.begin("--all")
	for _, id := range []string{sessionA, sessionB, sessionC} {
		testwait.Until(t, "session "+names[id]+" waits, or has ended", func() bool {
			state, _ := e.state(names[id])
			return state == "waiting" || state == "completed"
		})
	}
	first.Signal(syscall.SIGKILL)
	first.End()
	for _, s := range e.list() {
		if s.ID == sessionA && len(e.calls()) == 0 && (s.State != "not-watched" || s.LeftAlone != "") {
			t.Errorf("after the kill: %+v", s)
		}
	}

	second := &clitest.Background{T: t, Folder: e.home}
	second.Cmd, second.Mark = e.command(append([]string{"--all"}, adoptFast...)...)
	otherBoot(t, second.Cmd, e.home)
	again := new(clitest.SyncBuffer)
	second.Stdout, second.Cmd.Stderr = again, again
	second.Begin()
	if got := second.End(); got.Code != 0 {
		t.Errorf("the second adoption ended with %d", got.Code)
	}
	calls := e.calls()
	for i, want := range []string{
		"claude " + e.home + "/a ", "-p Continue. --permission-mode acceptEdits --resume " + sessionA + "\n",
		"claude " + e.home + "/b b ", "-p Continue. --permission-mode acceptEdits --resume " + sessionB + "\n",
		"codex " + e.home + "/c ", "exec resume " + sessionC + " --skip-git-repo-check Continue.\n",
	} {
		n := 0
		for _, call := range calls {
			if i%2 == 0 && strings.HasPrefix(call, want) || i%2 == 1 && strings.HasSuffix(call, want) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d calls with %q", n, want)
		}
	}
	for _, call := range calls {
		words := strings.Fields(strings.ReplaceAll(call, "b b", "b"))
		if at := clitest.Atoi(words[2]); int64(at) < reset.Unix() {
			t.Errorf("before the reset at %d: %s", reset.Unix(), call)
		}
	}
	if t.Failed() {
		t.Logf("the first adoption: %s\nthe second: %s\ncalls: %q", said, again, calls)
	}
	third := e.run(append([]string{"--all"}, adoptFast...)...)
	clitest.WantCode(t, third, 0)
	if len(e.calls()) != len(calls) {
		t.Errorf("the sessions continued again: %q", e.calls())
	}
	clitest.WantNoProcess(t, second.Mark)
}

// tomorrow is the message of a limit that lasts longer than the test.
func tomorrow() string {
	return fmt.Sprintf("Claude AI usage limit reached|%d", time.Now().Add(24*time.Hour).Unix())
}

// An adopted session that goes on while it waits is left alone at the end, and one that is open
// keeps waiting.
func TestAnAdoptedSessionIsCheckedAgain(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	e := newAdoptEnv(t)
	record := e.claude(sessionA, "a", tomorrow())
	e.claude(sessionB, "b", tomorrow())
	names := map[string]string{}
	for _, s := range e.list() {
		names[s.ID] = s.Name
	}
	b, said := e.begin("--all")
	for _, name := range names {
		testwait.Until(t, name+" waits", func() bool { state, _ := e.state(name); return state == "waiting" })
	}
	for _, s := range e.list() {
		if s.State != "waiting" || !strings.Contains(s.LeftAlone, "of watch runs it") {
			t.Errorf("%+v", s)
		}
	}
	f, err := os.OpenFile(record, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"type":"user","sessionId":"` + sessionA + `","message":{"content":"go on"}}` + "\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	e.keepOpen("claude", "b")
	for id, want := range map[string]string{sessionA: "gave-up", sessionB: "waiting"} {
		cmd, _ := clitest.Command(t, "sessions", "wake", names[id])
		clitest.WantCode(t, clitest.Finish(t, e.env(cmd)), 0)
		testwait.Until(t, names[id]+" is left alone", func() bool {
			state, why := e.state(names[id])
			return state == want && strings.Contains(why, "left alone: ")
		})
	}
	cmd, _ := clitest.Command(t, "sessions", "stop", names[sessionB])
	clitest.WantCode(t, clitest.Finish(t, e.env(cmd)), 0)
	if got := b.End(); got.Code != cli.CodeFailed || len(e.calls()) != 0 {
		t.Errorf("code %d, calls %q: %s", got.Code, e.calls(), said)
	}
}

func TestSessionsThatAWatchMayHaveStartedAreLeftAlone(t *testing.T) {
	t.Parallel()
	e := newAdoptEnv(t)
	for id, folder := range map[string]string{sessionA: "a", sessionB: "b", sessionC: "c", sessionD: "d"} {
		e.claude(id, folder, tomorrow())
	}
	about := func(folder string) string {
		return `{"command":["claude","-p","x"],"dir":"` + filepath.Join(e.home, folder) + `"}`
	}
	now := time.Now()
	writeWatchFolder(e.SessionsEnv, "night", about("a"), event("attempt-started", "session.night", now.Add(-time.Hour), ""))
	writeWatchFolder(e.SessionsEnv, "over", about("b"), event("canceled", "session.over", now.Add(time.Hour), ""))
	writeWatchFolder(e.SessionsEnv, "before", about("c"), event("canceled", "session.before", now.Add(-time.Hour), ""))
	file := filepath.Join(e.State, "x.yaml")
	clitest.WriteFile(t, file, "version: 1\nsessions:\n  noon: {dir: "+filepath.Join(e.home, "d")+", start: [claude, -p, x]}\n")
	for _, s := range e.list("--config", file) {
		want := map[string]string{sessionA: "session night of watch", sessionB: "session over of watch", sessionC: "", sessionD: "session noon of the configuration"}[s.ID]
		if !strings.Contains(s.LeftAlone, want) || (s.LeftAlone == "") != (want == "") {
			t.Errorf("session %s is left alone because %q, want %q", s.ID, s.LeftAlone, want)
		}
	}
}

func TestAdoptionIsChecked(t *testing.T) {
	t.Parallel()
	e := newAdoptEnv(t)
	clitest.WantIn(t, "nothing", e.run().Out, "no session has stopped at a limit outside of tideover")
	clitest.WantCode(t, e.run("--all"), 0)
	e.claude(sessionA, "a", tomorrow())
	gone := e.claude(sessionB, "b", tomorrow(), `{"type":"user","sessionId":"`+sessionB+`","message":{"content":"go on"}}`+"\n")
	got := e.run()
	clitest.WantCode(t, got, 0)
	for _, part := range []string{"ID ", sessionA, "claude-code", filepath.Join(e.home, "a"), "usage limit reached", "left alone: it has gone on since the limit"} {
		clitest.WantIn(t, "the list", got.Out, part)
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--all", sessionA}, cli.CodeOwn, "--all and an ID can't be used together"},
		{[]string{"--assistant", "x"}, cli.CodeOwn, `the records of "x" can't be read`},
		{[]string{"--notify", "x", "--all"}, cli.CodeOwn, "--notify"},
		{[]string{"--policy", "x", "--all"}, cli.CodeOwn, "--policy"},
		{[]string{"--account", "X", "--all"}, cli.CodeOwn, "--account"},
		{[]string{sessionC}, cli.CodeUnknown, "no session with the id"},
		{[]string{"0b0000"}, cli.CodeFailed, "left alone: it has gone on since the limit"},
	} {
		got := e.run(tt.args...)
		clitest.WantCode(t, got, tt.code)
		clitest.WantIn(t, fmt.Sprint(tt.args), got.Stderr, tt.want)
	}
	cmd, _ := clitest.Command(t, "__complete", "sessions", "adopt", "")
	completed := clitest.Finish(t, e.env(cmd))
	if len(clitest.Offered(completed, sessionA)) != 1 || len(clitest.Offered(completed, sessionB)) != 0 {
		t.Errorf("completion: %q", completed.Out)
	}

	text, err := os.ReadFile(gone)
	if err != nil {
		t.Fatal(err)
	}
	clitest.WriteFile(t, gone, strings.ReplaceAll(strings.Split(string(text), `{"type":"user","sessionId":"`+sessionB+`","message"`)[0], "2.1.197", "9.0.0"))
	for _, args := range [][]string{{"--all"}, {sessionA}} {
		got := e.run(args...)
		clitest.WantCode(t, got, cli.CodeOwn)
		clitest.WantIn(t, "an unknown version", got.Stderr, "nothing is adopted: "+gone+": version 9.0.0 is unknown")
	}
	clitest.WantIn(t, "the list", e.run().Out, "nothing is adopted as long as a record has an unknown version")
	clitest.WantCode(t, e.run("--all", "--assistant", "codex"), 0)
}
