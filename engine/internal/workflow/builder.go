package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/retry"
)

// Builder makes a workflow of its parts, and collects everything that is wrong with them.
type Builder struct {
	w    *Workflow
	errs validate.Problems
}

// NewBuilder returns a builder that makes w a workflow with this name.
func NewBuilder(w *Workflow, name string) *Builder {
	w.Def, w.handlers, w.opDefaults = &machine.Definition{Name: name}, map[string]Handler{}, newOperation()
	w.Limits.Attempts = map[string]int{}
	return &Builder{w: w, errs: validate.Problems{CheckName(name)}}
}

// Finish checks the workflow as a whole. Its error lists everything that is wrong.
func (b *Builder) Finish() error {
	w := b.w
	if w.Def.Flow && len(w.Def.Steps) > 1 {
		b.errs.Add("a flow has no steps: its function calls operations")
	}
	w.Limits.check(&b.errs)
	if err := errors.Join(append(b.errs, w.checkFamily(), w.Def.Prepare())...); err != nil {
		return fmt.Errorf("workflow %q: %w", w.Name(), err)
	}
	for _, member := range w.family() {
		w.format = max(w.format, member.Def.Format())
	}
	return nil
}

// fail notes errors of a part, which is named in them. nil values do not count.
func (b *Builder) fail(part string, errs ...error) {
	for _, err := range errs {
		b.errs.Field(part, err)
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
	b.w.Limits.limitAttempts(s.Name, s.Concurrency)
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
	b.w.Def.Ops = append(b.w.Def.Ops, info.DeclaredOp{Name: s.Name, Kind: kind, Needs: s.Needs})
	b.w.Limits.limitAttempts(LimitedOp(s.Name), s.Concurrency)
}

// SetTimeout limits how long a run may take.
func (b *Builder) SetTimeout(d time.Duration) { b.w.Def.Timeout = d }

// ChangeLimits changes the limits of the workflow. Finish checks them.
func (b *Builder) ChangeLimits(change func(*Limits)) { change(&b.w.Limits) }

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

const maxName = 128 // of a workflow, a step or an operation

// MaxKey is the length of the longest key of an operation, and of the longest code of an error, in bytes.
const MaxKey = 128

// CheckName returns what is wrong with the name of a workflow or step. Names are used in
// URLs, commands and files.
func CheckName(name string) error {
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

// nameCharacters has a bit for each ASCII character that a name may have. Each call of an operation
// checks a name.
var nameCharacters = func() (set [2]uint64) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") {
		set[c/64] |= 1 << (c % 64)
	}
	return set
}()

// HasControl reports whether the text has a control character. It is called for the key of each operation.
func HasControl(text string) bool {
	for _, c := range []byte(text) {
		if c < ' ' {
			return true
		}
	}
	return false
}

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
