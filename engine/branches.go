package engine

import (
	"errors"

	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/workflow"
)

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
