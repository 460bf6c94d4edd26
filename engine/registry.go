package engine

import (
	"fmt"

	"github.com/tideover/tideover/engine/internal/workflow"
)

// ErrRegistered says that another workflow with the same name is registered.
var ErrRegistered = workflow.ErrRegistered

// register adds what the program has registered by its configuration.
func register(r *workflow.Registry, cfg *Config) error {
	handlers, functions := map[string]workflow.Handler{}, map[string]any{}
	for name, h := range cfg.Handlers {
		handlers[name] = workflow.Handler{Do: h}
	}
	for name, f := range cfg.Functions {
		if functions[name] = f.core(); f == nil {
			return fmt.Errorf("function %q: nil", name)
		}
	}
	return r.Add(coresOf(cfg.Workflows), handlers, functions)
}

// Register adds workflows. A workflow replaces another one with the same name for new runs.
// Steps that waited for a handler of these workflows continue.
func (e *Engine) Register(workflows ...*Workflow) error {
	if err := e.process.handlers.Add(coresOf(workflows), nil, nil); err != nil {
		return err
	}
	return e.router.wakeShards()
}

// Replace replaces all workflows for new runs. Runs in progress continue with the
// definition that they began with.
func (e *Engine) Replace(workflows []*Workflow) error {
	if err := e.process.handlers.Replace(coresOf(workflows)); err != nil {
		return err
	}
	return e.router.wakeShards()
}

// Workflow returns the workflow that is registered with this name for new runs.
func (e *Engine) Workflow(name string) (*Workflow, bool) {
	core := e.process.handlers.Workflow(name)
	if core == nil {
		return nil, false
	}
	return core.Public.(*Workflow), true
}

// Workflows returns the workflows that are registered for new runs, in no particular order.
func (e *Engine) Workflows() []*Workflow {
	cores := e.process.handlers.Workflows()
	list := make([]*Workflow, len(cores))
	for i, core := range cores {
		list[i] = core.Public.(*Workflow)
	}
	return list
}
