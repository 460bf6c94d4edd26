package session

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/internal/textfmt"
)

// Messages of assistants.
const (
	codexStarted = `{"type":"thread.started","thread_id":"0b1a0000-0000-4000-8000-00000000c0de"}`
	codexLimited = "You've hit your usage limit. Upgrade to Pro or try again in 2 hours."
)

// answer is the reaction of an assistant to a call.
type answer struct {
	says  string
	code  int
	after time.Duration
}

// fakeAssistants are assistants with virtual time. Each gives its answers one after the other, and
// then completes its work.
type fakeAssistants struct {
	mu      sync.Mutex
	answers map[string][]answer
	calls   []workCall
}

// workCall is a command that was run.
type workCall struct {
	assistant string
	args      string
	dir       string
	at        time.Time
}

func (c workCall) String() string { return fmt.Sprintf("%s %s at %v", c.assistant, c.args, c.at.UTC()) }

// launch replaces [Runner.launch].
func (w *fakeAssistants) launch(ctx context.Context, c guard.Command) (guard.Result, error) {
	name := filepath.Base(c.Args[0])
	w.mu.Lock()
	w.calls = append(w.calls, workCall{name, strings.Join(c.Args[1:], " "), c.Dir, time.Now()})
	a := answer{says: "All done."}
	if list := w.answers[name]; len(list) > 0 {
		a, w.answers[name] = list[0], list[1:]
	}
	w.mu.Unlock()
	first, last, _ := strings.Cut(a.says, "\n")
	if _, err := io.WriteString(c.Stdout, first+"\n"); err != nil {
		return guard.Result{}, err
	}
	select {
	case <-time.After(a.after): // real clock: it runs in a bubble
	case <-ctx.Done():
		return guard.Result{Code: 143, Told: true}, nil
	}
	_, err := io.WriteString(c.Stdout, last+"\n")
	return guard.Result{Code: a.code}, err
}

// all returns the commands so far.
func (w *fakeAssistants) all() []workCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// names returns the assistants in the order of their calls.
func (w *fakeAssistants) names() string {
	var list []string
	for _, c := range w.all() {
		list = append(list, c.assistant)
	}
	return strings.Join(list, " ")
}

// limitedFor is an answer of Claude Code with a limit, after a delay.
func limitedFor(d, after time.Duration) answer {
	return answer{fmt.Sprintf("Working.\nClaude AI usage limit reached|%d", time.Now().Add(d).Unix()), 1, after}
}

// newHandover returns a host of claude sessions that are handed over to others.
func newHandover(t *testing.T, fallback []string, change func(*Spec), answers map[string][]answer, names ...string) (*sessionHost, *fakeAssistants) {
	t.Helper()
	w := &fakeAssistants{answers: answers}
	dir := t.TempDir()
	k := newSessionHost(t, nil, t.TempDir(), func(s *Spec) {
		s.Start, s.Dir = []string{"claude", "-p", "Work through TODO.md"}, dir
		s.PlanResume(false)
		for _, word := range fallback {
			f, err := ParseFallback([]string{word})
			if err != nil {
				t.Fatal(err)
			}
			s.Fallback = append(s.Fallback, f)
		}
		if change != nil {
			change(s)
		}
	}, names...)
	k.launch = w.launch
	return k, w
}

// midday advances the virtual time to a date that messages can have.
func midday() time.Time {
	noon := time.Date(2026, 7, 9, 12, 0, 0, 0, time.UTC)
	time.Sleep(time.Until(noon)) // real clock: it runs in a bubble
	return noon
}

// turnsOf formats turns.
func turnsOf(list []Turn) string {
	var words []string
	for _, t := range list {
		words = append(words, t.Assistant+" "+t.Ended)
	}
	return strings.Join(words, ", ")
}

// wantBack checks that the time is within the range in which a session continues after a reset.
func wantBack(t *testing.T, at, reset time.Time) {
	t.Helper()
	if late := at.Sub(reset.Add(90 * time.Second)); late < 0 || late > 31*time.Second {
		t.Errorf("the session went on at %v, want 90s to 121s after %v", at.UTC(), reset.UTC())
	}
}

func TestALongLimitIsHandedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := midday()
		reset := now.Add(5 * time.Hour)
		k, w := newHandover(t, []string{"codex"}, nil, map[string][]answer{
			"claude": {limitedFor(5*time.Hour, 10*time.Minute)},
			"codex":  {{codexStarted + "\nAll done.", 0, time.Hour}},
		}, "shop")
		k.open()
		defer k.close()
		time.Sleep(30 * time.Minute)
		st := k.status("shop")
		if h := st.Handover; st.State != "running" || h == nil || h.Assistant != "codex" || !h.Until.Equal(reset) || st.Windows != 1 ||
			turnsOf(st.Turns) != "claude rate-limit, codex " {
			t.Errorf("session is %s, %d windows, handed over %+v, turns %+v", st.State, st.Windows, st.Handover, st.Turns)
		}
		time.Sleep(time.Hour)
		st = k.status("shop")
		if st.State != "waiting" || st.Next == nil || st.Handover != nil || !strings.Contains(st.WaitFor, "codex stopped, completed; claude continues when its limit has ended") {
			t.Fatalf("session is %s until %v: %s", st.State, st.Next, st.WaitFor)
		}
		wantBack(t, *st.Next, reset)
		k.wait()
		calls := w.all()
		if w.names() != "claude codex claude" {
			t.Fatalf("the assistants were called as %v", calls)
		}
		if calls[1].at.Sub(now) != 10*time.Minute || calls[1].dir != calls[0].dir || calls[1].dir == "" {
			t.Errorf("codex was called at %v in %s", calls[1].at, calls[1].dir)
		}
		for _, part := range []string{"exec --json --sandbox workspace-write Another assistant (claude) worked in this folder", "usage limit until Jul 9 ", "The task that claude was given:\n\nWork through TODO.md"} {
			if !strings.Contains(calls[1].args, part) {
				t.Errorf("codex was called with %q, want %q in it", calls[1].args, part)
			}
		}
		wantBack(t, calls[2].at, reset)
		if !strings.Contains(calls[2].args, "-p Continue. While your usage limit lasted, another assistant (codex) worked in this folder") || !strings.Contains(calls[2].args, "--resume ") {
			t.Errorf("claude went on with %q", calls[2].args)
		}
		st = k.status("shop")
		if st.State != "completed" || st.Windows != 1 || st.Spent != 0 || st.Commands != 3 || turnsOf(st.Turns) != "claude rate-limit, codex completed, claude completed" {
			t.Errorf("session is %s after %d windows, %d attempts and %d commands, turns %s", st.State, st.Windows, st.Spent, st.Commands, turnsOf(st.Turns))
		}
		if codex := st.Turns[1]; !codex.Fallback || !codex.From.Equal(calls[1].at) || codex.To.Sub(codex.From) != time.Hour {
			t.Errorf("the turn of codex is %+v", codex)
		}
	})
}

func TestOnlyALongLimitIsHandedOver(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		wait   time.Duration
		change func(*Spec)
		want   string
	}{
		"an hour, which is the default": {time.Hour, nil, "claude claude"},
		"more than an hour":             {time.Hour + time.Second, nil, "claude codex claude"},
		"less than is configured":       {5 * time.Hour, func(s *Spec) { s.FallbackAfter = 6 * time.Hour }, "claude claude"},
		"more than is configured":       {10 * time.Minute, func(s *Spec) { s.FallbackAfter = 5 * time.Minute }, "claude codex claude"},
		"a session without a fallback":  {5 * time.Hour, func(s *Spec) { s.Fallback = nil }, "claude claude"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				midday()
				k, w := newHandover(t, []string{"codex"}, tt.change, map[string][]answer{"claude": {limitedFor(tt.wait, 0)}}, "shop")
				k.open()
				defer k.close()
				k.wait()
				if st := k.status("shop"); w.names() != tt.want || st.Windows != 1 {
					t.Errorf("the assistants were called as %s, %d windows; want %s and 1", w.names(), st.Windows, tt.want)
				}
			})
		})
	}
}

// The process ends while a fallback works, and a new process continues: with the session of the
// fallback, or with the session's own assistant if its limit has ended.
func TestAHandOverGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		away time.Duration
		want string
	}{
		"before the reset": {time.Hour, "claude codex codex claude"},
		"after the reset":  {6 * time.Hour, "claude codex claude"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reset := midday().Add(5 * time.Hour)
				k, w := newHandover(t, []string{"codex"}, nil, map[string][]answer{
					"claude": {limitedFor(5*time.Hour, 0)},
					"codex":  {{codexStarted + "\nAll done.", 0, 3 * time.Hour}},
				}, "shop")
				k.open()
				time.Sleep(10 * time.Minute)
				k.close()
				time.Sleep(tt.away)
				k.open()
				defer k.close()
				k.wait()
				calls := w.all()
				if w.names() != tt.want {
					t.Fatalf("the assistants were called as %v", calls)
				}
				if tt.away < 5*time.Hour {
					if want := "exec --sandbox workspace-write resume 0b1a0000-0000-4000-8000-00000000c0de --json Continue."; calls[2].args != want {
						t.Errorf("codex went on with %q, want %q", calls[2].args, want)
					}
					wantBack(t, calls[3].at, reset)
				}
				if st := k.status("shop"); st.State != "completed" || st.Windows != 1 || st.Spent != 0 || st.Turns[1].Ended != "interrupted" {
					t.Errorf("session is %s after %d windows and %d attempts, turns %s", st.State, st.Windows, st.Spent, turnsOf(st.Turns))
				}
			})
		})
	}
}

// Each assistant is tried once per limit, until one has completed its work.
func TestTheNextAssistantWorksIfOneCanNot(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		codex answer
		turn  string
	}{
		"a limit":   {answer{codexStarted + "\n" + codexLimited, 1, time.Minute}, "codex rate-limit"},
		"a crash":   {answer{codexStarted + "\nsegmentation fault", 1, time.Minute}, "codex crashed"},
		"no login":  {answer{codexStarted + "\nYour workspace is out of credits.", 1, time.Minute}, "codex terminal"},
		"not found": {answer{"", 127, 0}, "codex not-run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reset := midday().Add(5 * time.Hour)
				k, w := newHandover(t, []string{"codex", "gemini"}, nil, map[string][]answer{"claude": {limitedFor(5*time.Hour, 0)}, "codex": {tt.codex}}, "shop")
				k.open()
				defer k.close()
				k.wait()
				calls := w.all()
				if w.names() != "claude codex gemini claude" || calls[2].at.Sub(calls[1].at).Round(time.Second) != tt.codex.after {
					t.Fatalf("the assistants were called as %v", calls)
				}
				if !strings.HasPrefix(calls[2].args, "-p Another assistant (claude) ") || !strings.Contains(calls[2].args, "--approval-mode auto_edit --session-id ") {
					t.Errorf("gemini was called with %q", calls[2].args)
				}
				wantBack(t, calls[3].at, reset)
				st := k.status("shop")
				want := "claude rate-limit, " + tt.turn + ", gemini completed, claude completed"
				if st.State != "completed" || st.Windows != 1 || st.Spent != 0 || turnsOf(st.Turns) != want {
					t.Errorf("session is %s after %d windows and %d attempts, turns %s; want %s", st.State, st.Windows, st.Spent, turnsOf(st.Turns), want)
				}
			})
		})
	}
}

// An assistant whose account has a known limit is skipped.
func TestALimitedAssistantIsNotHandedOverTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reset := midday().Add(5 * time.Hour)
		k, w := newHandover(t, []string{"codex"}, nil, map[string][]answer{
			"claude": {limitedFor(5*time.Hour, time.Minute), limitedFor(10*time.Hour, time.Minute)},
			"codex":  {{codexStarted + "\nYou've hit your usage limit. Try again at Jul 11th, 2026 11:52 AM.", 1, time.Minute}},
		}, "shop")
		k.open()
		defer k.close()
		k.wait()
		if w.names() != "claude codex claude claude" {
			t.Fatalf("the assistants were called as %v", w.all())
		}
		wantBack(t, w.all()[3].at, reset.Add(5*time.Hour))
		st := k.status("shop")
		if want := "claude rate-limit, codex rate-limit, claude rate-limit, codex not-run, claude completed"; turnsOf(st.Turns) != want || st.Windows != 2 || st.Commands != 4 {
			t.Errorf("turns %s, %d windows, %d commands; want %s", turnsOf(st.Turns), st.Windows, st.Commands, want)
		}
		if line := st.Turns[3].Line; !strings.Contains(line, "account codex is limited until ") {
			t.Errorf("codex was not run because of %q", line)
		}
	})
}

// retry-now ends the wait after a handover, and the session's own assistant continues.
func TestRetryNowEndsAHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		midday()
		k, w := newHandover(t, []string{"codex"}, nil, map[string][]answer{"claude": {limitedFor(5*time.Hour, 0)}, "codex": {{codexStarted + "\nAll done.", 0, time.Hour}}}, "shop")
		k.open()
		defer k.close()
		time.Sleep(2 * time.Hour)
		if err := k.manager.RetryNow(t.Context(), "shop", "me"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if st := k.status("shop"); st.State != "completed" || w.names() != "claude codex claude" {
			t.Errorf("session is %s; the assistants were called as %s", st.State, w.names())
		}
	})
}

// A pause ends the command of the other assistant, which is resumed afterwards. retry-now during
// the pause continues with the session's own assistant.
func TestAHandOverIsPaused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		goOn func(*Manager) error
		want string
	}{
		"resume":    {func(m *Manager) error { return m.Resume(context.Background(), "shop", "me") }, "claude codex codex claude"},
		"retry-now": {func(m *Manager) error { return m.RetryNow(context.Background(), "shop", "me") }, "claude codex claude"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				midday()
				k, w := newHandover(t, []string{"codex"}, nil, map[string][]answer{"claude": {limitedFor(5*time.Hour, 0)}, "codex": {{codexStarted + "\nAll done.", 0, 2 * time.Hour}}}, "shop")
				k.open()
				defer k.close()
				time.Sleep(time.Hour)
				if err := k.manager.Pause(t.Context(), "shop", "me"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				if st := k.status("shop"); st.State != "paused" || turnsOf(st.Turns) != "claude rate-limit, codex interrupted" {
					t.Errorf("session is %s, turns %s", st.State, turnsOf(st.Turns))
				}
				if err := tt.goOn(k.manager); err != nil {
					t.Fatal(err)
				}
				k.wait()
				if w.names() != tt.want {
					t.Errorf("the assistants were called as %v, want %s", w.all(), tt.want)
				}
			})
		})
	}
}

// The limits of windows and time also apply with a fallback.
func TestAHandOverKeepsTheBounds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change       func(*Spec)
		reset        time.Duration
		want, reason string
	}{
		"windows":     {func(s *Spec) { s.Windows = 1 }, 5 * time.Hour, "claude codex claude", "windows"},
		"server-wait": {nil, 9 * 24 * time.Hour, "claude", "server-wait"},
		"give up":     {func(s *Spec) { s.On = map[string]Action{"rate-limit": {Do: DoGiveUp}} }, 5 * time.Hour, "claude", "permanent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				midday()
				k, w := newHandover(t, []string{"codex"}, tt.change, map[string][]answer{"claude": {limitedFor(tt.reset, 0), limitedFor(2*tt.reset, 0), limitedFor(3*tt.reset, 0)}}, "shop")
				k.open()
				defer k.close()
				i, err := k.engine.Wait(t.Context(), k.status("shop").Run)
				if err != nil || i.State != "dead" || i.Reason != tt.reason || w.names() != tt.want {
					t.Errorf("session is %s because of %s after %s, %v; want %s after %s", i.State, i.Reason, w.names(), err, tt.reason, tt.want)
				}
			})
		})
	}
}

// A fallback that exceeds the timeout of an attempt is not resumed, and uses no attempt.
func TestATimeoutEndsAHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reset := midday().Add(5 * time.Hour)
		k, w := newHandover(t, []string{"codex"}, func(s *Spec) { s.Policy.AttemptTimeout = time.Hour }, map[string][]answer{
			"claude": {limitedFor(5*time.Hour, 0)}, "codex": {{codexStarted + "\nAll done.", 0, 2 * time.Hour}},
		}, "shop")
		k.open()
		defer k.close()
		k.wait()
		st := k.status("shop")
		if w.names() != "claude codex claude" || st.Spent != 0 || turnsOf(st.Turns) != "claude rate-limit, codex interrupted, claude completed" {
			t.Fatalf("the assistants were called as %v; %d attempts were spent, turns %s", w.all(), st.Spent, turnsOf(st.Turns))
		}
		wantBack(t, w.all()[2].at, reset)
	})
}

// A user who ends the fallback ends the session, as with the session's own assistant.
func TestTheUserEndsAHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		midday()
		k, w := newHandover(t, []string{"codex", "gemini"}, nil, map[string][]answer{"claude": {limitedFor(5*time.Hour, 0)}, "codex": {{codexStarted, 130, time.Hour}}}, "shop")
		k.open()
		defer k.close()
		time.Sleep(2 * time.Hour)
		if st := k.status("shop"); st.State != "stopped" || w.names() != "claude codex" || len(st.Turns) != 2 || st.Turns[1].To.IsZero() {
			t.Errorf("session is %s; the assistants were called as %s, turns %+v", st.State, w.names(), st.Turns)
		}
	})
}

// In quiet hours no assistant starts.
func TestQuietHoursOfAHandOver(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reset time.Duration
		hours Hours
		want  string
		at    string // when the second command starts
	}{
		"the limit ends in them":    {5 * time.Hour, Hours{"12:01", "18:00", "UTC"}, "claude claude", "18:00"},
		"the limit ends after them": {8 * time.Hour, Hours{"12:01", "18:00", "UTC"}, "claude codex claude", "18:00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				midday()
				k, w := newHandover(t, []string{"codex"}, func(s *Spec) { s.Quiet = &tt.hours }, map[string][]answer{"claude": {limitedFor(tt.reset, 2*time.Minute)}}, "shop")
				k.open()
				defer k.close()
				k.wait()
				if calls := w.all(); w.names() != tt.want || calls[1].at.UTC().Format("15:04") != tt.at {
					t.Errorf("the assistants were called as %v, want %s, from %s on", calls, tt.want, tt.at)
				}
			})
		})
	}
}

// A session that its account holds back is handed over, too, and uses neither an attempt nor a window.
func TestAHeldSessionIsHandedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reset := midday().Add(5 * time.Hour)
		k, w := newHandover(t, []string{"codex"}, nil, map[string][]answer{
			"claude": {limitedFor(5*time.Hour, time.Minute), {"Working.\nYou've hit your session limit", 1, 2 * time.Minute}},
			"codex":  {{codexStarted + "\nAll done.", 0, time.Hour}, {codexStarted + "\nAll done.", 0, time.Hour}},
		}, "one", "two")
		k.open()
		defer k.close()
		k.wait()
		calls := w.all()
		if w.names() != "claude claude codex codex claude claude" {
			t.Fatalf("the assistants were called as %v", calls)
		}
		for _, c := range calls[4:] {
			wantBack(t, c.at, reset)
		}
		windows := 0
		for _, name := range []string{"one", "two"} {
			st := k.status(name)
			windows += st.Windows
			if turnsOf(st.Turns) != "claude rate-limit, codex completed, claude completed" || st.Spent != 0 {
				t.Errorf("session %s has the turns %s, and spent %d attempts", name, turnsOf(st.Turns), st.Spent)
			}
		}
		if windows != 1 {
			t.Errorf("%d windows were used, want only that of the session that found the limit", windows)
		}
	})
}

// A fallback that has lost its session starts again, once.
func TestAnAssistantThatLostItsSessionBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		midday()
		gone := answer{"\nError: thread/resume: thread/resume failed: no rollout found for thread id 0b1a0000-0000-4000-8000-00000000c0de (code -32600)", 1, 0}
		k, w := newHandover(t, []string{"codex"}, nil, map[string][]answer{
			"claude": {limitedFor(5*time.Hour, 0)}, "codex": {{codexStarted + "\nAll done.", 0, time.Hour}, gone},
		}, "shop")
		k.open()
		time.Sleep(time.Minute)
		k.close()
		k.open()
		defer k.close()
		k.wait()
		calls := w.all()
		if w.names() != "claude codex codex codex claude" || !strings.Contains(calls[2].args, "resume 0b1a") || calls[3].args != calls[1].args {
			t.Errorf("the assistants were called as %v", calls)
		}
	})
}

// Only the last turns are stored.
func TestTurnsAreBounded(t *testing.T) {
	t.Parallel()
	var m Memo
	now := time.Now()
	for n := range 3 * maxTurns {
		m.beginTurn(fmt.Sprint(n), false, now)
		m.beginTurn(fmt.Sprint(n), false, now)
	}
	if last := m.Turns[maxTurns-1]; len(m.Turns) != maxTurns || last.Assistant != fmt.Sprint(3*maxTurns-1) || !last.To.IsZero() || m.Turns[0].Ended != turnInterrupted {
		t.Errorf("%d turns: %+v", len(m.Turns), m.Turns)
	}
}

// A memo is never larger than what the engine stores: the oldest turns are dropped.
func TestAMemoFits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<", 2*maxLine)
	last := &Stop{Reason: "rate-limit", Line: textfmt.TruncateValid(long, maxLine, "…")}
	m := Memo{Session: sample.Session, Last: last, Handover: &Handover{Assistant: "codex", Memo: &Memo{Session: sample.Session, Last: last}}}
	for n := range maxTurns {
		m.beginTurn(fmt.Sprint(n), true, time.Now())
		m.endTurn(Turn{Ended: "rate-limit", Until: time.Now(), Line: long}, time.Now())
	}
	text, err := json.Marshal(m)
	got := ReadMemo(text)
	if err != nil || len(text) > 4<<10 || got.Last.Line != last.Line || got.Handover.Memo.Session != sample.Session {
		t.Errorf("%d bytes, %v: %+v", len(text), err, got)
	}
	m.Last, m.Handover.Memo.Last = nil, nil
	for i := range m.Turns {
		m.Turns[i].Line = ""
	}
	text, err = json.Marshal(&m)
	if got := ReadMemo(text); err != nil || len(got.Turns) != maxTurns || !got.Turns[0].From.Equal(m.Turns[0].From) {
		t.Errorf("%v, %d bytes, turns %+v", err, len(text), got.Turns)
	}
}

// A session is handed over at each of many limits, with long messages.
func TestManyHandOvers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		midday()
		answers := map[string][]answer{}
		want := ""
		for n := range 15 {
			answers["claude"] = append(answers["claude"], limitedFor(time.Duration(n+1)*5*time.Hour, time.Minute))
			answers["codex"] = append(answers["codex"], answer{codexStarted + "\nsegmentation fault " + strings.Repeat("<", maxLine), 1, time.Minute})
			want += "claude codex "
		}
		k, w := newHandover(t, []string{"codex"}, func(s *Spec) { s.Windows = 20 }, answers, "shop")
		k.open()
		defer k.close()
		k.wait()
		st := k.status("shop")
		if w.names() != want+"claude" || st.Windows != 15 || len(st.Turns) < 2 || st.Turns[len(st.Turns)-1].Ended != "completed" {
			t.Errorf("the assistants were called as %s; %d windows, turns %s", w.names(), st.Windows, turnsOf(st.Turns))
		}
	})
}

func TestHowAssistantsAreHandedOverTo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ line, name, start, resume, account string }{
		{"codex", "codex", "codex exec --json --sandbox workspace-write {{.Prompt}}", "codex exec --sandbox workspace-write resume {{.Session}} --json Continue.", "codex"},
		{"/opt/codex", "codex", "/opt/codex exec --json --sandbox workspace-write {{.Prompt}}", "/opt/codex exec --sandbox workspace-write resume {{.Session}} --json Continue.", "codex"},
		{"claude", "claude", "claude -p {{.Prompt}} --permission-mode acceptEdits --session-id {{.Session}}", "claude -p Continue. --permission-mode acceptEdits --resume {{.Session}}", "claude-code"},
		{"gemini", "gemini", "gemini -p {{.Prompt}} --approval-mode auto_edit --session-id {{.Session}}", "gemini -p Continue. --approval-mode auto_edit --resume {{.Session}}", "gemini"},
		{"codex exec -m o3 {{.Prompt}}", "codex", "codex exec -m o3 {{.Prompt}}", "codex exec resume {{.Session}} -m o3 Continue.", "codex"},
		{"./mine.sh --text={{.Prompt}}", "mine.sh", "./mine.sh --text={{.Prompt}}", "", ""},
		{"opencode run {{.Prompt}}", "opencode", "opencode run {{.Prompt}}", "opencode run Continue. --session {{.Session}}", "opencode"},
	} {
		words, err := Split(tt.line)
		if err != nil {
			t.Fatal(err)
		}
		f, err := ParseFallback(words)
		if start, resume := strings.Join(f.Start, " "), strings.Join(f.Resume, " "); err != nil || f.Name != tt.name || start != tt.start || resume != tt.resume || f.Account() != tt.account {
			t.Errorf("%s: %v, %s of account %q is started by %q and resumed by %q; want %s of %q, %q and %q",
				tt.line, err, f.Name, f.Account(), start, resume, tt.name, tt.account, tt.start, tt.resume)
		}
	}
	for line, why := range map[string]string{
		"":                                "no assistant given: want one of claude, codex, gemini",
		"opencode":                        `"opencode" is not a known assistant`,
		"codex exec x":                    "the command of codex does not contain {{.Prompt}}",
		"sh -c 'codex exec {{.Prompt}}'":  "is inside a shell script",
		"codex exec {{.Prompt}} {{.Age}}": "the fields are .Prompt, .Session, .Name and .Attempt",
	} {
		words, _ := Split(line)
		if _, err := ParseFallback(words); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q in it", line, err, why)
		}
	}
}

func TestWhatIsWrongWithAFallback(t *testing.T) {
	t.Parallel()
	fallback := func(words ...string) (list []Fallback) {
		for _, word := range words {
			f, err := ParseFallback([]string{word})
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, f)
		}
		return list
	}
	for want, s := range map[string]Spec{
		"fallback: claude uses the same account (claude-code) as the session": {Fallback: fallback("codex", "claude")},
		"fallback: claude uses the same account (claude-code":                 {Fallback: fallback("claude"), Account: "none"},
		"fallback: codex is given twice":                                      {Fallback: fallback("codex", "codex")},
		"fallback-after: no effect without fallback":                          {FallbackAfter: time.Hour},
		"fallback-after: -1s is negative":                                     {Fallback: fallback("codex"), FallbackAfter: -time.Second},
		"fallback-prompt: no effect without fallback":                         {FallbackPrompt: "x"},
		"the fields are .Assistant, .Until, .Task and .Name":                  {Fallback: fallback("codex"), FallbackPrompt: "{{.Age}}"},
		"": {Fallback: fallback("codex", "claude"), Account: "company", FallbackPrompt: "{{.Task}}, {{.Assistant}}, {{.Until}}, {{.Name}}"},
	} {
		s.Start, s.Pack = []string{"claude", "-p", "x"}, "claude-code"
		s.PlanResume(false)
		s.Policy.Attempts = 1
		s.Fill()
		if err := s.Validate(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The first prompt of a session, which the prompt of a handover repeats, is found in all forms of
// commands.
func TestTheTaskIsHandedOver(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"claude -p Work --verbose":         "Work",
		"claude --model opus -p -- -Work":  "-Work",
		"codex exec --json Work":           "Work",
		"codex exec resume 0b1a Work":      "Work",
		"codex exec resume 0b1a":           "",
		"gemini --prompt=Work":             "Work",
		"gemini Work":                      "Work",
		"sh -c 'claude -p \"Work on it\"'": "Work on it",
		"claude -p 'Work on {{.Name}}'":    "Work on shop",
		"./script Work":                    "",
		"opencode run Work on it":          "Work on it",
	} {
		words, err := Split(line)
		if err != nil {
			t.Fatal(err)
		}
		s := &Spec{Name: "shop", Start: words, Pack: CommandPack(words)}
		s.PlanResume(false)
		if got := s.task(data{Name: "shop"}); got != want {
			t.Errorf("the task of %s is %q, want %q", line, got, want)
		}
	}
	s := &Spec{Start: []string{"claude", "-p"}, Stdin: strings.Repeat("é", maxTask)}
	text, err := s.handoverPrompt(s.task(data{}), time.Time{})
	if err != nil || len(text) < maxTask || len(text) > 2*maxTask || !strings.HasSuffix(text, "é… (cut)") {
		t.Errorf("the prompt has %d bytes, %v: …%q", len(text), err, text[len(text)-20:])
	}
	if text, err := (&Spec{Start: []string{"./x"}}).handoverPrompt("", time.Time{}); err != nil || !strings.Contains(text, "The task is not known") {
		t.Errorf("without a task the prompt is %q, %v", text, err)
	}
}
