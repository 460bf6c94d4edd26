package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// DefaultPolicy is the name of the policy of a step without [Policy] or [WithPolicy]: three
// attempts, one second apart.
const DefaultPolicy = "workflow"

// DefaultMaxLost is the limit of a step without [MaxLost].
const DefaultMaxLost = 3

// Workflow is a set of steps and their dependencies. It is immutable, and several engines
// may use the same one.
type Workflow struct {
	def      *machine.Definition
	handlers map[string]Handler
	steps    map[string]int // limit of attempts at once, by step; 0 means no limit
	runs     int            // limit of runs in progress; 0 means no limit
	input    reflect.Type   // input type of the steps that are functions; nil if there are none
	onGiveUp *Workflow
	onEnd    *Workflow
	prepare  func(json.RawMessage, time.Time) (json.RawMessage, error)
	sameArgs func(before, now json.RawMessage) bool // see CompareArgs; nil compares the JSON
	format   int                                    // the format that stores its runs and their follow-up runs

	function func(*Flow, json.RawMessage) ([]byte, error) // of a flow; nil for other workflows
	opsMu    sync.RWMutex
	ops      map[opKey]*machine.Definition // definitions of operations of a flow

	opDefaults []StepOption // options of all operations of a flow
	declared   []StepInfo   // operations of a flow: see Operation
	registered bool         // stands for a registered workflow: see Registered
	isStandIn  bool         // stands for a workflow that is not known: its definition has only a name
}

// Name returns the workflow's name.
func (w *Workflow) Name() string { return w.def.Name }

// Timeout returns how long a run without [RunTimeout] may take; 0 means no limit.
func (w *Workflow) Timeout() time.Duration { return w.def.Timeout }

// Steps returns the definitions of the steps, or the operations that [Operation] has declared. Only
// the fields Name, Needs, Policy, Handler and MaxLost are set.
func (w *Workflow) Steps() []StepInfo {
	if len(w.declared) > 0 {
		return slices.Clone(w.declared)
	}
	list := make([]StepInfo, len(w.def.Steps))
	for i, s := range w.def.Steps {
		list[i] = StepInfo{Name: s.Name, Needs: slices.Clone(s.Needs), Policy: s.Policy.String(), Handler: s.Handler, MaxLost: s.MaxLost}
	}
	return list
}

// IsFlow reports whether the workflow is a function that calls operations, and not a set of steps.
func (w *Workflow) IsFlow() bool { return w.def.Flow }

// InputType returns the type of the input of the workflow's functions; nil if it has no steps that
// are functions.
func (w *Workflow) InputType() reflect.Type { return w.input }

// DefaultInput returns the input of a run that is started now without an input: the result of the
// function of [PrepareInput], or nil without one.
func (w *Workflow) DefaultInput() (json.RawMessage, error) { return w.prepared(nil, time.Time{}) }

// Part is a part of a workflow: a step, or an option of the whole workflow.
type Part func(*builder)

// StepOption is an option of a step.
type StepOption func(*stepBuilder)

type builder struct {
	w    *Workflow
	errs []error
}

type stepBuilder struct {
	machine.Step
	concurrency int
	version     string
	text        string        // the policy as text; "" if Policy has it
	key         string        // of an operation of a flow; valid if keys is not 0
	keys        int           // number of valid options ForKey
	isPlain     bool          // of an operation of a flow: it has no other options than ForKey
	parallel    int           // of a Map of a flow
	within      time.Duration // of an Await of a flow
	detached    bool          // of a Child of a flow
	undoPolicy  string        // of a DoUndo or MapUndo of a flow
	labels      func(int) string
	errs        []error // nil values do not count
}

// opOptions returns the names of the options that were set and that only the call of an operation of
// a flow can have.
func (s *stepBuilder) opOptions() (names []string) {
	for _, o := range []struct {
		name  string
		isSet bool
	}{
		{"ForKey", s.key != ""},
		{"Parallel", s.parallel != 0},
		{"Within", s.within != 0},
		{"Detached", s.detached},
		{"UndoPolicy", s.undoPolicy != ""},
		{"Labels", s.labels != nil},
	} {
		if o.isSet {
			names = append(names, o.name)
		}
	}
	return names
}

// NewWorkflow returns a workflow with the given steps and options. Its error lists
// everything that is wrong: names, policies, dependencies that do not exist or form a
// cycle, input types that differ, types that can't be stored as JSON.
func NewWorkflow(name string, parts ...Part) (*Workflow, error) {
	b := &builder{w: &Workflow{
		def: &machine.Definition{Name: name}, handlers: map[string]Handler{}, steps: map[string]int{},
	}}
	b.errs = append(b.errs, checkName(name))
	for _, part := range parts {
		part(b)
	}
	if b.w.def.Flow && len(b.w.def.Steps) > 1 {
		b.errs = append(b.errs, errors.New("a flow has no steps: its function calls operations"))
	}
	if err := errors.Join(append(b.errs, b.w.checkFamily(), b.w.def.Prepare())...); err != nil {
		return nil, fmt.Errorf("workflow %q: %w", name, err)
	}
	for _, w := range b.w.family() {
		b.w.format = max(b.w.format, w.def.Format())
	}
	return b.w, nil
}

// Step is a step that calls a Go function with the run's input. All functions of a workflow
// must have the same input type In. The output is stored, so encoding/json must be able to
// write Out.
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
		s.errs = append(s.errs, errors.Join(checkType(in, "input"), checkType(reflect.TypeFor[Out](), "output")))
		if b.w.input != nil && b.w.input != in {
			s.errs = append(s.errs, fmt.Errorf("the input type is %v, but that of other steps is %v: all steps get the run's input, and must have the same input type", in, b.w.input))
		}
		b.w.input = in
		b.w.handlers[s.Handler] = adapt(do)
		b.add(s)
	}
}

// Call is a step that is described by data: it calls a handler of [Config.Handlers] by its
// name. The handler gets the arguments as [Task.Args]; they are stored with the definition.
// nil means no arguments.
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
			s.errs = append(s.errs, errors.New("version: only a step with a Go function can have a version"))
		}
		b.add(s)
	}
}

func newStep(name string, opts []StepOption) *stepBuilder {
	s := &stepBuilder{Step: machine.Step{Name: name, MaxLost: DefaultMaxLost}, text: DefaultPolicy}
	s.errs = append(s.errs, checkName(name))
	for _, opt := range opts {
		opt(s)
	}
	s.parsePolicy()
	if names := s.opOptions(); len(names) > 0 {
		s.errs = append(s.errs, fmt.Errorf("%s: only the operations of a flow have such options", strings.Join(names, ", ")))
	}
	return s
}

// parsePolicy parses the policy, if it is given as text.
func (s *stepBuilder) parsePolicy() {
	if s.text == "" {
		return
	}
	p, err := retry.Parse(s.text)
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("policy: %w", err))
	}
	s.Policy = p
}

func (b *builder) add(s *stepBuilder) {
	for _, err := range s.errs {
		if err != nil {
			b.errs = append(b.errs, fmt.Errorf("step %q: %w", s.Name, err))
		}
	}
	b.w.def.Steps = append(b.w.def.Steps, s.Step)
	b.w.steps[s.Name] = s.concurrency
}

// Timeout limits how long a run of the workflow may take. A run that takes longer is dead
// then, and can be retried.
func Timeout(d time.Duration) Part {
	return func(b *builder) { b.w.def.Timeout = d }
}

// Limited reports whether the workflow limits its runs ([MaxRuns]) or attempts
// ([Concurrency]). In a cluster, all runs of a workflow that had a limit when it was first
// started are in one shard.
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

// PrepareInput sets a function that makes the input of every run from the value that the
// run is started with. scheduled is the time of a scheduled start, and zero for other
// starts. [Engine.RetryLatest] calls the function with the prepared input of an earlier
// run, so the function must accept its own results and not change them.
func PrepareInput(prepare func(given json.RawMessage, scheduled time.Time) (json.RawMessage, error)) Part {
	return func(b *builder) { b.w.prepare = prepare }
}

// prepared returns the input of a run after PrepareInput. A panic of that function is an
// error.
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

// After makes the step depend on others: it begins when they have succeeded. Steps that do
// not depend on each other run concurrently.
func After(steps ...string) StepOption {
	return func(s *stepBuilder) { s.Needs = append(s.Needs, steps...) }
}

// Policy sets the step's retry policy in its text form. Hedging and retry budgets are not
// possible for a step.
func Policy(text string) StepOption {
	return func(s *stepBuilder) {
		s.text = text
		if strings.TrimSpace(text) == "" {
			s.errs = append(s.errs, errors.New("policy: the text is empty"))
		}
	}
}

// WithPolicy sets the step's retry policy.
func WithPolicy(p retry.Policy) StepOption {
	return func(s *stepBuilder) { s.Policy, s.text = p, "" }
}

// Concurrency limits how many attempts of the step run at once, in all runs together.
// 0 means only the limit of [Config.Concurrency].
func Concurrency(n int) StepOption {
	return func(s *stepBuilder) {
		if n < 0 {
			s.errs = append(s.errs, fmt.Errorf("concurrency: %d is negative", n))
		}
		s.concurrency = n
	}
}

// HeartbeatTimeout ends an attempt that does not call [Heartbeat], [Progress] or
// [SaveProgress] for this long.
func HeartbeatTimeout(d time.Duration) StepOption {
	return func(s *stepBuilder) { s.Heartbeat = d }
}

// MaxLost limits how many attempts in a row may be lost because the process died. Lost
// attempts are made again. After more losses the step gives up, but only if no other
// attempt ran in the process when it died: another attempt may have caused it. So after
// three losses, or MaxLost if that is less, the next attempt runs alone in its process.
// 0 means that a lost attempt is never made again.
func MaxLost(n int) StepOption {
	return func(s *stepBuilder) { s.MaxLost = n }
}

// MaxWindows limits how often attempts may return [Limited] before the step gives up.
// [Engine.Retry] and [Engine.Reset] reset the count. 0 means ten.
func MaxWindows(n int) StepOption {
	return func(s *stepBuilder) { s.Windows = n }
}

// Version sets a version of the step's function. Runs in progress need the version that
// they started with: if the program has another one, they wait in state needs-handler.
func Version(v string) StepOption {
	return func(s *stepBuilder) { s.version = v }
}

// checkName returns what is wrong with the name of a workflow or step. Names are used in
// URLs, commands and files.
func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("name: %q must have 1 to %d characters", name, maxName)
	}
	for _, c := range []byte(name) {
		if c >= 128 || nameCharacters[c/64]&(1<<(c%64)) == 0 {
			return fmt.Errorf("name: %q may have letters, digits, '-', '_' and '.'", name)
		}
	}
	return nil
}

const maxName = 128 // of a workflow, a step or an operation

// nameCharacters has a bit for each ASCII character that a name may have. Each call of an operation
// checks a name.
var nameCharacters = func() (set [2]uint64) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") {
		set[c/64] |= 1 << (c % 64)
	}
	return set
}()

// checkType returns an error if values of the type can't be stored as JSON. what is
// "input" or "output".
func checkType(t reflect.Type, what string) error {
	if bad := unstorable(t, map[reflect.Type]bool{}); bad != nil {
		return fmt.Errorf("%s: %v can't be stored as JSON, because it contains %v", what, t, bad)
	}
	return nil
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// unstorable returns a part of the type that encoding/json can't write; nil if there is
// none. seen has the types that were checked already.
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
