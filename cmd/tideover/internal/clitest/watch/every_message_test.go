//go:build unix

package watch_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/detecttest"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// everyMessage selects all texts. Without it, there is one of each assistant and of each thing that
// follows; package detect tests all texts without processes.
var everyMessage = flag.Bool("messages.every", false, "run a session for every known message and decoy, and each exit code")

// printer is an assistant whose first call runs the script in the file of its session, and whose
// other calls succeed. It records the arguments of its calls.
const printer = `#!/bin/sh
file=${0%/*}/$TIDEOVER_SESSION
first=yes
test -e "$file.calls" && first=no
echo "$*" >> "$file.calls"
test $first = no && exit 0
. "$file.sh"
`

// printerThread is the session id that codex prints.
const printerThread = "0199a213-81c0-7800-8aa1-bbab2a035a53"

// printerPolicy is the default policy of sessions with a very long delay, so that a session
// continues only when the test ends the wait.
const printerPolicy = "fixed(1h) attempts=6 server-wait=8d server-slack=90s reset-after=10m"

// printerProgram is the program of an assistant and its arguments.
type printerProgram struct {
	name          string
	start, resume []string // if resume is nil, tideover knows the resume command of the assistant
}

// printerPrograms maps each pack to the program that its sessions run.
var printerPrograms = func() map[string]printerProgram {
	start, resume := []string{"start", "{{.Session}}"}, []string{"resume", "{{.Session}}"}
	programs := map[string]printerProgram{
		"claude-code": {name: "claude", start: []string{"-p", "Work"}},
		"codex":       {name: "codex", start: []string{"exec", "Work"}},
		"gemini":      {name: "gemini", start: []string{"-p", "Work"}},
	}
	for pack, name := range map[string]string{"agy": "agy", "copilot-cli": "copilot", "cursor-agent": "cursor-agent", "opencode": "opencode", "aider": "aider", "generic": "job"} {
		programs[pack] = printerProgram{name, start, resume}
	}
	return programs
}()

// printers is a server with sessions of assistants that print a text and exit.
type printers struct {
	t      *testing.T
	dir    string
	config strings.Builder
	served *clitest.Server
	client *client.Client
}

func newPrinters(t *testing.T) *printers {
	t.Helper()
	p := &printers{t: t, dir: clitest.ShortDir(t)}
	for _, program := range printerPrograms {
		testfile.WriteScript(t, filepath.Join(p.dir, program.name), printer)
	}
	// Run only a few commands at once, to leave processor time for other tests.
	fmt.Fprintf(&p.config, "version: 1\nserver: {concurrency: 4}\nsessions:\n")
	return p
}

// add adds a session to the configuration. Its first command, the program of the pack, prints the
// text and exits with the code.
func (p *printers) add(name, pack, text string, code int) {
	p.t.Helper()
	program := printerPrograms[pack]
	command := func(key string, args []string) {
		if args == nil {
			return
		}
		words, err := json.Marshal(slices.Concat([]string{filepath.Join(p.dir, program.name)}, args))
		if err != nil {
			p.t.Fatal(err)
		}
		fmt.Fprintf(&p.config, "    %s: %s\n", key, words)
	}
	fmt.Fprintf(&p.config, "  %s:\n    account: none\n    policy: %s\n", name, printerPolicy)
	command("start", program.start)
	command("resume", program.resume)
	if pack == "codex" {
		text = "session id: " + printerThread + "\n" + text
	}
	clitest.WriteFile(p.t, filepath.Join(p.dir, name+".sh"), fmt.Sprintf("printf '%%s\\n' '%s'\nexit %d\n", strings.ReplaceAll(text, "'", `'\''`), code))
}

// serve starts the server.
func (p *printers) serve() {
	p.t.Helper()
	p.served = clitest.Serve(p.t, p.config.String(), p.dir, "TZ=UTC")
	var err error
	if p.client, err = client.Dial(client.Target{Server: "unix:" + filepath.Join(p.served.Data, "tideover.sock")}); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(p.client.Close)
}

// stop ends the server.
func (p *printers) stop() {
	p.t.Helper()
	p.served.Signal(syscall.SIGTERM)
	clitest.WantCode(p.t, p.served.End(), 0)
	clitest.WantNoProcess(p.t, p.served.Mark)
}

// stopped waits until the first command of a session has ended and the result is recorded. It
// returns the state of the session, and its run.
func (p *printers) stopped(name string) (st session.Status, run *engine.Info) {
	p.t.Helper()
	testwait.Until(p.t, name+" waits, or is over", func() bool {
		var err error
		if st, err = p.client.Session(testwait.Context(p.t), name); err != nil {
			p.t.Fatal(err)
		}
		return st.State == "waiting" || st.Over()
	})
	run, err := p.client.Get(testwait.Context(p.t), st.Run)
	if err != nil {
		p.t.Fatal(err)
	}
	if len(run.Steps) != 1 || len(run.Steps[0].Attempts) != 1 || run.Steps[0].Attempts[0].Ended == nil {
		p.t.Fatalf("%s has the steps %+v, want one attempt that has ended", name, run.Steps)
	}
	return st, run
}

// calls returns the arguments of the commands of a session.
func (p *printers) calls(name string) []string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, name+".calls"))
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// printedMessage is a message that is printed by the first command of a session.
type printedMessage struct {
	*detecttest.Message
	session string
	code    int
	run     string // id of the run; set when the wait was ended
	anew    bool   // the second command may start a new conversation
}

// needed reports whether one of the keys is new, and adds them to seen.
func needed(seen map[string]bool, keys ...string) (is bool) {
	for _, key := range keys {
		is = is || !seen[key]
		seen[key] = true
	}
	return is || *everyMessage
}

// One server runs a session for each message and exit code. Each session stops for the right
// reason, waits until the right time, and then runs the right command.
func TestServeReadsEveryMessage(t *testing.T) {
	t.Parallel()
	p := newPrinters(t)
	// Dates and times of day are hours away, so that none passes while the test runs.
	messages := detecttest.MessagesAt(time.Now().Add(6 * time.Hour))
	var printed []*printedMessage
	seen := map[string]bool{}
	for i := range messages {
		for _, code := range []int{1, 0} {
			m := &printedMessage{Message: &messages[i], session: fmt.Sprintf("m%02d-exit-%d", i, code), code: code}
			if follows := m.FollowsFrom(time.Now(), code, time.UTC); !needed(seen, m.Pack, fmt.Sprintf("%s after code %d", follows, code), m.ReasonAt(code)) {
				continue
			}
			p.add(m.session, m.Pack, m.Text, code)
			printed = append(printed, m)
		}
	}
	p.serve()
	for _, m := range printed {
		st, run := p.stopped(m.session)
		m.checkStop(t, st, run)
		if st.State == "waiting" {
			if _, err := p.client.RetrySession(testwait.Context(t), m.session); err != nil {
				t.Fatalf("%s: %v", m.session, err)
			}
			m.run = st.Run
		}
	}
	for _, m := range printed {
		if m.run != "" {
			if _, err := p.client.Result(testwait.Context(t), m.run); err != nil {
				t.Errorf("%s: %q: the session is not completed: %v", m.session, m.Text, err)
			}
		}
		m.checkCalls(t, p.calls(m.session))
	}
	p.stop()
}

// checkStop checks that the session has stopped for the reason in the message, and that its state
// is right.
func (m *printedMessage) checkStop(t *testing.T, st session.Status, run *engine.Info) {
	t.Helper()
	step := &run.Steps[0]
	a := step.Attempts[0]
	from, to := a.Started, *a.Ended
	follows := m.FollowsFrom(from, m.code, time.UTC)
	if follows == detecttest.Completes {
		if st.State != "completed" {
			t.Errorf("%s: %q: the session is %s: %s", m.session, m.Text, st.State, st.Error)
		}
		return
	}
	// The message was printed at an unknown time between the start and the end of the attempt.
	least, most := m.UntilFrom(from, m.code, time.UTC), m.UntilFrom(to, m.code, time.UTC)
	if st.Last == nil || st.Last.Reason != m.ReasonAt(m.code) || st.Last.Exit != m.code || st.Last.Until.Before(least) || st.Last.Until.After(most) {
		t.Errorf("%s: %q: stopped because of %+v, want %s from %v to %v; the session is %s", m.session, m.Text, st.Last, m.ReasonAt(m.code), least, most, st.State)
		return
	}
	if later := most.Sub(least); later != 0 && later != to.Sub(from) || follows != m.FollowsFrom(to, m.code, time.UTC) {
		return // the stated time of day was so near that it is unclear whether it had passed
	}
	state, reason, windows, spent := "waiting", "", 0, 1
	switch follows {
	case detecttest.GivesUp:
		state, reason = "gave-up", "permanent"
	case detecttest.GivesUpTooFar:
		state, reason = "gave-up", "server-wait"
	case detecttest.WaitsUntil:
		windows, spent = 1, 0
		least, most = least.Add(90*time.Second), most.Add(90*time.Second+30*time.Second)
	case detecttest.Probes:
		spent = 0
		least, most = to.Add(5*time.Minute-time.Second), to.Add(5*time.Minute+30*time.Second) // an account has one probe
	default:
		m.anew = follows == detecttest.StartsAnew
		least, most = to.Add(time.Hour), to.Add(time.Hour)
	}
	if st.State != state || st.Reason != reason || st.Windows != windows || st.Commands != 1 {
		t.Errorf("%s: %q: the session is %s (%s) after %d windows and %d commands, want %s (%s) after %d and 1", m.session, m.Text, st.State, st.Reason, st.Windows, st.Commands, state, reason, windows)
		return
	}
	if state == "waiting" && (st.Spent != spent || st.Next == nil || st.Next.Before(least) || st.Next.After(most)) {
		t.Errorf("%s: %q: the session waits until %v after %d attempts that count, want from %v to %v, and %d", m.session, m.Text, st.Next, st.Spent, least, most, spent)
	}
}

// checkCalls checks that the session has called its assistant with the right arguments: first to
// start, and then to resume.
func (m *printedMessage) checkCalls(t *testing.T, calls []string) {
	t.Helper()
	first := strings.Fields(calls[0])
	id := first[len(first)-1]
	var want []string
	switch m.Pack {
	case "claude-code", "gemini":
		want = []string{"-p Work --session-id " + id, "-p Continue. --resume " + id}
	case "codex":
		want = []string{"exec Work", "exec resume " + printerThread + " Continue."}
	default:
		want = []string{"start " + id, "resume " + id}
	}
	switch {
	case m.run == "":
		want = want[:1]
	case m.anew && len(calls) == 2 && calls[1] != calls[0]:
		want[1] = strings.TrimSuffix(calls[0], id) + strings.TrimPrefix(calls[1], strings.TrimSuffix(calls[0], id))
	}
	if !slices.Equal(calls, want) {
		t.Errorf("%s: %q: the commands were %q, want %q", m.session, m.Text, calls, want)
	}
}

// Output that contains words of a message, but is not a message, is not taken for a limit: with
// exit code 0 the session is completed, and with 1 it counts as a crash.
func TestServeLeavesDecoysAlone(t *testing.T) {
	t.Parallel()
	p := newPrinters(t)
	name := func(n, code int) string { return fmt.Sprintf("d%02d-exit-%d", n, code) }
	var printed []int
	seen := map[string]bool{}
	for n, decoy := range detecttest.Decoys {
		if !needed(seen, decoy.Pack, fmt.Sprint(decoy.Zero)) {
			continue
		}
		printed = append(printed, n)
		for _, code := range []int{0, 1} {
			p.add(name(n, code), decoy.Pack, decoy.Text, code)
		}
	}
	p.serve()
	for _, n := range printed {
		decoy := detecttest.Decoys[n]
		if st, _ := p.stopped(name(n, 0)); st.State != "completed" {
			t.Errorf("exit code 0: %q is taken for %+v; the session is %s", decoy.Text, st.Last, st.State)
		}
		want := "crashed"
		if decoy.Zero { // it is a decoy only with exit code 0
			want = detectedReason(t, decoy.Pack, decoy.Text, 1)
		}
		if st, _ := p.stopped(name(n, 1)); st.Last == nil || st.Last.Reason != want || want == "crashed" && (st.State != "waiting" || st.Windows != 0) {
			t.Errorf("exit code 1: %q is taken for %+v, want %s; the session is %s", decoy.Text, st.Last, want, st.State)
		}
	}
	p.stop()
}

// detectedReason returns the reason that the pack detects for a command that prints the text and
// exits with the code.
func detectedReason(t *testing.T, pack, text string, code int) string {
	t.Helper()
	rules, err := detect.Builtin(pack)
	if err != nil {
		t.Fatal(err)
	}
	d := detect.New(rules, detect.Options{Location: time.UTC})
	if _, err := d.Stream().Write([]byte(text + "\n")); err != nil {
		t.Fatal(err)
	}
	return d.StopByAny(code).Reason.String()
}
