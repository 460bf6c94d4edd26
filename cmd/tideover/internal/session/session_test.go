package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// sessionTest is a session with a fake assistant, with virtual time.
type sessionTest struct {
	t      *testing.T
	dir    string
	store  *memlog.Store
	runner *Runner
	engine *engine.Engine
	spec   *Spec
	flow   *engine.Workflow
	run    string
	begun  []time.Time // when the commands began
}

// newSessionTest creates a session. answers has the reaction to each call: the exit code, and after
// a line break the output.
func newSessionTest(t *testing.T, change func(*Spec), answers ...string) *sessionTest {
	t.Helper()
	p := &sessionTest{t: t, dir: t.TempDir(), store: new(memlog.Store)}
	for n, text := range answers {
		if err := os.WriteFile(filepath.Join(p.dir, strconv.Itoa(n+1)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := func(args ...string) []string { return append([]string{"sh", "-c", assistant, p.dir}, args...) }
	policy, err := retry.Parse(DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}
	p.spec = &Spec{
		Name: "test", Start: command("start", "{{.Session}}"), Resume: command("resume", "{{.Session}}"), Pack: "generic", Policy: policy,
	}
	if change != nil {
		change(p.spec)
	}
	if err := p.spec.Validate(); err != nil {
		t.Fatal(err)
	}
	if p.flow, err = p.spec.Workflow(nil); err != nil {
		t.Fatal(err)
	}
	p.runner = &Runner{
		Locks: p.dir, launch: unguarded,
		Open: func(*Spec) (Streams, error) {
			p.begun = append(p.begun, time.Now())
			return Streams{Stdout: io.Discard, Stderr: io.Discard, Close: func() error { return nil }}, nil
		},
		Cancel: func(ctx context.Context, run, by string) error { return p.engine.Cancel(ctx, run, by) },
	}
	return p
}

// open opens the engine. It can be called again after close.
func (p *sessionTest) open() {
	p.t.Helper()
	var err error
	p.engine, err = engine.Open(p.t.Context(), engine.Config{
		Log: p.store.Open(), Workflows: []*engine.Workflow{p.flow}, Logger: slog.New(slog.DiscardHandler),
		Handlers: map[string]engine.Handler{Handler: p.runner.Handle}, Rand: func() uint64 { return 1 << 63 },
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *sessionTest) close() {
	p.t.Helper()
	if err := p.engine.Close(context.Background()); err != nil {
		p.t.Errorf("Close() = %v", err)
	}
}

func (p *sessionTest) start() {
	p.t.Helper()
	s, err := p.engine.Start(p.t.Context(), p.flow, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.run = s.ID
}

// wait waits for the end of the session.
func (p *sessionTest) wait() *engine.Info {
	p.t.Helper()
	i, err := p.engine.Wait(p.t.Context(), p.run)
	if err != nil {
		p.t.Fatal(err)
	}
	return i
}

func (p *sessionTest) info() *engine.Info {
	p.t.Helper()
	i, err := p.engine.Get(p.t.Context(), p.run)
	if err != nil {
		p.t.Fatal(err)
	}
	return i
}

// calls returns the arguments of the assistant's calls.
func (p *sessionTest) calls() []string {
	text, err := os.ReadFile(filepath.Join(p.dir, "calls"))
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// sleepUntil waits for a time in the future.
func sleepUntil(t *testing.T, at time.Time) {
	t.Helper()
	if d := time.Until(at); d < 0 {
		t.Fatalf("%v is over", at)
	}
	time.Sleep(time.Until(at))
}

// The test contains every form in which assistants report that a quota is used up.
func TestResumedAtTheRightMoment(t *testing.T) {
	t.Parallel()
	utc := func(text string) time.Time {
		at, err := time.Parse("2006-01-02 15:04:05", text)
		if err != nil {
			panic(err)
		}
		return at
	}
	now := utc("2026-07-09 12:00:00")
	epoch := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	in := func(d time.Duration) time.Time { return now.Add(d) }
	zone := func(name, text string) time.Time {
		loc, err := time.LoadLocation(name)
		if err != nil {
			panic(err)
		}
		at, err := time.ParseInLocation("2006-01-02 15:04", text, loc)
		if err != nil {
			panic(err)
		}
		return at
	}
	for _, tt := range []struct {
		name, pack, text string
		want             time.Time
	}{
		{"event with epoch", "claude-code", `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":` + epoch(5*time.Hour) + `}}`, in(5 * time.Hour)},
		{"legacy with a bar", "claude-code", "Claude AI usage limit reached|" + epoch(2*time.Hour), in(2 * time.Hour)},
		{"hour", "claude-code", "5-hour limit reached ∙ resets 3am", utc("2026-07-10 03:00:00")},
		{"session limit with zone", "claude-code", "You've hit your session limit · resets 4:20pm (Asia/Tbilisi)", zone("Asia/Tbilisi", "2026-07-09 16:20")},
		{"weekly limit with date", "claude-code", "You've hit your weekly limit · resets Jul 15 at 7pm", utc("2026-07-15 19:00:00")},
		{"will reset at", "claude-code", "Your limit will reset at 4 PM (UTC).", utc("2026-07-09 16:00:00")},
		{"codex event", "codex", `{"error":{"type":"usage_limit_reached","resets_at":` + epoch(3*time.Hour) + `,"resets_in_seconds":10800}}`, in(3 * time.Hour)},
		{"codex duration", "codex", "You've hit your usage limit. Upgrade to Pro or try again in 2 days 17 hours 14 minutes.", in(65*time.Hour + 14*time.Minute)},
		{"codex time", "codex", "You've hit your usage limit. Try again at 3:07 PM.", utc("2026-07-09 15:07:00")},
		{"codex date", "codex", "You've hit your usage limit. Try again at Jul 10th, 2026 11:52 AM.", utc("2026-07-10 11:52:00")},
		{"gemini quota", "gemini", "Your quota will reset after 19h14m47s.", in(19*time.Hour + 14*time.Minute + 47*time.Second)},
		{"gemini access", "gemini", "Access resets at 3:14 PM PDT.", zone("America/Los_Angeles", "2026-07-09 15:14")},
		{"opencode moment", "opencode", "limit will reset at 2026-07-11 20:30:24", utc("2026-07-11 20:30:24")},
		{"opencode duration", "opencode", "It will reset in 2 days 3 hours", in(51 * time.Hour)},
		{"retry after", "generic", "retry after 3600s", in(time.Hour)},
		{"header", "generic", "Retry-After: 120", in(2 * time.Minute)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSessionTest(t, func(s *Spec) { s.Pack = tt.pack }, "1\nWorking on it.\n"+tt.text+"\n", "0\nAll done.\n")
				sleepUntil(t, now)
				p.open()
				defer p.close()
				p.start()
				i := p.wait()
				if i.State != "succeeded" || len(p.begun) != 2 || i.Steps[0].Windows != 1 || i.Steps[0].Spent != 0 {
					t.Fatalf("session is %s after %d commands, %d windows, %d attempts spent: %s", i.State, len(p.begun), i.Steps[0].Windows, i.Steps[0].Spent, i.Error)
				}
				// 90 s of slack, and jitter.
				at, least := p.begun[1], tt.want.Add(90*time.Second)
				if late := at.Sub(least); late < 0 || late > 31*time.Second {
					t.Errorf("resumed at %v, want %v and a little", at.UTC(), least.UTC())
				}
				calls := p.calls()
				_, id, _ := strings.Cut(calls[0], "start ")
				if want := "resume " + id; len(id) != 36 || calls[1] != want {
					t.Errorf("started with %q and resumed with %q, want %q", calls[0], calls[1], want)
				}
			})
		})
	}
}

// Output that looks like a limit, but is none, is a crash or has no effect.
func TestDecoysAreLeftAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, pack, text string }{
		{"a line number", "claude-code", "error on line 429"},
		{"prose", "claude-code", "I have added the rate limit handler, which resets at 3pm in the tests."},
		{"an event that allows", "claude-code", `{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","resetsAt":1783600000}}`},
		{"an assistant that retries by itself", "claude-code", "529 Overloaded · Retrying in 4s · attempt 6/10"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSessionTest(t, func(s *Spec) { s.Pack = tt.pack }, "0\n"+tt.text+"\n")
				p.open()
				defer p.close()
				p.start()
				if i := p.wait(); i.State != "succeeded" || len(p.begun) != 1 {
					t.Errorf("session is %s after %d commands: %s", i.State, len(p.begun), i.Error)
				}
			})
		})
	}
}

func TestWindowsAndAttemptsAreSpentAsTheyShould(t *testing.T) {
	t.Parallel()
	const limit, crash, tooFast = "1\nretry after 3600s\n", "1\nsegmentation fault\n", "1\nlitellm.RateLimitError: too fast\n"
	for _, tt := range []struct {
		name           string
		answers        []string
		change         func(*Spec)
		state, reason  string
		calls          int
		windows, spent int
	}{
		{
			"ten windows in a row do not exhaust attempts",
			[]string{limit, limit, limit, limit, limit, limit, limit, limit, limit, limit, "0\n"}, nil, "succeeded", "", 11, 10, 0,
		},
		{
			"an eleventh is too many",
			[]string{limit, limit, limit, limit, limit, limit, limit, limit, limit, limit, limit, limit}, nil, "dead", "windows", 11, 10, 1,
		},
		{
			"a resume that fails at once does not loop for ever",
			[]string{limit, crash, crash, crash, crash, crash, crash, crash, crash}, nil, "dead", "attempts", 7, 1, 6,
		},
		{
			"a limit without a time spends nothing",
			[]string{tooFast, tooFast, tooFast, tooFast, tooFast, tooFast, tooFast, "0\n"}, func(s *Spec) { s.Pack = "aider" }, "succeeded", "", 8, 0, 0,
		},
		{
			"a limit without a time, three times in a row",
			[]string{tooFast, tooFast, tooFast, tooFast},
			func(s *Spec) { s.Pack, s.On = "aider", map[string]Action{"rate-limit": {Do: DoResume, Attempts: 3}} }, "dead", "permanent", 3, 0, 1,
		},
		{
			"server-wait limits the probes", // after 0, 5, 15, 35, 65 and 90 minutes
			[]string{tooFast, tooFast, tooFast, tooFast, tooFast, tooFast, tooFast},
			func(s *Spec) { s.Pack, s.Policy.ServerWait = "aider", 90*time.Minute }, "dead", "permanent", 6, 0, 1,
		},
		{
			"the deadline limits the probes",
			[]string{tooFast, tooFast, tooFast, tooFast, tooFast, tooFast, tooFast},
			func(s *Spec) { s.Pack, s.Deadline = "aider", time.Hour }, "dead", "timeout", 4, 0, 0,
		},
		{
			"probes after a reset that did not come are counted from the beginning",
			[]string{crash, crash, crash, crash, crash, limit, crash, crash, crash, crash, crash, "0\n"}, nil, "succeeded", "", 12, 1, 5,
		},
		{
			"out of credits is never waited for",
			[]string{"1\nYour workspace is out of credits.\n", "0\n"}, func(s *Spec) { s.Pack = "codex" }, "dead", "permanent", 1, 0, 1,
		},
		{
			"ended by its user",
			[]string{"130\n", "0\n"}, nil, "canceled", "", 1, 0, 0,
		},
		{
			"three unknown ends in a row",
			[]string{crash, crash, crash, crash}, func(s *Spec) { s.On = map[string]Action{"crashed": {Do: DoResume, Attempts: 3}} }, "dead", "permanent", 3, 0, 3,
		},
		{
			"give up at the first crash",
			[]string{crash, crash}, func(s *Spec) { s.On = map[string]Action{"crashed": {Do: DoGiveUp}} }, "dead", "permanent", 1, 0, 1,
		},
		{
			"a reset farther ahead than is believed",
			[]string{"1\nretry after 1000000s\n"}, nil, "dead", "server-wait", 1, 0, 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSessionTest(t, tt.change, tt.answers...)
				p.open()
				defer p.close()
				p.start()
				i := p.wait()
				s := i.Steps[0]
				if i.State != tt.state || i.Reason != tt.reason || len(p.begun) != tt.calls || s.Windows != tt.windows || s.Spent != tt.spent {
					t.Errorf("session is %s (%s) after %d commands, %d windows, %d attempts: %s; want %s (%s) after %d, %d, %d",
						i.State, i.Reason, len(p.begun), s.Windows, s.Spent, i.Error, tt.state, tt.reason, tt.calls, tt.windows, tt.spent)
				}
			})
		})
	}
}

func TestAFullContextBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSessionTest(t, func(s *Spec) { s.Pack = "claude-code" }, "1\nPrompt is too long\n", "1\nsegmentation fault\n", "0\n")
		p.open()
		defer p.close()
		p.start()
		if i := p.wait(); i.State != "succeeded" {
			t.Fatalf("session is %s: %s", i.State, i.Error)
		}
		calls := p.calls()
		_, first, _ := strings.Cut(calls[0], " ")
		_, second, _ := strings.Cut(calls[1], "start ")
		if first == second || len(second) != 36 || calls[2] != "resume "+second {
			t.Errorf("the assistant was called with %q", calls)
		}
	})
}

// A session that no longer exists starts again once; the second time it gives up.
func TestASessionThatIsGoneTwiceGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, gone = "1\nretry after 3600s\n", "1\nNo conversation found with session ID: x\n"
		p := newSessionTest(t, func(s *Spec) { s.Pack = "claude-code" }, limit, gone, limit, gone, "0\n")
		p.open()
		defer p.close()
		p.start()
		i := p.wait()
		if i.State != "dead" || !strings.Contains(i.Error, "started again once before") || i.Steps[0].Windows != 2 {
			t.Errorf("session is %s after %d windows: %s", i.State, i.Steps[0].Windows, i.Error)
		}
		calls := p.calls()
		_, first, _ := strings.Cut(calls[0], "start ")
		_, second, _ := strings.Cut(calls[len(calls)-1], "resume ")
		if want := []string{"start " + first, "resume " + first, "start " + second, "resume " + second}; first == second || !slices.Equal(calls, want) {
			t.Errorf("the assistant was called with %q, want %q", calls, want)
		}
	})
}

// The id that the command prints is used, and stored while the command runs.
func TestTheStatedIDIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const stated = "019da1a1-bed9-7a43-88a2-b49d43915021"
		p := newSessionTest(t, func(s *Spec) {
			s.Pack = "codex"
			s.Start[len(s.Start)-1] = "without an id"
		}, "1\nsession id: "+stated+"\nretry after 3600s\n", "0\n")
		p.open()
		defer p.close()
		p.start()
		time.Sleep(time.Minute)
		if m := ReadMemo(p.info().Steps[0].Progress); m.Session != stated || !m.Stated {
			t.Errorf("the memo is %+v", m)
		}
		if i := p.wait(); i.State != "succeeded" {
			t.Fatalf("session is %s: %s", i.State, i.Error)
		}
		if calls := p.calls(); len(calls) != 2 || calls[1] != "resume "+stated {
			t.Errorf("the assistant was called with %q", calls)
		}
	})
}

// An id that tideover has chosen for the start command stays, because the output may quote another id.
func TestAChosenIDStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSessionTest(t, func(s *Spec) { s.Pack = "codex" }, "1\nsession id: 019da1a1-bed9-7a43-88a2-b49d43915021\nretry after 3600s\n", "0\n")
		p.open()
		defer p.close()
		p.start()
		if i := p.wait(); i.State != "succeeded" {
			t.Fatalf("session is %s: %s", i.State, i.Error)
		}
		if calls := p.calls(); len(calls) != 2 || calls[1] != strings.Replace(calls[0], "start", "resume", 1) {
			t.Errorf("the assistant was called with %q", calls)
		}
	})
}

func TestQuietHours(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		quiet, err := ParseHours("22:00-07:00 UTC")
		if err != nil {
			t.Fatal(err)
		}
		p := newSessionTest(t, func(s *Spec) { s.Quiet = quiet }, "1\nretry after 3600s\n", "0\n")
		sleepUntil(t, time.Date(2000, 1, 3, 21, 30, 0, 0, time.UTC))
		p.open()
		defer p.close()
		p.start()
		i := p.wait()
		want := time.Date(2000, 1, 4, 7, 0, 0, 0, time.UTC)
		if i.State != "succeeded" || len(p.begun) != 2 || p.begun[1].Before(want) || p.begun[1].Sub(want) > 2*time.Minute || i.Attempts != 2 {
			t.Errorf("session is %s, commands were run at %v, want the second at %v", i.State, p.begun, want)
		}
	})
}

// The engine is closed, as at the end of the process, and opened again during a wait.
func TestAWaitGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSessionTest(t, nil, "1\nsegmentation fault\n", "1\nretry after 7200s\n", "0\n")
		p.open()
		p.start()
		time.Sleep(time.Hour)
		before := p.info()
		p.close()
		time.Sleep(30 * time.Minute)
		p.open()
		defer p.close()
		after := p.info()
		if !after.Next.Equal(*before.Next) || after.Steps[0].Windows != 1 || after.Attempts != 2 {
			t.Fatalf("before it waits until %v, after until %v with %d windows and %d attempts", before.Next, after.Next, after.Steps[0].Windows, after.Attempts)
		}
		p.wait()
		if len(p.begun) != 3 || !p.begun[2].Equal(*before.Next) {
			t.Errorf("commands were run at %v, want the third at %v", p.begun, before.Next)
		}
	})
}

func TestTheMemoSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSessionTest(t, nil, "1\nretry after 7200s\n", "0\n")
		p.open()
		defer p.close()
		p.start()
		time.Sleep(time.Minute)
		i := p.info()
		m := ReadMemo(i.Steps[0].Progress)
		if i.State != "waiting" || m.Last == nil || m.Last.Reason != "rate-limit" || m.Last.Line != "retry after 7200s" || m.Last.Exit != 1 {
			t.Fatalf("session is %s, its memo %+v", i.State, m)
		}
		var out Outcome
		if err := json.Unmarshal(p.wait().Output, &out); err != nil || out.Session != m.Session || out.Resumes != 1 || out.Windows != 1 {
			t.Errorf("the outcome is %+v, %v", out, err)
		}
	})
}

func TestPausedUntilATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSessionTest(t, nil, "1\nretry after 3600s\n", "0\n")
		p.open()
		defer p.close()
		m := &Manager{Engine: p.engine}
		ctx := t.Context()
		if _, err := m.Set(ctx, []*Spec{p.spec}, []*engine.Workflow{p.flow}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		state := func() Status {
			st, err := m.Get(ctx, "test")
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		do := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		reset := *state().Next
		// A longer wait stays.
		do(m.PauseUntil(ctx, "test", time.Now().Add(time.Minute), "me"))
		if st := state(); !st.Next.Equal(reset) {
			t.Errorf("it waits until %v, want %v", st.Next, reset)
		}
		do(m.Pause(ctx, "test", "me"))
		if st := state(); st.State != "paused" || st.Next != nil {
			t.Errorf("it is %s until %v", st.State, st.Next)
		}
		// A pause with an end becomes a wait.
		morning := time.Now().Add(8 * time.Hour)
		do(m.PauseUntil(ctx, "test", morning, "me"))
		if st := state(); st.State != "waiting" || !st.Next.Equal(morning) || st.WaitBy != "human" {
			t.Errorf("it is %s until %v, by %s", st.State, st.Next, st.WaitBy)
		}
		do(m.Resume(ctx, "test", "me"))
		if st := state(); st.State != "waiting" || st.Next.Sub(reset).Abs() > time.Second {
			t.Errorf("resumed, it is %s until %v, want %v", st.State, st.Next, reset)
		}
		do(m.PauseUntil(ctx, "test", morning, "me"))
		if err := m.PauseUntil(ctx, "test", time.Now(), "me"); !errors.Is(err, ErrState) {
			t.Errorf("until now: %v", err)
		}
		if err := m.Stop(ctx, "best", "me"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "the sessions are test") {
			t.Errorf("of another name: %v", err)
		}
		p.run = state().Run
		if i := p.wait(); i.State != "succeeded" || !p.begun[1].Equal(morning) {
			t.Errorf("session is %s, commands were run at %v", i.State, p.begun)
		}
		// It has ended, and starts again.
		do(m.Resume(ctx, "test", "me"))
		if st := state(); st.Run == p.run || st.Over() && st.State != "completed" {
			t.Errorf("it is %s, run %s", st.State, st.Run)
		}
		synctest.Wait()
	})
}

// A pause with an end is recorded before the running command has ended.
func TestPausedUntilATimeWhileItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSessionTest(t, nil, "0\n")
		begun := 0
		p.runner.launch = func(ctx context.Context, _ guard.Command) (guard.Result, error) {
			if begun++; begun == 1 {
				<-ctx.Done()
				time.Sleep(5 * time.Second)          // the command ends slowly
				return guard.Result{Told: true}, nil // with exit code 0
			}
			return guard.Result{}, nil
		}
		p.open()
		m := &Manager{Engine: p.engine}
		if _, err := m.Set(t.Context(), []*Spec{p.spec}, []*engine.Workflow{p.flow}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		morning := time.Now().Add(8 * time.Hour)
		if err := m.PauseUntil(t.Context(), "test", time.Now().Add(time.Hour), "me"); err != nil {
			t.Fatal(err)
		}
		if err := m.PauseUntil(t.Context(), "test", morning, "me"); err != nil { // the last call wins
			t.Fatal(err)
		}
		st, err := m.Get(t.Context(), "test")
		if err != nil {
			t.Fatal(err)
		}
		p.run = st.Run
		p.close() // waits for the command
		p.open()
		defer p.close()
		i := p.info()
		if i.State != "waiting" || !i.Next.Equal(morning) || i.Steps[0].Spent != 0 {
			t.Fatalf("the session is %s until %v, want %v; %d attempts spent", i.State, i.Next, morning, i.Steps[0].Spent)
		}
		if i = p.wait(); i.State != "succeeded" || begun != 2 {
			t.Errorf("the session is %s after %d commands", i.State, begun)
		}
	})
}

func TestASessionThatIsForgottenDoesNotBeginByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSessionTest(t, nil)
		p.open()
		defer p.close()
		m := &Manager{Engine: p.engine, Known: func(string) bool { return true }}
		if _, err := m.Set(t.Context(), []*Spec{p.spec}, []*engine.Workflow{p.flow}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if st, err := m.Get(t.Context(), "test"); err != nil || st.State != "idle" || len(p.begun) != 0 {
			t.Errorf("it is %s, %v, after %d commands", st.State, err, len(p.begun))
		}
		if err := m.Resume(t.Context(), "test", "me"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if st, err := m.Get(t.Context(), "test"); err != nil || st.State != "completed" {
			t.Errorf("resumed, it is %s, %v", st.State, err)
		}
	})
}

func TestWhatCanNotBeRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "gone")
		p := newSessionTest(t, func(s *Spec) { s.Dir = dir }, "0\n")
		p.open()
		defer p.close()
		p.start()
		time.Sleep(time.Second)
		if i := p.info(); i.State != "waiting" || !strings.Contains(i.Error, "dir "+dir) {
			t.Fatalf("without its folder the session is %s: %s", i.State, i.Error)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if i := p.wait(); i.State != "succeeded" || !strings.HasPrefix(p.calls()[0], "start ") {
			t.Errorf("with it the session is %s, and was called with %q", i.State, p.calls())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := newSessionTest(t, nil, "127\n", "0\n")
		p.open()
		defer p.close()
		p.start()
		if i := p.wait(); i.State != "dead" || i.Reason != "permanent" || len(p.begun) != 1 {
			t.Errorf("a command that is not there: the session is %s because of %s after %d commands", i.State, i.Reason, len(p.begun))
		}
	})
}

func TestALongLastLineAndASecretInIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		line := strings.Repeat("x", 460) + "TOPSECRETabcdefghijklmnopqrstuvwxyz0123456789" + strings.Repeat("<", 9000)
		p := newSessionTest(t, func(s *Spec) { s.On = map[string]Action{"crashed": {Do: DoStart}} }, "1\n"+line+"\n", "1\n"+line+"\n", "0\n")
		p.runner.Redactor = new(secret.Redactor)
		p.runner.Redactor.Add("TOPSECRETabcdefghijklmnopqrstuvwxyz0123456789")
		p.open()
		defer p.close()
		p.start()
		i := p.wait()
		ids := map[string]bool{}
		for _, call := range p.calls() {
			verb, id, _ := strings.Cut(call, " ")
			ids[id] = verb == "start"
		}
		if len(ids) != 3 {
			t.Errorf("begun anew, the session was called with %q", p.calls())
		}
		if text, _ := json.Marshal(i); strings.Contains(string(text), "TOPSECRET") {
			t.Errorf("a part of a secret is kept: %s", text)
		}
	})
}

func TestQuietHoursOnTheDayOfTheChange(t *testing.T) {
	t.Parallel()
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		hours, now, end string // end is empty when it is not quiet
	}{
		{"23:00-07:00", "2026-03-28 23:30", "2026-03-29 07:00"},
		{"23:00-07:00", "2026-03-29 12:00", ""},
		{"02:30-03:00", "2026-03-29 12:00", ""}, // the clocks skip it
		{"02:00-03:00", "2026-03-29 12:00", ""},
		{"02:30-03:15", "2026-03-29 03:20", ""},
		{"02:30-03:15", "2026-03-30 02:45", "2026-03-30 03:15"},
		{"01:30-02:30", "2026-10-25 02:15", "2026-10-25 02:30"},
		{"12:00-13:00", "2026-03-29 12:30", "2026-03-29 13:00"},
	} {
		h, err := ParseHours(tt.hours + " Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		now, _ := time.ParseInLocation("2006-01-02 15:04", tt.now, loc)
		end, quiet := h.Until(now)
		if got := end.In(loc).Format("2006-01-02 15:04"); quiet != (tt.end != "") || quiet && got != tt.end {
			t.Errorf("%s at %s: quiet %v until %s, want %q", tt.hours, tt.now, quiet, got, tt.end)
		}
	}
	if _, err := ParseHours("07:00-7:00"); err == nil {
		t.Error("hours of no length are accepted")
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":                          "[]",
		"a  b\tc":                   `["a" "b" "c"]`,
		`job 'two words' "a \"b\""`: `["job" "two words" "a \"b\""]`,
		`a\ b ''`:                   `["a b" ""]`,
		`"\n" '\n'`:                 `["\\n" "\\n"]`,
	} {
		if got, err := Split(line); err != nil || fmt.Sprintf("%q", got) != want {
			t.Errorf("Split(%q) = %q, %v; want %s", line, got, err, want)
		}
	}
	for _, line := range []string{`'a`, `"a`, `a\`} {
		if got, err := Split(line); err == nil {
			t.Errorf("Split(%q) = %q", line, got)
		}
	}
}
