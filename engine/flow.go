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
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// Flow is a call of the function of a workflow that is code: see [NewFlow]. The function
// passes it to [Do], [Map], [Sleep] and the other operations. It is valid until the function
// returns, and only in the goroutine of the function. Each branch of [Branches] gets its own.
type Flow struct {
	call *flowCall
	*flowState
	branch  *branch     // nil for the flow of the function itself
	routine uintptr     // the goroutine that may use the flow; 0 if goroutines can't be told apart
	busy    atomic.Bool // an operation is being called
	over    atomic.Bool // the branch has ended

	// The goroutine that may run uses the following fields: see branchScheduler.

	held  string        // identity of the new operation that the flow is about to begin: see hold; "" for none
	group *opGroup      // operations that the branch waits for; nil for none
	inner *branchSet    // branches that the flow waits for; nil for none
	wake  chan struct{} // tells the goroutine that it may run
}

// flowState is the state of a call of a function, which all its flows share.
type flowState struct {
	asked   askedOps                       // operations that the function has called
	ended   opResults                      // operations that have ended
	pending map[string]int                 // numbers of the operations that have not ended, by identity
	former  map[string]machine.FormerChild // of operations that a retry calls again, by identity
	renamed [][2]string                    // earlier and current names of Renamed
	removed []string                       // names of Removed
	added   []string                       // names of Added
	known   int                            // operations of earlier calls, at most: see mismatch
	found   int                            // of these, how many the function has called
	count   int                            // number of operations that the run has called
	last    string                         // identity of the operation that the function called last
	undoers []undoer                       // how to undo operations, in the order of their calls
	builder stepBuilder                    // memory for the options of an operation
}

// The errors of wrong uses of a [Flow]. A run whose function got one of them waits in state
// needs-handler until code without the mistake is deployed, even if the function ignores the
// error: the call of the function ends at its next operation.
var (
	// ErrSameOperation says that the function called an operation with the identity of
	// an earlier one: same kind, same name, same [ForKey].
	ErrSameOperation = errors.New("called twice")

	// ErrSecondGoroutine says that a goroutine other than that of the function used the
	// Flow. Use [Map] and [Branches] for operations side by side.
	ErrSecondGoroutine = errors.New("called from a second goroutine; use engine.Map or engine.Branches for operations side by side")

	// ErrOtherBranch says that a branch used a Flow that is not its own: that of the
	// function around it, or of another branch. See [Branches].
	ErrOtherBranch = errors.New("called with the flow of another branch; a branch must use the flow that it gets")

	// ErrFlowInOperation says that an operation used the Flow of the function. An
	// operation can't call other operations.
	ErrFlowInOperation = errors.New("called inside another operation; an operation can't use the flow")
)

// ErrFlowOver says that a Flow was used after its function returned or was suspended, for
// example in a deferred call.
var ErrFlowOver = errors.New("the call of the function is over")

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
	return NewWorkflow(name, append([]Part{flowPart(do)}, parts...)...)
}

// MustFlow is [NewFlow] for a package variable. It panics if the workflow has errors.
func MustFlow[In, Out any](name string, do func(*Flow, In) (Out, error), parts ...Part) *Workflow {
	w, err := NewFlow(name, do, parts...)
	if err != nil {
		panic(err)
	}
	return w
}

// flowPart makes the workflow a flow with this function.
func flowPart[In, Out any](do func(*Flow, In) (Out, error)) Part {
	return func(b *builder) {
		s := newStep(machine.Function, nil)
		s.Handler = flowPrefix + b.w.def.Name
		in := reflect.TypeFor[In]()
		s.errs = append(s.errs, errors.Join(checkType(in, "input"), checkType(reflect.TypeFor[Out](), "output")))
		if do == nil {
			s.errs = append(s.errs, errors.New("no function"))
		}
		b.w.input, b.w.def.Flow = in, true
		b.w.function = func(f *Flow, input json.RawMessage) ([]byte, error) {
			var in In
			if len(input) > 0 {
				if err := json.Unmarshal(input, &in); err != nil {
					return nil, fmt.Errorf("input of the run: %w", err)
				}
			}
			out, err := do(f, in)
			if err != nil {
				return nil, err
			}
			text, err := json.Marshal(out)
			if err != nil {
				return nil, fmt.Errorf("output of the function: %w", err)
			}
			return text, nil
		}
		b.add(s)
	}
}

// flowPrefix is the prefix of the handler of a flow's function.
const flowPrefix = "flow:"

// Function sets options of the function of a flow: [Policy] and [WithPolicy] say how often
// it is called again after a panic, [MaxLost] limits the calls in a row in which the process
// died, and [Version] is what [Flow.Version] returns in runs that start from now on.
func Function(opts ...StepOption) Part {
	return func(b *builder) {
		if !b.w.def.Flow {
			b.errs = append(b.errs, errors.New("function: only a workflow that NewFlow makes has one"))
			return
		}
		s := &stepBuilder{Step: b.w.def.Steps[0]}
		for _, opt := range opts {
			opt(s)
		}
		s.parsePolicy()
		if len(s.Needs) > 0 || s.concurrency != 0 || len(s.opOptions()) > 0 {
			s.errs = append(s.errs, errors.New("only Policy, WithPolicy, MaxLost and Version are options of a function; use MaxRuns to limit the runs"))
		}
		for _, err := range s.errs {
			if err != nil {
				b.errs = append(b.errs, fmt.Errorf("function: %w", err))
			}
		}
		b.w.def.Steps[0], b.w.def.Version = s.Step, s.version
	}
}

// Operations sets options that all operations of a flow have, for example one [Policy]. The
// options of an operation itself come after them.
func Operations(opts ...StepOption) Part {
	return func(b *builder) {
		if !b.w.def.Flow {
			b.errs = append(b.errs, errors.New("operations: only a workflow that NewFlow makes has them"))
			return
		}
		b.w.opDefaults = append(b.w.opDefaults, opts...)
		s := &stepBuilder{text: DefaultPolicy}
		for _, opt := range b.w.opDefaults {
			opt(s)
		}
		s.parsePolicy()
		if len(s.Needs) > 0 || s.concurrency != 0 || s.version != "" || len(s.opOptions()) > 0 {
			s.errs = append(s.errs, errors.New("only Policy, WithPolicy, MaxLost, HeartbeatTimeout and MaxWindows are options of all operations"))
		}
		for _, err := range s.errs {
			if err != nil {
				b.errs = append(b.errs, fmt.Errorf("operations: %w", err))
			}
		}
	}
}

// Version returns the version of the function with which the run was started: see
// [Function].
func (f *Flow) Version() string { return f.call.version }

// Run returns the id of the run.
func (f *Flow) Run() string { return f.call.run.String() }

// OpError is the failure of an operation. It is stored, so a function that is called again
// gets the same error.
type OpError struct {
	Name string // name of the operation, with its key or index
	Code string // code of the failure: that of [Coded], or why the operation gave up
	Text string // the last error
}

func (e *OpError) Error() string { return fmt.Sprintf("operation %s: %s", e.Name, e.Text) }

// Coded adds a code to an error that an operation, a function or a step returns. The function gets
// the code as [OpError.Code] if the operation gives up after this error, or if the run that returns
// it is a [Child]. A code has at most 128 bytes, and a longer one is cut. Coded returns nil if err
// is nil.
func Coded(code string, err error) error {
	if err == nil {
		return nil
	}
	return &coded{err, code}
}

type coded struct {
	error
	code string
}

func (c *coded) Unwrap() error { return c.error }

// codeOf returns the code of an error: that of [Coded], or of the operation that failed; "" if it has
// none.
func codeOf(err error) string {
	if c, ok := errors.AsType[*coded](err); ok {
		return textfmt.TruncateValid(c.code, maxKey, "")
	}
	if e, ok := errors.AsType[*OpError](err); ok {
		return e.Code
	}
	return ""
}

// ForKey distinguishes operations with the same name, for example in a loop. The key is
// part of the operation's identity, and must be the same when the function is called again:
// use the id of what the operation works on, and not a position that may change.
func ForKey(key string) StepOption {
	return func(s *stepBuilder) {
		s.key = key
		if key == "" || len(key) > maxKey || hasControl(key) {
			s.errs = append(s.errs, fmt.Errorf("key: %q must have 1 to %d bytes without control characters", key, maxKey))
			return
		}
		s.keys++
	}
}

// hasControl reports whether the text has a control character. It is called for the key of each operation.
func hasControl(text string) bool {
	for _, c := range []byte(text) {
		if c < ' ' {
			return true
		}
	}
	return false
}

// maxKey is the length of the longest key, and of the longest code of an error, in bytes.
const maxKey = 128

// Parallel limits how many operations of a [Map] run side by side. 0 means 16; at most 1000.
func Parallel(n int) StepOption {
	return func(s *stepBuilder) {
		if n < 0 || n > maxParallel {
			s.errs = append(s.errs, fmt.Errorf("parallel: %d is not between 0 and %d", n, maxParallel))
		}
		s.parallel = n
	}
}

const (
	maxParallel     = 1000
	defaultParallel = 16
)

// Do executes an operation: it calls the function do, stores its result and returns it. Each
// operation has its own retry policy, timeouts and attempts, like a step: see [Policy],
// [MaxLost], [HeartbeatTimeout] and [MaxWindows]. The function do may return the same errors as
// the handler of a step. It must not use f. It may run in the goroutine of the function.
//
// If the operation gives up, the error is an [*OpError].
func Do[T any](f *Flow, name string, do func(context.Context) (T, error), opts ...StepOption) (v T, err error) {
	o, err := f.operation("do", name, opts)
	if err != nil {
		return v, err
	}
	defer f.busy.Store(false)
	if f.stored(&o) {
		return resultOf[T](&o)
	}
	g := &opGroup{name: o.identity, def: o.def, n: 1, parallel: 1, do: func(ctx context.Context, _ int) ([]byte, error) { return encoded(do(ctx)) }}
	if err := f.perform(g); err != nil {
		return v, err
	}
	return decoded[T](&g.results[0])
}

// encoded returns the JSON of a value, or the error.
func encoded[T any](v T, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	if raw, ok := any(v).(json.RawMessage); ok && json.Valid(raw) {
		return raw, nil // without the escapes for HTML that Marshal would add
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, retry.Permanent(fmt.Errorf("result of the operation: %w", err))
	}
	return text, nil
}

// decoded returns what an operation that has ended returns.
func decoded[T any](res *machine.OpResult) (v T, err error) {
	if res.Reason != 0 {
		return v, &OpError{Name: label(res.Name), Code: res.Code, Text: res.Text}
	}
	return decodedData[T](res.Name, res.Data)
}

// resultOf returns what an operation that is stored returns.
func resultOf[T any](o *operation) (v T, err error) {
	if o.failure != nil {
		return decoded[T](o.failure)
	}
	return decodedData[T](o.identity, o.data)
}

// decodedData returns the value that an operation has returned. Each call decodes it, because the
// function may change the value.
func decodedData[T any](identity string, data []byte) (v T, err error) {
	if decodeSimple(data, &v) {
		return v, nil
	}
	other := new(T) // json.Unmarshal needs it on the heap
	if err := json.Unmarshal(data, other); err != nil {
		return *other, &OpError{Name: strings.Clone(label(identity)), Code: "result", Text: fmt.Sprintf("its stored result can't be read as %T: %v", v, err)}
	}
	return *other, nil
}

// decodeSimple is json.Unmarshal for the most frequent simple values, for which that takes longer than
// all else that a stored operation costs. It returns false for others.
func decodeSimple(data []byte, v any) (ok bool) {
	switch v := v.(type) {
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

// MapError is the error of a [Map] with failed operations.
type MapError struct {
	Name   string
	Errors map[int]*OpError // failures by index of the item
}

func (e *MapError) Error() string {
	first := -1
	for i := range e.Errors {
		if first < 0 || i < first {
			first = i
		}
	}
	if len(e.Errors) == 1 {
		return e.Errors[first].Error()
	}
	return fmt.Sprintf("%d operations of %s failed, the first: %v", len(e.Errors), e.Name, e.Errors[first])
}

// Unwrap returns the failures.
func (e *MapError) Unwrap() (errs []error) {
	for _, err := range e.Errors {
		errs = append(errs, err)
	}
	return errs
}

// Map executes one operation for each item, [Parallel] of them side by side, and returns their
// results. If an operation fails, Map begins no more, waits for those that run, and
// returns the results so far and a [*MapError]. The items must be the same when the function
// is called again: otherwise the run waits in state needs-handler.
func Map[T, R any](f *Flow, name string, items []T, do func(context.Context, T) (R, error), opts ...StepOption) ([]R, error) {
	_, g, err := newMap(f, "map", name, items, do, opts)
	if err != nil {
		return nil, err
	}
	defer f.busy.Store(false)
	if err := f.perform(g); err != nil {
		return nil, err
	}
	return mapResults[R](g)
}

// Outcome is the outcome of one operation of a [Collect].
type Outcome[R any] struct {
	Value R
	Err   *OpError // nil if the operation succeeded
}

// Collect is [Map] that executes all operations, whether some fail or not, and returns the
// outcome of each. Its error only says that the call itself was wrong.
func Collect[T, R any](f *Flow, name string, items []T, do func(context.Context, T) (R, error), opts ...StepOption) ([]Outcome[R], error) {
	_, g, err := newMap(f, "map", name, items, do, opts)
	if err != nil {
		return nil, err
	}
	defer f.busy.Store(false)
	g.all = true
	if err := f.perform(g); err != nil {
		return nil, err
	}
	return mapOutcomes[R](g), nil
}

// newMap checks the call of a Map, and returns the group of its operations. After success the caller
// must clear Flow.busy.
func newMap[T, R any](f *Flow, kind, name string, items []T, do func(context.Context, T) (R, error), opts []StepOption) (o operation, g *opGroup, err error) {
	if o, err = f.operation(kind, name, opts); err != nil {
		return o, nil, err
	}
	texts := make([][]byte, len(items))
	for i := range items {
		if texts[i], err = json.Marshal(items[i]); err != nil {
			err = f.misuse(o.identity, fmt.Errorf("item %d: %w", i, err))
			break
		}
	}
	if err == nil {
		err = f.checkItems(&o, texts)
	}
	if err != nil {
		f.busy.Store(false)
		return o, nil, err
	}
	return o, &opGroup{
		name: o.identity, def: o.def, n: len(items), parallel: o.parallel, isMap: true,
		do: func(ctx context.Context, i int) ([]byte, error) { return encoded(do(ctx, items[i])) },
	}, nil
}

// mapOutcomes returns the outcomes of the operations of a group.
func mapOutcomes[R any](g *opGroup) []Outcome[R] {
	outcomes := make([]Outcome[R], g.n)
	for i := range outcomes {
		if g.results[i].Name == "" {
			continue // it was not begun, because another one failed
		}
		v, err := decoded[R](&g.results[i])
		outcomes[i].Value = v
		outcomes[i].Err, _ = errors.AsType[*OpError](err)
	}
	return outcomes
}

// mapResults returns the results of the operations of a group, and a [*MapError] if some failed.
func mapResults[R any](g *opGroup) ([]R, error) {
	results := make([]R, g.n)
	failed := map[int]*OpError{}
	for i, o := range mapOutcomes[R](g) {
		results[i] = o.Value
		if o.Err != nil {
			failed[i] = o.Err
		}
	}
	if len(failed) > 0 {
		return results, &MapError{label(g.name), failed}
	}
	return results, nil
}

// Sleep waits. The wait survives the process, and is never shortened; a long one costs no
// goroutine and no memory beside the state of the run.
func Sleep(f *Flow, name string, d time.Duration, opts ...StepOption) error {
	o, err := f.operation("sleep", name, opts)
	if err != nil {
		return err
	}
	defer f.busy.Store(false)
	if f.stored(&o) {
		return nil
	}
	return f.perform(&opGroup{name: o.identity, n: 1, parallel: 1, sleep: max(d, 0)})
}

// Labels sets what [StepInfo.Item] of the items of a [Map], [Collect] or [Children] is: the text
// that label returns for the item with this index, or its beginning. Without it, that is the
// beginning of the item's JSON. Of many items, only the first ones have a label.
func Labels(label func(i int) string) StepOption {
	return func(s *stepBuilder) { s.labels = label }
}

// Now returns the current time. It is recorded: when the function is called again, Now
// returns the same time. It has a name because it is an operation.
func Now(f *Flow, name string, opts ...StepOption) (time.Time, error) {
	return recorded(f, "now", name, opts, func() time.Time { return time.Now().UTC().Round(0) })
}

// Random returns a random number. It is recorded: when the function is called again, Random
// returns the same number. It has a name because it is an operation.
func Random(f *Flow, name string, opts ...StepOption) (uint64, error) {
	return recorded(f, "random", name, opts, rand.Uint64)
}

// Skip records that the function leaves out an operation because of a condition, so that the run
// shows it as skipped. It has no other effect. If a retry of the run makes the condition true, the
// function calls the operation instead.
func Skip(f *Flow, name string, opts ...StepOption) error {
	_, err := recorded(f, machine.SkipKind, name, opts, func() any { return nil })
	return err
}

// recorded returns a value that is recorded when the function asks for it first.
func recorded[T any](f *Flow, kind, name string, opts []StepOption, value func() T) (v T, err error) {
	o, err := f.operation(kind, name, opts)
	if err != nil {
		return v, err
	}
	defer f.busy.Store(false)
	if f.stored(&o) {
		return v, json.Unmarshal(o.data, &v)
	}
	v = value()
	text, err := json.Marshal(v)
	if err != nil {
		return v, err
	}
	return v, f.record(o.identity, text)
}

// SetStatus sets a short text that is shown with the run, for example "packing 3 of 7". It is
// stored with the next operation or the end of the function.
func SetStatus(f *Flow, status string) {
	f.call.mu.Lock()
	defer f.call.mu.Unlock()
	f.call.status, f.call.said = status, true
}

// SetTag sets a tag of the run, which is shown with the run and by which lists can be filtered:
// see [Filter.Tags]. The tag keeps its value until SetTag is called with its name again; the value
// "" removes it. A run can have 16 tags. Their names have letters, digits, '-', '_' and '.', and
// their values at most 128 bytes without control characters. It is stored with the next operation
// or the end of the function.
func SetTag(f *Flow, name, value string) error {
	err := checkName(name)
	switch {
	case err != nil:
	case len(value) > maxTag || !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		err = fmt.Errorf("value: %.200q must have at most %d bytes of UTF-8 without control characters", value, maxTag)
	default:
		err = f.call.setTag(name, value)
	}
	if err != nil {
		return fmt.Errorf("tag %.200q: %w", name, err)
	}
	return nil
}

const (
	maxTags = 16
	maxTag  = 128
)

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
	if f.branch != nil {
		return f.call.noteWrong(fmt.Errorf("branch %s: %w", f.branch.name, errAgainInBranch))
	}
	text, err := json.Marshal(input)
	if err != nil {
		return fmt.Errorf("again: %w: %w", ErrInput, err)
	}
	next := &again{input: text}
	for _, opt := range opts {
		opt(next)
	}
	return next
}

// AgainOption is an option of [Again].
type AgainOption func(*again)

// KeepDone says that the operations of the run are not undone any more, whatever happens in the run
// that continues it.
func KeepDone() AgainOption {
	return func(a *again) { a.keepDone = true }
}

type again struct {
	input    json.RawMessage
	keepDone bool
}

func (*again) Error() string { return "the run continues with another input" }

// label returns the name of an operation as it is shown.
func label(identity string) string { return machine.OpName(identity) }
