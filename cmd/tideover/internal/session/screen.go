package session

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/screen"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// ScreenLimit is a limit that stands on the screen of a command that still runs.
type ScreenLimit struct {
	Reason string    `json:"reason"` // rate-limit, or terminal if no wait helps
	Line   string    `json:"line"`   // that says so
	Rule   string    `json:"rule,omitempty"`
	Until  time.Time `json:"until,omitzero"` // as it was stated; zero if it was not
	At     time.Time `json:"at"`             // when it appeared
	Typed  time.Time `json:"typed,omitzero"` // when the prompt to continue was typed
}

// How a screen is watched. A message is noticed at most screenEvery+screenStands after
// it appears.
const (
	screenSettles = 300 * time.Millisecond // after the first output, so that a screen is drawn entirely
	screenEvery   = time.Second            // between two looks at a screen that keeps changing
	screenStands  = 2 * time.Second        // how long a message must stand: a command may print it and end
	screenGone    = 2 * time.Second        // how long it must be missing: a screen is erased and drawn again
	enterAfter    = time.Second            // between a prompt and Enter: programs take text that ends a line at once for pasted
	clockCheck    = 30 * time.Second       // how often the clock is looked at, which may be set, or stand still for a timer
	sameTime      = 2 * time.Minute        // two stated ends that are this close are the same
)

// TerminalControl is the terminal of a command, seen from our side.
type TerminalControl interface {
	Size() (cols, rows int)
	DiscardInput()                    // forgets what was typed and not read yet
	Type(text string) error           // types for the user
	Typed() (t time.Time, draft bool) // when the user typed last; draft: without Enter at the end
	Suspend()                         // hands the terminal to the shell until the user continues us
}

// screenWatch looks for limits on the screen of a running command.
type screenWatch struct {
	screen  *screen.Screen
	control TerminalControl
	find    func(lines []string, at time.Time) (detect.OnScreen, bool)
	redact  func(string) string

	// report is called when a limit was noticed, when the prompt to continue was typed, and
	// with nil when the program goes on.
	report func(*ScreenLimit)

	// typeAt returns when the prompt to continue is typed; zero means never.
	typeAt func(l *ScreenLimit) time.Time

	changed chan struct{}     // has an element if the screen has changed since the last look
	over    chan struct{}     // closed when nobody looks any more
	hooks   chan *ScreenLimit // limits that the program itself has reported
	hooked  *ScreenLimit      // the last of them, until it is seen on the screen or its user goes on

	limitTracker
	due   time.Time // when the prompt is typed; zero means never
	begun time.Time // when its text was typed, and Enter is not yet
}

// Write takes what the command writes to its terminal.
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

// run looks at the screen until the context ends.
func (w *screenWatch) run(ctx context.Context) {
	defer close(w.over)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var last time.Time // look
	var next time.Time // look that is due; zero for none
	for {
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
			soon := latest(time.Now().Add(screenSettles), last.Add(screenEvery))
			if next.IsZero() || soon.Before(next) {
				next = soon
			}
			continue
		case w.hooked = <-w.hooks:
		case <-timer.C:
		}
		last, next = time.Now(), time.Time{}
		if wait := w.look(last); wait > 0 {
			next = last.Add(wait)
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// look looks at the screen once, and returns after how long the next look is due even
// if nothing changes; 0 means that it is not.
func (w *screenWatch) look(now time.Time) time.Duration {
	got, found := w.find(w.screen.Lines(), now)
	var l *ScreenLimit
	if found {
		l = &ScreenLimit{Reason: got.Reason.String(), Line: textfmt.TruncateValid(w.redact(got.Line), maxLine, "…"), Rule: got.Rule, Until: got.Until, At: now}
		if got.Terminal {
			l.Reason = detect.Terminal.String()
		}
	}
	l = w.orHooked(l)
	switch w.track(now, l) {
	case limitNoticed:
		w.due, w.begun = w.typeAt(w.current), time.Time{}
		w.report(w.copied())
	case limitOver:
		w.due = time.Time{}
		w.report(nil)
	}
	if w.current != nil && !w.due.IsZero() {
		w.typePrompt(now, found && !got.Choice)
	}
	return w.wait(now)
}

// orHooked returns what was found on the screen, or else what the program has reported.
// That counts until its user has asked for something else.
func (w *screenWatch) orHooked(found *ScreenLimit) *ScreenLimit {
	if w.hooked == nil {
		return found
	}
	if typed, draft := w.control.Typed(); found != nil || typed.After(w.hooked.At) && !draft {
		w.hooked = nil
		return found
	}
	l := *w.hooked
	return &l
}

// copied returns the current limit as it is now.
func (w *screenWatch) copied() *ScreenLimit {
	l := *w.current
	return &l
}

// typePrompt types the prompt to continue if it is due, the message still stands, and
// the user has not typed since it appeared. Nothing is typed where the program asks its
// user to choose.
func (w *screenWatch) typePrompt(now time.Time, stands bool) {
	typed, draft := w.control.Typed()
	switch {
	case !typed.Before(w.current.At) || draft:
		w.due = time.Time{}
	case now.Round(0).Before(w.due.Round(0)): // by the clock on the wall
	case !stands && w.begun.IsZero():
		if w.missing.IsZero() {
			w.due = time.Time{} // a choice: nobody knows what Enter would choose
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
			w.report(w.copied())
		}
	}
}

// wait returns after how long something may be due although the screen does not change.
func (w *screenWatch) wait(now time.Time) time.Duration {
	switch {
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

// limitTracker says when a limit has appeared on a screen, and when it is over.
type limitTracker struct {
	candidate *ScreenLimit // stands on the screen for less than screenStands
	current   *ScreenLimit // was noticed, and the program has not gone on
	last      *ScreenLimit // was current before
	missing   time.Time    // since when current is not on the screen; zero if it is
}

// limitChange is what a look at the screen has found out.
type limitChange uint8

const (
	limitUnchanged limitChange = iota
	limitNoticed               // for the first time
	limitOver
)

// track takes what a look has found; nil is nothing.
func (t *limitTracker) track(now time.Time, found *ScreenLimit) limitChange {
	switch {
	case found == nil:
		t.candidate = nil
		if t.current == nil {
			return limitUnchanged
		}
		if t.missing.IsZero() {
			t.missing = now
		}
		if now.Sub(t.missing) < screenGone {
			return limitUnchanged
		}
		t.last, t.current, t.missing = t.current, nil, time.Time{}
		return limitOver
	case t.current != nil && t.current.same(found, now):
		t.candidate, t.missing = nil, time.Time{}
		return limitUnchanged
	case t.candidate == nil || !t.candidate.same(found, now):
		t.candidate = found
		return limitUnchanged
	case now.Sub(t.candidate.At) < screenStands:
		return limitUnchanged
	}
	t.current, t.candidate, t.missing = t.candidate, nil, time.Time{}
	if t.last != nil && t.last.Line == t.current.Line && (t.last.Until.IsZero() || now.Before(t.last.Until)) {
		t.current = t.last // it is seen again: the user has looked at something else
	}
	return limitNoticed
}

// same reports whether another look has found the same limit. A program may count the
// time down, and what it states as a time that passes is read anew at every look.
func (l *ScreenLimit) same(found *ScreenLimit, now time.Time) bool {
	if l.Rule != found.Rule || l.Reason != found.Reason {
		return false
	}
	if l.Line == found.Line {
		return true
	}
	return !l.Until.IsZero() && !found.Until.IsZero() && max(l.Until.Sub(found.Until), found.Until.Sub(l.Until)) <= sameTime
}

// typeTime returns when the prompt to continue is typed for a limit: as long after the
// stated end as the policy waits, and not in quiet hours. Zero means never: the end is
// not known, is farther away than the policy waits, or no wait helps.
func (s *Spec) typeTime(l *ScreenLimit, now time.Time) time.Time {
	left := l.Until.Sub(now)
	policy := s.storedPolicy()
	switch {
	case l.Until.IsZero() || l.Reason != detect.RateLimit.String() || !l.Typed.IsZero():
		return time.Time{}
	case left > cmp.Or(policy.ServerWait, retry.DefaultServerWait):
		return time.Time{}
	}
	spread := time.Duration(rand.Int64N(int64(min(max(left, 0)/5, 30*time.Second)) + 1))
	at := l.Until.Add(policy.ServerSlack + spread)
	if end, quiet := s.Quiet.Until(at); quiet {
		return end
	}
	return at
}

// screenUsage is the looking at the screen of one command.
type screenUsage struct {
	watch  *screenWatch
	forget func()
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// watchScreen begins to look at the screen of a command; nil if it has none.
func (r *Runner) watchScreen(ctx context.Context, s *Spec, control TerminalControl, report func(*ScreenLimit)) *screenUsage {
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
		redact: func(text string) string { return text },
	}
	if r.Redactor != nil {
		w.redact = r.Redactor.String
	}
	left := r.TypeAtReset
	w.typeAt = func(l *ScreenLimit) time.Time {
		if left <= 0 {
			return time.Time{}
		}
		at := s.typeTime(l, time.Now())
		if !at.IsZero() {
			left--
		}
		return at
	}
	u := &screenUsage{watch: w, forget: func() { r.screens.CompareAndDelete(s.Name, w) }}
	r.screens.Store(s.Name, w)
	ctx, u.cancel = context.WithCancel(ctx)
	u.done.Go(func() { w.run(ctx) })
	return u
}

// end ends the looking, and reports whether the user typed after a limit had appeared.
func (u *screenUsage) end() (quit bool) {
	if u == nil {
		return false
	}
	u.forget()
	u.cancel()
	u.done.Wait()
	typed, _ := u.watch.control.Typed()
	for _, l := range []*ScreenLimit{u.watch.candidate, u.watch.current, u.watch.last} {
		quit = quit || l != nil && typed.After(l.At)
	}
	return quit
}

// LimitReport is a limit that the program of a session reports itself, by a hook.
type LimitReport struct {
	Reason string `json:"reason"` // rate-limit, or terminal if no wait helps
	Line   string `json:"line"`   // what it says to its user
}

// LimitReasons are the reasons of a [LimitReport].
var LimitReasons = []string{detect.RateLimit.String(), detect.Terminal.String()}

// ReportLimit takes a report of the program of a session, which runs on a terminal.
func (m *Manager) ReportLimit(ctx context.Context, name string, report LimitReport, _ string) error {
	if err := m.in(name, func(*managed) error { return nil }); err != nil {
		return err
	}
	if m.Runner == nil || !m.Runner.reportLimit(ctx, name, report) {
		return fmt.Errorf("%w: no command of session %q runs on a terminal: its limit is noticed when it ends", ErrState, name)
	}
	return nil
}

// reportLimit passes a report on to what looks at the screen of the session, and reports
// whether there is a screen. When the limit ends is read from the line.
func (r *Runner) reportLimit(ctx context.Context, name string, report LimitReport) bool {
	v, ok := r.screens.Load(name)
	if !ok {
		return false
	}
	w := v.(*screenWatch) //nolint:forcetypeassert // there is nothing else in it
	l := &ScreenLimit{Reason: report.Reason, Line: textfmt.TruncateValid(w.redact(report.Line), maxLine, "…"), At: time.Now()}
	if got, found := w.find(strings.Split(report.Line, "\n"), l.At); found {
		l.Rule, l.Until, l.Line = got.Rule, got.Until, textfmt.TruncateValid(w.redact(got.Line), maxLine, "…")
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
