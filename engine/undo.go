package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/retry"
)

// DoUndo is [Do] for an operation that can be undone. If the function returns an error later, or
// the run is canceled or times out, the run is in state undoing: the undos of all operations that
// it has called are executed, the last one first. Then the run ends.
//
// undo gets the result of the operation, or nil if that is not known: the operation failed, or was
// canceled. An attempt of it may have had an effect or not, so undo must accept both.
//
// An undo is an operation, with the options of the operation that it undoes, and [UndoPolicy]. If
// it gives up, the run is dead with the reason undo-failed, and [Engine.Retry] continues with this
// undo. A function that panics until its policy gives up has a bug: its run is dead, and undoes
// nothing before [Engine.Undo].
func DoUndo[T any](f *Flow, name string, do func(context.Context) (T, error), undo func(context.Context, *T) error, opts ...DoUndoOption) (v T, err error) {
	o, err := callOperation(f, "do"+flow.WithUndo, name, opts)
	if err != nil {
		return v, err
	}
	defer f.f.Leave()
	g := o.One(func(ctx context.Context, _ int) ([]byte, error) { return encoded(do(ctx)) })
	if err := canUndo(f, g, o, undo == nil, func(ctx context.Context, _ int, v *T) error { return undo(ctx, v) }); err != nil {
		return v, err
	}
	return perform[T](f, g)
}

// MapUndo is [Map] for operations that can be undone: see [DoUndo]. The undos of one MapUndo are
// executed side by side, as its operations are.
func MapUndo[T, R any](f *Flow, name string, items []T, do func(context.Context, T) (R, error), undo func(context.Context, T, *R) error, opts ...MapUndoOption) ([]R, error) {
	o, g, err := newMap(f, "map"+flow.WithUndo, name, items, do, opts)
	if err != nil {
		return nil, err
	}
	defer f.f.Leave()
	if err := canUndo(f, g, o, undo == nil, func(ctx context.Context, i int, v *R) error { return undo(ctx, items[i], v) }); err != nil {
		return nil, err
	}
	return performAll[R](f, g)
}

// UndoPolicy sets the retry policy of the undo of an operation, in its text form: see [DoUndo].
// Without it the undo has the policy of the operation.
func UndoPolicy(text string) DoUndoOption {
	return option(func(s *workflow.Options) {
		if _, err := retry.Parse(text); err != nil {
			s.Fail(fmt.Errorf("undo policy: %w", err))
		}
		s.UndoPolicy = text
	})
}

// canUndo notes how the operations of a group are undone. undo gets the stored result; nil if there is none.
func canUndo[T any](f *Flow, g *flow.Group, o flow.Called, isNil bool, undo func(context.Context, int, *T) error) error {
	return f.f.CanUndo(g, o, isNil, func(ctx context.Context, i int, stored []byte) error {
		if stored == nil {
			return undo(ctx, i, nil)
		}
		v := new(T)
		if err := json.Unmarshal(stored, v); err != nil {
			return retry.Permanent(fmt.Errorf("the stored result of the operation can't be read as %T: %w", *v, err))
		}
		return undo(ctx, i, v)
	})
}
