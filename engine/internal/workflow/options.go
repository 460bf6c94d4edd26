package workflow

import (
	"encoding/json"
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
