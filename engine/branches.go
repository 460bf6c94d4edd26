package engine

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine/internal/machine"
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
	waitsOn int   // number of branches that must succeed before it begins
	opens   []int // indexes of the branches that wait for this one
	started bool  // its goroutine has begun
	end     branchEnd
	result  error // what it has returned
}

// branchEnd says how a branch has ended.
type branchEnd int

const (
	notEnded  branchEnd = iota
	returned            // the function of the branch has returned
	succeeded           // it has returned nil
	failed              // it has returned an error
	cut                 // it has ended at an operation that must not begin any more
	broken              // it has ended because the call of the function is over
)

// branchSet is a call of Branches. Its fields are used by the goroutine that may run: see
// branchScheduler.
type branchSet struct {
	parent   *Flow // that called Branches
	branches []branch
	open     int  // branches that have begun and have not ended
	failed   bool // a branch has returned an error
	cut      bool // a branch has ended at an operation that must not begin any more
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
	for i := range set.branches {
		b := &set.branches[i]
		for _, need := range b.needs {
			k, known := index[need]
			if !known {
				return nil, fmt.Errorf("branch %s: after: there is no branch %q", b.name, need)
			}
			set.branches[k].opens = append(set.branches[k].opens, i)
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
	var begun int32
	for i := range s.branches {
		if b := &s.branches[i]; b.waitsOn == 0 {
			b.begin(sched)
			begun++
		}
	}
	c.leaves.Add(begun - 1)
	sched.release()
	<-f.wake
	f.inner = nil
	if value, text := sched.failure(); text != "" {
		f.over.Store(true)
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
	if s.cut {
		f.cutOff()
	}
	return nil
}

// begin makes the branch ready to run.
func (b *branch) begin(sched *branchScheduler) {
	parent := b.set.parent
	b.flow.call, b.flow.flowState, b.flow.branch, b.flow.wake = parent.call, parent.flowState, b, make(chan struct{}, 1)
	b.set.open++
	sched.enqueue(&b.flow)
}

// beginNext makes the branches ready to run that have waited only for this one, and returns how many
// these are.
func (b *branch) beginNext(sched *branchScheduler) (n int32) {
	for _, i := range b.opens {
		next := &b.set.branches[i]
		if next.waitsOn--; next.waitsOn == 0 {
			next.begin(sched)
			n++
		}
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
	f.call.branches.Load().setRoutine(f)
	f.leaveIfQuit()
	f.call.exitIfStopped()
	b.result = b.do(f)
	b.end = returned
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
	if b.end == returned {
		switch _, isAgain := errors.AsType[*again](b.result); {
		case isAgain:
			b.result = c.noteWrong(fmt.Errorf("branch %s: %w", b.name, errAgainInBranch))
			fallthrough
		case b.result != nil:
			b.end, s.failed = failed, true
			s.halt()
		default:
			b.end = succeeded
			begun = b.beginNext(sched)
		}
	}
	s.cut = s.cut || b.end == cut
	if s.open--; s.open == 0 {
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
		if run, ok := t.o.m.Run(c.run); ok && d.flows[c.run] == c && run.Outcome == machine.Undecided && !c.stopping {
			d.suspendIdle(c, run)
		}
		return nil
	}}:
	case <-c.stopped:
	case <-c.sh.done:
	}
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

// mayBegin reports whether the flow may begin an operation that is neither stored nor pending. It ends
// the goroutine if the run does not fit the function: see hold.
func (f *Flow) mayBegin(identity string) bool {
	f.runLast(identity)
	return f.canBegin()
}

// canBegin reports whether no failure and no undo keeps the flow from beginning new operations.
func (f *Flow) canBegin() bool { return !f.call.undoing.Load() && !f.isHalted() }

// runLast waits until no other branch can continue. identity is that of the new operation that the
// flow is about to begin; "" for none.
func (f *Flow) runLast(identity string) {
	f.held = identity
	if f.branch != nil {
		f.call.branches.Load().runLast(f)
		f.leaveIfQuit()
		f.call.exitIfStopped()
	} else {
		hold([]*Flow{f})
	}
	f.held = ""
	if f.call.firstWrong() != nil {
		f.call.exit()
	}
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
		c.await(g)
		return
	}
	sched := c.branches.Load()
	f.group = g
	sched.release()
	isOver := false
	select {
	case <-g.attempts:
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
