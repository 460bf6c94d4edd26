package engine

import (
	"encoding/json"
	"fmt"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// Child starts a run of another workflow, the child, waits until it has ended, and returns its
// output. The child has the id of this operation, so it is started only once, even if processes die.
// Like that of [Sleep], the wait costs no goroutine and no place.
//
// If the child does not succeed, the error is an [*OpError] with the child's error and code. A
// retry of this run then continues the same child: it retries a dead one, and waits for one that was
// retried or replaced meanwhile. If the child was canceled or is not stored any more, it starts
// another one with the same [Task.Origin]. If this run is canceled, times out or dies, its children
// are canceled, unless they are [Detached].
func Child[Out any](f *Flow, name string, w *Workflow, input any, opts ...ChildOption) (v Out, err error) {
	o, err := callOperation(f, machine.ChildKind, name, opts)
	if err != nil {
		return v, err
	}
	defer f.f.Leave()
	g := o.One(nil)
	if err := f.f.PrepareChildren(g, o, coreOf(w), []any{input}); err != nil {
		return v, err
	}
	return perform[Out](f, g)
}

// Children starts a child for each input, [Parallel] of them side by side, and returns their
// outputs: see [Child] and [Map].
func Children[In, Out any](f *Flow, name string, w *Workflow, inputs []In, opts ...ChildrenOption) ([]Out, error) {
	o, err := callOperation(f, machine.ChildrenKind, name, opts)
	if err != nil {
		return nil, err
	}
	defer f.f.Leave()
	items := make([]any, len(inputs))
	texts := make([][]byte, len(inputs))
	for i := range inputs {
		items[i] = inputs[i]
		if texts[i], err = json.Marshal(inputs[i]); err != nil {
			return nil, f.f.Misuse(o.Identity, fmt.Errorf("input %d: %w", i, err))
		}
	}
	if err := f.f.CheckItems(&o, texts); err != nil {
		return nil, err
	}
	g := o.Each(len(inputs), nil)
	if err := f.f.PrepareChildren(g, o, coreOf(w), items); err != nil {
		return nil, err
	}
	return performAll[Out](f, g)
}

// Detached says that a child continues if the run that has started it ends: see [Child].
func Detached() ChildOption {
	return option(func(s *workflow.Options) { s.Detached = true })
}
