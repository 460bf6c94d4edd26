package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

func exampleSessions() []hostedSession {
	stop := &session.Stop{
		Reason: "rate-limit", Line: "You've hit your limit · resets 3pm\x1b[2J\u202e", Rule: "claude-code/limit-resets", Exit: 1, At: at(-time.Minute),
		Until: at(3 * time.Hour),
	}
	waiting := session.Status{
		Name: "nightly-refactor", Run: "01k9v3q0h2f8d7w5j3m1n6p4rt", State: "waiting", Session: "7d9f6a52-0d0c-4f3e-9f55-6a3e1c2b4d5e", Spent: 1, MaxAttempts: 6,
		Windows: 2, MaxWindows: 10, Commands: 4, Resumes: 3, Last: stop, Next: later(3*time.Hour + 90*time.Second), WaitBy: "server",
		WaitFor: "rate-limit, exit code 1: " + stop.Line, Started: later(-20 * time.Hour), Deadline: later(100 * time.Hour),
		Policy: "exponential(30s..5m) attempts=6", Quiet: "23:00-07:00", Log: "/state/logs/nightly-refactor.log", Tail: []string{"Working on it.", "a\tb\x1b[31m", stop.Line},
	}
	postponed := waiting
	postponed.Name, postponed.Next, postponed.WaitBy, postponed.WaitFor = "tomorrow", later(20*time.Hour), "human", "postponed by cli:eve"
	weekly := waiting
	weekly.Name, weekly.Next = "weekly", later(8*24*time.Hour)
	open := session.Status{Name: "open", State: "running", MaxAttempts: 6, MaxWindows: 10, Commands: 1, Policy: waiting.Policy, Started: later(-time.Hour)}
	open.Limit = &session.ScreenLimit{Reason: "rate-limit", Line: stop.Line, Rule: stop.Rule, Until: stop.Until, At: at(-time.Minute)}
	return []hostedSession{
		{Status: waiting, In: inServe, At: "/state/tideover.sock"}, {Status: postponed, In: inWatch}, {Status: weekly, In: inServe},
		{Status: session.Status{Name: "busy", State: "running", MaxAttempts: -1, MaxWindows: 10, Last: stop}, In: inServe},
		{Status: session.Status{Name: "spent", State: "gave-up", Spent: 6, MaxAttempts: 6, MaxWindows: 10, Reason: "attempts", Error: "exit code 2: segmentation fault", Last: stop, Ended: later(-time.Hour)}, In: inServe},
		{Status: session.Status{Name: "done", State: "completed", MaxAttempts: 6, MaxWindows: 10}, In: inServe},
		{Status: open, In: inWatch, At: "/state/watch/open/control.sock"},
	}
}

func TestHowSessionsLook(t *testing.T) {
	t.Parallel()
	list := exampleSessions()
	for name, s := range map[string]screen{
		"sessions.txt":        {now: noon, zone: time.UTC},
		"sessions-80.txt":     {now: noon, zone: time.FixedZone("", 3600), terminal: true, width: 80},
		"sessions-colour.txt": {now: noon, zone: time.UTC, terminal: true, width: 120, colour: true},
	} {
		goldenLines(t, name, renderSessions(list, &s))
	}
	goldenLines(t, "sessions-show.txt", renderSession(list[0], &screen{now: noon, zone: time.UTC}))
	goldenLines(t, "sessions-show-open.txt", renderSession(list[6], &screen{now: noon, zone: time.UTC}))
	goldenLines(t, "sessions-show-spent.txt", renderSession(list[4], &screen{now: noon, zone: time.UTC}))
	if got := renderSessions(nil, &screen{}); len(got) != 1 || !strings.HasPrefix(got[0], "no sessions: ") {
		t.Errorf("no sessions: %q", got)
	}
	if got, want := sessionLine(&list[1]), `tomorrow waiting windows=2/10 attempts=1/6 commands=4 next=`; !strings.HasPrefix(got, want) {
		t.Errorf("a line: %q, want %q", got, want)
	}
}

func TestTimesToPauseUntil(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, text := range []string{"07:00", "7:00", "00:00", "23:59"} {
		got, err := parseUntil(text, now)
		hour := got.Format("15:04")
		if err != nil || strings.TrimPrefix(hour, "0") != strings.TrimPrefix(text, "0") || !got.After(now) || got.Sub(now) > 25*time.Hour {
			t.Errorf("parseUntil(%q) = %v, %v", text, got, err)
		}
	}
	if got, err := parseUntil("8h", now); err != nil || got.Sub(now).Round(time.Minute) != 8*time.Hour {
		t.Errorf("parseUntil(8h) = %v, %v", got, err)
	}
	want := now.Add(time.Hour).Truncate(time.Second)
	if got, err := parseUntil(want.Format(time.RFC3339), now); err != nil || !got.Equal(want) {
		t.Errorf("parseUntil(%v) = %v, %v", want, got, err)
	}
	for _, text := range []string{"", "24:00", "7", "-1h", "0s", "2001-01-01T00:00:00Z", "3pm"} {
		if got, err := parseUntil(text, now); err == nil {
			t.Errorf("parseUntil(%q) = %v, want an error", text, got)
		}
	}
}
