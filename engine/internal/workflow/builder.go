package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// Builder makes a workflow of its parts, and collects everything that is wrong with them.
type Builder struct {
	w    *Workflow
	errs []error
}

// NewBuilder returns a builder that makes w a workflow with this name.
func NewBuilder(w *Workflow, name string) *Builder {
	w.Def, w.handlers, w.steps, w.opDefaults = &machine.Definition{Name: name}, map[string]Handler{}, map[string]int{}, newOperation()
	return &Builder{w: w, errs: []error{CheckName(name)}}
}

// Finish checks the workflow as a whole. Its error lists everything that is wrong.
func (b *Builder) Finish() error {
	w := b.w
	if w.Def.Flow && len(w.Def.Steps) > 1 {
		b.fail("", errors.New("a flow has no steps: its function calls operations"))
	}
	if err := errors.Join(append(b.errs, w.checkFamily(), w.Def.Prepare())...); err != nil {
		return fmt.Errorf("workflow %q: %w", w.Name(), err)
	}
	for _, member := range w.family() {
		w.format = max(w.format, member.Def.Format())
	}
	return nil
}

// fail notes errors of a part, which is named in them unless its name is empty. nil values do not count.
func (b *Builder) fail(part string, errs ...error) {
	for _, err := range errs {
		switch {
		case err == nil:
		case part != "":
			b.errs = append(b.errs, fmt.Errorf("%s: %w", part, err))
		default:
			b.errs = append(b.errs, err)
		}
	}
}

// CallFunction adds a step that calls a Go function, with these types of its input and output.
func (b *Builder) CallFunction(s *Options, in, out reflect.Type, h Handler) {
	s.parsePolicy()
	s.Handler = "go:" + b.w.Def.Name + "/" + s.Name
	if s.Version != "" {
		s.Handler += "@" + s.Version
	}
	if h.Do == nil {
		s.Fail(errors.New("no function"))
	}
	s.Fail(errors.Join(checkType(in, "input"), checkType(out, "output")))
	if b.w.input != nil && b.w.input != in {
		s.Fail(fmt.Errorf("the input type is %v, but that of other steps is %v: all steps get the run's input, and must have the same input type", in, b.w.input))
	}
	b.w.input = in
	b.w.handlers[s.Handler] = h
	b.addStep(s)
}

// CallHandler adds a step that calls a handler by its name.
func (b *Builder) CallHandler(s *Options, handler string, args any) {
	s.parsePolicy()
	s.Handler = handler
	if args != nil {
		s.setArgs(args)
	}
	b.addStep(s)
}

func (b *Builder) addStep(s *Options) {
	b.fail(fmt.Sprintf("step %q", s.Name), s.errs...)
	b.w.Def.Steps = append(b.w.Def.Steps, s.Step)
	b.w.steps[s.Name] = s.Concurrency
}

// SetFlow makes the workflow a flow with this function, which has these types of its input and output.
// A function that is nil is an error.
func (b *Builder) SetFlow(in, out reflect.Type, function any) {
	s := NewStep(machine.Function)
	s.parsePolicy()
	s.Handler = FlowPrefix + b.w.Def.Name
	s.Fail(errors.Join(checkType(in, "input"), checkType(out, "output")))
	if function == nil {
		s.Fail(errors.New("no function"))
	}
	b.w.input, b.w.Def.Flow, b.w.Function = in, true, function
	b.addStep(s)
}

// SetFlowByName makes the workflow a flow with a function that is described by data.
func (b *Builder) SetFlowByName(function string, args any) {
	s := NewStep(machine.Function)
	s.parsePolicy()
	s.Handler = FunctionPrefix + function
	if function == "" {
		s.Fail(errors.New("function: no name"))
	}
	s.setArgs(args)
	b.w.Def.Flow = true
	b.addStep(s)
}

// ChangeFunction changes the options of the function of a flow.
func (b *Builder) ChangeFunction(change func(*Options)) {
	if !b.w.Def.Flow {
		b.fail("function", errors.New("only a workflow that NewFlow makes has one"))
		return
	}
	s := &Options{Step: b.w.Def.Steps[0]}
	change(s)
	s.parsePolicy()
	b.fail("function", s.errs...)
	b.w.Def.Steps[0], b.w.Def.Version = s.Step, s.Version
}

// ChangeOperations changes the options that all operations of a flow have.
func (b *Builder) ChangeOperations(change func(*Options)) {
	if !b.w.Def.Flow {
		b.fail("operations", errors.New("only a workflow that NewFlow makes has them"))
		return
	}
	s := b.w.opDefaults
	change(&s)
	b.w.opDefaults = s
	b.w.opDefaults.errs = nil
	s.parsePolicy()
	b.fail("operations", s.errs...)
}

// Declare declares an operation of a flow.
func (b *Builder) Declare(s *Options, kind string) {
	s.parsePolicy()
	if !b.w.Def.Flow {
		s.Fail(errors.New("only a flow has operations"))
	}
	b.fail(fmt.Sprintf("operation %q", s.Name), s.errs...)
	step := info.StepInfo{Name: s.Name, Needs: s.Needs, Handler: kind, MaxLost: s.MaxLost}
	if s.Policy != (retry.Policy{}) {
		step.Policy = s.Policy.String()
	}
	b.w.declared = append(b.w.declared, step)
	b.w.Def.Ops = append(b.w.Def.Ops, machine.DeclaredOp{Name: s.Name, Kind: kind, Needs: s.Needs})
	if s.Concurrency > 0 {
		b.w.steps[LimitedOp(s.Name)] = s.Concurrency
	}
}

// SetTimeout limits how long a run may take.
func (b *Builder) SetTimeout(d time.Duration) { b.w.Def.Timeout = d }

// SetMaxRuns limits how many runs are in progress at once.
func (b *Builder) SetMaxRuns(n int) {
	if n < 0 {
		b.fail("max runs", fmt.Errorf("%d is negative", n))
	}
	b.w.runs = n
}

// PrepareInput sets the function that makes the input of every run.
func (b *Builder) PrepareInput(prepare func(given json.RawMessage, scheduled time.Time) (json.RawMessage, error)) {
	b.w.prepare = prepare
}

// CompareArgs sets the function that decides whether two arguments mean the same work.
func (b *Builder) CompareArgs(same func(before, now json.RawMessage) bool) { b.w.sameArgs = same }

// OnEnd sets the workflow of the run that starts when a run ends.
func (b *Builder) OnEnd(w *Workflow) {
	switch {
	case w == nil:
		b.fail("on end", errors.New("the workflow is nil"))
	case b.w.onEnd != nil:
		b.fail("on end", fmt.Errorf("a workflow can start only one other workflow when it ends; got %q and %q", b.w.onEnd.Name(), w.Name()))
	}
	if b.w.onEnd = w; w != nil {
		b.w.Def.OnEnd = w.Def
	}
}

// OnGiveUp sets the workflow of the run that starts when a run dies.
func (b *Builder) OnGiveUp(w *Workflow) {
	if w == nil {
		b.fail("on give up", errors.New("the workflow is nil"))
	}
	b.w.onGiveUp = w
}
