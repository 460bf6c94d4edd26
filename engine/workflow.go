package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// DefaultPolicy is the policy of a step that has none: three attempts, one
// second apart.
const DefaultPolicy = "workflow"

// DefaultMaxLost is the [MaxLost] of a step that has none.
const DefaultMaxLost = 3

// Workflow is a set of steps and what they need. It does not change, and may be
// used with several engines.
type Workflow struct {
	def      *machine.Definition
	handlers map[string]Handler
	steps    map[string]int // concurrency of each
	runs     int            // concurrency of all
	input    reflect.Type   // nil for any
	onGiveUp *Workflow
	onEnd    *Workflow
	prepare  func(json.RawMessage, time.Time) (json.RawMessage, error)
	sameArgs func(before, now json.RawMessage) bool // see CompareArgs; nil compares the JSON
}

// Name returns the workflow's name.
func (w *Workflow) Name() string { return w.def.Name }

// Timeout returns how long a run may take that says nothing else; 0 means any
// time.
func (w *Workflow) Timeout() time.Duration { return w.def.Timeout }

// Steps returns the steps as they were written: names, needs, policies and
// handlers, and how many lost attempts are made up for.
func (w *Workflow) Steps() []StepInfo {
	list := make([]StepInfo, len(w.def.Steps))
	for i, s := range w.def.Steps {
		list[i] = StepInfo{Name: s.Name, Needs: slices.Clone(s.Needs), Policy: s.Policy.String(), Handler: s.Handler, MaxLost: s.MaxLost}
	}
	return list
}

// Part is a step of a workflow, or something that applies to all of them.
type Part func(*builder)

// StepOption is something that applies to a step.
type StepOption func(*stepBuilder)

type builder struct {
	w    *Workflow
	errs []error
}

type stepBuilder struct {
	machine.Step
	concurrency int
	version     string
	errs        []error
}

// NewWorkflow returns a workflow. It reports everything that is wrong with it:
// names, policies, needs that do not exist or go in a circle, types that differ
// or can't be stored.
func NewWorkflow(name string, parts ...Part) (*Workflow, error) {
	b := &builder{w: &Workflow{
		def: &machine.Definition{Name: name}, handlers: map[string]Handler{}, steps: map[string]int{},
	}}
	if err := checkName(name); err != nil {
		b.errs = append(b.errs, err)
	}
	for _, part := range parts {
		part(b)
	}
	if err := errors.Join(append(b.errs, b.w.checkFamily(), b.w.def.Prepare())...); err != nil {
		return nil, fmt.Errorf("workflow %q: %w", name, err)
	}
	return b.w, nil
}

// Step is a step that calls a function. In is the run's input, the same for all
// steps of a workflow; Out is kept, and must be something that encoding/json can
// write.
func Step[In, Out any](name string, do func(context.Context, In) (Out, error), opts ...StepOption) Part {
	return func(b *builder) {
		s := newStep(name, opts)
		s.Handler = "go:" + b.w.def.Name + "/" + name
		if s.version != "" {
			s.Handler += "@" + s.version
		}
		if do == nil {
			s.errs = append(s.errs, errors.New("no function"))
		}
		in := reflect.TypeFor[In]()
		if err := errors.Join(checkType(in, "input"), checkType(reflect.TypeFor[Out](), "output")); err != nil {
			s.errs = append(s.errs, err)
		}
		if b.w.input != nil && b.w.input != in {
			s.errs = append(s.errs, fmt.Errorf("takes %v, other steps take %v: all get the run's input", in, b.w.input))
		}
		b.w.input = in
		b.w.handlers[s.Handler] = adapt(do)
		b.add(s)
	}
}

// Call is a step that is data: one of the engine's Handlers is called with the
// arguments, which are stored with the run.
func Call(name, handler string, args any, opts ...StepOption) Part {
	return func(b *builder) {
		s := newStep(name, opts)
		s.Handler = handler
		if args != nil {
			text, err := json.Marshal(args)
			if err != nil {
				s.errs = append(s.errs, fmt.Errorf("arguments: %w", err))
			}
			s.Args = text
		}
		if s.version != "" {
			s.errs = append(s.errs, errors.New("version: a step that is data has none"))
		}
		b.add(s)
	}
}

func newStep(name string, opts []StepOption) *stepBuilder {
	s := &stepBuilder{Step: machine.Step{Name: name, MaxLost: DefaultMaxLost}}
	if err := checkName(name); err != nil {
		s.errs = append(s.errs, err)
	}
	Policy(DefaultPolicy)(s)
	for _, opt := range opts {
		opt(s)
	}
	return s
}

func (b *builder) add(s *stepBuilder) {
	for _, err := range s.errs {
		b.errs = append(b.errs, fmt.Errorf("step %q: %w", s.Name, err))
	}
	b.w.def.Steps = append(b.w.def.Steps, s.Step)
	b.w.steps[s.Name] = s.concurrency
}

// Timeout ends each run of the workflow that has not ended by itself. The run is
// dead then, and can be retried.
func Timeout(d time.Duration) Part {
	return func(b *builder) { b.w.def.Timeout = d }
}

// Limited reports whether the workflow limits its runs ([MaxRuns]) or attempts
// ([Concurrency]). In a cluster all runs of such a workflow are in one shard.
func (w *Workflow) Limited() bool {
	for _, n := range w.steps {
		if n > 0 {
			return true
		}
	}
	return w.runs > 0
}

// MaxRuns limits how many runs of the workflow are in progress at once. The
// others are queued. 0 means no limit.
func MaxRuns(n int) Part {
	return func(b *builder) {
		if n < 0 {
			b.errs = append(b.errs, fmt.Errorf("max runs: %d is negative", n))
		}
		b.w.runs = n
	}
}

// PrepareInput makes the input of every run out of what it is started with, and
// the time for which it was scheduled, if it was. [Engine.RetryLatest] calls it with
// the input of the run that it continues: what it has made must be something that it
// takes, and leaves as it is.
func PrepareInput(prepare func(given json.RawMessage, scheduled time.Time) (json.RawMessage, error)) Part {
	return func(b *builder) { b.w.prepare = prepare }
}

// prepared returns the input of a run.
func (w *Workflow) prepared(given json.RawMessage, at time.Time) (input json.RawMessage, err error) {
	if w.prepare == nil {
		return given, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic: %v", ErrInput, p)
		}
	}()
	if input, err = w.prepare(given, at); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	return input, nil
}

// After makes the step wait for others. Steps that wait for nothing, or for the
// same, run side by side.
func After(steps ...string) StepOption {
	return func(s *stepBuilder) { s.Needs = append(s.Needs, steps...) }
}

// Policy sets the step's policy in its text form. A step can't hedge, has no
// budget.
func Policy(text string) StepOption {
	return func(s *stepBuilder) {
		p, err := retry.Parse(text)
		if err != nil {
			s.errs = append(s.errs, fmt.Errorf("policy: %w", err))
			return
		}
		s.Policy = p
	}
}

// WithPolicy sets the step's policy.
func WithPolicy(p retry.Policy) StepOption {
	return func(s *stepBuilder) { s.Policy = p }
}

// Concurrency limits how many attempts of the step are made at once, in all runs.
// 0 means no limit but the engine's.
func Concurrency(n int) StepOption {
	return func(s *stepBuilder) {
		if n < 0 {
			s.errs = append(s.errs, fmt.Errorf("concurrency: %d is negative", n))
		}
		s.concurrency = n
	}
}

// HeartbeatTimeout ends an attempt that has not called [Heartbeat] or [Progress]
// for so long.
func HeartbeatTimeout(d time.Duration) StepOption {
	return func(s *stepBuilder) { s.Heartbeat = d }
}

// MaxLost sets how many attempts in a row may be lost, because the process died, and are made
// again. After more the step is given up, but only if the process died while no other attempt
// ran in it: a step is not given up because of what ran beside it. After three losses, or
// MaxLost if that is less, an attempt runs alone. 0 means that a lost attempt is never made
// again, for any end of the process.
func MaxLost(n int) StepOption {
	return func(s *stepBuilder) { s.MaxLost = n }
}

// MaxWindows sets how often an attempt may return [Limited] before the step is
// given up. Retry and Reset begin anew. 0 means ten.
func MaxWindows(n int) StepOption {
	return func(s *stepBuilder) { s.Windows = n }
}

// Version tells functions of one name apart. Runs in progress want the version
// they started with, and wait as needs-handler for a program that has it.
func Version(v string) StepOption {
	return func(s *stepBuilder) { s.version = v }
}

// checkName says what is wrong with the name of a workflow or step. Names stand
// in addresses, commands and files.
func checkName(name string) error {
	if name == "" || len(name) > 128 {
		return fmt.Errorf("name: %q must have 1 to 128 characters", name)
	}
	if strings.Trim(name, nameCharacters) != "" {
		return fmt.Errorf("name: %q may have letters, digits, '-', '_' and '.'", name)
	}
	return nil
}

const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

// checkType says whether values of the type can be stored as JSON.
func checkType(t reflect.Type, what string) error {
	if bad := unstorable(t, map[reflect.Type]bool{}); bad != nil {
		return fmt.Errorf("%s: %v can't be stored, because of %v", what, t, bad)
	}
	return nil
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// unstorable returns the part of the type that encoding/json can't write.
func unstorable(t reflect.Type, seen map[reflect.Type]bool) reflect.Type {
	if seen[t] || t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return t
	case reflect.Array, reflect.Slice, reflect.Pointer, reflect.Map:
		return unstorable(t.Elem(), seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if !f.IsExported() && !f.Anonymous || f.Tag.Get("json") == "-" {
				continue
			}
			if bad := unstorable(f.Type, seen); bad != nil {
				return bad
			}
		}
	default:
	}
	return nil
}
