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
	err = f.f.CanUndo(g, o, undo == nil, func(ctx context.Context, _ int, stored []byte) error {
		v, err := storedValue[T](stored)
		if err != nil {
			return err
		}
		return undo(ctx, v)
	})
	if err != nil {
		return v, err
	}
	if err := f.f.Perform(g); err != nil {
		return v, err
	}
	return decoded[T](&g.Results[0])
}

// MapUndo is [Map] for operations that can be undone: see [DoUndo]. The undos of one MapUndo are
// executed side by side, as its operations are.
func MapUndo[T, R any](f *Flow, name string, items []T, do func(context.Context, T) (R, error), undo func(context.Context, T, *R) error, opts ...MapUndoOption) ([]R, error) {
	o, g, err := newMap(f, "map"+flow.WithUndo, name, items, do, opts)
	if err != nil {
		return nil, err
	}
	defer f.f.Leave()
	err = f.f.CanUndo(g, o, undo == nil, func(ctx context.Context, i int, stored []byte) error {
		v, err := storedValue[R](stored)
		if err != nil {
			return err
		}
		return undo(ctx, items[i], v)
	})
	if err != nil {
		return nil, err
	}
	if err := f.f.Perform(g); err != nil {
		return nil, err
	}
	return mapResults[R](g)
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

// storedValue returns a stored result; nil if there is none.
func storedValue[T any](stored []byte) (*T, error) {
	if stored == nil {
		return nil, nil
	}
	v := new(T)
	if err := json.Unmarshal(stored, v); err != nil {
		return nil, retry.Permanent(fmt.Errorf("the stored result of the operation can't be read as %T: %w", *v, err))
	}
	return v, nil
}
