package engine

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// Flow is a call of the function of a workflow that is code: see [NewFlow]. The function
// passes it to [Do], [Map], [Sleep] and the other operations. It is valid until the function
// returns, and only in the goroutine of the function. Each branch of [Branches] gets its own.
type Flow struct{ f *flow.Flow }

// FlowFunc is the function of flows that are described by data: see [CallFunction]. The output
// must be JSON; nil means null.
type FlowFunc func(f *Flow, input json.RawMessage) (output []byte, err error)

// core returns what the rest of the engine knows of the function.
func (do FlowFunc) core() flow.Function {
	return func(f *flow.Flow, input json.RawMessage) ([]byte, error) { return do(&Flow{f}, input) }
}

// The errors of wrong uses of a [Flow]. A run whose function got one of them waits in state
// needs-handler until code without the mistake is deployed, even if the function ignores the
// error: the call of the function ends at its next operation.
var (
	// ErrSameOperation says that the function called an operation with the identity of
	// an earlier one: same kind, same name, same [ForKey].
	ErrSameOperation = flow.ErrSameOperation

	// ErrSecondGoroutine says that a goroutine other than that of the function used the
	// Flow. Use [Map] and [Branches] for operations side by side. Only package enginetest finds each such
	// use. Elsewhere an operation that is called before the last one of the Flow is over gets an error that
	// matches this one, ErrOtherBranch and ErrFlowInOperation.
	ErrSecondGoroutine = flow.ErrSecondGoroutine

	// ErrOtherBranch says that a branch used a Flow that is not its own: that of the
	// function around it, or of another branch. See [Branches].
	ErrOtherBranch = flow.ErrOtherBranch

	// ErrFlowInOperation says that an operation used the Flow of the function. An
	// operation can't call other operations.
	ErrFlowInOperation = flow.ErrFlowInOperation
)

// ErrFlowOver says that a Flow was used after its function returned or was suspended, for
// example in a deferred call.
var ErrFlowOver = flow.ErrFlowOver

// NewFlow returns a workflow that consists of one function. The function calls operations
// by [Do], [Map], [Sleep] and the others. The result of each operation is stored. After a
// long wait, or when the process was killed, the function is called again from its
// beginning, and operations that have ended return their stored results without running.
//
// So the function must follow one rule: which operations it calls, and with what, follows
// only from the input and from results of operations. Use [Now] and [Random] instead of the
// clock and random numbers. A run that breaks the rule waits in state needs-handler, with
// the name of the operation; it never runs wrong code. [Renamed], [Removed] and [Added] say what a
// later version of the function has changed.
//
// If the function returns an error, the run is dead. If it panics, it is called again as its
// retry policy says. Parts may be options of a workflow, one [Function] and [Operations].
func NewFlow[In, Out any](name string, do func(*Flow, In) (Out, error), parts ...Part) (*Workflow, error) {
	setFlow := func(b *builder) {
		var function any
		if do != nil {
			function = FlowFunc(typed("function", do)).core()
		}
		b.core.SetFlow(reflect.TypeFor[In](), reflect.TypeFor[Out](), function)
	}
	return NewWorkflow(name, append([]Part{setFlow}, parts...)...)
}

// MustFlow is [NewFlow] for a package variable. It panics if the workflow has errors.
func MustFlow[In, Out any](name string, do func(*Flow, In) (Out, error), parts ...Part) *Workflow {
	w, err := NewFlow(name, do, parts...)
	if err != nil {
		panic(err)
	}
	return w
}

// Function sets options of the function of a flow: [Policy] and [WithPolicy] say how often
// it is called again after a panic, [MaxLost] limits the calls in a row in which the process
// died, and [Version] is what [Flow.Version] returns in runs that start from now on.
func Function(opts ...FunctionOption) Part {
	return func(b *builder) {
		b.core.ChangeFunction(func(s *workflow.Options) { apply(s, opts) })
	}
}

// Operations sets options that all operations of a flow have, for example one [Policy]. The
// options of an operation itself come after them.
func Operations(opts ...AttemptOption) Part {
	return func(b *builder) {
		b.core.ChangeOperations(func(s *workflow.Options) { apply(s, opts) })
	}
}

// Version returns the version of the function with which the run was started: see
// [Function].
func (f *Flow) Version() string { return f.f.Version() }

// Run returns the id of the run.
func (f *Flow) Run() string { return f.f.Run() }

// Coded adds a code to an error that an operation, a function or a step returns. The function gets
// the code as [OpError.Code] if the operation gives up after this error, or if the run that returns
// it is a [Child]. A code has at most 128 bytes, and a longer one is cut. Coded returns nil if err
// is nil.
func Coded(code string, err error) error {
	if err == nil {
		return nil
	}
	return workflow.Coded(code, err)
}

// SetStatus sets a short text that is shown with the run, for example "packing 3 of 7". It is
// stored with the next operation or the end of the function.
func SetStatus(f *Flow, status string) { f.f.SetStatus(status) }

// SetTag sets a tag of the run, which is shown with the run and by which lists can be filtered:
// see [Filter.Tags]. The tag keeps its value until SetTag is called with its name again; the value
// "" removes it. A run can have 16 tags. Their names have letters, digits, '-', '_' and '.', and
// their values at most 128 bytes without control characters. It is stored with the next operation
// or the end of the function.
func SetTag(f *Flow, name, value string) error { return f.f.SetTag(name, value) }

// Again returns an error with which the function ends this run, and begins a fresh run of the
// same workflow with another input: for loops without end, since the operations of one run
// are limited. The new run gets the key and the [RunTimeout] of this one. A timeout limits each
// run, and not the chain: it begins with the start of the run. [Engine.Wait] waits for the last
// run of the chain. A branch of [Branches] can't use it.
//
// The new run can't undo operations of this one. If this run has called operations of [DoUndo] or
// [MapUndo], it waits in state needs-handler with their names, unless [KeepDone] gives up their
// undos.
func Again(f *Flow, input any, opts ...AgainOption) error {
	if err := f.f.CheckAgain(); err != nil {
		return err
	}
	text, err := json.Marshal(input)
	if err != nil {
		return fmt.Errorf("again: %w: %w", ErrInput, err)
	}
	next := &workflow.Again{Input: text}
	for _, opt := range opts {
		opt((*again)(next))
	}
	return next
}

// AgainOption is an option of [Again].
type AgainOption func(*again)

// KeepDone says that the operations of the run are not undone any more, even if the run
// that continues it fails.
func KeepDone() AgainOption {
	return func(a *again) { a.KeepDone = true }
}

type again workflow.Again

// CallFunction makes the workflow a flow that is described by data: it calls a function of
// [Config.Functions] by its name. The function gets the arguments as [Task.Args] of [Flow.Task];
// they are stored with the definition. So a run keeps the arguments that it began with, and
// continues with them even if the workflow is changed or is not registered any more.
func CallFunction(function string, args any) Part {
	return func(b *builder) { b.core.SetFlowByName(function, args) }
}

// Operation declares an operation of a flow by its name. The declared operations are what
// [Workflow.Steps] returns, with kind as their handler, [After], [Policy], [WithPolicy] and
// [MaxLost]. They are stored with the definition, and [Info.Declared] has them. [Concurrency] limits
// how many attempts of the operations with this name run at once, in all runs of the flow together;
// the items of a [Map] count, too. The other options of an operation are those that the function
// calls it with.
func Operation(name, kind string, opts ...DeclaredOption) Part {
	return func(b *builder) { b.core.Declare(apply(workflow.NewDeclared(name), opts), kind) }
}

// Task returns what attempts of the run's operations know about the run: Run, Workflow, Key,
// Origin, OriginKey, Created, Source, Input, and the Args of [CallFunction]. The other fields are
// not set.
func (f *Flow) Task() Task { return f.f.Task() }

// Registered returns a workflow for [Child] and [Children] that stands for the one which is
// registered with this name when the child is started. If there is none then, the run waits in
// state needs-handler until there is one.
func Registered(name string) *Workflow {
	w := new(Workflow)
	w.core.SetRegistered(name)
	return w
}

// Renamed says that an operation has another name since an earlier version of the function. Runs
// with a stored result of the old name use it for the new name. A run that waits for a signal of the
// old name gets one of either name. Call it at the beginning of the function, without a condition. A
// name with a key is written as name[key].
func Renamed(f *Flow, before, now string) {
	f.f.Renamed(before, now)
}

// Removed says that the function does not call operations with these names any more. Their stored
// results are not used, and a run that waits in such an operation continues. A name with a key is
// written as name[key]; that of a [Map] includes its operations. Call it at the beginning of the
// function, without a condition: a run that waits is called again when a call of the function has
// said the name.
func Removed(f *Flow, names ...string) {
	f.f.Removed(names)
}

// Added says that the function calls operations with these names since an earlier version. A run
// that has passed the place of such an operation executes it when it is called again. Without
// Added, such a run waits in state needs-handler. A run that has not come to that place, or
// has executed the operation already, needs no Added. A name with a key is written as name[key]; that
// of a [Map] includes its operations.
func Added(f *Flow, names ...string) {
	f.f.Added(names)
}
