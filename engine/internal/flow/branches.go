package flow

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine/internal/goroutine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// maxBranches limits the branches of one [Branches].
const maxBranches = 1000

// Branches executes n branches side by side, of which at returns each, and returns when all have ended.
func (f *Flow) Branches(n int, at func(i int) *Branch) error {
	if err := f.enter(); err != nil {
		return f.call.noteWrong(fmt.Errorf("branches: %w", err))
	}
	defer f.Leave()
	set, err := newBranchSet(f, n, at)
	if err != nil {
		return f.call.noteWrong(fmt.Errorf("branches: %w", err))
	}
	if n == 0 {
		return nil
	}
	return set.run()
}

// CheckAgain returns an error if another run can't continue this one, because a branch wants that.
func (f *Flow) CheckAgain() error {
	if f.branch == nil {
		return nil
	}
	return f.call.noteWrong(fmt.Errorf("branch %s: %w", f.branch.Name, errAgainInBranch))
}

// newBranchSet checks the branches.
func newBranchSet(f *Flow, n int, at func(i int) *Branch) (*branchSet, error) {
	if n > maxBranches {
		return nil, fmt.Errorf("%d branches, at most %d are possible", n, maxBranches)
	}
	set := &branchSet{parent: f, branches: make([]branch, n)}
	index := make(map[string]int, n)
	for i := range n {
		b := *at(i)
		if b.Err != nil {
			return nil, fmt.Errorf("branch %s: %w", b.Name, b.Err)
		}
		if _, known := index[b.Name]; known {
			return nil, fmt.Errorf("branch %s: another branch has this name", b.Name)
		}
		index[b.Name] = i
		b.Needs = slices.Compact(slices.Sorted(slices.Values(b.Needs)))
		set.branches[i] = branch{Branch: b, set: set, waitsOn: len(b.Needs)}
	}
	for i := range set.branches {
		b := &set.branches[i]
		for _, need := range b.Needs {
			k, known := index[need]
			if !known {
				return nil, fmt.Errorf("branch %s: after: there is no branch %q", b.Name, need)
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
	var visit func(i int, path []string) []string
	visit = func(i int, path []string) []string {
		b := &s.branches[i]
		path = append(path, b.Name)
		switch state[i] {
		case onPath:
			return path[slices.Index(path, b.Name):]
		case done:
			return nil
		}
		state[i] = onPath
		for _, need := range b.Needs {
			if found := visit(index[need], path); found != nil {
				return found
			}
		}
		state[i] = done
		return nil
	}
	for i := range s.branches {
		if path := visit(i, nil); path != nil {
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
		sched = &scheduler{running: f, start: (*branch).main, quit: make(chan struct{})}
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
	if value, text, _ := sched.failure(); text != "" {
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
func (b *branch) begin(sched *scheduler) {
	parent := b.set.parent
	b.flow.call, b.flow.state, b.flow.branch, b.flow.wake = parent.call, parent.state, b, make(chan struct{}, 1)
	b.set.open++
	sched.enqueue(&b.flow)
}

// beginNext makes the branches ready to run that have waited only for this one, and returns how many
// these are.
func (b *branch) beginNext(sched *scheduler) (n int32) {
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
			e.errs = append(e.errs, fmt.Errorf("branch %s: %w", b.Name, b.result))
		}
	}
	return e
}

// branchesError has the errors of the branches that failed, in the order of the branches. Its text is
// that of the first one. A retry of the run executes the failed operations of all.
type branchesError struct{ errs []error }

func (e *branchesError) Error() string { return e.errs[0].Error() }

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

// main executes the branch. It is the first function of its goroutine.
func (b *branch) main() {
	defer b.ended()
	f := &b.flow
	if w := f.call.settings.Watch; w != nil {
		defer w.Begin(goroutine.Function)()
		f.call.branches.Load().setRoutine(f, goroutine.ID())
	}
	f.leaveIfQuit()
	f.call.exitIfStopped()
	b.result = b.Do(f)
	b.end = returned
}

// ended notes how the branch has ended, and lets the next branches run. It is a deferred call, and
// also called when the branch panics or its goroutine ends.
func (b *branch) ended() {
	f, c := &b.flow, b.flow.call
	sched := c.branches.Load()
	if p := recover(); p != nil {
		sched.fail(c, p, fmt.Sprintf("panic: %v\n%s", p, goroutine.PanicStack()))
	} else if b.end == notEnded && !c.exiting.Load() {
		sched.fail(c, nil, fmt.Sprintf("branch %s ended its goroutine (runtime.Goexit)", b.Name))
	}
	f.over.Store(true)
	s := b.set
	var begun int32
	if b.end == returned {
		switch _, isAgain := errors.AsType[*workflow.Again](b.result); {
		case isAgain:
			b.result = c.noteWrong(fmt.Errorf("branch %s: %w", b.Name, errAgainInBranch))
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
		c.settings.Host.Send(&Message{kind: branchEnded, call: c}, c.stopped)
	}
	sched.release()
}

var errAgainInBranch = errors.New("again: only the function itself can begin another run, and not a branch")
