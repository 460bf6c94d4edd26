package flow

import (
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/internal/machine"
)

// The errors of wrong uses of a [Flow]: see package engine.
var (
	ErrSameOperation   = errors.New("called twice")
	ErrSecondGoroutine = errors.New("called from a second goroutine; use engine.Map or engine.Branches for operations side by side")
	ErrOtherBranch     = errors.New("called with the flow of another branch; a branch must use the flow that it gets")
	ErrFlowInOperation = errors.New("called inside another operation; an operation can't use the flow")
	ErrFlowOver        = errors.New("the call of the function is over")
)

// errOverlap is the error of an operation that is called before the flow's last one is over.
var errOverlap error = overlapError{}

type overlapError struct{}

func (overlapError) Error() string {
	return "called before the last operation of the flow is over: inside that operation, from a second goroutine or in another branch; use engine.Map or engine.Branches for operations side by side"
}

func (overlapError) Is(target error) bool {
	return target == ErrSecondGoroutine || target == ErrFlowInOperation || target == ErrOtherBranch
}

// missingWorkflowError says that a child can't be started, because its workflow is not registered.
type missingWorkflowError struct{ name string }

func (e *missingWorkflowError) Error() string {
	return fmt.Sprintf("there is no workflow %q now", e.name)
}

// firstWrong returns the first wrong use of the flow.
func (c *call) firstWrong() error {
	if wrong := c.wrong.Load(); wrong != nil {
		return *wrong
	}
	return nil
}

// noteWrong notes a wrong use of the flow, and returns it. After the end of the call, it only returns it.
func (c *call) noteWrong(err error) error {
	if !errors.Is(err, ErrFlowOver) {
		c.wrong.CompareAndSwap(nil, &err)
	}
	return err
}

// noteMissingWorkflow notes that the workflow of the child of an operation is not registered.
func (c *call) noteMissingWorkflow(g *Group, i int) {
	_ = c.noteWrong(fmt.Errorf("operation %s: %w", machine.OpName(g.identity(i)), &missingWorkflowError{g.child.def.Name}))
}

// Misuse notes a wrong use of the flow by an operation, and returns it as an error.
func (f *Flow) Misuse(identity string, err error) error {
	return f.call.noteWrong(fmt.Errorf("operation %s: %w", machine.OpName(identity), err))
}
