package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/internal/machine"
)

// load returns a copy of a run, from memory or from the view.
func (e *Engine) load(ctx context.Context, id string) (*machine.Run, error) {
	run, err := machine.ParseID(id)
	if err != nil {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	copied, err := ask(ctx, e, func(*turn) (*machine.Run, error) {
		r, ok := e.m.Run(run)
		if !ok {
			return nil, ErrNotFound
		}
		return e.m.Copy(r)
	})
	if err == nil {
		return copied, nil
	}
	v := e.view.Load()
	if !errors.Is(err, ErrNotFound) || v == nil {
		return nil, fmt.Errorf("%w: %s", err, id)
	}
	row, ok, err := v.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if !ok || len(row.Detail) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	copied, err = ask(ctx, e, func(*turn) (*machine.Run, error) { return e.m.Decode(row.Detail) })
	if err != nil {
		return nil, err
	}
	copied.Input = row.Input
	return copied, nil
}

// Get returns a run with its whole history.
func (e *Engine) Get(ctx context.Context, id string) (*Info, error) {
	r, err := e.load(ctx, id)
	if err != nil {
		return nil, err
	}
	return describe(r), nil
}

// Wait waits for the outcome of a run. That the run is dead is not an error of
// Wait.
func (e *Engine) Wait(ctx context.Context, id string) (*Info, error) {
	run, err := machine.ParseID(id)
	if err != nil {
		return nil, fmt.Errorf("wait: %w: %q", ErrNotFound, id)
	}
	for {
		if err := e.waitOnce(ctx, run); err != nil {
			return nil, fmt.Errorf("wait for %s: %w", id, err)
		}
		if i, err := e.Get(ctx, id); err != nil || i.Finished() {
			return i, err
		}
		// Somebody has put it back to work meanwhile.
	}
}

// waitOnce waits until the run is closed, or gone.
func (e *Engine) waitOnce(ctx context.Context, run machine.ID) error {
	over := make(chan struct{})
	err := e.do(ctx, func(*turn) error {
		if r, ok := e.m.Run(run); !ok || r.Closed() {
			close(over)
		} else {
			e.waiters[run] = append(e.waiters[run], over)
		}
		return nil
	})
	if err != nil {
		return err
	}
	select {
	case <-over:
		return e.Err()
	case <-e.stop:
		return ErrClosed
	case <-ctx.Done():
		e.unwait(run, over)
		return context.Cause(ctx)
	}
}

// unwait takes back a wait.
func (e *Engine) unwait(id machine.ID, over chan struct{}) {
	_ = e.do(context.Background(), func(*turn) error {
		list := e.waiters[id]
		for i, w := range list {
			if w == over {
				list = append(list[:i], list[i+1:]...)
				break
			}
		}
		if e.waiters[id] = list; len(list) == 0 {
			delete(e.waiters, id)
		}
		return nil
	})
}
