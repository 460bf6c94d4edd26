package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/internal/goroutine"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// flowCall is one call of the function of a flow, in a goroutine of its own. The owner of the
// shard starts it, and ends it when the run ends or all operations that the function waits
// for have long waits.
type flowCall struct {
	sh       *shard
	run      machine.ID
	workflow *Workflow
	number   int    // number of the call: the attempt of step 0
	handler  string // of the function
	known    int64  // registry.version when the call began
	task     Task   // describes the run
	version  string
	input    json.RawMessage
	results  []byte                         // encoded results of the operations that have ended
	pending  map[string]int                 // operations that have not ended
	count    int                            // number of operations that were called
	history  []byte                         // of a run that was retried: see machine.ReadTakenBack; nil for others
	declared []machine.DeclaredOp           // of a function that is described by data: the operations that it calls
	former   map[string]machine.FormerChild // of operations that a retry calls again, by identity
	previous machine.ID                     // the run that this one repeats; zero for none
	size     atomic.Int64                   // bytes of the results, including those that are being stored
	undoable atomic.Int32                   // number of operations that can be undone; valid if undoing
	suspect  *attempt                       // stands for the call in the quarantine; nil if the function is not a suspect

	branches atomic.Pointer[branchScheduler] // nil before the first Branches
	leaves   atomic.Int32                    // goroutines of the call that have not ended and do not wait for branches

	exiting   atomic.Bool // the goroutine is ending, because the owner has stopped it or an operation has ended it
	inAttempt atomic.Bool // the goroutine makes an attempt of an operation
	forsaken  atomic.Bool // stop has reported the end, because an attempt that the goroutine makes is stuck
	ended     atomic.Bool // the end of the call was sent to the owner
	end       flowEnd     // how the call ended; valid for the receiver of request
	request   request     // reports the end
	undoing   atomic.Bool // the run undoes its operations: no other operation begins
	toUndo    atomic.Bool // the function has ended, and undoMain continues
	stopped   chan struct{}
	once      sync.Once
	grace     sync.Once // begins the grace time
	cause     error     // why the owner has stopped the call first; valid after stopped is closed

	isWrong atomic.Bool // wrong is set

	mu     sync.Mutex
	wrong  error             // first wrong use of the flow
	said   bool              // the function has set a status or a tag that is not recorded
	status string            // the status of the run
	tags   map[string]string // the tags of the run; nil if there are none

	// The owner's goroutine uses the following fields.

	since    time.Time  // when the function was called, or its last operation ended
	blocked  bool       // there is a warning that the function is blocked
	lent     bool       // its place was given back: see lendPlaces
	stopping bool       // it is being stopped: it begins no operation any more
	groups   groupList  // operations that the function and its branches wait for
	ops      groupItems // operations of the groups that have not ended

	isProbe     bool  // it was called only because the code may have changed: see callChanged
	starting    int   // children that are being started in other shards
	lingerUntil int64 // see lingers; 0 if the call does not wait for a signal
}

// setTag sets a tag of the run, or removes it if the value is "".
func (c *flowCall) setTag(name, value string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if value = c.sh.cfg.Redact(value); value == "" {
		delete(c.tags, name)
		c.said = true
		return nil
	}
	if _, known := c.tags[name]; !known && len(c.tags) >= maxTags {
		return fmt.Errorf("the run has %d tags already, the most that it can have", maxTags)
	}
	if c.tags == nil {
		c.tags = map[string]string{}
	}
	c.tags[name], c.said = value, true
	return nil
}

// description returns the status and the tags that the function has set. ok is false if it has
// set none since the last call.
func (c *flowCall) description() (status, tags string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ok, c.said = c.said, false
	if !ok {
		return "", "", false
	}
	return c.status, encodeTags(c.tags), true
}

// encodeTags returns the tags as they are stored.
func encodeTags(tags map[string]string) string {
	if tags == nil {
		return ""
	}
	text, _ := json.Marshal(tags) // can't fail: strings
	return string(text)
}

// decodeTags returns stored tags; nil if there are none.
func decodeTags(text string) map[string]string {
	if text == "" {
		return nil
	}
	var tags map[string]string
	_ = json.Unmarshal([]byte(text), &tags) // encodeTags wrote it
	return tags
}

// main calls the function, and reports the end of the call to the owner. It is the first function
// of its goroutine: see callerOf.
func (c *flowCall) main() {
	defer c.sh.attempts.Done()
	end := flowEnd{result: &machine.Result{Failed: true, Error: "the function ended its goroutine (runtime.Goexit)"}}
	var f *Flow
	defer func() { // also when the goroutine ends by runtime.Goexit
		_, failure := c.branches.Load().failure()
		switch {
		case c.exiting.Load():
			end = c.stopEnd()
		case failure != "" && c.undoing.Load() && c.branches.Load().hasQuit():
			// Operations of other branches must end before they are undone.
			end = flowEnd{result: &machine.Result{Release: true, Error: errUndoing.Error()}}
		default:
			if failure != "" {
				end = flowEnd{result: &machine.Result{Failed: true, Error: c.sh.errorText(failure)}}
			}
			if f != nil && (c.toUndo.Load() || c.needsUndo(f, &end)) {
				c.toUndo.Store(true)
				c.sh.attempts.Add(1)
				go c.undoMain(f, end)
				return
			}
		}
		if c.ended.CompareAndSwap(false, true) {
			if !end.quiet {
				c.report(end)
			}
		} else if !c.forsaken.Load() {
			c.sh.dispatcher.handlerReturned(c.stuckHandler())
		}
	}()
	growStack()
	input, err := c.completeInput()
	if err != nil {
		c.exitIfStopped()
		end.result = &machine.Result{Failed: true, Outcome: retry.OutcomeOf(err), Error: c.sh.errorText(err.Error())}
		return
	}
	f = c.newFlow()
	end = c.result(f, func() ([]byte, error) { return c.sh.handlers.callable(c.workflow, c.handler)(f, input) })
}

// completeInput returns the input for the function: a GaveUp that is stored by reference is
// completed from the dead run.
func (c *flowCall) completeInput() (json.RawMessage, error) {
	if !isReference(c.input) {
		return c.input, nil
	}
	ctx, cancel := c.context()
	defer cancel()
	return c.sh.completeInput(ctx, c.input)
}

// context returns a context that ends when the owner stops the call. The caller must call cancel.
func (c *flowCall) context() (ctx context.Context, cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(context.Background())
	go func() {
		select {
		case <-c.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// growStack makes the stack of the goroutine larger. A handler or function decodes JSON, which needs
// more than a stack has at first: to copy it then, with many frames on it, takes longer.
//
//go:noinline
func growStack() {
	var space [4 << 10]byte
	runtime.KeepAlive(&space)
}

// newFlow returns the Flow of the call, with the stored results.
func (c *flowCall) newFlow() *Flow {
	var both struct { // one allocation
		Flow
		state flowState
	}
	f := &both.Flow
	f.call, f.flowState, f.routine = c, &both.state, goroutine.ID()
	both.state.pending, both.state.count, both.state.former = c.pending, c.count, c.former
	f.ended.stored.Init(c.results, c.count)
	f.asked.results = &f.ended
	f.known = c.count
	return f
}

// flowEnd says how a call of a function ended.
type flowEnd struct {
	result   *machine.Result
	mismatch string          // not "": the run waits for other code
	again    json.RawMessage // not nil: the run ends, and another one continues with this input
	keepDone bool            // the operations of the run are not undone any more
	undoable string          // of a run that another one continues: names of the operations that can be undone
	quiet    bool            // the owner has recorded the end already
	isError  bool            // the function has returned an error
	undone   *undone         // not nil: operations were undone
}

// result calls the function and returns how the call ended.
func (c *flowCall) result(f *Flow, call func() ([]byte, error)) (end flowEnd) {
	defer func() {
		if p := recover(); p != nil {
			end = flowEnd{result: &machine.Result{Failed: true, Error: c.sh.errorText(fmt.Sprintf("panic: %v\n%s", p, stack()))}}
		}
	}()
	out, err := call()
	if wrong := c.firstWrong(); wrong != nil {
		return flowEnd{mismatch: wrong.Error()}
	}
	if why := f.mismatch(""); why != nil && (err == nil || !f.hasFailedAdded()) {
		if err != nil {
			why = fmt.Errorf("%w; the function returned the error: %w", why, err)
		}
		return flowEnd{mismatch: why.Error()}
	}
	if next, ok := errors.AsType[*again](err); ok {
		var input json.RawMessage
		if input, err = c.workflow.inputOfNext(next.input, c.sh.cfg.MaxPayload); err == nil {
			return flowEnd{again: input, keepDone: next.keepDone, undoable: f.undoable()}
		}
	}
	if err == nil && len(out) > c.sh.cfg.MaxPayload {
		err = fmt.Errorf("output of the function: %d bytes, at most %d can be stored; store it elsewhere and return a reference", len(out), c.sh.cfg.MaxPayload)
	}
	if err != nil {
		redo := f.failures(err)
		return flowEnd{isError: true, result: &machine.Result{
			Failed: true, Outcome: retry.Outcome{Class: retry.ClassPermanent}, Error: c.sh.errorText(err.Error()), Redo: machine.EncodeRedo(redo), Reason: f.reasonOf(redo), Code: codeOf(err),
		}}
	}
	return flowEnd{result: &machine.Result{Output: out}}
}

// inputOfNext prepares and checks the input of a run that continues another one, like the input of
// a start. most is the largest size in bytes.
func (w *Workflow) inputOfNext(given json.RawMessage, most int) (json.RawMessage, error) {
	input, err := w.inputOf(given)
	if err == nil && len(input) > most {
		err = inputTooLarge(len(input), most)
	}
	if err != nil {
		return nil, fmt.Errorf("again: %w", err)
	}
	return input, nil
}

// failures returns the numbers of the failed operations that made the function return the error:
// a retry of the run executes them again. If the error wraps no failure of an operation, these are
// the failures of the operation that the function called last.
func (f *Flow) failures(err error) (numbers []int) {
	failed := map[string]bool{}
	addFailed(failed, err)
	for _, res := range f.ended.all {
		name := label(res.Name)
		of, _ := cutIndex(name)
		if res.Reason != 0 && (failed[name] || len(failed) == 0 && of == label(f.last)) {
			numbers = append(numbers, res.Number)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// reasonOf returns why the first of these failed operations gave up, if its policy or the engine
// decided that; 0 if the reason is another one.
func (f *Flow) reasonOf(failed []int) retry.Reason {
	if len(failed) == 0 {
		return 0
	}
	for _, res := range f.ended.all {
		if res.Number != failed[0] {
			continue
		}
		switch kind, _ := splitIdentity(res.Name); {
		case kind == machine.ChildKind: // its reasons are those of another run
		case slices.Contains([]retry.Reason{retry.StopAttempts, retry.StopTotalTimeout, retry.StopServerWait, retry.StopStuck, retry.StopLost, retry.StopWindows}, res.Reason):
			return res.Reason
		}
	}
	return 0
}

// addFailed adds the names of all failed operations whose errors err wraps.
func addFailed(names map[string]bool, err error) {
	switch e := err.(type) { //nolint:errorlint // it follows the tree of errors itself
	case *OpError:
		names[e.Name] = true
	case interface{ Unwrap() error }:
		addFailed(names, e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			addFailed(names, err)
		}
	}
}

// stopEnd returns the end of a call that ended at an operation.
func (c *flowCall) stopEnd() flowEnd {
	select {
	case <-c.stopped:
	default:
		if wrong := c.firstWrong(); wrong != nil { // no operation begins after it
			return flowEnd{mismatch: wrong.Error()}
		}
		return flowEnd{result: &machine.Result{Release: true, Error: "an operation ended the goroutine of the function (runtime.Goexit)"}}
	}
	switch {
	case errors.Is(c.cause, errSuspended):
		return flowEnd{quiet: true}
	case errors.Is(c.cause, errRunOver):
		return flowEnd{result: &machine.Result{Failed: true, Error: c.cause.Error()}}
	}
	return flowEnd{result: &machine.Result{Release: true, Error: c.cause.Error()}}
}

// errSuspended stops a call whose function waits for operations with long waits.
var errSuspended = errors.New("the function is suspended")

// report sends the end of the call to the owner. The caller must have set ended.
func (c *flowCall) report(end flowEnd) {
	c.end, c.request.call = end, c
	c.sh.post(&c.request)
}

// stuckHandler identifies the call in the list of stuck handlers.
func (c *flowCall) stuckHandler() stuckHandler {
	return stuckHandler{attemptKey{c.run, 0}, c.number}
}

// stop makes the goroutine end when it calls the next operation, or at once if it waits for one.
// If the run is over, a function that does neither has the grace time.
func (c *flowCall) stop(cause error) {
	c.once.Do(func() {
		c.cause = cause
		close(c.stopped)
	})
	if !errors.Is(cause, errRunOver) {
		return // the function has no context that tells it to end
	}
	c.grace.Do(func() {
		time.AfterFunc(c.sh.cfg.Grace, func() {
			inAttempt := c.inAttempt.Load() // which reports itself that it is stuck
			c.forsaken.Store(inAttempt)
			if !c.ended.CompareAndSwap(false, true) {
				return
			}
			if inAttempt {
				c.report(c.stopEnd())
				return
			}
			c.sh.dispatcher.stuckNow.Add(1)
			c.report(flowEnd{result: &machine.Result{
				Failed: true, Outcome: retry.Outcome{Class: retry.ClassStuck},
				Error: fmt.Sprintf("the function has not called an operation or returned for %v after its call was stopped: %v", c.sh.cfg.Grace, cause),
			}})
		})
	})
}

// exit ends the goroutine. Deferred calls of the function run.
func (c *flowCall) exit() {
	c.exiting.Store(true)
	c.branches.Load().stop()
	runtime.Goexit()
}

// await waits for the operations of a group, and makes the attempts of an inline one. It ends the
// goroutine if the owner stops the call.
func (c *flowCall) await(g *opGroup) {
	for {
		select {
		case a, more := <-g.attempts:
			if !more {
				return
			}
			c.runAttempt(a)
			c.exitIfStopped()
		case <-c.stopped:
			select {
			case a := <-g.attempts: // it was begun before the call was stopped
				if a != nil {
					c.runAttempt(a)
				}
			default:
			}
			c.exit()
		}
	}
}

// runAttempt makes an attempt of an operation in the goroutine of the function.
func (c *flowCall) runAttempt(a *attempt) {
	c.inAttempt.Store(true)
	defer c.inAttempt.Store(false)
	a.run()
}

// exitIfStopped ends the goroutine if the owner has stopped the call.
func (c *flowCall) exitIfStopped() {
	select {
	case <-c.stopped:
		c.exit()
	default:
	}
}

// send sends a request to the owner, without waiting for an answer. The owner handles the
// requests of a call in their order.
func (c *flowCall) send(do func(*turn) error) { c.post(&request{do: do}) }

// post is send for a request.
func (c *flowCall) post(r *request) {
	select {
	case c.sh.others <- r:
		return
	default:
	}
	select {
	case c.sh.others <- r:
	case <-c.stopped:
		c.exit()
	case <-c.sh.done:
		c.once.Do(func() { c.cause = ErrClosed; close(c.stopped) })
		c.exit()
	}
}

// firstWrong returns the first wrong use of the flow.
func (c *flowCall) firstWrong() error {
	if !c.isWrong.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrong
}

// misuse notes a wrong use of the flow by an operation, and returns it as an error.
func (f *Flow) misuse(identity string, err error) error {
	return f.call.noteWrong(fmt.Errorf("operation %s: %w", label(identity), err))
}

// noteWrong notes a wrong use of the flow, and returns it.
func (c *flowCall) noteWrong(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = cmp.Or(c.wrong, err)
	c.isWrong.Store(true)
	return err
}

// checkCount returns an error if the run would have too many operations after n more.
func (f *Flow) checkCount(identity string, n int) error {
	if f.count+n <= machine.MaxOps {
		return nil
	}
	return &OpError{
		Name: label(identity), Code: "too-many-operations",
		Text: fmt.Sprintf("a run can have at most %d operations; begin another run by engine.Again", machine.MaxOps),
	}
}

// caller says which goroutine calls an operation.
type caller int

const (
	inFunction caller = iota
	inOperation
	inOtherBranch
	elsewhere
)

// caller returns which goroutine calls an operation of the flow.
func (f *Flow) caller() caller {
	if f.routine != 0 && f.routine == goroutine.ID() {
		if f.call.inAttempt.Load() {
			return inOperation
		}
		return inFunction
	}
	who := callerOf()
	switch sched := f.call.branches.Load(); {
	case who == inFunction && sched.runsOther(f):
		return inOtherBranch
	case who == inFunction && f.routine != 0:
		return elsewhere // the function of another run
	}
	return who
}

// callerOf returns whether an attempt, or else a flow's function or branch, calls it, by the functions
// on the stack of the goroutine.
func callerOf() caller {
	pcs := make([]uintptr, 64)
	n := runtime.Callers(2, pcs)
	for n == len(pcs) {
		pcs = make([]uintptr, 4*len(pcs))
		n = runtime.Callers(2, pcs)
	}
	for _, pc := range pcs[:n] { // an attempt comes before the function in whose goroutine it is made
		switch runtime.FuncForPC(pc - 1).Entry() {
		case functionEntry, branchEntry:
			return inFunction
		case attemptEntry:
			return inOperation
		}
	}
	return elsewhere
}

// The entries of the methods that call functions, branches and handlers.
var (
	functionEntry = reflect.ValueOf((*flowCall).main).Pointer()
	branchEntry   = reflect.ValueOf((*branch).main).Pointer()
	attemptEntry  = reflect.ValueOf((*attempt).run).Pointer()
)
