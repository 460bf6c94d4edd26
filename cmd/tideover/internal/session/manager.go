package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/engine"
)

// ErrUnknown means that there is no session with this name. It is an [engine.ErrNotFound].
var ErrUnknown error = unknownError{}

type unknownError struct{}

func (unknownError) Error() string { return "no such session" }

func (unknownError) Is(target error) bool { return target == engine.ErrNotFound }

// ErrState means that the session's state does not allow the operation.
var ErrState = engine.ErrState

// Manager controls the sessions of an engine by their names.
type Manager struct {
	Engine *engine.Engine

	// Known reports whether a session without a stored run has run before; nil means that none
	// has.
	Known func(name string) bool

	// Runner runs the commands; nil if it is in another process.
	Runner *Runner

	// Output returns the file with the output of a session, and its last lines; nil means that
	// output is not stored.
	Output func(name string) (path string, tail []string)

	// Read returns the output of a session after a position, as [Logs.Read] does; nil means that
	// output is not stored.
	Read func(name, after string) (OutputPart, error)

	mu       sync.Mutex
	sessions map[string]*managed
}

// managed is a session of the manager.
type managed struct {
	spec *Spec            // nil if the session is no longer configured
	flow *engine.Workflow // of the spec, or of the last spec; nil if this process has never had a spec
	run  string           // latest run; "" for none
}

// Set replaces the configured sessions. Sessions that have never run are started; the others keep
// their state. before reports whether at least one of them has run before.
func (m *Manager) Set(ctx context.Context, specs []*Spec, flows []*engine.Workflow) (before bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.sessions
	m.sessions = map[string]*managed{}
	for i, s := range specs {
		g := &managed{spec: s, flow: flows[i]}
		if was := known[s.Name]; was != nil {
			g.run = was.run
		}
		m.sessions[s.Name] = g
	}
	for name, was := range known {
		if m.sessions[name] == nil && was.run != "" {
			m.sessions[name] = &managed{run: was.run, flow: was.flow}
		}
	}
	for _, s := range specs {
		g := m.sessions[s.Name]
		if err := m.latest(ctx, g); err != nil {
			return before, err
		}
		if g.run != "" {
			before = true
			if m.Runner != nil {
				m.Runner.restoreHeld(ctx, m.Engine, s, g.run)
			}
		} else if m.Known != nil && m.Known(s.Name) {
			continue // it has ended and its run is no longer stored; Resume starts it again
		} else if err := m.begin(ctx, g, "the configuration"); err != nil {
			return before, err
		}
	}
	return before, m.orphans(ctx)
}

// Kept returns the workflows of sessions that have a run and are not among specs. The engine still
// needs these workflows, to send a message if such a session gives up.
func (m *Manager) Kept(specs []*Spec) (flows []*engine.Workflow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, g := range m.sessions {
		if g.flow != nil && g.run != "" && !slices.ContainsFunc(specs, func(s *Spec) bool { return s.Name == name }) {
			flows = append(flows, g.flow)
		}
	}
	return flows
}

// orphans adds running sessions that are no longer configured.
func (m *Manager) orphans(ctx context.Context) error {
	stats, err := m.Engine.Stats(ctx)
	if err != nil {
		return err
	}
	for _, w := range stats.Workflows {
		name, ok := strings.CutPrefix(w.Name, Prefix)
		if !ok || m.sessions[name] != nil || len(w.States) == 0 || strings.HasSuffix(name, ".on-give-up") {
			continue
		}
		page, err := m.Engine.List(ctx, engine.Filter{Workflow: w.Name, Limit: 1})
		if err != nil {
			return err
		}
		if len(page.Runs) > 0 {
			m.sessions[name] = &managed{run: page.Runs[0].ID}
		}
	}
	return nil
}

// latest sets g.run, if it is empty, to the latest stored run of the session, which an
// earlier process has started. It stays empty if there is none.
func (m *Manager) latest(ctx context.Context, g *managed) error {
	if g.run != "" {
		return nil
	}
	// After a crash, lists are behind the log for a moment: wait until they are current.
	for {
		stats, err := m.Engine.Stats(ctx)
		if err != nil {
			return err
		}
		if stats.Behind == 0 {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	page, err := m.Engine.List(ctx, engine.Filter{Workflow: g.flow.Name(), Limit: 1})
	if err == nil && len(page.Runs) > 0 {
		g.run = page.Runs[0].ID
	}
	return err
}

// begin starts a new run of the session.
func (m *Manager) begin(ctx context.Context, g *managed, by string) error {
	s, err := m.Engine.StartRegistered(ctx, g.flow, g.spec.work(), engine.Source(by))
	if err == nil {
		g.run = s.ID
	}
	return err
}

// Runs returns the latest stored run of each session. It reads a run when the iteration reaches it.
func (m *Manager) Runs(ctx context.Context) iter.Seq[*engine.Info] {
	m.mu.Lock()
	var ids []string
	for _, g := range m.sessions {
		if g.run != "" {
			ids = append(ids, g.run)
		}
	}
	m.mu.Unlock()
	return func(yield func(*engine.Info) bool) {
		for _, id := range ids {
			if i, err := m.Engine.Get(ctx, id); err == nil && !yield(i) {
				return
			}
		}
	}
}

// Names returns the names of the sessions.
func (m *Manager) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.sessions))
}

// List returns the status of all sessions, sorted by name.
func (m *Manager) List(ctx context.Context) ([]Status, error) {
	list := []Status{}
	for _, name := range m.Names() {
		s, err := m.status(ctx, name)
		if errors.Is(err, ErrUnknown) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// Get returns the status of a session, with the last lines of its output.
func (m *Manager) Get(ctx context.Context, name string) (Status, error) {
	s, err := m.status(ctx, name)
	if err == nil && m.Output != nil {
		s.Log, s.Tail = m.Output(name)
	}
	return s, err
}

// ReadOutput returns the output of a session after a position.
func (m *Manager) ReadOutput(_ context.Context, name, after string) (part OutputPart, err error) {
	err = m.withSession(name, func(*managed) error { return nil })
	if err == nil && m.Read != nil {
		part, err = m.Read(name, after)
	}
	return part, err
}

func (m *Manager) status(ctx context.Context, name string) (Status, error) {
	var known managed
	if err := m.withSession(name, func(g *managed) error { known = *g; return nil }); err != nil {
		return Status{}, err
	}
	st := Status{Name: name, State: "idle"}
	if known.run != "" {
		i, err := m.Engine.Get(ctx, known.run)
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			return st, err
		}
		if err == nil {
			st = statusOf(name, i)
		}
	}
	if s := known.spec; s != nil {
		st.MaxWindows = cmp.Or(st.MaxWindows, s.Windows, DefaultWindows)
		st.Policy = cmp.Or(st.Policy, s.Policy.String())
		st.NoResume = cmp.Or(st.NoResume, s.CannotResume())
		if s.Quiet != nil {
			st.Quiet = s.Quiet.String()
		}
		st.Account = s.AccountName()
	}
	if m.Runner != nil && !st.Over() {
		if gate := m.Runner.gate(st.Account); gate != nil {
			st.AccountLimit = gate.Describe()
			if why, _, held := strings.Cut(st.WaitFor, account.HeldPrefix); held && st.AccountLimit != "" {
				st.WaitFor = why + "held: " + st.AccountLimit // as it is now, and not as it was when the wait began
			}
		}
	}
	return st, nil
}

func (m *Manager) unknown(name string) error {
	names := m.Names()
	if len(names) == 0 {
		return fmt.Errorf("%w: %q: there are no sessions", ErrUnknown, name)
	}
	return fmt.Errorf("%w: %q: the sessions are %s", ErrUnknown, name, strings.Join(names, ", "))
}
