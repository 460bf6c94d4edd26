package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine"
)

// DefaultMorning is when a session goes on that was stopped for tonight and has no
// quiet hours.
const DefaultMorning = "07:00"

// in calls f with the session, which has a run.
func (m *Manager) in(name string, f func(g *managed) error) error {
	return m.of(name, func(g *managed) error {
		if g.run == "" {
			return fmt.Errorf("%w: session %q is over, and forgotten; resume begins it anew", ErrState, name)
		}
		return f(g)
	})
}

// of calls f with the session.
func (m *Manager) of(name string, f func(g *managed) error) error {
	m.mu.Lock()
	g := m.sessions[name]
	if g == nil {
		m.mu.Unlock()
		return m.unknown(name)
	}
	defer m.mu.Unlock()
	return f(g)
}

// Pause has the session do nothing until Resume. A command that runs is ended.
func (m *Manager) Pause(ctx context.Context, name, by string) error {
	return m.in(name, func(g *managed) error { return m.Engine.Pause(ctx, g.run, by) })
}

// PauseUntil has the session do nothing until a time of the calendar.
func (m *Manager) PauseUntil(ctx context.Context, name string, until time.Time, by string) error {
	if !until.After(time.Now()) {
		return fmt.Errorf("%w: %v is over", ErrState, until.Format(time.RFC3339))
	}
	return m.in(name, func(g *managed) error {
		i, err := m.Engine.Get(ctx, g.run)
		if err != nil {
			return err
		}
		if st := statusOf(name, i); st.Over() {
			return fmt.Errorf("%w: session %s is over (%s)", ErrState, name, st.State)
		}
		if due, waits := ownWait(i); waits && !due.Before(until) && i.State != "paused" && i.Next != nil && !i.Next.Before(until) {
			return nil // it does nothing until then anyway
		}
		// The order matters: a crash between the two leaves it postponed and paused,
		// never running.
		if err := m.Engine.Postpone(ctx, g.run, until, by); err != nil {
			return err
		}
		if err := m.Engine.Resume(ctx, g.run, by); !errors.Is(err, ErrState) {
			return err
		}
		return nil // it was not paused
	})
}

// ownWait returns until when a session would wait had nobody postponed it.
func ownWait(i *engine.Info) (due time.Time, waits bool) {
	if len(i.Steps) == 0 || len(i.Steps[0].Attempts) == 0 {
		return due, false
	}
	a := i.Steps[0].Attempts[len(i.Steps[0].Attempts)-1]
	if a.Wait == nil || a.Ended == nil {
		return due, false
	}
	return a.Ended.Add(a.Wait.Delay), true
}

// Tonight returns when a session goes on that is stopped for tonight: at the end of
// its quiet hours, or at seven.
func (m *Manager) Tonight(name string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := &Hours{To: DefaultMorning}
	if g := m.sessions[name]; g != nil && g.spec != nil && g.spec.Quiet != nil {
		h = g.spec.Quiet
	}
	return h.End(time.Now())
}

// Resume has a session go on that was paused or postponed: a wait that it had
// before goes on. One that has ended is put back to work if it gave up, and begins
// anew otherwise.
func (m *Manager) Resume(ctx context.Context, name, by string) error {
	return m.of(name, func(g *managed) error {
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
			return m.backTo(ctx, g, i, by)
		case infoErr == nil && !i.Finished():
			return notPaused(statusOf(name, i))
		case g.spec == nil:
			return fmt.Errorf("%w: session %q is not configured any more", ErrState, name)
		}
		return m.begin(ctx, g, by)
	})
}

// retry puts a session back to work that gave up. One that can't be resumed begins
// anew: there is no other way to go on, and somebody has asked for it.
func (m *Manager) retry(ctx context.Context, g *managed, i *engine.Info, by string) error {
	cannot := len(i.Steps) > 0 && ReadMemo(i.Steps[0].Progress).NoResume != ""
	if g.spec != nil && (cannot || g.spec.CannotResume() != "") {
		return m.begin(ctx, g, by)
	}
	return m.Engine.Retry(ctx, g.run, by)
}

// notPaused says why there is nothing to resume, and what ends a wait.
func notPaused(st Status) error {
	if st.State != "waiting" || st.Next == nil {
		return fmt.Errorf("%w: session %q is %s, and not paused: there is nothing to resume", ErrState, st.Name, st.State)
	}
	return fmt.Errorf("%w: session %q is not paused: it waits until %s and resumes by itself then; 'tideover sessions retry-now %s' ends the wait",
		ErrState, st.Name, st.Next.Local().Format("Jan 2 15:04:05 MST"), st.Name)
}

// postponed reports whether somebody has prolonged the session's wait.
func postponed(i *engine.Info) bool {
	if len(i.Steps) == 0 || i.Next == nil {
		return false
	}
	n := len(i.Steps[0].Attempts)
	if n == 0 {
		return false
	}
	a := i.Steps[0].Attempts[n-1]
	return a.Wait != nil && a.Wait.Moved != "" || a.Outcome == "released"
}

// backTo undoes a postponement.
func (m *Manager) backTo(ctx context.Context, g *managed, i *engine.Info, by string) error {
	if due, waits := ownWait(i); waits && due.After(time.Now()) {
		return m.Engine.Postpone(ctx, g.run, due, by)
	}
	return m.Engine.Wake(ctx, g.run, by)
}

// Begin starts a session anew that has ended.
func (m *Manager) Begin(ctx context.Context, name, by string) error {
	return m.in(name, func(g *managed) error {
		if g.spec == nil {
			return fmt.Errorf("%w: session %q is not configured any more", ErrState, name)
		}
		return m.begin(ctx, g, by)
	})
}

// RetryNow ends the wait of a session. One that is paused goes on, and one that
// gave up is put back to work.
func (m *Manager) RetryNow(ctx context.Context, name, by string) error {
	return m.in(name, func(g *managed) (err error) {
		i, err := m.Engine.Get(ctx, g.run)
		if err != nil {
			return err
		}
		if m.Runner != nil { // a person knows more than the gate of the account
			m.Runner.force(g.run)
			defer func() {
				if err != nil {
					m.Runner.unforce(g.run)
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
				return nil // it did not wait
			}
			return err
		}
		return m.Engine.Wake(ctx, g.run, by)
	})
}

// Stop ends the session.
func (m *Manager) Stop(ctx context.Context, name, by string) error {
	return m.in(name, func(g *managed) error { return m.Engine.Cancel(ctx, g.run, by) })
}

// Reset forgets the attempts and windows that a session has spent. One that gave
// up has none to forget, and is put back to work with Resume.
func (m *Manager) Reset(ctx context.Context, name, by string) error {
	return m.in(name, func(g *managed) error { return m.Engine.Reset(ctx, g.run, by) })
}
