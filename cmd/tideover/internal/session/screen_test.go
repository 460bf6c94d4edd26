package session

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/screen"
)

// fakeTerminal is a [TerminalControl] of 80 columns without a user.
type fakeTerminal struct {
	mu    sync.Mutex
	at    time.Time // when the user pressed the last key
	draft bool
	typed []string // texts that the watch has typed
}

func (f *fakeTerminal) Size() (cols, rows int) { return 80, 24 }
func (f *fakeTerminal) DiscardInput()          {}
func (f *fakeTerminal) Suspend()               {}

func (f *fakeTerminal) Typed() (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at, f.draft
}

func (f *fakeTerminal) Type(text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.typed = append(f.typed, text)
	return nil
}

// key is a key press of the user.
func (f *fakeTerminal) key(draft bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.draft = time.Now(), draft
}

func (f *fakeTerminal) all() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.typed, ",")
}

// watchedScreen is a screen that is watched, with virtual time.
type watchedScreen struct {
	*screenWatch
	control *fakeTerminal
	mu      sync.Mutex
	told    []*ScreenLimit
	at      []time.Time
}

// newWatchedScreen watches an empty screen until the test ends. A nil s means a session of Claude
// Code.
func newWatchedScreen(t *testing.T, s *Spec, typing int) *watchedScreen {
	t.Helper()
	l := &watchedScreen{control: &fakeTerminal{}}
	if s == nil {
		s = &Spec{Name: "x", Pack: "claude-code"}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &Runner{TypeAtReset: typing}
	l.screenWatch = r.watchScreen(ctx, s, l.control, func(limit *ScreenLimit) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.told, l.at = append(l.told, limit), append(l.at, time.Now())
	})
	l.find = func(lines []string, at time.Time) (detect.OnScreen, bool) {
		pack, err := s.pack()
		if err != nil {
			t.Error(err)
		}
		return pack.FindOnScreen(lines, at, time.UTC)
	}
	t.Cleanup(func() {
		cancel()
		l.stop()
	})
	return l
}

// draw draws the whole screen: the lines, and an input field at the bottom.
func (l *watchedScreen) draw(lines ...string) {
	text := "\x1b[H\x1b[2J"
	for i, line := range lines {
		text += fmt.Sprintf("\x1b[%d;1H%s", i+1, line)
	}
	_, _ = l.Write([]byte(text + "\x1b[23;1H> "))
}

// reports returns the reports so far.
func (l *watchedScreen) reports() ([]*ScreenLimit, []time.Time) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told, l.at
}

const claudeLimit = "  ⎿  5-hour limit reached ∙ resets 3am"

func TestALimitOnAScreenIsNoticedWithinFiveSeconds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		frame func(i int) []string // of a screen that is drawn every 70 ms
	}{
		"a still screen":   {nil},
		"a spinner":        {func(i int) []string { return []string{claudeLimit, "", string("|/-\\"[i%4]) + " waiting"} }},
		"a flickering one": {func(i int) []string { return [][]string{{claudeLimit}, nil}[i%9/8] }},
		"one that counts":  {func(i int) []string { return []string{claudeLimit, "", fmt.Sprintf("%d tokens", i)} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newWatchedScreen(t, nil, 0)
				l.draw("> work")
				time.Sleep(900 * time.Millisecond)
				began := time.Now()
				l.draw(claudeLimit)
				for i := 0; time.Since(began) < 2*time.Minute; i++ {
					time.Sleep(70 * time.Millisecond)
					if test.frame != nil {
						l.draw(test.frame(i)...)
					}
				}
				told, at := l.reports()
				if len(told) != 1 || told[0] == nil || told[0].Line != "5-hour limit reached · resets 3am" || told[0].Until.Hour() != 3 {
					t.Fatalf("told %+v", told)
				}
				if after := at[0].Sub(began); after > 5*time.Second {
					t.Errorf("told after %v", after)
				}
				l.draw("> continue", "● Next I run the tests.")
				time.Sleep(5 * time.Second)
				if told, _ := l.reports(); len(told) != 2 || told[1] != nil {
					t.Errorf("the program continued, and the reports are %+v", told)
				}
			})
		})
	}
}

// A command that prints its limit and ends is not interactive.
func TestAMessageThatStandsForAMomentIsNoLimitOfAScreen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newWatchedScreen(t, nil, 0)
		l.draw(claudeLimit)
		time.Sleep(screenStands)
		l.draw("> work")
		time.Sleep(time.Minute)
		if told, _ := l.reports(); len(told) != 0 {
			t.Errorf("told %+v", told[0])
		}
	})
}

func TestOneLimitOfAScreenIsToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newWatchedScreen(t, nil, 0)
		for left := 125; left > 100; left-- { // minutes
			l.draw(fmt.Sprintf("  ⎿  5-hour limit reached ∙ resets in %dh %dm", left/60, left%60))
			time.Sleep(time.Minute)
		}
		told, _ := l.reports()
		if len(told) != 1 {
			t.Fatalf("of one that counts the time down, told were %d", len(told))
		}
		l.draw("help of the program")
		time.Sleep(time.Minute)
		l.draw("  ⎿  5-hour limit reached ∙ resets in 2h 5m") // as it was at first
		time.Sleep(time.Minute)
		told, _ = l.reports()
		if len(told) != 3 || told[1] != nil || told[2] == nil || !told[2].At.Equal(told[0].At) {
			t.Fatalf("after something else was on the screen, told is %+v", told)
		}
		l.draw("  ⎿  You've hit your weekly limit · resets Jan 8 at 7pm")
		time.Sleep(time.Minute)
		if told, _ = l.reports(); len(told) != 4 || told[3].At.Equal(told[0].At) {
			t.Errorf("of another limit, told is %+v", told)
		}
	})
}

func TestThePromptIsTypedAtTheReset(t *testing.T) {
	t.Parallel()
	const typed = "Continue.,\r"
	night, err := ParseHours("02:00-07:00 UTC")
	if err != nil {
		t.Fatal(err)
	}
	claude := Spec{Name: "x", Pack: "claude-code"}
	quiet, short := claude, claude
	quiet.Quiet = night
	short.PolicyText = "fixed(1s) attempts=2 server-wait=1h server-slack=90s"
	for name, test := range map[string]struct {
		spec  Spec
		off   bool
		limit string
		then  func(l *watchedScreen) // after a minute
		want  string
		at    time.Duration // since midnight; not before it, and within 3 minutes
	}{
		"at the end and its slack":     {claude, false, claudeLimit, nil, typed, 3*time.Hour + 90*time.Second},
		"after quiet hours":            {quiet, false, claudeLimit, nil, typed, 7 * time.Hour},
		"not unless it is allowed":     {claude, true, claudeLimit, nil, "", 0},
		"not without a time":           {claude, false, "  ⎿  You've hit your session limit", nil, "", 0},
		"not if waiting does not help": {claude, false, "  ⎿  Credit balance is too low", nil, "", 0},
		"not if it is too far":         {short, false, claudeLimit, nil, "", 0},
		"not if the user typed":        {claude, false, claudeLimit, func(l *watchedScreen) { l.control.key(false) }, "", 0},
		"not into a draft":             {claude, false, claudeLimit, func(l *watchedScreen) { l.control.mu.Lock(); l.control.draft = true; l.control.mu.Unlock() }, "", 0},
		"not if it went on":            {claude, false, claudeLimit, func(l *watchedScreen) { l.draw("> continue", "● Next I run the tests.") }, "", 0},
		"not into a choice":            {claude, false, claudeLimit, func(l *watchedScreen) { l.draw(claudeLimit, "", "❯ 1. Stop and wait", "  2. Upgrade") }, "", 0},
		"although it was drawn again":  {claude, false, claudeLimit, func(l *watchedScreen) { l.draw("", "", claudeLimit) }, typed, 3*time.Hour + 90*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				midnight := time.Now() // of a bubble, 2000-01-01 in UTC
				typing := 1
				if test.off {
					typing = 0
				}
				l := newWatchedScreen(t, &test.spec, typing)
				l.control.key(false) // the prompt that ran into the limit
				time.Sleep(time.Second)
				l.draw(test.limit)
				time.Sleep(time.Minute)
				if test.then != nil {
					test.then(l)
				}
				if test.want != "" {
					time.Sleep(time.Until(midnight.Add(test.at - time.Second)))
					if got := l.control.all(); got != "" {
						t.Errorf("%q was typed too early", got)
					}
					time.Sleep(3 * time.Minute)
				} else {
					time.Sleep(9 * 24 * time.Hour)
				}
				if got := l.control.all(); got != test.want {
					t.Errorf("typed was %q, want %q", got, test.want)
				}
				told, _ := l.reports()
				if n := len(told); test.want != "" && (n != 2 || told[1].Typed.IsZero()) {
					t.Errorf("no report that it was typed: %+v", told)
				}
			})
		})
	}
}

// Enter is not typed if the user types in between.
func TestEnterIsNotTypedIfTheUserIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newWatchedScreen(t, nil, 1)
		l.draw(claudeLimit)
		for l.control.all() == "" {
			time.Sleep(100 * time.Millisecond)
		}
		l.control.key(true)
		time.Sleep(time.Hour)
		if got := l.control.all(); got != continuePrompt {
			t.Errorf("typed was %q", got)
		}
	})
}

func TestReportsOfTheTerminalAreNoTyping(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 15, 14, 0, 0, 0, time.UTC)
	for text, typed := range map[string]bool{
		"\x1b[12;40R":                      false, // position of the cursor
		"\x1b[I":                           false, // the window has the focus
		"\x1b[O\x1b[I":                     false,
		"\x1b[?62;22c":                     false, // capabilities of the terminal
		"\x1b[?2026;2$y":                   false,
		"\x1b]11;rgb:0000/0000/0000\x1b\\": false, // background colour of the terminal
		"\x1b[<35;10;10M":                  false, // the mouse
		"x":                                true,
		"\r":                               true,
		"\x1b[A":                           true, // a key
		"\x1b[12;40Rx":                     true,
		"\x03":                             true,
	} {
		var k keyLog
		k.typed([]byte(text), at)
		last, draft := k.last()
		if last.IsZero() == typed {
			t.Errorf("%q counts as typed: %v, want %v", text, !last.IsZero(), typed)
		}
		if draft != (typed && text != "\r") {
			t.Errorf("after %q there is a draft: %v", text, draft)
		}
	}
}

func TestASizeOfNoneIsASize(t *testing.T) {
	t.Parallel()
	s := screen.New(0, 0)
	_, _ = s.Write([]byte("x\r\ny"))
	if got := s.Lines(); len(got) != 1 {
		t.Errorf("a screen of nothing has the lines %q", got)
	}
}

// Claude Code asks what to do at a limit. The choice to wait is made if typing is switched on, and
// then the prompt is typed at the end of the limit.
func TestTheMenuAtALimit(t *testing.T) {
	t.Parallel()
	menu := func(selected int) []string {
		rows := []string{claudeLimit, "", "❯ /rate-limit-options", strings.Repeat("─", 60), " What do you want to do?", "", "   1. Upgrade your plan", "   2. Stop and wait for limit to reset", "", " Enter to confirm · Esc to cancel"}
		rows[5+selected] = " ❯" + rows[5+selected][2:]
		return rows
	}
	for name, test := range map[string]struct {
		typing int
		screen []string
		key    bool // the user types
		want   string
		asks   bool
	}{
		"the option is selected":           {3, menu(2), false, "\r,Continue.,\r", false},
		"another option is selected":       {3, menu(1), false, "2,\r,Continue.,\r", false},
		"typing is off":                    {0, menu(2), false, "", true},
		"the user types":                   {3, menu(2), true, "", true},
		"a quotation of the option":        {0, []string{claudeLimit, "", "   1. Stop and wait for limit to reset"}, false, "", true},
		"the message is no longer visible": {3, menu(2)[2:], false, "\r", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newWatchedScreen(t, nil, test.typing)
				l.draw(test.screen...)
				if test.key {
					time.Sleep(screenSettles + time.Second)
					l.control.key(true)
				}
				for range 20 {
					time.Sleep(500 * time.Millisecond)
					if typed := l.control.all(); strings.HasSuffix(typed, "\r") { // the program closes the menu
						l.draw(claudeLimit)
						break
					} else if typed == "2" && test.screen[8] == menu(1)[8] {
						l.draw(menu(2)...)
					}
				}
				told, _ := l.reports()
				if len(told) != 1 || told[0] == nil || told[0].Asks != test.asks || told[0].Reason != "rate-limit" {
					t.Fatalf("told %+v", told)
				}
				time.Sleep(4 * time.Hour)
				if got := l.control.all(); got != test.want && !strings.HasPrefix(name, "the message") {
					t.Errorf("typed %q, want %q", got, test.want)
				}
			})
		})
	}
}
