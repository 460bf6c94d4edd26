//go:build unix

package watch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// The fake assistants store each conversation in a file, conv-ID, with a line for each prompt, and
// check their arguments as the real ones do. The first call reports a limit. After it, an unrelated
// conversation is the latest one of the folder.
const (
	fakeCommon = `#!/bin/sh
cd "$FAKE" || exit 9
echo "$(basename "$0") $*" >> calls
newid() { printf '00000000-0000-4000-8000-%012x' $(($(date +%s) * 100000 + $$ % 100000)); }
say() { echo "$1" >> "conv-$2"; echo "$2" > latest; }
limit() {
	test -e limited && return
	: > limited
	echo other > conv-other; echo other > latest
	test -e forget && rm -f conv-0* conv-[1-9a-f]*
	echo "$1" >&2; exit 1
}
`
	fakeClaude = fakeCommon + `
id= resume= prompt= format=text cont= fork=
while test $# -gt 0; do
	case "$1" in
	-p|--print|--verbose) ;;
	--output-format) format=$2; shift ;;
	--session-id) id=$2; shift ;;
	--resume|-r) resume=$2; shift ;;
	--continue|-c) cont=1 ;;
	--fork-session) fork=1 ;;
	-*) echo "error: unknown option '$1'" >&2; exit 1 ;;
	*) prompt=$1 ;;
	esac
	shift
done
prompt=$prompt$(cat)
test -n "$prompt" || { echo "Error: Input must be provided either through stdin or as a prompt argument when using --print" >&2; exit 1; }
if test -n "$id" && test -n "$resume$cont" && test -z "$fork"; then
	echo "Error: --session-id can only be used with --continue or --resume if --fork-session is also specified." >&2; exit 1
fi
from=$resume
test -z "$cont" || from=$(cat latest)
if test -n "$from" && ! test -e "conv-$from"; then echo "No conversation found with session ID: $from" >&2; exit 1; fi
if test -z "$from" || test -n "$fork"; then
	test -n "$id" || id=$(newid)
	test -e "conv-$id" && { echo "Error: Session ID $id is already in use." >&2; exit 1; }
	test -z "$from" || cp "conv-$from" "conv-$id"
else
	id=$from
fi
say "$prompt" "$id"
test $format = text || echo '{"type":"system","subtype":"init","cwd":"/","session_id":"'$id'"}'
limit "API Error: Server is temporarily limiting requests (not your usage limit)"
echo "All done."
`
	fakeCodex = fakeCommon + `
test "$1" = exec || { echo "Error: stdin is not a terminal" >&2; exit 1; }
shift
json= resume= id= last= prompt= n=0
while test $# -gt 0; do
	case "$1" in
	--json) json=1 ;;
	--full-auto|--skip-git-repo-check) ;;
	-m|-c) shift ;;
	-C|--cd|-s|--sandbox)
		test -z "$resume" || { echo "error: unexpected argument '$1' found" >&2; exit 2; }
		shift ;;
	--last) last=1 ;;
	-) ;;
	-*) echo "error: unexpected argument '$1' found" >&2; exit 2 ;;
	resume) if test -z "$resume$prompt"; then resume=1; else prompt=$1; fi ;;
	*) if test -n "$resume" && test -z "$id$last"; then id=$1; else prompt=$1; fi ;;
	esac
	shift
done
test -n "$prompt" || prompt=$(cat)
test -z "$last" || id=$(cat latest)
if test -n "$resume" && ! test -e "conv-$id"; then
	echo "Error: thread/resume: thread/resume failed: no rollout found for thread id $id (code -32600)" >&2; exit 1
fi
test -n "$id" || id=$(newid)
say "$CODEX_LINE$prompt" "$id"
if test -n "$json"; then
	echo '{"type":"thread.started","thread_id":"'$id'"}'
elif ! test -e silent; then
	printf 'OpenAI Codex v0.150.0\n--------\nworkdir: /src\nsession id: %s\n--------\nuser\n%s\n' "$id" "$prompt" >&2
fi
test -e hold && exec sleep 60
limit "exceeded retry limit, last status: 429 Too Many Requests"
echo "All done."
`
	fakeGemini = fakeCommon + `
id= resume= prompt= format=text
while test $# -gt 0; do
	case "$1" in
	-p|--prompt) prompt=$2; shift ;;
	-o|--output-format) format=$2; shift ;;
	--session-id) id=$2; shift ;;
	--resume|-r) resume=$2; shift ;;
	-*) echo "Unknown argument: $1" >&2; exit 1 ;;
	*) prompt=$1 ;;
	esac
	shift
done
test "$resume" = latest && resume=$(cat latest)
if test -n "$resume" && ! test -e "conv-$resume"; then
	echo "Error resuming session: Invalid session identifier \"$resume\"." >&2; exit 42
fi
id=${resume:-${id:-$(newid)}}
say "$prompt" "$id"
limit "got status: RESOURCE_EXHAUSTED. Resource has been exhausted."
echo "All done."
`
)

// assistants is a folder with fake assistants and their conversations.
type assistants struct {
	t   *testing.T
	dir string
}

func newAssistants(t *testing.T) *assistants {
	t.Helper()
	a := &assistants{t, clitest.ShortDir(t)}
	for name, text := range map[string]string{"claude": fakeClaude, "codex": fakeCodex, "gemini": fakeGemini, "aider": fakeCommon + `limit "segmentation fault"`} {
		testfile.WriteScript(t, filepath.Join(a.dir, name), text)
	}
	return a
}

// touch creates an empty file with this name. The fake assistants test for such files.
func (a *assistants) touch(name string) {
	a.t.Helper()
	clitest.WriteFile(a.t, filepath.Join(a.dir, name), "")
}

// converse creates a conversation with one prompt, and makes it the latest one.
func (a *assistants) converse(id, prompt string) {
	a.t.Helper()
	clitest.WriteFile(a.t, filepath.Join(a.dir, "conv-"+id), prompt+"\n")
	clitest.WriteFile(a.t, filepath.Join(a.dir, "latest"), id+"\n")
}

// tideover returns a command that finds the fake assistants in $PATH.
func (a *assistants) tideover(args ...string) *exec.Cmd {
	a.t.Helper()
	cmd, _ := clitest.Command(a.t, args...)
	cmd.Dir = a.dir
	cmd.Env = append(cmd.Env, "FAKE="+a.dir, "PATH="+a.dir+":"+os.Getenv("PATH"), "XDG_STATE_HOME="+filepath.Join(a.dir, "xdg"))
	return cmd
}

// watch returns a watch command. args are its flags and the command to watch.
func (a *assistants) watch(args ...string) *exec.Cmd {
	a.t.Helper()
	return a.tideover(append([]string{"watch", "--data", filepath.Join(a.dir, "state"), "--policy", quickly}, args...)...)
}

// conversations returns the prompts of each conversation by id, except the unrelated one.
func (a *assistants) conversations() map[string][]string {
	a.t.Helper()
	all := map[string][]string{}
	files, _ := filepath.Glob(filepath.Join(a.dir, "conv-*"))
	for _, file := range files {
		id := strings.TrimPrefix(filepath.Base(file), "conv-")
		text, err := os.ReadFile(file)
		if err != nil {
			a.t.Fatal(err)
		}
		all[id] = strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	if other := all["other"]; other != nil && !slices.Equal(other, []string{"other"}) {
		a.t.Errorf("another conversation was resumed: %q", other)
	}
	delete(all, "other")
	return all
}

// calls returns the arguments of the assistants' calls.
func (a *assistants) calls() []string {
	text, _ := os.ReadFile(filepath.Join(a.dir, "calls"))
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// wantConversations checks the prompts of all conversations, in any order and with any ids.
func (a *assistants) wantConversations(want ...string) {
	a.t.Helper()
	var got []string
	for _, prompts := range a.conversations() {
		got = append(got, strings.Join(prompts, ", "))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		a.t.Errorf("the conversations are %q, want %q; the calls were %q", got, want, a.calls())
	}
}

func TestEachShapeOfACommandResumesItsSession(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		command []string
		stdin   string
		want    []string
	}{
		"claude":                 {[]string{"claude", "-p", "x"}, "", []string{"x, Continue."}},
		"claude with flags":      {[]string{"claude", "-p", "--output-format", "stream-json", "--verbose", "x"}, "", []string{"x, Continue."}},
		"claude that continues":  {[]string{"claude", "--continue", "-p", "x"}, "", []string{"before", "before, x, Continue."}},
		"claude, in events":      {[]string{"claude", "-c", "-p", "x", "--output-format", "stream-json"}, "", []string{"before, x, Continue."}},
		"claude that resumes":    {[]string{"claude", "-p", "x", "--resume", "earlier"}, "", []string{"before, x, Continue."}},
		"codex":                  {[]string{"codex", "exec", "x"}, "", []string{"x, Continue."}},
		"codex with flags":       {[]string{"codex", "exec", "--json", "--full-auto", "x"}, "", []string{"x, Continue."}},
		"codex in a sandbox":     {[]string{"codex", "exec", "-C", ".", "-s", "workspace-write", "-m", "gpt-5", "x"}, "", []string{"x, Continue."}},
		"gemini":                 {[]string{"gemini", "-p", "x"}, "", []string{"x, Continue."}},
		"a shell":                {[]string{"sh", "-c", "claude -p 'it'\\''s x'"}, "", []string{"it's x, Continue."}},
		"a prompt that is piped": {[]string{"claude", "-p"}, "x\n", []string{"x, Continue."}},
		"codex with a pipe":      {[]string{"codex", "exec", "-"}, "x\n", []string{"x, Continue."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAssistants(t)
			if len(tt.want) > 1 || strings.HasPrefix(tt.want[0], "before") {
				a.converse("earlier", "before")
			}
			cmd := a.watch(append([]string{"--"}, tt.command...)...)
			if tt.stdin != "" {
				cmd.Stdin = strings.NewReader(tt.stdin)
			}
			got := clitest.Finish(t, cmd)
			clitest.WantCode(t, got, 0)
			clitest.WantIn(t, "stdout", got.Out, "All done.")
			a.wantConversations(tt.want...)
			if calls := a.calls(); len(calls) != 2 || strings.Contains(calls[1], "--last") || strings.Contains(calls[1], "--continue") {
				t.Errorf("the assistant was called with %q", calls)
			}
		})
	}
}

// Text that is piped into a watch is the first prompt of the session. After the watch was killed,
// the same command continues the session, and does not send the prompt again.
func TestAPipedPromptIsNotReadAgain(t *testing.T) {
	t.Parallel()
	a := newAssistants(t)
	a.touch("hold")
	piped := func() *exec.Cmd {
		cmd := a.watch("--name", "piped", "--", "codex", "exec")
		cmd.Stdin = strings.NewReader("x\n")
		return cmd
	}
	cmd := piped()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.untilStated("piped", 1)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err := os.Remove(filepath.Join(a.dir, "hold")); err != nil {
		t.Fatal(err)
	}
	a.touch("limited")
	clitest.WantCode(t, clitest.Finish(t, piped()), 0)
	a.wantConversations("x, Continue.")
	other := a.watch("--name", "piped", "--", "codex", "exec")
	other.Stdin = strings.NewReader("y\n")
	clitest.WantCode(t, clitest.Finish(t, other), 0) // the session has ended, so this command starts a new one
	a.wantConversations("x, Continue.", "y")
}

// request sends a request to the watch of a session and decodes the answer. It does nothing if the
// watch is not running yet.
func (a *assistants) request(method, name, verb string, answer any) {
	a.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(a.dir, "state/watch", name, "control.sock"))
	}}}
	req, err := http.NewRequestWithContext(a.t.Context(), method, "http://tideover/api/v1/sessions/"+name+verb, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	_ = json.NewDecoder(resp.Body).Decode(answer) // on an error, answer is unchanged
}

// untilStated waits until a watch knows the assistant's id of the session and the conversation has
// this many prompts. It ends the wait that follows when a watch was killed.
func (a *assistants) untilStated(name string, prompts int) (id string) {
	a.t.Helper()
	testwait.Until(a.t, fmt.Sprintf("session %s and %d prompts", name, prompts), func() bool {
		var st struct{ Session, State string }
		a.request(http.MethodGet, name, "", &st)
		if st.State == "waiting" {
			a.request(http.MethodPost, name, "/retry-now", &struct{}{})
		}
		id = st.Session
		return id != "" && len(a.conversations()[id]) == prompts
	})
	return id
}

// Two sessions of Codex work in one folder, and both watches are killed ten times. Each resumes its
// own conversation.
func TestSessionsInOneFolderNeverCross(t *testing.T) {
	t.Parallel()
	a := newAssistants(t)
	a.touch("hold")
	names := []string{"one", "two"}
	watchOf := func(name string) *exec.Cmd {
		cmd := a.watch("--name", name, "--", "codex", "exec", "work")
		cmd.Env = append(cmd.Env, "CODEX_LINE="+name+" ")
		return cmd
	}
	ids := map[string]string{}
	for n := range 10 {
		var cmds []*exec.Cmd
		for _, name := range names {
			cmd := watchOf(name)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			cmds = append(cmds, cmd)
		}
		for _, name := range names {
			id := a.untilStated(name, n+1)
			if n > 0 && id != ids[name] {
				t.Fatalf("session %s has the id %s, and had %s", name, id, ids[name])
			}
			ids[name] = id
		}
		for _, cmd := range cmds {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	if err := os.Remove(filepath.Join(a.dir, "hold")); err != nil {
		t.Fatal(err)
	}
	a.touch("limited")
	for _, name := range names {
		clitest.WantCode(t, clitest.Finish(t, watchOf(name)), 0)
	}
	var want []string
	for _, name := range names {
		want = append(want, name+" work"+strings.Repeat(", "+name+" Continue.", 10))
	}
	a.wantConversations(want...)
	if calls := strings.Join(a.calls(), "\n"); strings.Contains(calls, "--last") {
		t.Errorf("the assistant was called with %q", calls)
	}
}

// The assistant prints no id. The latest session of the folder is resumed only if no other session
// works there.
func TestWithoutAnIDTheLatestSessionIsResumedOnlyIfItIsTheOnlyOne(t *testing.T) {
	t.Parallel()
	a := newAssistants(t)
	a.touch("silent")
	got := clitest.Finish(t, a.watch("--name", "one", "--", "codex", "exec", "x"))
	clitest.WantCode(t, got, 0)
	clitest.WantIn(t, "stderr", got.Stderr, "printed no session id: a resume takes the latest session of its folder")
	if calls := a.calls(); len(calls) != 2 || calls[1] != "codex exec resume --last Continue." {
		t.Errorf("the assistant was called with %q", calls)
	}
	if err := os.Remove(filepath.Join(a.dir, "limited")); err != nil {
		t.Fatal(err)
	}
	got = clitest.Finish(t, a.watch("--name", "two", "--", "codex", "exec", "y"))
	clitest.WantCode(t, got, 1)
	clitest.WantIn(t, "stderr", got.Stderr, "another session uses the same folder")
	if calls := a.calls(); len(calls) != 3 {
		t.Errorf("the assistant was called with %q", calls)
	}
}

func TestASessionThatIsGoneBeginsAnewOnce(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"claude", "-p", "x"}, {"codex", "exec", "x"}, {"gemini", "-p", "x"}} {
		t.Run(command[0], func(t *testing.T) {
			t.Parallel()
			a := newAssistants(t)
			a.touch("forget")
			got := clitest.Finish(t, a.watch(append([]string{"--name", "gone", "--"}, command...)...))
			clitest.WantCode(t, got, 0)
			clitest.WantIn(t, "stderr", got.Stderr, "no longer exists; starting again with the first prompt")
			a.wantConversations("x")
			if calls := a.calls(); len(calls) != 3 {
				t.Errorf("the assistant was called with %q", calls)
			}
		})
	}
}

func TestAnAssistantThatCannotBeResumedIsNotRunAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		command []string
		why     string
	}{
		"a flag":       {[]string{"gemini", "-p", "x", "--sesame", "y"}, "the flag --sesame is unknown"},
		"an assistant": {[]string{"aider", "--message", "x"}, "how aider resumes a session is unknown"},
		"a script":     {[]string{"sh", "-c", "cd .; aider --message x"}, "aider is run by a command that is too complex"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAssistants(t)
			if name == "a flag" {
				clitest.WriteFile(t, filepath.Join(a.dir, "gemini"), fakeCommon+`limit "got status: RESOURCE_EXHAUSTED. Resource has been exhausted."`)
			}
			got := clitest.Finish(t, a.watch(append([]string{"--quiet", "--name", "stuck", "--"}, tt.command...)...))
			clitest.WantCode(t, got, 1)
			first, _, _ := strings.Cut(got.Stderr, "\n")
			clitest.WantIn(t, "first line", first, "warning: session stuck can't be resumed: ")
			clitest.WantIn(t, "first line", first, tt.why)
			clitest.WantIn(t, "stderr", got.Stderr, "session stuck gave up")
			if calls := a.calls(); len(calls) != 1 {
				t.Errorf("the assistant was called with %q", calls)
			}
			// The same command then starts the session again from the beginning.
			clitest.WantCode(t, clitest.Finish(t, a.watch(append([]string{"--name", "stuck", "--"}, tt.command...)...)), 0)
			if calls := a.calls(); len(calls) != 2 || calls[0] != calls[1] {
				t.Errorf("the assistant was called with %q", calls)
			}
		})
	}
}

func TestRestartRunsTheFirstPromptAgain(t *testing.T) {
	t.Parallel()
	a := newAssistants(t)
	got := clitest.Finish(t, a.watch("--restart", "--", "aider", "--message", "x"))
	clitest.WantCode(t, got, 0)
	clitest.WantIn(t, "stderr", got.Stderr, "its command is run again with its first prompt")
	if calls := a.calls(); len(calls) != 2 || calls[0] != calls[1] {
		t.Errorf("the assistant was called with %q", calls)
	}
}

// A command that is not a known assistant is run again unchanged, and a message at the start says
// so.
func TestACommandThatIsNoAssistantIsRunAgain(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `echo "retry after 1s"; exit 1`, `echo done`)
	cmd, _ := clitest.Command(t, "watch", "--data", filepath.Join(w.dir, "state"), "--policy", quickly, "--", filepath.Join(w.dir, "assistant"), "build")
	got := clitest.Finish(t, cmd)
	clitest.WantCode(t, got, 0)
	first, _, _ := strings.Cut(got.Stderr, "\n")
	clitest.WantIn(t, "first line", first, "an assistant in a script can't be resumed: when it stops, the script is run again unchanged")
	if calls := w.calls(); len(calls) != 2 || calls[1] != "build" {
		t.Errorf("the command was called with %q", calls)
	}
}

func TestConfigCheckSaysWhatCannotBeResumed(t *testing.T) {
	t.Parallel()
	a := newAssistants(t)
	file := filepath.Join(a.dir, "tideover.yaml")
	clitest.WriteFile(t, file, "version: 1\nsessions:\n  night:\n    start: [aider, --message, x]\n  fine:\n    start: [codex, exec, --json, x]\n  again:\n    start: [aider, --message, y]\n    restart: true\n")
	got := clitest.Finish(t, a.tideover("config", "check", "--config", file))
	clitest.WantCode(t, got, 0)
	clitest.WantIn(t, "config check", got.Out+got.Stderr, "tideover.yaml:4:12: sessions.night.start: resume: session night can't be resumed: how aider resumes a session is unknown")
	for _, other := range []string{"session fine", "session again"} {
		if strings.Contains(got.Out+got.Stderr, other) {
			t.Errorf("config check says %q", got.Out+got.Stderr)
		}
	}
}

func TestResumingAWaitingSessionExplains(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `echo "retry after 3600s"; exit 1`)
	cmd, _ := w.until("next at", "--name", "night")
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}()
	resume, _ := clitest.Command(t, "sessions", "resume", "night")
	resume.Env = append(resume.Env, "TIDEOVER_SERVER=unix:"+filepath.Join(w.dir, "state/watch/night/control.sock"))
	got := clitest.Finish(t, resume)
	if got.Code == 0 {
		t.Errorf("exit code 0; %q", got.Out)
	}
	for _, part := range []string{"is not paused: it waits until ", "tideover sessions wake night"} {
		clitest.WantIn(t, "stderr", got.Stderr, part)
	}
}
