package flow

import (
	"errors"
	"slices"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/retry"
)

// failures returns the numbers of the failed operations that made the function return the error:
// a retry of the run executes them again. If the error wraps no failure of an operation, these are
// the failures of the operation that the function called last.
func (f *Flow) failures(err error) (numbers []int) {
	failed := map[string]bool{}
	addFailed(failed, err)
	for _, res := range f.ended.all {
		name := machine.OpName(res.Name)
		of, _ := machine.CutIndex(name)
		if res.Reason != 0 && (failed[name] || len(failed) == 0 && of == machine.OpName(f.last)) {
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
		switch kind, _ := machine.SplitIdentity(res.Name); {
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
	case *info.OpError:
		names[e.Name] = true
	case interface{ Unwrap() error }:
		addFailed(names, e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			addFailed(names, err)
		}
	}
}

// forgetsUndo reports whether the function has returned before it knew that the run undoes its
// operations: it has to be called again.
func (e *callEnd) forgetsUndo() bool {
	return e.undone == nil && e.mismatch == "" && (e.again != nil || e.isError || e.result.Succeeded())
}

var ErrUndoing = errors.New("the run undoes its operations")

// verdictOf returns the verdict about a run whose function has ended.
func verdictOf(end *callEnd) (v replay.Verdict) {
	switch {
	case end.undone != nil:
		v.Error = end.undone.text
	case end.again != nil, !end.result.Failed && !end.result.Release:
	case end.isError:
		v.Error = end.result.Error
	default:
		v.Failed = end.result.Error
	}
	return v
}
