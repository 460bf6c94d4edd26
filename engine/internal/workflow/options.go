package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// DefaultPolicy is the policy of a step without another one.
const DefaultPolicy = "workflow"

// DefaultMaxLost is the limit of lost attempts of a step without another one.
const DefaultMaxLost = 3

// Options are the options of a step, a function or an operation. The options that a program gives set
// the fields.
type Options struct {
	machine.Step
	Concurrency int
	Version     string
	Text        string        // the policy as text; "" if Policy has it
	Key         string        // of an operation of a flow: see SetKey
	Parallel    int           // of a Map of a flow
	Within      time.Duration // of an Await of a flow
	Detached    bool          // of a Child of a flow
	UndoPolicy  string        // of a DoUndo or MapUndo of a flow
	Labels      func(int) string

	errs    []error   // nil values do not count
	keys    int       // number of valid calls of SetKey
	plainOf *Workflow // these are the options that all its operations have, and a key; nil if not
}

// NewStep returns the options of a step.
func NewStep(name string) *Options {
	return &Options{Step: machine.Step{Name: name, MaxLost: DefaultMaxLost}, Text: DefaultPolicy, errs: []error{CheckName(name)}}
}

// NewDeclared returns the options of a declared operation.
func NewDeclared(name string) *Options {
	return &Options{Step: machine.Step{Name: name}, errs: []error{CheckName(name)}}
}

// newOperation returns the options of an operation.
func newOperation() Options {
	return Options{Step: machine.Step{MaxLost: DefaultMaxLost}, Text: DefaultPolicy}
}

// Fail notes that an option is wrong. A nil error has no effect.
func (s *Options) Fail(err error) { s.errs = append(s.errs, err) }

// SetKey sets the key of an operation.
func (s *Options) SetKey(key string) {
	s.Key = key
	if key == "" || len(key) > MaxKey || HasControl(key) {
		s.Fail(fmt.Errorf("key: %q must have 1 to %d bytes without control characters", key, MaxKey))
		return
	}
	s.keys++
}

// parsePolicy parses the policy, if it is given as text.
func (s *Options) parsePolicy() {
	if s.Text == "" {
		return
	}
	p, err := retry.Parse(s.Text)
	if err != nil {
		s.Fail(fmt.Errorf("policy: %w", err))
	}
	s.Policy = p
}

// setArgs sets the arguments of a step.
func (s *Options) setArgs(args any) {
	text, err := json.Marshal(args)
	if err != nil {
		s.Fail(fmt.Errorf("arguments: %w", err))
	}
	s.Args = text
}

// LimitedOp returns the name of the step in the definition of an operation that has a limit of its
// own. Operations without a limit share one name, and so one queue.
func LimitedOp(name string) string { return machine.Operation + "/" + name }

// opStep returns the name of the step in the definition of an operation.
func (w *Workflow) opStep(name string) string {
	if len(w.Limits.Attempts) > 0 && w.Limits.Attempts[LimitedOp(name)] > 0 {
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
// options share their definition, also if their names differ. The definitions are cached.
func (w *Workflow) OpDefinition(s *Options) (def *machine.Definition, err error) {
	key := opKey{s.Name, s.Text, s.Heartbeat, s.MaxLost, s.Windows}
	if s.Text != "" {
		w.opsMu.RLock()
		def = w.ops[key]
		w.opsMu.RUnlock()
		if def != nil {
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
