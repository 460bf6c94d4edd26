package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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
	o, err := callOperation(f, machine.DoKind, name, opts)
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
	_, g, err := newMap(f, machine.MapKind, name, items, do, opts)
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
	_, g, err := newMap(f, machine.MapKind, name, items, do, opts)
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

// callWithItems is callOperation for an operation with several items. what is the name of an item in errors.
func callWithItems[T any, O anyOption](f *Flow, kind, name, what string, items []T, opts []O) (o flow.Called, err error) {
	if o, err = callOperation(f, kind, name, opts); err != nil {
		return o, err
	}
	texts := make([][]byte, len(items))
	for i := range items {
		if texts[i], err = json.Marshal(items[i]); err != nil {
			err = f.f.Misuse(o.Identity, fmt.Errorf("%s %d: %w", what, i, err))
			break
		}
	}
	if err == nil {
		err = f.f.CheckItems(&o, texts)
	}
	if err != nil {
		f.f.Leave()
	}
	return o, err
}

// newMap checks the call of a Map, and returns the group of its operations. After success the caller
// must call Leave.
func newMap[T, R any, O anyOption](f *Flow, kind, name string, items []T, do func(context.Context, T) (R, error), opts []O) (o flow.Called, g *flow.Group, err error) {
	if o, err = callWithItems(f, kind, name, "item", items, opts); err != nil {
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
	o, err := callOperation(f, machine.SleepKind, name, opts)
	if err != nil {
		return err
	}
	defer f.f.Leave()
	if f.f.Stored(&o) {
		return nil
	}
	return f.f.Perform(o.Wait(d, nil))
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
	return recorded(f, machine.NowKind, name, opts, func() time.Time { return time.Now().UTC().Round(0) })
}

// Random returns a random number. It is recorded: when the function is called again, Random
// returns the same number. It has a name because it is an operation.
func Random(f *Flow, name string, opts ...KeyOption) (uint64, error) {
	return recorded(f, machine.RandomKind, name, opts, rand.Uint64)
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

// Child starts a run of another workflow, the child, waits until it has ended, and returns its
// output. The child has the id of this operation, so it is started only once, even if processes die.
// Like that of [Sleep], the wait costs no goroutine and no place.
//
// If the child does not succeed, the error is an [*OpError] with the child's error and code. A
// retry of this run then continues the same child: it retries a dead one, and waits for one that was
// retried or replaced meanwhile. If the child was canceled or is not stored any more, it starts
// another one with the same [Task.Origin]. If this run is canceled, times out or dies, its children
// are canceled, unless they are [Detached].
func Child[Out any](f *Flow, name string, w *Workflow, input any, opts ...ChildOption) (v Out, err error) {
	o, err := callOperation(f, machine.ChildKind, name, opts)
	if err != nil {
		return v, err
	}
	defer f.f.Leave()
	g := o.One(nil)
	if err := f.f.PrepareChildren(g, o, coreOf(w), func(int) any { return input }); err != nil {
		return v, err
	}
	return perform[Out](f, g)
}

// Children starts a child for each input, [Parallel] of them side by side, and returns their
// outputs: see [Child] and [Map].
func Children[In, Out any](f *Flow, name string, w *Workflow, inputs []In, opts ...ChildrenOption) ([]Out, error) {
	o, err := callWithItems(f, machine.ChildrenKind, name, "input", inputs, opts)
	if err != nil {
		return nil, err
	}
	defer f.f.Leave()
	g := o.Each(len(inputs), nil)
	if err := f.f.PrepareChildren(g, o, coreOf(w), func(i int) any { return inputs[i] }); err != nil {
		return nil, err
	}
	return performAll[Out](f, g)
}

// Detached says that a child continues if the run that has started it ends: see [Child].
func Detached() ChildOption {
	return option(func(s *workflow.Options) { s.Detached = true })
}

// FlowBranch is a part of the function of a flow that runs beside others: see [Branch] and
// [Branches].
type FlowBranch struct{ core flow.Branch }

// Branch returns a branch for [Branches]. Its name is that in errors and in [After], the only
// option: the branch begins when the branches that After names have succeeded. The function do
// must use the Flow that it gets, and no other.
func Branch(name string, do func(*Flow) error, opts ...BranchOption) FlowBranch {
	b := flow.Branch{Name: name, Needs: apply(new(workflow.Options), opts).Needs}
	if do == nil {
		b.Err = errors.New("no function")
	} else {
		b.Do = func(f *flow.Flow) error { return do(&Flow{f}) }
	}
	if err := workflow.CheckName(name); err != nil {
		b.Err = err
	}
	return FlowBranch{b}
}

// Branches runs parts of the function side by side, and returns when all have ended. While a
// branch waits for an operation, the others continue. Only one branch executes code at a time:
// branches can use the same variables without locks. Operations of different branches run at
// the same time. Their identities are those of the whole run: kind, name and [ForKey] together
// must be unique.
//
// A branch must follow the rule of [NewFlow] on its own: which operations it calls, and with
// what, follows only from the input, and from results of its own operations, of those before
// Branches and of branches that it begins [After]. In which order the others end is not the same
// when the function is called again.
//
// If a branch returns an error, no branch begins another operation. Branches waits for those
// that have begun, also for long ones, and then returns the error of the branch that comes first in
// the list, with its name. The errors of others that have failed are wrapped, too. A branch that
// was about to begin an operation ends there, and its deferred calls run.
//
// A panic in a branch is a panic of the function. [Again] is not possible in a branch. Branches
// can be nested. At most 1000 branches are possible. A name that is there twice, and an After
// that names no branch or leads to a cycle, are wrong uses of the Flow, like [ErrSameOperation].
func Branches(f *Flow, branches ...FlowBranch) error {
	return f.f.Branches(len(branches), func(i int) *flow.Branch { return &branches[i].core })
}

// DoUndo is [Do] for an operation that can be undone. If the function returns an error later, or
// the run is canceled or times out, the run is in state undoing: the undos of all operations that
// it has called are executed, the last one first. Then the run ends.
//
// undo gets the result of the operation, or nil if that is not known: the operation failed, or was
// canceled. An attempt of it may have had an effect or not, so undo must accept both.
//
// An undo is an operation, with the options of the operation that it undoes, and [UndoPolicy]. If
// it gives up, the run is dead with the reason undo-failed, and [Engine.Retry] continues with this
// undo. A function that panics until its policy gives up has a bug: its run is dead, and undoes
// nothing before [Engine.Undo].
func DoUndo[T any](f *Flow, name string, do func(context.Context) (T, error), undo func(context.Context, *T) error, opts ...DoUndoOption) (v T, err error) {
	o, err := callOperation(f, machine.DoKind+flow.WithUndo, name, opts)
	if err != nil {
		return v, err
	}
	defer f.f.Leave()
	g := o.One(func(ctx context.Context, _ int) ([]byte, error) { return encoded(do(ctx)) })
	if err := canUndo(f, g, o, undo == nil, func(ctx context.Context, _ int, v *T) error { return undo(ctx, v) }); err != nil {
		return v, err
	}
	return perform[T](f, g)
}

// MapUndo is [Map] for operations that can be undone: see [DoUndo]. The undos of one MapUndo are
// executed side by side, as its operations are.
func MapUndo[T, R any](f *Flow, name string, items []T, do func(context.Context, T) (R, error), undo func(context.Context, T, *R) error, opts ...MapUndoOption) ([]R, error) {
	o, g, err := newMap(f, machine.MapKind+flow.WithUndo, name, items, do, opts)
	if err != nil {
		return nil, err
	}
	defer f.f.Leave()
	if err := canUndo(f, g, o, undo == nil, func(ctx context.Context, i int, v *R) error { return undo(ctx, items[i], v) }); err != nil {
		return nil, err
	}
	return performAll[R](f, g)
}

// UndoPolicy sets the retry policy of the undo of an operation, in its text form: see [DoUndo].
// Without it the undo has the policy of the operation.
func UndoPolicy(text string) DoUndoOption {
	return option(func(s *workflow.Options) {
		if _, err := retry.Parse(text); err != nil {
			s.Fail(fmt.Errorf("undo policy: %w", err))
		}
		s.UndoPolicy = text
	})
}

// canUndo notes how the operations of a group are undone. undo gets the stored result; nil if there is none.
func canUndo[T any](f *Flow, g *flow.Group, o flow.Called, isNil bool, undo func(context.Context, int, *T) error) error {
	return f.f.CanUndo(g, o, isNil, func(ctx context.Context, i int, stored []byte) error {
		if stored == nil {
			return undo(ctx, i, nil)
		}
		v := new(T)
		if err := json.Unmarshal(stored, v); err != nil {
			return retry.Permanent(fmt.Errorf("the stored result of the operation can't be read as %T: %w", *v, err))
		}
		return undo(ctx, i, v)
	})
}
