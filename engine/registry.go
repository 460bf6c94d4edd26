package engine

import "github.com/tideover/tideover/engine/internal/workflow"

// ErrRegistered says that another workflow with the same name is registered.
var ErrRegistered = workflow.ErrRegistered

// Register adds workflows. A workflow replaces another one with the same name for new runs.
// Steps that waited for a handler of these workflows continue.
func (e *Engine) Register(workflows ...*Workflow) error {
	if err := e.process.Handlers.Add(coresOf(workflows), nil, nil); err != nil {
		return err
	}
	return e.router.WakeShards()
}

// Replace replaces all workflows for new runs. Runs in progress continue with the
// definition that they began with.
func (e *Engine) Replace(workflows []*Workflow) error {
	if err := e.process.Handlers.Replace(coresOf(workflows)); err != nil {
		return err
	}
	return e.router.WakeShards()
}

// Workflow returns the workflow that is registered with this name for new runs.
func (e *Engine) Workflow(name string) (*Workflow, bool) {
	core := e.process.Handlers.Workflow(name)
	if core == nil {
		return nil, false
	}
	return core.Public.(*Workflow), true
}

// Workflows returns the workflows that are registered for new runs, in no particular order.
func (e *Engine) Workflows() []*Workflow {
	cores := e.process.Handlers.Workflows()
	list := make([]*Workflow, len(cores))
	for i, core := range cores {
		list[i] = core.Public.(*Workflow)
	}
	return list
}
