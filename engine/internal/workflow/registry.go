package workflow

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tideover/tideover/engine/internal/machine"
)

// Registry has the workflows and handlers of this process. Handlers are never removed.
type Registry struct {
	mu        sync.RWMutex
	handlers  map[string]Handler
	workflows map[string]*Workflow  // workflows that can be started, by name
	known     map[string]*Workflow  // the same, and workflows that Replace has removed: runs in progress may need their limits
	functions map[string]any        // functions of flows that are described by data
	others    map[standIn]*Workflow // stand for workflows that are not known: see Function
	edits     map[*Workflow]Edits   // what functions have said by Removed and Renamed
	version   atomic.Int64          // see Version
}

// Edits has the names of operations, without keys, that a function has removed and renamed, as far as
// its calls have said so.
type Edits struct {
	Removed []string
	Renamed [][2]string // earlier and current names
}

// EarlierNames returns the names that an operation had before.
func (e Edits) EarlierNames(now string) (list []string) {
	for _, r := range slices.Backward(e.Renamed) {
		if r[1] == now || slices.Contains(list, r[1]) {
			list = append(list, r[0])
		}
	}
	return list
}

// NoteRemoved notes the names of Removed.
func (r *Registry) NoteRemoved(w *Workflow, names []string) {
	for _, name := range names {
		if name = machine.BaseName(name); !slices.Contains(r.EditsOf(w).Removed, name) {
			r.noteEdit(w, func(e *Edits) { e.Removed = append(slices.Clip(e.Removed), name) })
		}
	}
}

// NoteRenamed notes the names of Renamed.
func (r *Registry) NoteRenamed(w *Workflow, before, now string) {
	names := [2]string{machine.BaseName(before), machine.BaseName(now)}
	if names[0] != names[1] && !slices.Contains(r.EditsOf(w).Renamed, names) {
		r.noteEdit(w, func(e *Edits) { e.Renamed = append(slices.Clip(e.Renamed), names) })
	}
}

// noteEdit notes what a function has said. Runs that wait in such operations are called again: see
// dispatcher.callChanged.
func (r *Registry) noteEdit(w *Workflow, note func(*Edits)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.edits[w]
	note(&e)
	r.edits[w] = e
	r.version.Add(1)
}

// EditsOf returns what the function of the workflow has said.
func (r *Registry) EditsOf(w *Workflow) Edits {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.edits[w]
}

// standIn identifies a workflow that stands for one which is not known.
type standIn struct {
	handler  string // of the function
	workflow string // name of the workflow that is not known
}

// Add adds workflows, handlers and functions. A workflow replaces another one with the same name
// for new runs. The functions of the old one stay, for runs that began with it.
func (r *Registry) Add(workflows []*Workflow, handlers map[string]Handler, functions map[string]any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addLocked(workflows, handlers, functions)
}

// addLocked is Add for a caller that holds the lock.
func (r *Registry) addLocked(workflows []*Workflow, handlers map[string]Handler, functions map[string]any) error {
	if r.handlers == nil {
		r.handlers, r.workflows, r.known = map[string]Handler{}, map[string]*Workflow{}, map[string]*Workflow{}
		r.functions, r.others, r.edits = map[string]any{}, map[standIn]*Workflow{}, map[*Workflow]Edits{}
	}
	maps.Copy(r.functions, functions)
	for name, h := range handlers {
		if h.Do == nil {
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
	clear(r.others) // so that runs continue which wait for something that is registered now
	r.version.Add(1)
	return nil
}

// ErrRegistered says that another workflow with the same name is registered.
var ErrRegistered = errors.New("another workflow of this name is registered")

// Admit adds a workflow that is given to Start, unless it is registered already. It returns
// ErrRegistered if another workflow has the same name: replacing that one must be explicit.
func (r *Registry) Admit(w *Workflow) error {
	if w == nil {
		return errors.New("workflow: nil")
	}
	if r.Workflow(w.Name()) == w {
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
	return r.addLocked([]*Workflow{w}, nil, nil)
}

// Handler returns the handler with this name. Its function is nil if there is none.
func (r *Registry) Handler(name string) Handler {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.handlers[name]
}

// Function returns the workflow that has the function of a run with this handler; nil if there is
// none. workflow is the name of the run's workflow. If the function gets its description from the
// run, and the workflow is not known or has another function now, another workflow stands for it.
func (r *Registry) Function(handler, workflow string) *Workflow {
	w, isStandIn := r.knownFunction(handler, workflow)
	if !isStandIn || w != nil {
		return w
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := standIn{handler, workflow}
	if r.others[key] == nil { // else another goroutine was faster
		r.others[key] = &Workflow{Def: &machine.Definition{Name: workflow, Flow: true}, opDefaults: newOperation(), isStandIn: true}
	}
	return r.others[key]
}

// knownFunction is Function without the workflows that were not needed before. isStandIn
// reports whether another workflow has to stand for that of the run. Then w is nil if there is none
// yet.
func (r *Registry) knownFunction(handler, workflow string) (w *Workflow, isStandIn bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if name, ok := strings.CutPrefix(handler, FlowPrefix); ok {
		if w := r.known[name]; w != nil && w.Function != nil {
			return w, false
		}
		return nil, false
	}
	name, ok := strings.CutPrefix(handler, FunctionPrefix)
	if !ok || r.functions[name] == nil {
		return nil, false
	}
	if w := r.known[workflow]; w != nil && w.Def.Flow && w.Def.Steps[0].Handler == handler {
		return w, false
	}
	return r.others[standIn{handler, workflow}], true
}

// Callable returns the function of a workflow.
func (r *Registry) Callable(w *Workflow, handler string) any {
	if w.Function != nil {
		return w.Function
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.functions[strings.TrimPrefix(handler, FunctionPrefix)]
}

// HasCode reports whether the code of a step is registered. The function of a flow has the code of
// its operations.
func (r *Registry) HasCode(run *machine.Run, step int) bool {
	if !run.IsFlow() {
		return r.Handler(run.StepDef(step).Handler).Do != nil
	}
	return step > 0 || r.Function(run.StepDef(0).Handler, run.Def.Name) != nil
}

// Workflow returns the workflow that can be started with this name; nil if there is none.
func (r *Registry) Workflow(name string) *Workflow {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.workflows[name]
}

// Limits returns the limits of a workflow.
func (r *Registry) Limits(workflow string) Limits {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if w := r.known[workflow]; w != nil {
		return w.Limits
	}
	return Limits{}
}

// Workflows returns the workflows that can be started, in no particular order.
func (r *Registry) Workflows() []*Workflow {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.AppendSeq(make([]*Workflow, 0, len(r.workflows)), maps.Values(r.workflows))
}

// Replace replaces all workflows that can be started.
func (r *Registry) Replace(workflows []*Workflow) error {
	if err := r.Add(workflows, nil, nil); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.workflows)
	for _, w := range workflows {
		for _, w := range w.family() {
			r.workflows[w.Name()] = w
		}
	}
	return nil
}

// Resolve returns the workflow that w stands for: see [Workflow.SetRegistered]. It is nil if there is
// none.
func (r *Registry) Resolve(w *Workflow) (*Workflow, error) {
	if !w.registered {
		return w, r.Admit(w)
	}
	return r.Workflow(w.Name()), nil
}

// Version increases when something is added.
func (r *Registry) Version() int64 { return r.version.Load() }
