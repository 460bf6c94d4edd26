package workflow

import (
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// LimitedOp returns the name of the step in the definition of an operation that has a limit of its
// own. Operations without a limit share one name, and so one queue.
func LimitedOp(name string) string { return machine.Operation + "/" + name }

// opStep returns the name of the step in the definition of an operation.
func (w *Workflow) opStep(name string) string {
	if len(w.steps) > 1 && w.steps[LimitedOp(name)] > 0 { // one is the function
		return LimitedOp(name)
	}
	return machine.Operation
}

// opKey identifies the definition of an operation in the cache of a workflow.
type opKey struct {
	step      string
	policy    string
	heartbeat time.Duration
	maxLost   int
	windows   int
}

// maxCachedOps limits the cache of a workflow. A function that makes policies up has no use of it.
const maxCachedOps = 1000

// Begin sets the options to those that all operations of the workflow have. Then the caller sets the
// others, and calls CheckOperation.
func (s *Options) Begin(w *Workflow) {
	if s.plainOf != w { // else there is nothing to clear, which would take longer than all else here
		*s = w.opDefaults
	}
	s.plainOf, s.keys = nil, 0 // plainOf also if an option panics
}

// CheckOperation checks the name of an operation and the given number of options that were set after
// Begin: see OpDefinition. It returns the key.
func (s *Options) CheckOperation(w *Workflow, name string, options int) (key string, err error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	if step := w.opStep(name); s.Name != step {
		s.Name = step
	}
	if s.keys > 0 {
		key = s.Key
	}
	if s.keys == options {
		s.plainOf = w
		return key, nil
	}
	return key, errors.Join(s.errs...)
}

// OpDefinition returns the definition of an operation with these options. Operations with the same
// options share their definition, whatever their names are. The definitions are cached.
func (w *Workflow) OpDefinition(s *Options) (def *machine.Definition, err error) {
	key := opKey{s.Name, s.Text, s.Heartbeat, s.MaxLost, s.Windows}
	if s.Text != "" {
		if def = w.cachedOp(key); def != nil {
			return def, nil
		}
		s.plainOf = nil
		if s.Policy, err = retry.Parse(s.Text); err != nil {
			return nil, fmt.Errorf("policy: %w", err)
		}
	}
	s.Handler = "operation"
	def = &machine.Definition{Name: w.Def.Name, Op: true, Steps: []machine.Step{s.Step}}
	if err := def.Prepare(); err != nil {
		return nil, err
	}
	if s.Text != "" {
		w.cacheOp(key, def)
	}
	return def, nil
}

// UndoDefinition returns the definition of the undo of an operation with these options.
func (w *Workflow) UndoDefinition(s *Options) (*machine.Definition, error) {
	undo := *s
	if s.UndoPolicy != "" {
		undo.Text = s.UndoPolicy
	}
	return w.OpDefinition(&undo)
}

// cachedOp returns a cached definition of an operation; nil if there is none.
func (w *Workflow) cachedOp(key opKey) *machine.Definition {
	w.opsMu.RLock()
	defer w.opsMu.RUnlock()
	return w.ops[key]
}

// cacheOp caches the definition of an operation, if there is room.
func (w *Workflow) cacheOp(key opKey, def *machine.Definition) {
	w.opsMu.Lock()
	defer w.opsMu.Unlock()
	if w.ops == nil {
		w.ops = map[opKey]*machine.Definition{}
	}
	if len(w.ops) < maxCachedOps {
		w.ops[key] = def
	}
}
