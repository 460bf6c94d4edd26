package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/retry"
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

// ForKey distinguishes operations with the same name, for example in a loop. The key is
// part of the operation's identity, and must be the same when the function is called again:
// use the id of what the operation works on, and not a position that may change.
func ForKey(key string) KeyOption {
	return option(func(s *workflow.Options) { s.SetKey(key) })
}

// Parallel limits how many operations of a [Map] run side by side. 0 means 16; at most 1000.
func Parallel(n int) ItemsOption {
	return option(func(s *workflow.Options) {
		if n < 0 || n > maxParallel {
			s.Fail(fmt.Errorf("parallel: %d is not between 0 and %d", n, maxParallel))
		}
		s.Parallel = n
	})
}

const maxParallel = 1000

// optionMemory has memory for the options of operations.
var optionMemory = sync.Pool{New: func() any { return new(workflow.Options) }}

// callOperation checks the call of an operation: its name and options, and that the flow is used as
// it must be. After success the caller must call Leave.
func callOperation[O anyOption](f *Flow, kind, name string, opts []O) (o flow.Called, err error) {
	if err := f.f.Enter(name); err != nil {
		return o, err
	}
	b := optionMemory.Get().(*workflow.Options)
	defer optionMemory.Put(b)
	b.Begin(f.f.Workflow())
	return f.f.Operation(apply(b, opts), kind, name, len(opts))
}

// Do executes an operation: it calls the function do, stores its result and returns it. Each
// operation has its own retry policy, timeouts and attempts, like a step: see [Policy],
// [MaxLost], [HeartbeatTimeout] and [MaxWindows]. The function do may return the same errors as
// the handler of a step. It must not use f. It may run in the goroutine of the function.
//
// If the operation gives up, the error is an [*OpError].
func Do[T any](f *Flow, name string, do func(context.Context) (T, error), opts ...DoOption) (v T, err error) {
	o, err := callOperation(f, "do", name, opts)
	if err != nil {
		return v, err
	}
	defer f.f.Leave()
	if f.f.Stored(&o) {
		return resultOf[T](&o)
	}
	return perform[T](f, o.One(func(ctx context.Context, _ int) ([]byte, error) { return encoded(do(ctx)) }))
}

// perform executes an operation, and returns what it returns.
func perform[T any](f *Flow, g *flow.Group) (v T, err error) {
	if err := f.f.Perform(g); err != nil {
		return v, err
	}
	return decoded[T](&g.Results[0])
}

// encoded returns the JSON of a value, or the error.
func encoded[T any](v T, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	if raw, ok := any(v).(json.RawMessage); ok && json.Valid(raw) {
		return raw, nil // without the escapes for HTML that Marshal would add
	}
	if _, ok := any(v).(struct{}); ok {
		return []byte(emptyObject), nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, retry.Permanent(fmt.Errorf("result of the operation: %w", err))
	}
	return text, nil
}

// emptyObject is the JSON of a struct{}, which operations without a result return.
const emptyObject = "{}"

// decoded returns what an operation that has ended returns.
func decoded[T any](res *machine.OpResult) (v T, err error) {
	if res.Reason != 0 {
		return v, &OpError{Name: machine.OpName(res.Name), Code: res.Code, Text: res.Text}
	}
	return decodedData[T](res.Name, res.Data)
}

// resultOf returns what an operation that is stored returns.
func resultOf[T any](o *flow.Called) (v T, err error) {
	if o.Failure != nil {
		return decoded[T](o.Failure)
	}
	return decodedData[T](o.Identity, o.Data)
}

// decodedData returns the value that an operation has returned. Each call decodes it, because the
// function may change the value.
func decodedData[T any](identity string, data []byte) (v T, err error) {
	if decodeSimple(data, &v) {
		return v, nil
	}
	other := new(T) // json.Unmarshal needs it on the heap
	if err := json.Unmarshal(data, other); err != nil {
		return *other, &OpError{Name: strings.Clone(machine.OpName(identity)), Code: "result", Text: fmt.Sprintf("its stored result can't be read as %T: %v", v, err)}
	}
	return *other, nil
}

// decodeSimple is json.Unmarshal for the most frequent simple values, for which that takes longer than
// all else that a stored operation costs. It returns false for others.
func decodeSimple(data []byte, v any) (ok bool) {
	switch v := v.(type) {
	case *struct{}:
		ok = string(data) == emptyObject
	case *int:
		n, err := strconv.Atoi(string(data))
		if ok = err == nil; ok {
			*v = n
		}
	case *string:
		n := len(data) - 1
		if ok = n > 0 && data[0] == '"' && bytes.IndexByte(data, '\\') < 0 && utf8.Valid(data); ok {
			*v = string(data[1:n])
		}
	case *bool:
		text := string(data)
		*v = text == "true"
		ok = *v || text == "false"
	}
	return ok
}

// Map executes one operation for each item, [Parallel] of them side by side, and returns their
// results. If an operation fails, Map begins no more, waits for those that run, and
// returns the results so far and a [*MapError]. The items must be the same when the function
// is called again: otherwise the run waits in state needs-handler.
func Map[T, R any](f *Flow, name string, items []T, do func(context.Context, T) (R, error), opts ...MapOption) ([]R, error) {
	_, g, err := newMap(f, "map", name, items, do, opts)
	if err != nil {
		return nil, err
	}
	defer f.f.Leave()
	return performAll[R](f, g)
}

// Outcome is the outcome of one operation of a [Collect].
type Outcome[R any] struct {
	Value R
	Err   *OpError // nil if the operation succeeded
}

// Collect is [Map] that executes all operations, whether some fail or not, and returns the
// outcome of each. Its error only says that the call itself was wrong.
func Collect[T, R any](f *Flow, name string, items []T, do func(context.Context, T) (R, error), opts ...MapOption) ([]Outcome[R], error) {
	_, g, err := newMap(f, "map", name, items, do, opts)
	if err != nil {
		return nil, err
	}
	defer f.f.Leave()
	g.All = true
	if err := f.f.Perform(g); err != nil {
		return nil, err
	}
	return mapOutcomes[R](g), nil
}

// newMap checks the call of a Map, and returns the group of its operations. After success the caller
// must call Leave.
func newMap[T, R any, O anyOption](f *Flow, kind, name string, items []T, do func(context.Context, T) (R, error), opts []O) (o flow.Called, g *flow.Group, err error) {
	if o, err = callOperation(f, kind, name, opts); err != nil {
		return o, nil, err
	}
	texts := make([][]byte, len(items))
	for i := range items {
		if texts[i], err = json.Marshal(items[i]); err != nil {
			err = f.f.Misuse(o.Identity, fmt.Errorf("item %d: %w", i, err))
			break
		}
	}
	if err == nil {
		err = f.f.CheckItems(&o, texts)
	}
	if err != nil {
		f.f.Leave()
		return o, nil, err
	}
	return o, o.Each(len(items), func(ctx context.Context, i int) ([]byte, error) { return encoded(do(ctx, items[i])) }), nil
}

// mapOutcomes returns the outcomes of the operations of a group.
func mapOutcomes[R any](g *flow.Group) []Outcome[R] {
	outcomes := make([]Outcome[R], len(g.Results))
	for i := range outcomes {
		if g.Results[i].Name == "" {
			continue // it was not begun, because another one failed
		}
		v, err := decoded[R](&g.Results[i])
		outcomes[i].Value = v
		outcomes[i].Err, _ = errors.AsType[*OpError](err)
	}
	return outcomes
}

// performAll executes the operations of a group, and returns their results, and a [*MapError] if some failed.
func performAll[R any](f *Flow, g *flow.Group) ([]R, error) {
	if err := f.f.Perform(g); err != nil {
		return nil, err
	}
	results := make([]R, len(g.Results))
	failed := map[int]*OpError{}
	for i, o := range mapOutcomes[R](g) {
		results[i] = o.Value
		if o.Err != nil {
			failed[i] = o.Err
		}
	}
	if len(failed) > 0 {
		return results, &MapError{Name: machine.OpName(g.Name), Errors: failed}
	}
	return results, nil
}

// Sleep waits. The wait survives the process, and is never shortened; a long one costs no
// goroutine and no memory beside the state of the run.
func Sleep(f *Flow, name string, d time.Duration, opts ...KeyOption) error {
	o, err := callOperation(f, "sleep", name, opts)
	if err != nil {
		return err
	}
	defer f.f.Leave()
	if f.f.Stored(&o) {
		return nil
	}
	return f.f.Perform(o.Sleep(d))
}

// Labels sets what [StepInfo.Item] of the items of a [Map], [Collect] or [Children] is: the text
// that label returns for the item with this index, or its beginning. Without it, that is the
// beginning of the item's JSON. Of many items, only the first ones have a label.
func Labels(label func(i int) string) ItemsOption {
	return option(func(s *workflow.Options) { s.Labels = label })
}

// Now returns the current time. It is recorded: when the function is called again, Now
// returns the same time. It has a name because it is an operation.
func Now(f *Flow, name string, opts ...KeyOption) (time.Time, error) {
	return recorded(f, "now", name, opts, func() time.Time { return time.Now().UTC().Round(0) })
}

// Random returns a random number. It is recorded: when the function is called again, Random
// returns the same number. It has a name because it is an operation.
func Random(f *Flow, name string, opts ...KeyOption) (uint64, error) {
	return recorded(f, "random", name, opts, rand.Uint64)
}

// Skip records that the function leaves out an operation because of a condition, so that the run
// shows it as skipped. It has no other effect. If a retry of the run makes the condition true, the
// function calls the operation instead.
func Skip(f *Flow, name string, opts ...KeyOption) error {
	_, err := recorded(f, machine.SkipKind, name, opts, func() any { return nil })
	return err
}

// recorded returns a value that is recorded when the function asks for it first.
func recorded[T any](f *Flow, kind, name string, opts []KeyOption, value func() T) (v T, err error) {
	o, err := callOperation(f, kind, name, opts)
	if err != nil {
		return v, err
	}
	defer f.f.Leave()
	if f.f.Stored(&o) {
		return v, json.Unmarshal(o.Data, &v)
	}
	v = value()
	text, err := json.Marshal(v)
	if err != nil {
		return v, err
	}
	return v, f.f.Record(o.Identity, text)
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
