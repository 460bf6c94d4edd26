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

// in calls f with the run of the session.
func (m *Manager) in(name string, f func(g *managed) error) error {
	m.mu.Lock()
	g := m.sessions[name]
	if g == nil {
		m.mu.Unlock()
		return m.unknown(name)
	}
	defer m.mu.Unlock()
	if g.run == "" {
		return fmt.Errorf("%w: session %q has not begun", ErrState, name)
	}
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
		if m.Runner.Postpone(g.run, until, by) {
			return nil
		}
		i, err := m.Engine.Get(ctx, g.run)
		switch {
		case err != nil:
			return err
		case i.State == "paused": // now it has an end
			if err := m.Engine.Resume(ctx, g.run, by); err != nil {
				return err
			}
		case i.Next != nil && !i.Next.Before(until):
			return nil // it does nothing until then anyway
		}
		err = m.Engine.Postpone(ctx, g.run, until, by)
		if i.State == "paused" && errors.Is(err, ErrState) {
			return nil // its wait is longer
		}
		return err
	})
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

// Resume has a session go on that was paused, or has ended: one that gave up is
// put back to work, one that was completed or stopped begins anew.
func (m *Manager) Resume(ctx context.Context, name, by string) error {
	return m.in(name, func(g *managed) error {
		err := m.Engine.Resume(ctx, g.run, by)
		if !errors.Is(err, engine.ErrState) && !errors.Is(err, engine.ErrNotFound) {
			return err
		}
		i, infoErr := m.Engine.Get(ctx, g.run)
		switch {
		case infoErr != nil && !errors.Is(infoErr, engine.ErrNotFound):
			return infoErr
		case infoErr == nil && i.State == "dead":
			return m.Engine.Retry(ctx, g.run, by)
		case infoErr == nil && !i.Finished():
			return fmt.Errorf("%w: session %q is %s, and not paused", ErrState, name, statusOf(name, i).State)
		case g.flow == nil:
			return fmt.Errorf("%w: session %q is not configured any more", ErrState, name)
		}
		return m.begin(ctx, g, by)
	})
}

// Begin starts a session anew that has ended.
func (m *Manager) Begin(ctx context.Context, name, by string) error {
	return m.in(name, func(g *managed) error {
		if g.flow == nil {
			return fmt.Errorf("%w: session %q is not configured any more", ErrState, name)
		}
		return m.begin(ctx, g, by)
	})
}

// RetryNow ends the wait of a session. One that is paused goes on, and one that
// gave up is put back to work.
func (m *Manager) RetryNow(ctx context.Context, name, by string) error {
	return m.in(name, func(g *managed) error {
		i, err := m.Engine.Get(ctx, g.run)
		if err != nil {
			return err
		}
		switch i.State {
		case "dead":
			return m.Engine.Retry(ctx, g.run, by)
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
