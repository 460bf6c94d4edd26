package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

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
	number   int // number of the call: the attempt of step 0
	version  string
	input    json.RawMessage
	results  []byte         // encoded results of the operations that have ended
	pending  map[string]int // operations that have not ended
	count    int            // number of operations that were called
	size     atomic.Int64   // bytes of the results
	suspect  *attempt       // stands for the call in the quarantine; nil if the function is not a suspect

	busy    atomic.Bool // an operation is being called
	exiting atomic.Bool // the goroutine is ending, because the owner has stopped it
	ended   atomic.Bool // the end of the call was sent to the owner
	stopped chan struct{}
	once    sync.Once
	cause   error // why the owner has stopped the call; valid after stopped is closed

	mu     sync.Mutex
	wrong  error             // first wrong use of the flow
	said   bool              // the function has set a status or a tag that is not recorded
	status string            // the status of the run
	tags   map[string]string // the tags of the run; nil if there are none

	// The owner's goroutine uses the following fields.

	group *opGroup          // operations that the function waits for; nil for none
	ops   map[int]groupItem // operations of the group that have not ended, by number
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
func decodeTags(text string) (tags map[string]string) {
	if text != "" {
		_ = json.Unmarshal([]byte(text), &tags) // encodeTags wrote it
	}
	return tags
}

// groupItem is one operation of a group.
type groupItem struct {
	*opGroup
	index int
}

// opGroup is a set of operations that the function waits for: one operation of Do or Sleep, or
// all of a Map.
type opGroup struct {
	name     string              // identity of the operation or of the map
	def      *machine.Definition // policy and limits; nil for a sleep
	sleep    time.Duration
	n        int // number of operations
	parallel int
	isMap    bool
	all      bool // continue after a failure
	do       func(ctx context.Context, i int) ([]byte, error)
	results  []machine.OpResult // of the operations that have ended; the others have no Name
	one      [1]machine.OpResult
	numbers  map[int]int   // numbers of the operations that were called before, by index; nil for none
	over     chan struct{} // closed when no operation runs and none is to begin
	once     sync.Once

	// The owner's goroutine uses the following fields.

	next    int // index of the next operation to begin
	running int // operations that have begun and have not ended
	failed  bool
}

// identity returns the identity of an operation of the group.
func (g *opGroup) identity(i int) string {
	if !g.isMap {
		return g.name
	}
	return "item:" + label(g.name) + "#" + strconv.Itoa(i)
}

// end wakes the function. Only the first call has an effect.
func (g *opGroup) end() { g.once.Do(func() { close(g.over) }) }

// endWith is end for a group of one operation, with its result.
func (g *opGroup) endWith(res machine.OpResult) {
	g.once.Do(func() {
		g.results[0] = res
		close(g.over)
	})
}

// main calls the function, and reports the end of the call to the owner. It is the first function
// of its goroutine: see callerOf.
func (c *flowCall) main() {
	defer c.sh.attempts.Done()
	end := flowEnd{result: &machine.Result{Failed: true, Error: "the function ended its goroutine (runtime.Goexit)"}}
	defer func() { // also when the goroutine ends by runtime.Goexit
		if c.exiting.Load() {
			end = c.stopEnd()
		}
		switch {
		case !c.ended.CompareAndSwap(false, true):
			c.sh.dispatcher.handlerReturned(c.stuckHandler())
		case !end.quiet:
			c.report(end)
		}
	}()
	growStack()
	input, err := c.completeInput()
	if err != nil {
		c.exitIfStopped()
		end.result = &machine.Result{Failed: true, Outcome: retry.OutcomeOf(err), Error: c.sh.errorText(err.Error())}
		return
	}
	f := c.newFlow()
	end = c.result(f, func() ([]byte, error) { return c.workflow.function(f, input) })
}

// completeInput returns the input for the function: a GaveUp that is stored by reference is
// completed from the dead run.
func (c *flowCall) completeInput() (json.RawMessage, error) {
	if !isReference(c.input) {
		return c.input, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-c.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	return c.sh.completeInput(ctx, c.input)
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
	f := &Flow{call: c, asked: map[string]bool{}, ended: map[string]*machine.OpResult{}, pending: c.pending, count: c.count}
	for res := range machine.ReadResults(c.results) {
		f.ended[res.Name] = &res
	}
	return f
}

// flowEnd says how a call of a function ended.
type flowEnd struct {
	result   *machine.Result
	mismatch string          // not "": the run waits for other code
	again    json.RawMessage // not nil: the run ends, and another one continues with this input
	quiet    bool            // the owner has recorded the end already
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
	if name := f.unasked(); name != "" {
		why := fmt.Sprintf("the run has a stored operation %q that the function did not call: deploy code that calls it, or that says engine.Renamed or engine.Removed", name)
		if err != nil {
			why += fmt.Sprintf("; the function returned the error: %v", err)
		}
		return flowEnd{mismatch: why}
	}
	if next, ok := errors.AsType[*again](err); ok {
		var input json.RawMessage
		if input, err = c.workflow.inputOfNext(next.input, c.sh.cfg.MaxPayload); err == nil {
			return flowEnd{again: input}
		}
	}
	if err == nil && len(out) > c.sh.cfg.MaxPayload {
		err = fmt.Errorf("output of the function: %d bytes, at most %d can be stored; store it elsewhere and return a reference", len(out), c.sh.cfg.MaxPayload)
	}
	if err != nil {
		return flowEnd{result: &machine.Result{
			Failed: true, Outcome: retry.Outcome{Class: retry.ClassPermanent}, Error: c.sh.errorText(err.Error()), Redo: machine.EncodeRedo(f.failures(err)),
		}}
	}
	return flowEnd{result: &machine.Result{Output: out}}
}

// inputOfNext prepares and checks the input of a run that continues another one, like the input of
// a start. most is the largest size in bytes.
func (w *Workflow) inputOfNext(given json.RawMessage, most int) (json.RawMessage, error) {
	input, err := w.prepared(given, time.Time{})
	if err == nil && len(input) > most {
		err = fmt.Errorf("input: %w: %d bytes, at most %d", ErrTooLarge, len(input), most)
	}
	if err == nil {
		err = w.accepts(nil, input)
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
	if m, ok := errors.AsType[*MapError](err); ok {
		for _, e := range m.Errors {
			failed[e.Name] = true
		}
	} else if e, ok := errors.AsType[*OpError](err); ok {
		failed[e.Name] = true
	}
	for _, res := range f.ended {
		name := label(res.Name)
		of, _ := cutIndex(name)
		if res.Reason != 0 && (failed[name] || len(failed) == 0 && of == label(f.last)) {
			numbers = append(numbers, res.Number)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// unasked returns the label of a stored operation that the function did not call; "" if there is
// none.
func (f *Flow) unasked() string {
	removed := func(name string) bool { return slices.Contains(f.removed, name) }
	var names []string
	missing := func(identity string) {
		kind, name := splitIdentity(identity)
		if kind == "item" {
			mapped, _ := cutIndex(name)
			if f.asked["map:"+mapped] || removed(mapped) {
				return
			}
		}
		if !f.asked[identity] && !removed(name) {
			names = append(names, name)
		}
	}
	for identity := range f.ended {
		missing(identity)
	}
	for identity := range f.pending {
		missing(identity)
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}

// renameStored gives stored operations the new name.
func (f *Flow) renameStored(before, now string) {
	renamed := func(identity string) (string, bool) {
		kind, name := splitIdentity(identity)
		if kind == "item" {
			mapped, index := cutIndex(name)
			return kind + ":" + now + "#" + index, mapped == before
		}
		return kind + ":" + now, name == before
	}
	for identity, res := range f.ended {
		if name, ok := renamed(identity); ok {
			delete(f.ended, identity)
			res.Name = name
			f.ended[name] = res
		}
	}
	for identity, n := range f.pending {
		if name, ok := renamed(identity); ok {
			delete(f.pending, identity)
			f.pending[name] = n
		}
	}
}

// stopEnd returns the end of a call that ended at an operation.
func (c *flowCall) stopEnd() flowEnd {
	select {
	case <-c.stopped:
	default: // no operation begins after a wrong use of the flow
		return flowEnd{mismatch: c.firstWrong().Error()}
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
	select {
	case c.sh.others <- &request{do: func(t *turn) error { t.o.sh.dispatcher.endCall(c, end); return nil }}:
	case <-c.sh.done:
	}
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
		if !errors.Is(cause, errRunOver) {
			return // the function has no context that tells it to end
		}
		time.AfterFunc(c.sh.cfg.Grace, func() {
			if !c.ended.CompareAndSwap(false, true) {
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
	runtime.Goexit()
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
func (c *flowCall) send(do func(*turn) error) {
	select {
	case c.sh.others <- &request{do: do}:
	case <-c.stopped:
		c.exit()
	case <-c.sh.done:
		c.once.Do(func() { c.cause = ErrClosed; close(c.stopped) })
		c.exit()
	}
}

// firstWrong returns the first wrong use of the flow.
func (c *flowCall) firstWrong() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrong
}

// misuse notes a wrong use of the flow, and returns it as an error.
func (f *Flow) misuse(identity string, err error) error {
	err = fmt.Errorf("operation %s: %w", label(identity), err)
	f.call.mu.Lock()
	defer f.call.mu.Unlock()
	f.call.wrong = cmp.Or(f.call.wrong, err)
	return err
}

// operation is an operation that the function calls.
type operation struct {
	identity string
	def      *machine.Definition // nil if it has no attempts
	parallel int
}

// operation checks the call of an operation: its name and options, and that the flow is used as
// it must be. After success the caller must clear flowCall.busy.
func (f *Flow) operation(kind, name string, opts []StepOption) (o operation, err error) {
	c := f.call
	o.identity = kind + ":" + name
	if c.exiting.Load() || c.ended.Load() {
		return o, fmt.Errorf("operation %s: %w", name, ErrFlowOver)
	}
	switch callerOf() {
	case inOperation:
		return o, f.misuse(o.identity, ErrFlowInOperation)
	case elsewhere:
		return o, f.misuse(o.identity, ErrSecondGoroutine)
	}
	if !c.busy.CompareAndSwap(false, true) {
		return o, f.misuse(o.identity, ErrSecondGoroutine)
	}
	c.exitIfStopped()
	if c.firstWrong() != nil {
		c.exit()
	}
	s, err := c.workflow.operation(kind, name, opts)
	if err == nil && s.key != "" {
		o.identity += "[" + s.key + "]"
	}
	if err == nil && f.asked[o.identity] {
		err = ErrSameOperation
	}
	if err == nil {
		err = f.checkKind(o.identity)
	}
	if err != nil {
		c.busy.Store(false)
		return o, f.misuse(o.identity, err)
	}
	f.asked[o.identity], f.last = true, o.identity
	o.def, o.parallel = s.def, cmp.Or(s.parallel, defaultParallel)
	return o, nil
}

// opKinds has the kinds of operations that a function can call.
var opKinds = [...]string{"do", "map", "sleep", "now", "random"}

// checkKind returns an error if the run has a stored operation of another kind in the place of this
// one.
func (f *Flow) checkKind(identity string) error {
	stored := func(identity string) bool {
		_, ended := f.ended[identity]
		_, pending := f.pending[identity]
		return ended || pending
	}
	if len(f.ended)+len(f.pending) == 0 || stored(identity) {
		return nil
	}
	name := label(identity)
	for _, kind := range opKinds {
		if other := kind + ":" + name; stored(other) && !f.asked[other] && !slices.Contains(f.removed, name) {
			now, _ := splitIdentity(identity)
			return fmt.Errorf("is of kind %s, but the stored operation is of kind %s: use another name, and engine.Removed for the stored one", now, kind)
		}
	}
	return nil
}

// perform executes the operations of a group that have no stored result, and waits for them.
func (f *Flow) perform(g *opGroup) error {
	c := f.call
	g.over = make(chan struct{})
	if g.results = g.one[:]; g.n != 1 {
		g.results = make([]machine.OpResult, g.n)
	}
	fresh := 0
	for i := range g.n {
		identity := g.identity(i)
		if res, ok := f.ended[identity]; ok {
			g.results[i] = *res
			g.failed = g.failed || res.Reason != 0
			continue
		}
		if number, ok := f.pending[identity]; ok {
			if g.numbers == nil {
				g.numbers = map[int]int{}
			}
			g.numbers[i] = number
		} else {
			fresh++
		}
	}
	if len(g.numbers) == 0 && (fresh == 0 || g.failed && !g.all) {
		return nil
	}
	if err := f.countOps(g.name, fresh); err != nil {
		return err
	}
	c.send(func(t *turn) error { t.o.sh.dispatcher.startGroup(c, g); return nil })
	select {
	case <-g.over:
	case <-c.stopped:
		c.exit()
	}
	for i := range g.results {
		if name := g.results[i].Name; name != "" {
			f.ended[name] = &g.results[i]
		} else {
			f.count-- // it was not called, because another one failed
		}
	}
	return nil
}

// countOps counts operations that the function is about to call. If the run would have too many,
// it counts none of them, and returns an error with the name of the operation.
func (f *Flow) countOps(identity string, n int) error {
	if f.count+n > machine.MaxOps {
		return &OpError{
			Name: label(identity), Code: "too-many-operations",
			Text: fmt.Sprintf("a run can have at most %d operations; begin another run by engine.Again", machine.MaxOps),
		}
	}
	f.count += n
	return nil
}

// record stores an operation that ends with its call.
func (f *Flow) record(identity string, data []byte) error {
	c := f.call
	if err := f.countOps(identity, 1); err != nil {
		return err
	}
	f.ended[identity] = &machine.OpResult{Name: identity, Data: data}
	c.send(func(t *turn) error {
		t.o.sh.dispatcher.recordOp(c, &machine.OpCall{Name: identity, Data: data})
		return nil
	})
	return nil
}

// itemHash is the number of bytes of the hash of an item.
const itemHash = 8

// checkItems compares the items of a Map with those that are stored, or stores the hashes of the
// items.
func (f *Flow) checkItems(identity string, items [][]byte) error {
	hashes := make([]byte, 0, itemHash*len(items))
	for _, item := range items {
		h := fnv.New64a()
		_, _ = h.Write(item) // never fails
		hashes = h.Sum(hashes)
	}
	text, err := json.Marshal(hashes)
	if err != nil {
		return err
	}
	stored, ok := f.ended[identity]
	if !ok {
		return f.record(identity, text)
	}
	var before []byte
	if err := json.Unmarshal(stored.Data, &before); err != nil {
		return f.misuse(identity, fmt.Errorf("its stored items can't be read: %w", err))
	}
	if len(before) != len(hashes) {
		return f.misuse(identity, fmt.Errorf("has %d items, but the stored operation has %d: the items must follow from the input and from results of operations", len(items), len(before)/itemHash))
	}
	for i := range items {
		if !slices.Equal(before[itemHash*i:itemHash*(i+1)], hashes[itemHash*i:itemHash*(i+1)]) {
			return f.misuse(identity, fmt.Errorf("item %d is not the same as in the stored operation: the items must follow from the input and from results of operations", i))
		}
	}
	return nil
}

// opSpec is an operation as its options describe it.
type opSpec struct {
	def      *machine.Definition
	key      string
	parallel int
}

// opKey identifies the definition of an operation in the cache of a workflow.
type opKey struct {
	name      string
	policy    string
	heartbeat time.Duration
	maxLost   int
	windows   int
}

// maxCachedOps limits the cache of a workflow. A function that makes names up has no use of it.
const maxCachedOps = 1000

// operation returns an operation with these options. The definitions of operations are cached.
func (w *Workflow) operation(kind, name string, opts []StepOption) (s opSpec, err error) {
	hasAttempts := kind == "do" || kind == "map"
	if len(opts) == 0 && len(w.opDefaults) == 0 && hasAttempts {
		if s.def = w.cachedOp(opKey{name: name, policy: DefaultPolicy, maxLost: DefaultMaxLost}); s.def != nil {
			return s, nil
		}
	}
	b := stepBuilder{Step: machine.Step{Name: name, MaxLost: DefaultMaxLost}, text: DefaultPolicy}
	for _, list := range [...][]StepOption{w.opDefaults, opts} {
		for _, opt := range list {
			opt(&b)
		}
	}
	switch {
	case len(b.Needs) > 0:
		err = errors.New("after: an operation begins when the function calls it")
	case b.concurrency != 0:
		err = errors.New("concurrency: an operation can't have this limit; use MaxRuns or Config.Concurrency")
	case b.version != "":
		err = errors.New("version: use the option of the function")
	case b.parallel != 0 && kind != "map":
		err = errors.New("parallel: only Map and Collect have this option")
	}
	if err := errors.Join(append(b.errs, err)...); err != nil {
		return s, err
	}
	s.key, s.parallel = b.key, b.parallel
	if !hasAttempts {
		return s, checkName(name)
	}
	key := opKey{name, b.text, b.Heartbeat, b.MaxLost, b.Windows}
	if b.text != "" {
		if s.def = w.cachedOp(key); s.def != nil {
			return s, nil
		}
		if b.Policy, err = retry.Parse(b.text); err != nil {
			return s, fmt.Errorf("policy: %w", err)
		}
	}
	b.Handler = "operation"
	s.def = &machine.Definition{Name: w.def.Name, Op: true, Steps: []machine.Step{b.Step}}
	if err := errors.Join(checkName(name), s.def.Prepare()); err != nil {
		return s, err
	}
	if b.text != "" {
		w.cacheOp(key, s.def)
	}
	return s, nil
}

// cachedOp returns a cached definition of an operation; nil if there is none.
func (w *Workflow) cachedOp(key opKey) *machine.Definition {
	w.opsMu.RLock()
	defer w.opsMu.RUnlock()
	return w.ops[key]
}

// cacheOp caches the definition of an operation, if there is room.
func (w *Workflow) cacheOp(key opKey, def *machine.Definition) {
	w.opsMu.Lock()
	defer w.opsMu.Unlock()
	if w.ops == nil {
		w.ops = map[opKey]*machine.Definition{}
	}
	if len(w.ops) < maxCachedOps {
		w.ops[key] = def
	}
}

// caller says which goroutine calls an operation.
type caller int

const (
	inFunction caller = iota
	inOperation
	elsewhere
)

// callerOf returns whether the current goroutine is that of a flow's function or of an attempt,
// by the function that the goroutine began with.
func callerOf() caller {
	pcs := make([]uintptr, 64)
	n := runtime.Callers(2, pcs)
	for n == len(pcs) {
		pcs = make([]uintptr, 4*len(pcs))
		n = runtime.Callers(2, pcs)
	}
	for _, pc := range slices.Backward(pcs[:n]) { // the last ones are those that the goroutine began with
		switch runtime.FuncForPC(pc - 1).Entry() {
		case functionEntry:
			return inFunction
		case attemptEntry:
			return inOperation
		}
	}
	return elsewhere
}

// The entries of the functions that goroutines of functions and attempts begin with.
var (
	functionEntry = reflect.ValueOf((*flowCall).main).Pointer()
	attemptEntry  = reflect.ValueOf((*attempt).run).Pointer()
)
