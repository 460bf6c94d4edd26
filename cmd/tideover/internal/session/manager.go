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

	"github.com/tideover/tideover/engine"
)

// ErrUnknown says that there is no session of the name.
var ErrUnknown = errors.New("no such session")

// ErrState says that a session is not in a state for what is asked.
var ErrState = engine.ErrState

// Manager knows the sessions of an engine by their names.
type Manager struct {
	Engine *engine.Engine

	// Known reports whether a session has ever run of which no run is kept any more;
	// nil means that none has.
	Known func(name string) bool

	// Runner runs the commands; nil means that it is not known here.
	Runner *Runner

	// Output returns the file that has the output of a session, and its last
	// lines; nil means that there is none.
	Output func(name string) (path string, tail []string)

	// Read returns the output of a session after a position, as [Logs.Read] does; nil means
	// that it is not kept.
	Read func(name, after string) (OutputPart, error)

	mu       sync.Mutex
	sessions map[string]*managed
}

// managed is a session by its name.
type managed struct {
	spec *Spec            // nil if it is not configured any more
	flow *engine.Workflow // of the spec, or of the one that was
	run  string           // the latest; "" for none
}

// Set says which sessions there are. Those that have never run are started; those
// that have go on as they are, whatever became of them. It reports whether there
// were any of those.
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
			m.holds(ctx, g)
		} else if m.Known != nil && m.Known(s.Name) {
			continue // it is over, and forgotten; somebody may resume it
		} else if err := m.begin(ctx, g, "the configuration"); err != nil {
			return before, err
		}
	}
	return before, m.orphans(ctx)
}

// holds has a session looked after whose account held it when the process before this one ended.
func (m *Manager) holds(ctx context.Context, g *managed) {
	if m.Runner == nil {
		return
	}
	if i, err := m.Engine.Get(ctx, g.run); err == nil { // or it asks when its wait is over
		m.Runner.holds(g.spec, i)
	}
}

// Kept returns the workflows of sessions that go on although they are not among
// these any more. When they give up, somebody is told as before.
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

// orphans finds sessions that go on and are not configured any more.
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

// latest looks for the run of a session that was started before.
func (m *Manager) latest(ctx context.Context, g *managed) error {
	if g.run != "" {
		return nil
	}
	// What lists read is a moment behind the log after a crash.
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

// begin starts the session.
func (m *Manager) begin(ctx context.Context, g *managed, by string) error {
	s, err := m.Engine.StartRegistered(ctx, g.flow, g.spec.work(), engine.Source(by))
	if err == nil {
		g.run = s.ID
	}
	return err
}

// Runs returns the latest runs of the sessions, as far as they are kept. Each is read when
// it is asked for.
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

// List returns where all sessions are, by name.
func (m *Manager) List(ctx context.Context) ([]Status, error) {
	list := []Status{}
	for _, name := range m.Names() {
		s, err := m.status(ctx, name)
		if errors.Is(err, ErrUnknown) {
			continue // gone meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// Get returns where a session is, with the last lines of its output.
func (m *Manager) Get(ctx context.Context, name string) (Status, error) {
	s, err := m.status(ctx, name)
	if err == nil && m.Output != nil {
		s.Log, s.Tail = m.Output(name)
	}
	return s, err
}

// ReadOutput returns the output of a session after a position.
func (m *Manager) ReadOutput(_ context.Context, name, after string) (part OutputPart, err error) {
	err = m.of(name, func(*managed) error { return nil })
	if err == nil && m.Read != nil {
		part, err = m.Read(name, after)
	}
	return part, err
}

func (m *Manager) status(ctx context.Context, name string) (Status, error) {
	m.mu.Lock()
	g := m.sessions[name]
	var known managed
	if g != nil {
		known = *g
	}
	m.mu.Unlock()
	if g == nil {
		return Status{}, m.unknown(name)
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
		st.AccountLimit = m.Runner.describeAccount(st.Account)
	}
	return st, nil
}

func (m *Manager) unknown(name string) error {
	names := m.Names()
	if len(names) == 0 {
		return fmt.Errorf("%w: %q; there are none", ErrUnknown, name)
	}
	return fmt.Errorf("%w: %q; there are %s", ErrUnknown, name, strings.Join(names, ", "))
}
