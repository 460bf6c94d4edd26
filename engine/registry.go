package engine

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

// registry has the workflows and handlers of this process. Handlers are never removed.
type registry struct {
	mu        sync.RWMutex
	handlers  map[string]Handler
	workflows map[string]*Workflow  // workflows that can be started, by name
	known     map[string]*Workflow  // the same, and workflows that Replace has removed: runs in progress may need their limits
	functions map[string]FlowFunc   // functions of flows that are described by data
	others    map[standIn]*Workflow // stand for workflows that are not known: see function
	edits     map[*Workflow]edits   // what functions have said by Removed and Renamed
	version   atomic.Int64          // increases when something is added
}

// edits has the names of operations, without keys, that a function has removed and renamed, as far as
// its calls have said so.
type edits struct {
	removed []string
	renamed [][2]string // earlier and current names
}

// earlierNames returns the names that an operation had before.
func (e edits) earlierNames(now string) (list []string) {
	for _, r := range slices.Backward(e.renamed) {
		if r[1] == now || slices.Contains(list, r[1]) {
			list = append(list, r[0])
		}
	}
	return list
}

// noteRemoved notes the names of Removed.
func (r *registry) noteRemoved(w *Workflow, names []string) {
	for _, name := range names {
		if name = baseName(name); !slices.Contains(r.editsOf(w).removed, name) {
			r.noteEdit(w, func(e *edits) { e.removed = append(slices.Clip(e.removed), name) })
		}
	}
}

// noteRenamed notes the names of Renamed.
func (r *registry) noteRenamed(w *Workflow, before, now string) {
	names := [2]string{baseName(before), baseName(now)}
	if names[0] != names[1] && !slices.Contains(r.editsOf(w).renamed, names) {
		r.noteEdit(w, func(e *edits) { e.renamed = append(slices.Clip(e.renamed), names) })
	}
}

// noteEdit notes what a function has said. Runs that wait in such operations are called again: see
// dispatcher.callChanged.
func (r *registry) noteEdit(w *Workflow, note func(*edits)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.edits == nil {
		r.edits = map[*Workflow]edits{}
	}
	e := r.edits[w]
	note(&e)
	r.edits[w] = e
	r.version.Add(1)
}

// editsOf returns what the function of the workflow has said.
func (r *registry) editsOf(w *Workflow) edits {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.edits[w]
}

// standIn identifies a workflow that stands for one which is not known.
type standIn struct {
	handler  string // of the function
	workflow string // name of the workflow that is not known
}

// add adds workflows, handlers and functions. A workflow replaces another one with the same name
// for new runs. The functions of the old one stay, for runs that began with it.
func (r *registry) add(workflows []*Workflow, handlers map[string]Handler, functions map[string]FlowFunc) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, f := range functions {
		if f == nil {
			return fmt.Errorf("function %q: nil", name)
		}
	}
	if r.functions == nil {
		r.functions = map[string]FlowFunc{}
	}
	maps.Copy(r.functions, functions)
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
	clear(r.others) // so that runs continue which wait for something that is registered now
	r.version.Add(1)
	return nil
}

// ErrRegistered says that another workflow with the same name is registered.
var ErrRegistered = errors.New("another workflow of this name is registered")

// admit adds a workflow that is given to Start, unless it is registered already. It returns
// ErrRegistered if another workflow has the same name: replacing that one must be explicit.
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

// function returns the workflow that has the function of a run with this handler; nil if there is
// none. workflow is the name of the run's workflow. If the function gets its description from the
// run, and the workflow is not known or has another function now, another workflow stands for it.
func (r *registry) function(handler, workflow string) *Workflow {
	w, isStandIn := r.knownFunction(handler, workflow)
	if !isStandIn || w != nil {
		return w
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.standFor(handler, workflow)
}

// knownFunction is function without the workflows that were not needed before. isStandIn
// reports whether another workflow has to stand for that of the run. Then w is nil if there is none
// yet.
func (r *registry) knownFunction(handler, workflow string) (w *Workflow, isStandIn bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if name, ok := strings.CutPrefix(handler, flowPrefix); ok {
		if w := r.known[name]; w != nil && w.function != nil {
			return w, false
		}
		return nil, false
	}
	name, ok := strings.CutPrefix(handler, functionPrefix)
	if !ok || r.functions[name] == nil {
		return nil, false
	}
	if w := r.known[workflow]; w != nil && w.def.Flow && w.def.Steps[0].Handler == handler {
		return w, false
	}
	return r.others[standIn{handler, workflow}], true
}

// standFor returns the workflow that stands for one which is not known. The caller must hold the
// lock.
func (r *registry) standFor(handler, workflow string) *Workflow {
	key := standIn{handler, workflow}
	if w := r.others[key]; w != nil {
		return w
	}
	if r.others == nil {
		r.others = map[standIn]*Workflow{}
	}
	w := &Workflow{def: &machine.Definition{Name: workflow, Flow: true}, isStandIn: true}
	r.others[key] = w
	return w
}

// callable returns the function of a workflow.
func (r *registry) callable(w *Workflow, handler string) FlowFunc {
	if w.function != nil {
		return w.function
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.functions[strings.TrimPrefix(handler, functionPrefix)]
}

// hasCode reports whether the code of a step is registered. The function of a flow has the code of
// its operations.
func (r *registry) hasCode(run *machine.Run, step int) bool {
	if !run.IsFlow() {
		return r.handler(run.StepDef(step).Handler) != nil
	}
	return step > 0 || r.function(run.StepDef(0).Handler, run.Def.Name) != nil
}

func (r *registry) workflow(name string) *Workflow {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.workflows[name]
}

// limits returns the limits of concurrent runs of a workflow and of concurrent attempts of
// a step. 0 means no limit.
func (r *registry) limits(workflow, step string) (runs, attempts int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if w := r.known[workflow]; w != nil {
		return w.runs, w.steps[step]
	}
	return 0, 0
}

// Register adds workflows. A workflow replaces another one with the same name for new runs.
// Steps that waited for a handler of these workflows continue.
func (e *Engine) Register(workflows ...*Workflow) error {
	if err := e.handlers.add(workflows, nil, nil); err != nil {
		return err
	}
	return e.wakeShards()
}

// Replace replaces all workflows for new runs. Runs in progress continue with the
// definition that they began with.
func (e *Engine) Replace(workflows []*Workflow) error {
	if err := e.handlers.add(workflows, nil, nil); err != nil {
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

// Workflow returns the workflow that is registered with this name for new runs.
func (e *Engine) Workflow(name string) (*Workflow, bool) {
	w := e.handlers.workflow(name)
	return w, w != nil
}

// Workflows returns the workflows that are registered for new runs, in no particular order.
func (e *Engine) Workflows() []*Workflow {
	e.handlers.mu.RLock()
	defer e.handlers.mu.RUnlock()
	return slices.AppendSeq(make([]*Workflow, 0, len(e.handlers.workflows)), maps.Values(e.handlers.workflows))
}
