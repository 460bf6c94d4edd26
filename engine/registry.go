package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// registry is what this process can do. It only grows.
type registry struct {
	mu        sync.RWMutex
	handlers  map[string]Handler
	workflows map[string]*Workflow
	known     map[string]*Workflow // also those that no new run can follow any more
	version   atomic.Int64         // grows when something is added
}

// add adds workflows and handlers. A workflow of a known name replaces it for
// new runs; the functions of the old one stay, for the runs that want them.
func (r *registry) add(workflows []*Workflow, handlers map[string]Handler) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addLocked(workflows, handlers)
}

// addLocked is add for a caller that holds the lock.
func (r *registry) addLocked(workflows []*Workflow, handlers map[string]Handler) error {
	if r.handlers == nil {
		r.handlers, r.workflows, r.known = map[string]Handler{}, map[string]*Workflow{}, map[string]*Workflow{}
	}
	for name, h := range handlers {
		if h == nil {
			return fmt.Errorf("handler %q: no function", name)
		}
	}
	for _, w := range workflows {
		if w == nil {
			return fmt.Errorf("workflow: nil")
		}
		for _, w := range w.family() {
			maps.Copy(r.handlers, w.handlers)
			r.workflows[w.Name()], r.known[w.Name()] = w, w
		}
	}
	maps.Copy(r.handlers, handlers)
	r.version.Add(1)
	return nil
}

// ErrRegistered says that another workflow of the name is registered.
var ErrRegistered = errors.New("another workflow of this name is registered")

// admit adds a workflow that is given to Start, unless it is there. It refuses one
// that would take the place of another: runs in progress and new ones would follow
// different steps, without anyone having said so.
func (r *registry) admit(w *Workflow) error {
	if w == nil {
		return errors.New("workflow: nil")
	}
	if r.workflow(w.Name()) == w {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, member := range w.family() {
		if known := r.workflows[member.Name()]; known != nil && known != member {
			return fmt.Errorf("%s: %w: start the one that Engine.Workflow(%q) returns, or replace it by Engine.Register",
				member.Name(), ErrRegistered, member.Name())
		}
	}
	return r.addLocked([]*Workflow{w}, nil)
}

func (r *registry) handler(name string) Handler {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.handlers[name]
}

func (r *registry) workflow(name string) *Workflow {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.workflows[name]
}

// limits returns how many runs of a workflow, and how many attempts of a step,
// there may be at once. 0 means any number.
func (r *registry) limits(workflow, step string) (runs, attempts int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if w := r.known[workflow]; w != nil {
		return w.runs, w.steps[step]
	}
	return 0, 0
}

// Register adds workflows, or replaces them for new runs. Steps that waited for
// a handler go on.
func (e *Engine) Register(workflows ...*Workflow) error {
	if err := e.handlers.add(workflows, nil); err != nil {
		return err
	}
	return e.wakeShards()
}

// Replace makes these all the workflows that new runs can follow. Runs in progress
// go on by the definition they began with.
func (e *Engine) Replace(workflows []*Workflow) error {
	if err := e.handlers.add(workflows, nil); err != nil {
		return err
	}
	e.handlers.mu.Lock()
	clear(e.handlers.workflows)
	for _, w := range workflows {
		for _, w := range w.family() {
			e.handlers.workflows[w.Name()] = w
		}
	}
	e.handlers.mu.Unlock()
	return e.wakeShards()
}

// Workflow returns the workflow of the name that new runs follow.
func (e *Engine) Workflow(name string) (*Workflow, bool) {
	w := e.handlers.workflow(name)
	return w, w != nil
}

// Workflows returns the workflows that new runs follow.
func (e *Engine) Workflows() []*Workflow {
	e.handlers.mu.RLock()
	defer e.handlers.mu.RUnlock()
	return slices.AppendSeq(make([]*Workflow, 0, len(e.handlers.workflows)), maps.Values(e.handlers.workflows))
}
