package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine"
)

// DefaultMorning is the time of day at which a session that was stopped for the night continues, if
// it has no quiet hours.
const DefaultMorning = "07:00"

// withRun calls f with the session, holding the lock. It returns ErrState if the session has no
// run.
func (m *Manager) withRun(name string, f func(g *managed) error) error {
	return m.withSession(name, func(g *managed) error {
		if g.run == "" {
			return fmt.Errorf("%w: session %q has ended and its run is no longer stored: resume starts it again", ErrState, name)
		}
		return f(g)
	})
}

// withSession calls f with the session, holding the lock.
func (m *Manager) withSession(name string, f func(g *managed) error) error {
	m.mu.Lock()
	g := m.sessions[name]
	if g == nil {
		m.mu.Unlock()
		return m.unknown(name)
	}
	defer m.mu.Unlock()
	return f(g)
}

// Pause pauses the session until Resume. A running command is ended.
func (m *Manager) Pause(ctx context.Context, name, by string) error {
	return m.withRun(name, func(g *managed) error { return m.Engine.Pause(ctx, g.run, by) })
}

// PauseUntil pauses the session until a time. The zero time means until Resume.
func (m *Manager) PauseUntil(ctx context.Context, name string, until time.Time, by string) error {
	if until.IsZero() {
		return m.Pause(ctx, name, by)
	}
	if !until.After(time.Now()) {
		return fmt.Errorf("%w: %v is in the past", ErrState, until.Format(time.RFC3339))
	}
	return m.withRun(name, func(g *managed) error {
		i, err := m.Engine.Get(ctx, g.run)
		if err != nil {
			return err
		}
		if st := statusOf(name, i); st.Over() {
			return fmt.Errorf("%w: session %s has ended (%s)", ErrState, name, st.State)
		}
		if due, waits := ownWait(i); waits && !due.Before(until) && i.State != "paused" && i.Next != nil && !i.Next.Before(until) {
			return nil // it waits that long already
		}
		// The order matters: after a crash between the two, the session is postponed and paused,
		// never running.
		if err := m.Engine.Postpone(ctx, g.run, until, by); err != nil {
			return err
		}
		if err := m.Engine.Resume(ctx, g.run, by); !errors.Is(err, ErrState) {
			return err
		}
		return nil // ErrState: it was not paused
	})
}

// Tonight returns when a session that is stopped for the night continues: at the end of its quiet
// hours, or at DefaultMorning if it has none.
func (m *Manager) Tonight(name string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := &Hours{To: DefaultMorning}
	if g := m.sessions[name]; g != nil && g.spec != nil && g.spec.Quiet != nil {
		h = g.spec.Quiet
	}
	return h.End(time.Now())
}

// Resume continues a session that was paused or postponed; a wait that is not over yet continues. A
// session that gave up gets new attempts. Any other session that has ended starts again from the
// beginning.
func (m *Manager) Resume(ctx context.Context, name, by string) error {
	return m.withSession(name, func(g *managed) error {
		if g.run == "" {
			return m.begin(ctx, g, by)
		}
		err := m.Engine.Resume(ctx, g.run, by)
		if !errors.Is(err, engine.ErrState) && !errors.Is(err, engine.ErrNotFound) {
			return err
		}
		i, infoErr := m.Engine.Get(ctx, g.run)
		switch {
		case infoErr != nil && !errors.Is(infoErr, engine.ErrNotFound):
			return infoErr
		case infoErr == nil && i.State == "dead":
			return m.retry(ctx, g, i, by)
		case infoErr == nil && !i.Finished() && postponed(i):
			if due, waits := ownWait(i); waits && due.After(time.Now()) {
				return m.Engine.Postpone(ctx, g.run, due, by)
			}
			return m.Engine.Wake(ctx, g.run, by)
		case infoErr == nil && !i.Finished():
			return notPaused(statusOf(name, i))
		case g.spec == nil:
			return fmt.Errorf("%w: session %q is no longer configured", ErrState, name)
		}
		return m.begin(ctx, g, by)
	})
}

// retry gives a session that gave up new attempts. A session that can't be resumed starts again
// from the beginning, because the operator asked for it and there is no other way.
func (m *Manager) retry(ctx context.Context, g *managed, i *engine.Info, by string) error {
	cannot := len(i.Steps) > 0 && ReadMemo(i.Steps[0].Progress).NoResume != ""
	if g.spec != nil && (cannot || g.spec.CannotResume() != "") {
		return m.begin(ctx, g, by)
	}
	return m.Engine.Retry(ctx, g.run, by)
}

// notPaused returns the error for a session that is not paused. If the session waits, the error
// names the command that ends the wait.
func notPaused(st Status) error {
	if st.State != "waiting" || st.Next == nil {
		return fmt.Errorf("%w: session %q is %s, not paused: nothing to resume", ErrState, st.Name, st.State)
	}
	return fmt.Errorf("%w: session %q is not paused: it waits until %s and then resumes by itself: run 'tideover sessions wake %s' to end the wait",
		ErrState, st.Name, st.Next.Local().Format("Jan 2 15:04:05 MST"), st.Name)
}

// Begin starts an ended session again, from the beginning.
func (m *Manager) Begin(ctx context.Context, name, by string) error {
	return m.withRun(name, func(g *managed) error {
		if g.spec == nil {
			return fmt.Errorf("%w: session %q is no longer configured", ErrState, name)
		}
		return m.begin(ctx, g, by)
	})
}

// RetryNow ends the wait of a session. It resumes a paused session, and gives new attempts to a
// session that gave up.
func (m *Manager) RetryNow(ctx context.Context, name, by string) error {
	return m.withRun(name, func(g *managed) (err error) {
		i, err := m.Engine.Get(ctx, g.run)
		if err != nil {
			return err
		}
		if m.Runner != nil { // the operator overrides the gate of the account
			m.Runner.forced.Store(g.run, true)
			defer func() {
				if err != nil {
					m.Runner.forced.Delete(g.run)
				}
			}()
		}
		switch i.State {
		case "dead":
			return m.retry(ctx, g, i, by)
		case "paused":
			if err := m.Engine.Resume(ctx, g.run, by); err != nil {
				return err
			}
			err := m.Engine.Wake(ctx, g.run, by)
			if errors.Is(err, engine.ErrState) {
				return nil // ErrState: it was not waiting
			}
			return err
		}
		return m.Engine.Wake(ctx, g.run, by)
	})
}

// Stop ends the session.
func (m *Manager) Stop(ctx context.Context, name, by string) error {
	return m.withRun(name, func(g *managed) error { return m.Engine.Cancel(ctx, g.run, by) })
}

// Reset sets the counters of attempts and windows to 0. A session that gave up continues with
// Resume instead.
func (m *Manager) Reset(ctx context.Context, name, by string) error {
	return m.withRun(name, func(g *managed) error { return m.Engine.Reset(ctx, g.run, by) })
}

// ReportLimit handles a limit that the program of a session reports itself. It returns ErrState if
// the program does not run on a terminal.
func (m *Manager) ReportLimit(ctx context.Context, name string, report LimitReport, _ string) error {
	if err := m.withRun(name, func(*managed) error { return nil }); err != nil {
		return err
	}
	if m.Runner == nil || !m.Runner.reportLimit(ctx, name, report) {
		return fmt.Errorf("%w: session %q has no command on a terminal: its limit is detected when the command ends", ErrState, name)
	}
	return nil
}

// ownWait returns the end of the session's wait as it was before an operator postponed it; waits is
// false if the session does not wait.
func ownWait(i *engine.Info) (due time.Time, waits bool) {
	a := lastAttempt(i)
	if a == nil || a.Wait == nil || a.Ended == nil {
		return due, false
	}
	return a.Ended.Add(a.Wait.Delay), true
}

// postponed reports whether an operator has prolonged the session's wait.
func postponed(i *engine.Info) bool {
	a := lastAttempt(i)
	return a != nil && i.Next != nil && (a.Wait != nil && a.Wait.Moved != "" || a.Outcome == "released")
}
