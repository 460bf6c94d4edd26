package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detecttest"
)

// messageSlack and messageSpread are added to a stated time: the server-slack of the policy, and up
// to 30 s of jitter.
const messageSlack, messageSpread = 90 * time.Second, 30 * time.Second

// A fake assistant prints each message of current assistants and exits, with 0 and with 1. The
// session stops for the right reason, waits until the right time, and runs the right command.
func TestMessagesOfTodaysAssistants(t *testing.T) {
	t.Parallel()
	for i := range detecttest.Messages {
		m := &detecttest.Messages[i]
		for _, code := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s %d exits with %d", m.Pack, i, code), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { playMessage(t, m, m.Pack, code) })
			})
		}
	}
}

// playMessage runs a session whose first command prints a message.
func playMessage(t *testing.T, m *detecttest.Message, pack string, code int) {
	t.Helper()
	p := newSessionTest(t, func(s *Spec) { s.Pack = pack }, fmt.Sprintf("%d\n%s\n", code, m.Text), "0\nDone.\n")
	sleepUntil(t, detecttest.Now)
	p.open()
	defer p.close()
	p.start()
	synctest.Wait() // until the first command has ended and the session waits or has ended
	i := p.info()
	step := &i.Steps[0]
	last, until := ReadMemo(step.Progress).Last, m.UntilFrom(detecttest.Now, code, time.Local)
	if m.ReasonAt(code) == "completed" {
		if i.State != "succeeded" {
			t.Errorf("%q: the session is %s: %s", m.Text, i.State, i.Error)
		}
		return
	}
	if last == nil || last.Reason != m.ReasonAt(code) || !last.Until.Equal(until) || last.Exit != code {
		t.Fatalf("%q: stopped because of %+v, want %s until %v; the session is %s", m.Text, last, m.ReasonAt(code), until, i.State)
	}
	windows, spent, resumed := 0, 1, "resume "
	switch follows := m.FollowsFrom(detecttest.Now, code, time.Local); follows {
	case detecttest.GivesUp, detecttest.GivesUpTooFar:
		reason := map[string]string{detecttest.GivesUp: "permanent", detecttest.GivesUpTooFar: "server-wait"}[follows]
		if i.State != "dead" || i.Reason != reason || len(p.begun) != 1 {
			t.Errorf("%q: the session is %s (%s) after %d commands, want that it gave up (%s)", m.Text, i.State, i.Reason, len(p.begun), reason)
		}
		return
	case detecttest.WaitsUntil:
		windows, spent = 1, 0
		if least := until.Add(messageSlack); i.Next == nil || i.Next.Before(least) || i.Next.After(least.Add(messageSpread)) {
			t.Errorf("%q: the session waits until %v, want %v and at most %v more", m.Text, i.Next, least, messageSpread)
		}
	case detecttest.WaitsAtLeast:
		if i.Next == nil || i.Next.Before(until) || i.Next.After(detecttest.Now.Add(messageSlack)) {
			t.Errorf("%q: the session waits until %v, want at least %v, without slack", m.Text, i.Next, until)
		}
	case detecttest.Probes:
		spent = 0
		if i.Next == nil || !i.Next.Equal(detecttest.Now.Add(5*time.Minute)) {
			t.Errorf("%q: the session waits until %v, want 5 minutes", m.Text, i.Next)
		}
	case detecttest.StartsAnew:
		resumed = "start "
	}
	if i.State != "waiting" || step.Windows != windows || step.Spent != spent {
		t.Errorf("%q: the session is %s after %d windows and %d attempts, want %d and %d", m.Text, i.State, step.Windows, step.Spent, windows, spent)
	}
	if i = p.wait(); i.State != "succeeded" {
		t.Errorf("%q: the session ends as %s: %s", m.Text, i.State, i.Error)
	}
	calls := p.calls()
	sameID := len(calls) == 2 && strings.TrimPrefix(calls[1], resumed) == strings.TrimPrefix(calls[0], "start ")
	if len(calls) != 2 || !strings.HasPrefix(calls[1], resumed) || sameID != (resumed == "resume ") && !strings.Contains(m.Text, "thread_id") {
		t.Errorf("%q: the commands were %q, want that the second begins with %q", m.Text, calls, resumed)
	}
}

// The pack of a shell is generic. Another pack recognises the message, and the note names that pack.
func TestAnotherPackReadsTheMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSessionTest(t, nil, "1\n[API Error: You have exhausted your daily quota on this model.]\n", "0\n")
		p.open()
		defer p.close()
		p.start()
		synctest.Wait()
		i := p.info()
		last := ReadMemo(i.Steps[0].Progress).Last
		if i.State != "waiting" || i.Steps[0].Windows != 1 || last.Reason != "rate-limit" || !strings.Contains(i.Error, "(by the pack gemini)") {
			t.Errorf("the session is %s after %d windows, stopped because of %+v: %s", i.State, i.Steps[0].Windows, last, i.Error)
		}
	})
}

func TestDecoysOfTodaysMessages(t *testing.T) {
	t.Parallel()
	for n, decoy := range detecttest.Decoys {
		for _, code := range []int{0, 1} {
			if code == 1 && decoy.Zero {
				continue
			}
			t.Run(fmt.Sprintf("%s %d exits with %d", decoy.Pack, n, code), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					p := newSessionTest(t, func(s *Spec) { s.Pack = decoy.Pack }, fmt.Sprintf("%d\n%s\n", code, decoy.Text))
					p.open()
					defer p.close()
					p.start()
					synctest.Wait()
					i := p.info()
					if last := ReadMemo(i.Steps[0].Progress).Last; code == 0 && i.State != "succeeded" || code == 1 && last.Reason != "crashed" {
						t.Errorf("exit code %d: %q is taken for %+v; the session is %s", code, decoy.Text, last, i.State)
					}
				})
			})
		}
	}
}

// A limit of milliseconds uses an attempt and no window, and gets no slack. The session gives up when
// it has no attempts left.
func TestShortWaitsAreBackoff(t *testing.T) {
	t.Parallel()
	const limit = "1\nRate limit reached for gpt-5. Please try again in 28ms.\n"
	synctest.Test(t, func(t *testing.T) {
		p := newSessionTest(t, func(s *Spec) { s.Pack = "codex" }, limit, limit, "0\n")
		p.open()
		defer p.close()
		p.start()
		if i := p.wait(); i.State != "succeeded" || i.Steps[0].Windows != 0 || i.Steps[0].Spent != 2 {
			t.Errorf("the session is %s after %d windows and %d attempts: %s", i.State, i.Steps[0].Windows, i.Steps[0].Spent, i.Error)
		}
		if took := p.begun[1].Sub(p.begun[0]); took >= messageSlack {
			t.Errorf("the first wait took %v", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := newSessionTest(t, func(s *Spec) { s.Pack = "codex" }, limit, limit, limit, limit, limit, limit, limit)
		p.open()
		defer p.close()
		p.start()
		if i := p.wait(); i.State != "dead" || i.Reason != "attempts" || len(p.begun) != 6 {
			t.Errorf("the session is %s (%s) after %d commands", i.State, i.Reason, len(p.begun))
		}
	})
}

func TestPackOfACommand(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"claude -p Work": "claude-code", "/usr/local/bin/codex exec Work": "codex", "gemini -p Work": "gemini", "agy -p Work": "agy",
		"copilot -p Work": "copilot-cli", "gh copilot -p Work": "copilot-cli", "cursor-agent -p Work": "cursor-agent", "agent -p Work": "cursor-agent",
		"cursor agent -p Work": "cursor-agent", "opencode run Work": "opencode", "aider --message Work": "aider", "claude.exe -p Work": "claude-code",
		"npx -y @anthropic-ai/claude-code@latest -p Work": "claude-code", "npx @openai/codex exec Work": "codex", "bunx opencode-ai run Work": "opencode",
		"uvx aider-chat": "aider", "python3 -m aider --message Work": "aider",
		"cursor .": "generic", "gh pr create": "generic", "sh run.sh": "generic", "npx vitest": "generic", "python3 -m http.server": "generic", "": "generic",
	} {
		if got := CommandPack(strings.Fields(command)); got != want {
			t.Errorf("CommandPack(%q) = %s, want %s", command, got, want)
		}
	}
}
