package session

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/screen"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// ScreenLimit is a limit on the screen of a running command.
type ScreenLimit struct {
	Reason string    `json:"reason"` // rate-limit, or terminal if waiting does not help
	Line   string    `json:"line"`   // text on the screen
	Rule   string    `json:"rule,omitempty"`
	Until  time.Time `json:"until,omitzero"` // stated end; zero if not stated
	At     time.Time `json:"at"`             // when it appeared
	Typed  time.Time `json:"typed,omitzero"` // when the prompt to continue was typed
	Asks   bool      `json:"asks,omitempty"` // the program asks the user to choose what to do
}

// Timing of the screen watch. A message is noticed at most screenEvery+screenStands after it
// appears.
const (
	screenSettles = 300 * time.Millisecond // wait after the first output, until the screen is drawn completely
	screenEvery   = time.Second            // between two checks of a screen that keeps changing
	screenStands  = 2 * time.Second        // how long a message must stay: a command may print it and end
	screenGone    = 2 * time.Second        // how long it must be missing: a screen may be erased and redrawn
	enterAfter    = time.Second            // between the prompt and Enter: programs treat text with an immediate Enter as pasted
	clockCheck    = 30 * time.Second       // how often the wall clock is checked: it may be set, and timers stop during sleep
	sameTime      = 2 * time.Minute        // two stated ends this close are the same
)

// TerminalControl controls the terminal of a command.
type TerminalControl interface {
	Size() (cols, rows int)
	DiscardInput()                    // discards input that was not read yet
	Type(text string) error           // types text into the command
	Typed() (t time.Time, draft bool) // time of the user's last input; draft: it did not end with Enter
	Suspend()                         // stops this process, until the shell continues it
}

// screenWatch looks for limits on the screen of a running command.
type screenWatch struct {
	screen  *screen.Screen
	control TerminalControl
	find    func(lines []string, at time.Time) (detect.OnScreen, bool)
	redact  func(string) string

	// report is called with a new limit, again after the prompt to continue was typed, and with
	// nil when the limit is gone.
	report func(*ScreenLimit)

	// typeAt returns when to type the prompt to continue; zero means never.
	typeAt func(l *ScreenLimit) time.Time

	changed chan struct{}     // has an element if the screen has changed since the last check
	over    chan struct{}     // closed when run has returned
	end     func()            // ends run, and removes the watch from those that get reports
	hooks   chan *ScreenLimit // limits reported by the program itself
	hooked  *ScreenLimit      // the last limit from hooks; nil after a limit is on the screen or the user has typed a command

	limitTracker
	menu    *waitMenu // on the screen at the last check; nil if there is none
	choices int       // how many times a key of the menu may still be typed
	most    int       // choices for each limit; 0 means that the choice is the user's

	due   time.Time // when to type the prompt; zero means never
	begun time.Time // when the text was typed, before Enter
}

// Write receives the output of the command.
func (w *screenWatch) Write(p []byte) (int, error) {
	if cols, rows := w.control.Size(); cols > 0 && rows > 0 {
		w.screen.Resize(cols, rows)
	}
	_, _ = w.screen.Write(p)
	select {
	case w.changed <- struct{}{}:
	default:
	}
	return len(p), nil
}

// run checks the screen until the context ends.
func (w *screenWatch) run(ctx context.Context) {
	defer close(w.over)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var last time.Time // last check
	var next time.Time // next scheduled check; zero for none
	for {
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
			soon := slices.MaxFunc([]time.Time{time.Now().Add(screenSettles), last.Add(screenEvery)}, time.Time.Compare)
			if next.IsZero() || soon.Before(next) {
				next = soon
			}
			continue
		case w.hooked = <-w.hooks:
		case <-timer.C:
		}
		last, next = time.Now(), time.Time{}
		if wait := w.check(last); wait > 0 {
			next = last.Add(wait)
		}
	}
}

// check examines the screen once, and returns the time until the next check if nothing changes; 0
// means that none is needed.
func (w *screenWatch) check(now time.Time) time.Duration {
	found := w.look(now)
	l := w.orHooked(found)
	noticed, over := w.track(now, l)
	if noticed {
		w.due, w.begun, w.choices = w.typeAt(w.current), time.Time{}, w.most
	}
	asks := w.current != nil && l != nil && l.Asks && !w.chooseWait()
	if noticed || w.current != nil && l != nil && w.current.Asks != asks {
		w.current.Asks = asks
		w.report(new(*w.current))
	}
	if over {
		w.due = time.Time{}
		w.report(nil)
	}
	if w.current != nil && !w.due.IsZero() {
		w.typePrompt(now, found != nil && !found.Asks)
	}
	return w.wait(now)
}

// look returns the limit on the screen, nil if there is none, and sets the menu.
func (w *screenWatch) look(now time.Time) *ScreenLimit {
	lines := w.screen.Lines()
	w.menu = findWaitMenu(lines)
	if w.menu != nil {
		lines = lines[:w.menu.top]
	}
	got, found := w.find(lines, now)
	switch {
	case w.menu != nil:
		got = w.menu.limit(found, got)
	case !found:
		return nil
	}
	l := &ScreenLimit{Reason: got.Reason.String(), Line: w.stored(got.Line), Rule: got.Rule, Until: got.Until, At: now, Asks: got.Choice}
	if got.Terminal {
		l.Reason = detect.Terminal.String()
	}
	return l
}

// orHooked returns found, the limit on the screen. If that is nil, it returns the limit that the
// program has reported with a hook, until the user types a command.
func (w *screenWatch) orHooked(found *ScreenLimit) *ScreenLimit {
	if w.hooked == nil {
		return found
	}
	if typed, draft := w.control.Typed(); found != nil || typed.After(w.hooked.At) && !draft {
		w.hooked = nil
		return found
	}
	return new(*w.hooked)
}

// stored returns the part of a line to store, without secrets.
func (w *screenWatch) stored(line string) string {
	return textfmt.TruncateValid(w.redact(line), maxLine, "…")
}

// maxChoices limits the keys that are typed for one menu: one moves to the option, and one chooses it.
const maxChoices = 3

// chooseWait chooses the option of the menu that waits for the end of the limit, unless the user has
// typed since the limit appeared. It returns false if the choice is the user's.
func (w *screenWatch) chooseWait() bool {
	typed, draft := w.control.Typed()
	if w.menu == nil || w.choices <= 0 || !typed.Before(w.current.At) || draft {
		return false
	}
	w.choices--
	return w.control.Type(w.menu.key()) == nil
}

// typePrompt types the prompt to continue if it is due, the message is still on the screen, and the
// user has not typed since it appeared. It types nothing while the program asks the user to choose.
// stands means that the message is on the screen without such a choice.
func (w *screenWatch) typePrompt(now time.Time, stands bool) {
	typed, draft := w.control.Typed()
	switch {
	case !typed.Before(w.current.At) || draft:
		w.due = time.Time{}
	case now.Round(0).Before(w.due.Round(0)): // Round removes the monotonic clock: compare wall-clock times
	case !stands && w.begun.IsZero():
		if w.missing.IsZero() {
			w.due = time.Time{} // a choice: the effect of Enter is unknown
		}
	case w.begun.IsZero():
		w.begun = now
		if w.control.Type(continuePrompt) != nil {
			w.due = time.Time{}
		}
	case now.Sub(w.begun) >= enterAfter:
		w.due = time.Time{}
		if w.control.Type("\r") == nil {
			w.current.Typed = now
			w.report(new(*w.current))
		}
	}
}

// wait returns the time until the next check if the screen does not change; 0 means that none is
// needed.
func (w *screenWatch) wait(now time.Time) time.Duration {
	switch {
	case w.current != nil && w.menu != nil && w.choices > 0:
		return enterAfter
	case w.candidate != nil:
		return max(screenStands-now.Sub(w.candidate.At), time.Millisecond)
	case w.current != nil && !w.missing.IsZero():
		return max(screenGone-now.Sub(w.missing), time.Millisecond)
	case w.current != nil && !w.due.IsZero() && !w.begun.IsZero():
		return max(enterAfter-now.Sub(w.begun), time.Millisecond)
	case w.current != nil && !w.due.IsZero():
		return min(max(w.due.Round(0).Sub(now.Round(0)), time.Millisecond), clockCheck)
	}
	return 0
}

// limitTracker decides when a limit has appeared on a screen, and when it is gone.
type limitTracker struct {
	candidate *ScreenLimit // on the screen for less than screenStands
	current   *ScreenLimit // reported, and not gone yet
	last      *ScreenLimit // the last limit that is gone
	missing   time.Time    // since when current is missing on the screen; zero if it is there
}

// track updates the state with the limit that a check has found; nil for none. It reports whether
// there is a new limit, and whether the last one is over.
func (t *limitTracker) track(now time.Time, found *ScreenLimit) (noticed, over bool) {
	switch {
	case found == nil:
		t.candidate = nil
		switch {
		case t.current == nil:
		case t.missing.IsZero():
			t.missing = now
		case now.Sub(t.missing) >= screenGone:
			t.last, t.current, t.missing, over = t.current, nil, time.Time{}, true
		}
	case t.current != nil && t.current.same(found):
		t.candidate, t.missing = nil, time.Time{}
	case t.candidate == nil || !t.candidate.same(found):
		t.candidate = found
	case now.Sub(t.candidate.At) >= screenStands:
		t.current, t.candidate, t.missing, noticed = t.candidate, nil, time.Time{}, true
		if t.last != nil && t.last.Line == t.current.Line && (t.last.Until.IsZero() || now.Before(t.last.Until)) {
			t.current = t.last // the same limit again: another view was on the screen meanwhile
		}
	}
	return noticed, over
}

// same reports whether a later check has found the same limit. The text may differ: a program may
// count the time down, and a relative time is converted anew at every check.
func (l *ScreenLimit) same(found *ScreenLimit) bool {
	sameEnd := !l.Until.IsZero() && !found.Until.IsZero() && l.Until.Sub(found.Until).Abs() <= sameTime
	return l.Rule == found.Rule && l.Reason == found.Reason && (l.Line == found.Line || sameEnd)
}

// typeTime returns when to type the prompt to continue: after the stated end plus the policy's
// slack, and not in quiet hours. Zero means never: the end is unknown or farther away than the
// policy allows, or waiting does not help.
func typeTime(s *Spec, l *ScreenLimit, now time.Time) time.Time {
	left := l.Until.Sub(now)
	policy := s.storedPolicy()
	longest := cmp.Or(policy.ServerWait, retry.DefaultServerWait)
	if l.Until.IsZero() || l.Reason != detect.RateLimit.String() || !l.Typed.IsZero() || left > longest {
		return time.Time{}
	}
	spread := time.Duration(rand.Int64N(int64(min(max(left, 0)/5, 30*time.Second)) + 1))
	at := l.Until.Add(policy.ServerSlack + spread)
	if end, quiet := s.Quiet.Until(at); quiet {
		return end
	}
	return at
}

// watchScreen starts to watch the screen of a command. It returns nil if the command has no terminal.
func (r *Runner) watchScreen(ctx context.Context, s *Spec, control TerminalControl, report func(*ScreenLimit)) *screenWatch {
	if control == nil {
		return nil
	}
	pack, err := s.pack()
	if err != nil {
		return nil
	}
	cols, rows := control.Size()
	w := &screenWatch{
		screen: screen.New(cols, rows), control: control, report: report, changed: make(chan struct{}, 1), hooks: make(chan *ScreenLimit), over: make(chan struct{}),
		find: func(lines []string, at time.Time) (detect.OnScreen, bool) {
			return pack.FindOnScreen(lines, at, time.Local)
		},
		redact: cmp.Or(r.Redactor, new(secret.Redactor)).String,
	}
	left := r.TypeAtReset
	if left > 0 {
		w.most = maxChoices
	}
	w.typeAt = func(l *ScreenLimit) time.Time {
		if left <= 0 {
			return time.Time{}
		}
		at := typeTime(s, l, time.Now())
		if !at.IsZero() {
			left--
		}
		return at
	}
	ctx, cancel := context.WithCancel(ctx)
	w.end = func() {
		r.screens.CompareAndDelete(s.Name, w)
		cancel()
	}
	r.screens.Store(s.Name, w)
	go w.run(ctx)
	return w
}

// stop ends the watch, and reports whether the user typed after a limit had appeared.
func (w *screenWatch) stop() (quit bool) {
	if w == nil {
		return false
	}
	w.end()
	<-w.over
	typed, _ := w.control.Typed()
	for _, l := range []*ScreenLimit{w.candidate, w.current, w.last} {
		quit = quit || l != nil && typed.After(l.At)
	}
	return quit
}

// LimitReport is a limit that the program of a session reports itself, with a hook.
type LimitReport struct {
	Reason string `json:"reason"` // rate-limit, or terminal if waiting does not help
	Line   string `json:"line"`   // message to the user
}

// LimitReasons are the reasons of a [LimitReport].
var LimitReasons = []string{detect.RateLimit.String(), detect.Terminal.String()}

// reportLimit passes a report to the screen watch of the session. It returns false if the session has
// no screen watch. It parses the end of the limit from the line.
func (r *Runner) reportLimit(ctx context.Context, name string, report LimitReport) bool {
	v, ok := r.screens.Load(name)
	if !ok {
		return false
	}
	w := v.(*screenWatch) //nolint:forcetypeassert // the map has no other values
	l := &ScreenLimit{Reason: report.Reason, Line: w.stored(report.Line), At: time.Now()}
	if got, found := w.find(strings.Split(report.Line, "\n"), l.At); found {
		l.Rule, l.Until, l.Line = got.Rule, got.Until, w.stored(got.Line)
	}
	select {
	case w.hooks <- l:
		return true
	case <-w.over:
		return false
	case <-ctx.Done():
		return false
	}
}
