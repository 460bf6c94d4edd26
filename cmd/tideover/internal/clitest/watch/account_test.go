//go:build unix

package watch_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// sharedAccount is a fake assistant. The account has a limit that ends a few seconds after the
// first command of session "one", and only that session gets the end of the limit. The other
// sessions get a limit without an end, after the file "go" exists.
const sharedAccount = `#!/bin/sh
cd "$(dirname "$0")"
now=$(date +%s)
echo "$TIDEOVER_SESSION $now" >> calls
if test "$TIDEOVER_SESSION" = one; then
	test -f reset || echo $((now + 5)) > reset
	test $now -ge $(cat reset) && exit 0
	echo "Claude AI usage limit reached|$(cat reset)"
	exit 1
fi
while ! test -f go; do sleep 0.05; done
test $(date +%s) -ge $(cat reset) && exit 0
echo "You've hit your session limit"
exit 1
`

// soon is a policy that gives up after three attempts within a second.
const soon = "fixed(300ms) attempts=3 server-slack=1s"

// newSharedAccount writes the script sharedAccount into a new folder, as the program claude.
func newSharedAccount(t *testing.T) (dir, assistant string) {
	t.Helper()
	dir = clitest.ShortDir(t)
	assistant = filepath.Join(dir, "claude")
	testfile.WriteScript(t, assistant, sharedAccount)
	return dir, assistant
}

// wantOneProbe checks that after the first command of each session, at most one more command was
// run before the limit ended.
func wantOneProbe(t *testing.T, dir string, sessions int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "reset"))
	if err != nil {
		t.Fatal(err)
	}
	reset, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	early := 0
	for line := range strings.Lines(string(calls)) {
		_, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.Atoi(at); err != nil || n < reset {
			early++
		}
	}
	if early > sessions+1 {
		t.Errorf("%d commands of %d sessions were run before the limit ended at %d:\n%s", early, sessions, reset, calls)
	}
}

// Five sessions of a server use one account. One of them learns when the limit ends, and all of
// them wait for that time, even though the server is killed and started again meanwhile.
func TestServeHoldsAllSessionsOfAnAccount(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	dir, assistant := newSharedAccount(t)
	names := []string{"one", "two", "three", "four", "five"}
	file := "version: 1\nsessions:\n"
	for _, name := range names {
		file += fmt.Sprintf("  %s: {start: [%s, -p, x], policy: %q, account-spread: 1s}\n", name, assistant, soon)
	}
	s := clitest.Serve(t, file, dir)
	status := func(name string) (st session.Status) {
		o := s.RunCommand("sessions", "show", name, "--json")
		if err := json.Unmarshal([]byte(o.Out), &st); err != nil {
			t.Fatalf("%v: %+v", err, o)
		}
		return st
	}
	testwait.Until(t, "the first session waits", func() bool { return status("one").State == "waiting" })
	clitest.WriteFile(t, filepath.Join(dir, "go"), "")
	for _, name := range names[1:] {
		testwait.Until(t, "session "+name+" has stopped", func() bool { st := status(name); return st.State == "waiting" || st.Over() })
	}
	if st := status("two"); st.State == "waiting" && (st.WaitBy != "account" || !strings.Contains(st.WaitFor, "reported by session one")) {
		t.Errorf("session two waits by %s: %s", st.WaitBy, st.WaitFor)
	}
	s.Signal(syscall.SIGKILL)
	s.End()
	s = clitest.Serve(t, file, dir)
	for _, name := range names {
		testwait.Until(t, "session "+name+" is over", func() bool { st := status(name); return st.Over() })
		if st := status(name); st.State != "completed" || name != "one" && (st.Spent > 1 || st.Windows != 0) {
			t.Errorf("session %s is %s after %d attempts and %d windows: %s", name, st.State, st.Spent, st.Windows, st.Error)
		}
	}
	wantOneProbe(t, dir, len(names))
	if info, err := os.Stat(filepath.Join(clitest.StateHome(t), "tideover", "accounts", "claude-code.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the account: %v, %v", info, err)
	}
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
	clitest.WantNoProcess(t, s.Mark)
}

// Three watches use one account. One of them learns when the limit ends, and all of them wait for
// that time, even though another one is killed and started again meanwhile.
func TestWatchesShareAnAccount(t *testing.T) {
	t.Parallel()
	dir, assistant := newSharedAccount(t)
	begin := func(name string) *clitest.Background {
		w := &clitest.Background{T: t, Folder: dir}
		w.Cmd, w.Mark = clitest.Command(t, "watch", "--name", name, "--data", filepath.Join(dir, name), "--policy", soon, "--account-spread", "1s", "--", assistant, "-p", "x")
		w.Dir = dir
		return w
	}
	var all []*clitest.Background
	said := map[string]*clitest.SyncBuffer{}
	for _, name := range []string{"one", "two", "three"} {
		w := begin(name)
		said[name] = new(clitest.SyncBuffer)
		w.Stdout, w.Cmd.Stderr = said[name], said[name]
		w.Begin()
		all = append(all, w)
	}
	testwait.Until(t, "the first session waits", func() bool { return strings.Contains(said["one"].String(), "; next at ") })
	clitest.WriteFile(t, filepath.Join(dir, "go"), "")
	testwait.Until(t, "the second session waits", func() bool {
		return strings.Contains(said["two"].String(), "next at ") || strings.Contains(said["two"].String(), "session two ")
	})
	all[1].Signal(syscall.SIGKILL)
	all[1].End()
	all[1] = begin("two")
	again := new(clitest.SyncBuffer)
	all[1].Stdout, all[1].Cmd.Stderr = again, again
	all[1].Begin()
	for i, w := range all {
		if got := w.End(); got.Code != 0 {
			t.Errorf("watch %d ended with %d: %s%s", i+1, got.Code, said["one"].String()+said["two"].String()+said["three"].String(), again.String())
		}
	}
	wantOneProbe(t, dir, 3)
}

func TestAnAccountIsChecked(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--account", "../x"}, {"--account", "A"}, {"--account-spread", "0s"}, {"--account-spread", "x"}} {
		got := clitest.InProcess(t, append(append([]string{"watch"}, args...), "--", "true")...)
		clitest.WantCode(t, got, 125)
		clitest.WantIn(t, "stderr", got.Stderr, args[0])
	}
	file := filepath.Join(t.TempDir(), "x.yaml")
	clitest.WriteFile(t, file, "version: 1\nsessions:\n  s: {start: [x], account: ../x, account-spread: 0s}\nworkflows:\n  w: {steps: [{id: a, run: [x], account: A}, {id: b, http: {get: http://x}, account: b}]}\n")
	got := clitest.InProcess(t, "config", "check", "--config", file)
	clitest.WantCode(t, got, 1)
	for _, part := range []string{`sessions.s.account: "../x" is not a valid account name`, "sessions.s.account-spread", `account: "A" is not a valid account name`, ".account: requires run; this step is an HTTP request"} {
		clitest.WantIn(t, "stderr", got.Stderr+got.Out, part)
	}
	clitest.WriteFile(t, file, "version: 1\nsessions:\n  a: {start: [claude, -p, x]}\n  b: {start: [x], account: work, account-spread: 1m}\n  c: {start: [claude, -p, x], account: none}\n")
	got = clitest.InProcess(t, "config", "show", "--config", file)
	clitest.WantCode(t, got, 0)
	for _, part := range []string{"claude-code", "work", "1m"} {
		clitest.WantIn(t, "stdout", got.Out, part)
	}
}

// A command step that hits a limit holds back the other steps with its account, but no step without
// an account.
func TestStepsShareAnAccount(t *testing.T) {
	t.Parallel()
	s := clitest.Serve(t, `
version: 1
workflows:
  limited: {steps: [{id: a, run: [sh, -c, "echo too fast >&2; exit 75"], account: shop, policy: fixed(1h) attempts=3}]}
  held: {steps: [{id: b, run: [echo, done], account: shop}]}
  free: {steps: [{id: c, run: [echo, done], account: none}]}
`, "")
	limited := strings.TrimSpace(s.RunCommand("run", "limited").Out)
	testwait.Until(t, "the first step waits", func() bool { return s.Show(limited).State == "waiting" })
	held := strings.TrimSpace(s.RunCommand("run", "held").Out)
	testwait.Until(t, "the second step waits, or ends", func() bool { i := s.Show(held); return i.State == "waiting" || i.Finished() })
	i := s.Show(held)
	if a := i.Steps[0].Attempts; len(a) != 1 || a[0].Outcome != "snoozed" || i.Steps[0].Spent != 0 ||
		!strings.HasPrefix(a[0].Error, "held: account shop is limited, without a stated end, reported by step a of workflow limited: too fast; next probe at ") {
		t.Errorf("%s: %+v", i.State, i.Steps[0])
	}
	free := strings.TrimSpace(s.RunCommand("run", "free").Out)
	testwait.Until(t, "the third step ends", func() bool { return s.Show(free).Finished() })
	if i := s.Show(free); i.State != "succeeded" {
		t.Errorf("%s: %s", i.State, i.Error)
	}
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
}

// Without a terminal, the quota of claude is recorded only if a key of the gateway names its
// account.
func TestPauseAtWithoutARecordedQuotaIsWarnedOf(t *testing.T) {
	t.Parallel()
	const sessions = "version: 1\nsessions: {todo: {start: [claude, -p, x], pause-at: 90%}}\n"
	const key = "providers: {a: {preset: anthropic, auth: [{name: k, key: '${env:PATH}', account: claude-code}]}}\n"
	for text, warned := range map[string]bool{sessions: true, sessions + key: false, strings.Replace(sessions, "claude", "codex", 1): false} {
		file := filepath.Join(t.TempDir(), "x.yaml")
		clitest.WriteFile(t, file, text)
		got := clitest.InProcess(t, "config", "check", "--config", file)
		clitest.WantCode(t, got, 0)
		if strings.Contains(got.Out+got.Stderr, "pause-at: has no effect unless the quota") != warned {
			t.Errorf("%s\nconfig check: %s%s; want a warning: %v", text, got.Out, got.Stderr, warned)
		}
	}
}
