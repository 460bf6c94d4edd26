package engine

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/tideover/tideover/engine/internal/goroutine"
)

// FlowBranch is a part of the function of a flow that runs beside others: see [Branch] and
// [Branches].
type FlowBranch struct {
	name  string
	do    func(*Flow) error
	needs []string
	err   error // what is wrong with the options
}

// Branch returns a branch for [Branches]. Its name is that in errors and in [After], the only
// option: the branch begins when the branches that After names have succeeded. The function do
// must use the Flow that it gets, and no other.
func Branch(name string, do func(*Flow) error, opts ...StepOption) FlowBranch {
	var s stepBuilder
	for _, opt := range opts {
		opt(&s)
	}
	b := FlowBranch{name: name, do: do, needs: s.Needs}
	switch {
	case do == nil:
		b.err = errors.New("no function")
	case len(s.errs) > 0:
		b.err = errors.Join(s.errs...)
	case !s.onlyNeeds():
		b.err = errors.New("only After is an option of a branch")
	}
	if err := checkName(name); err != nil {
		b.err = err
	}
	return b
}

// onlyNeeds reports whether no other option than After is set.
func (s stepBuilder) onlyNeeds() bool {
	s.Needs, s.errs = nil, nil
	return reflect.ValueOf(s).IsZero()
}

// maxBranches limits the branches of one [Branches].
const maxBranches = 1000

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
	if err := f.enter(); err != nil {
		if errors.Is(err, ErrFlowOver) {
			return fmt.Errorf("branches: %w", err)
		}
		return f.call.noteWrong(fmt.Errorf("branches: %w", err))
	}
	defer f.busy.Store(false)
	set, err := newBranchSet(f, branches)
	if err != nil {
		return f.call.noteWrong(fmt.Errorf("branches: %w", err))
	}
	if len(branches) == 0 {
		return nil
	}
	return set.run()
}

// branch is a branch that is being executed.
type branch struct {
	FlowBranch
	set     *branchSet
	flow    Flow
	started bool // its goroutine has begun
	waitsOn int  // number of branches that must succeed before it begins
	end     branchEnd
	result  error // what it has returned
}

// branchEnd says how a branch has ended.
type branchEnd int

const (
	notEnded   branchEnd = iota
	succeeded            // it has returned nil
	failed               // it has returned an error
	cut                  // it ended at an operation that must not begin any more
	broken               // the call of the function is over
	returnedOK           // it has returned; its error is not looked at yet
)

// branchSet is a call of Branches. Its fields are used by the goroutine that may run: see
// branchScheduler.
type branchSet struct {
	parent   *Flow // that called Branches
	branches []branch
	open     int  // branches that have begun and have not ended
	failed   bool // a branch has returned an error
}

// newBranchSet checks the branches.
func newBranchSet(f *Flow, branches []FlowBranch) (*branchSet, error) {
	if n := len(branches); n > maxBranches {
		return nil, fmt.Errorf("%d branches, at most %d are possible", n, maxBranches)
	}
	set := &branchSet{parent: f, branches: make([]branch, len(branches))}
	index := make(map[string]int, len(branches))
	for i, b := range branches {
		if b.err != nil {
			return nil, fmt.Errorf("branch %s: %w", b.name, b.err)
		}
		if _, known := index[b.name]; known {
			return nil, fmt.Errorf("branch %s: another branch has this name", b.name)
		}
		index[b.name] = i
		b.needs = slices.Compact(slices.Sorted(slices.Values(b.needs)))
		set.branches[i] = branch{FlowBranch: b, set: set, waitsOn: len(b.needs)}
	}
	for _, b := range branches {
		for _, need := range b.needs {
			if _, known := index[need]; !known {
				return nil, fmt.Errorf("branch %s: after: there is no branch %q", b.name, need)
			}
		}
	}
	if path := set.cycle(index); path != nil {
		return nil, fmt.Errorf("branch %s: after: the branch waits for itself: %s", path[0], strings.Join(path, " after "))
	}
	return set, nil
}

// cycle returns the names of branches that wait for each other, from a branch to itself; nil if
// there are none.
func (s *branchSet) cycle(index map[string]int) []string {
	const onPath, done = 1, 2
	state := make([]int, len(s.branches))
	var path []string
	var visit func(i int) bool
	visit = func(i int) bool {
		b := &s.branches[i]
		path = append(path, b.name)
		switch state[i] {
		case onPath:
			path = path[slices.Index(path, b.name):]
			return true
		case done:
			path = path[:len(path)-1]
			return false
		}
		state[i] = onPath
		for _, need := range b.needs {
			if visit(index[need]) {
				return true
			}
		}
		state[i] = done
		path = path[:len(path)-1]
		return false
	}
	for i := range s.branches {
		if visit(i) {
			return path
		}
	}
	return nil
}

// run executes the branches, and returns when all have ended.
func (s *branchSet) run() error {
	f, c := s.parent, s.parent.call
	sched := c.branches.Load()
	if sched == nil {
		sched = &branchScheduler{running: f, quit: make(chan struct{})}
		c.branches.Store(sched)
	}
	f.inner = s
	if f.wake == nil {
		f.wake = make(chan struct{}, 1)
	}
	begun := s.begin(sched, "")
	c.leaves.Add(begun - 1)
	sched.release()
	<-f.wake
	f.inner = nil
	if value, text := sched.failure(); text != "" {
		if value == nil {
			value = text
		}
		panic(value)
	}
	if c.exiting.Load() {
		c.exit()
	}
	if err := s.err(); err != nil {
		return err
	}
	if slices.ContainsFunc(s.branches, func(b branch) bool { return b.end == cut }) {
		f.cutOff()
	}
	return nil
}

// begin makes the branches ready that wait for the branch after, which has succeeded, and for no other
// one. After "" these are the branches without [After]. It returns how many these are.
func (s *branchSet) begin(sched *branchScheduler, after string) (n int32) {
	for i := range s.branches {
		b := &s.branches[i]
		switch {
		case after == "" && b.waitsOn == 0:
		case after != "" && slices.Contains(b.needs, after):
			if b.waitsOn--; b.waitsOn > 0 {
				continue
			}
		default:
			continue
		}
		b.flow.call, b.flow.flowState, b.flow.branch, b.flow.wake = s.parent.call, s.parent.flowState, b, make(chan struct{}, 1)
		s.open++
		sched.enqueue(&b.flow)
		n++
	}
	return n
}

// err returns the errors of the branches; nil if none has failed.
func (s *branchSet) err() error {
	if !s.failed {
		return nil
	}
	e := new(branchesError)
	for i := range s.branches {
		if b := &s.branches[i]; b.end == failed {
			e.errs = append(e.errs, fmt.Errorf("branch %s: %w", b.name, b.result))
		}
	}
	return e
}

// branchesError has the errors of the branches that failed, in the order of the branches. Its text is
// that of the first one. A retry of the run executes the failed operations of all.
type branchesError struct{ errs []error }

func (e *branchesError) Error() string   { return e.errs[0].Error() }
func (e *branchesError) Unwrap() []error { return e.errs }

// halt makes the operations that the branches wait for begin no more items.
func (s *branchSet) halt() {
	for i := range s.branches {
		f := &s.branches[i].flow
		if f.group != nil {
			f.group.halted.Store(true)
		}
		if f.inner != nil {
			f.inner.halt()
		}
	}
}

// main executes the branch. It is the first function of its goroutine: see callerOf.
func (b *branch) main() {
	defer b.ended()
	f := &b.flow
	f.routine = goroutine.ID()
	growStack()
	f.leaveIfQuit()
	f.call.exitIfStopped()
	b.result = b.do(f)
	b.end = returnedOK
}

// ended notes how the branch has ended, and lets the next branches run. It is a deferred call, and
// also called when the branch panics or its goroutine ends.
func (b *branch) ended() {
	f, c := &b.flow, b.flow.call
	sched := c.branches.Load()
	if p := recover(); p != nil {
		sched.fail(c, p, fmt.Sprintf("panic: %v\n%s", p, stack()))
	} else if b.end == notEnded && !c.exiting.Load() {
		sched.fail(c, nil, fmt.Sprintf("branch %s ended its goroutine (runtime.Goexit)", b.name))
	}
	f.over.Store(true)
	s := b.set
	var begun int32
	if b.end == returnedOK {
		switch _, isAgain := errors.AsType[*again](b.result); {
		case isAgain:
			b.result = c.noteWrong(fmt.Errorf("branch %s: %w", b.name, errAgainInBranch))
			fallthrough
		case b.result != nil:
			b.end, s.failed = failed, true
			s.halt()
		default:
			b.end = succeeded
			begun = s.begin(sched, b.name)
		}
	}
	s.open--
	if s.open == 0 {
		begun++
		sched.enqueue(s.parent)
	}
	c.leaves.Add(begun - 1)
	if sched.isIdle() {
		c.checkIdle()
	}
	sched.release()
}

var errAgainInBranch = errors.New("again: only the function itself can begin another run, and not a branch")

// checkIdle makes the owner suspend the call if all operations that it waits for have long waits: a
// branch has ended.
func (c *flowCall) checkIdle() {
	select {
	case c.sh.others <- &request{do: func(t *turn) error {
		d := &t.o.sh.dispatcher
		if run, ok := t.o.m.Run(c.run); ok && d.flows[c.run] == c {
			d.suspendIdle(c, run)
		}
		return nil
	}}:
	case <-c.stopped:
	case <-c.sh.done:
	}
}

// branchScheduler lets one goroutine of a call run at a time. The others wait: for an operation, for
// the end of their branches, or for their turn.
//
// Branches begin no operation while another one can still continue with stored results: it may
// find that it has failed, and then no branch begins an operation. So a function that is called
// again begins none that it has not begun before.
type branchScheduler struct {
	quit chan struct{} // closed when the goroutines of all branches must end

	mu      sync.Mutex
	running *Flow   // nil if all wait
	ready   []*Flow // can continue, the next one first
	gated   []*Flow // can continue when no other one is ready
	closed  bool    // quit is closed
	text    string  // how a branch has ended the function; "" if none has
	value   any     // of its panic
}

// enqueue makes a flow ready.
func (s *branchScheduler) enqueue(f *Flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(s.ready, f)
}

// isIdle reports whether no flow can continue after the one that runs.
func (s *branchScheduler) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ready)+len(s.gated) == 0
}

// release lets the next flow run.
func (s *branchScheduler) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runNext()
}

func (s *branchScheduler) runNext() {
	if len(s.ready) == 0 {
		s.ready, s.gated = s.gated, s.ready
	}
	if len(s.ready) == 0 {
		s.running = nil
		return
	}
	f := s.ready[0]
	s.ready[0] = nil
	s.ready = s.ready[1:]
	s.running = f
	if b := f.branch; b != nil && !b.started {
		b.started = true
		go b.main()
		return
	}
	f.wake <- struct{}{}
}

// acquire waits until the flow may run.
func (s *branchScheduler) acquire(f *Flow) {
	s.mu.Lock()
	if s.running == nil {
		s.running = f
		s.mu.Unlock()
		return
	}
	s.ready = append(s.ready, f)
	s.mu.Unlock()
	<-f.wake
}

// runLast lets all flows run first that are ready, and those that wait in runLast longer.
func (s *branchScheduler) runLast(f *Flow) {
	s.mu.Lock()
	if len(s.ready)+len(s.gated) == 0 {
		s.mu.Unlock()
		return
	}
	s.gated = append(s.gated, f)
	s.runNext()
	s.mu.Unlock()
	<-f.wake
}

// fail notes that a branch has ended the function, and makes the others end. While the run undoes
// its operations, those that have begun are waited for: their undos need that.
func (s *branchScheduler) fail(c *flowCall, value any, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text == "" {
		s.value, s.text = value, text
	}
	if !c.undoing.Load() {
		s.closeQuit()
	}
}

// stop makes the goroutines of all branches end.
func (s *branchScheduler) stop() {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closeQuit()
	}
}

// closeQuit makes the goroutines of all branches end. The caller must have locked mu.
func (s *branchScheduler) closeQuit() {
	if !s.closed {
		s.closed = true
		close(s.quit)
	}
}

// runsOther reports whether the current goroutine, which is that of a function or a branch, is the
// one of the call that runs, with another flow than f.
func (s *branchScheduler) runsOther(f *Flow) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running != nil && s.running != f && s.running.routine == goroutine.ID()
}

// failure returns the panic of a branch that has ended the function, and a text that describes it; "" if
// there is none.
func (s *branchScheduler) failure() (value any, text string) {
	if s == nil {
		return nil, ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.text
}

// hasQuit reports whether the goroutines of all branches had to end. Operations of branches may
// still be running then.
func (s *branchScheduler) hasQuit() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// leaveIfQuit ends the goroutine of a branch if the goroutines of all branches must end.
func (f *Flow) leaveIfQuit() {
	c := f.call
	sched := c.branches.Load()
	if !sched.hasQuit() {
		return
	}
	if _, text := sched.failure(); text == "" {
		c.exit()
	}
	f.leave(broken)
}

// leave ends the goroutine of a branch.
func (f *Flow) leave(how branchEnd) {
	f.branch.end = how
	f.over.Store(true)
	runtime.Goexit()
}

// cutOff ends the branch, or the function, at operations that must not begin any more.
func (f *Flow) cutOff() {
	if f.branch == nil {
		f.call.exitToUndo()
	}
	f.leave(cut)
}

// mayBegin reports whether the flow may begin operations that are neither stored nor pending.
func (f *Flow) mayBegin() bool {
	if f.branch != nil {
		f.call.branches.Load().runLast(f)
		f.leaveIfQuit()
		f.call.exitIfStopped()
	}
	return !f.call.undoing.Load() && !f.isHalted()
}

// isHalted reports whether a branch beside this one, or beside one that it is part of, has failed.
func (f *Flow) isHalted() bool {
	for b := f.branch; b != nil; b = b.set.parent.branch {
		if b.set.failed {
			return true
		}
	}
	return false
}

// await waits for the operations of a group.
func (f *Flow) await(g *opGroup) {
	c := f.call
	if f.branch == nil {
		select {
		case <-g.over:
		case <-c.stopped:
			c.exit()
		}
		return
	}
	sched := c.branches.Load()
	f.group = g
	sched.release()
	isOver := false
	select {
	case <-g.over:
		isOver = true
	case <-c.stopped:
	case <-sched.quit:
	}
	sched.acquire(f)
	f.group = nil
	f.leaveIfQuit()
	if !isOver {
		c.exit()
	}
}
