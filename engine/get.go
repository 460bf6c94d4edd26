package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tideover/tideover/engine/internal/machine"
)

// load returns a copy of a run, from memory or from the view.
func (sh *shard) load(ctx context.Context, id string) (*machine.Run, error) {
	run, err := machine.ParseID(id)
	if err != nil {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	copied, err := ask(ctx, sh, func(*turn) (*machine.Run, error) {
		r, ok := sh.m.Run(run)
		if !ok {
			return nil, ErrNotFound
		}
		return sh.m.Copy(r)
	})
	switch {
	case err == nil:
		return copied, nil
	case !errors.Is(err, ErrNotFound):
		return nil, fmt.Errorf("%w: %s", err, id)
	}
	return sh.loadEnded(ctx, id)
}

// stored reports whether the run is stored. Unlike load it waits until it is known that
// the run is, so that the answer can be relied on: while nothing can be stored, load
// returns runs that may yet come to nothing.
func (sh *shard) stored(ctx context.Context, id machine.ID) (bool, error) {
	found := new(bool)
	err := sh.do(ctx, func(*turn) error {
		_, *found = sh.m.Run(id)
		return nil
	})
	if u, ok := errors.AsType[untaken](err); ok {
		return false, u.error // an earlier call may have been taken
	}
	if err != nil || *found {
		return err == nil, err
	}
	_, err = sh.loadEnded(ctx, id.String())
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// loadEnded returns a run that has ended, and is no longer in memory.
func (sh *shard) loadEnded(ctx context.Context, id string) (*machine.Run, error) {
	if sh.dir == "" {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	v := sh.view.Load()
	if v == nil {
		return nil, fmt.Errorf("%s: %w", id, sh.errNoView())
	}
	row, ok, err := v.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if !ok || len(row.Detail) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	copied, err := ask(ctx, sh, func(*turn) (*machine.Run, error) { return sh.m.Decode(row.Detail) })
	if err != nil {
		return nil, err
	}
	copied.Input = row.Input
	return copied, nil
}

// Get returns a run with its whole history.
func (e *Engine) Get(ctx context.Context, id string) (*Info, error) {
	a, err := e.of(ctx, id, &call{Op: opGet})
	return a.Info, err
}

func (sh *shard) get(ctx context.Context, id string) (*Info, error) {
	r, err := sh.load(ctx, id)
	if err != nil {
		return nil, err
	}
	return describe(r), nil
}

// Wait waits for the outcome of a run. That the run is dead is not an error of
// Wait, but of its [Info.Err].
//
// A handler that waits for a run keeps its place meanwhile. If all places are kept in
// this way, nothing goes on: [Engine.Troubles] reports it, provided that handlers
// call Wait with their own context. Better let the handler end, and start the rest
// by [OnEnd].
func (e *Engine) Wait(ctx context.Context, id string) (*Info, error) {
	if t, ok := TaskOf(ctx); ok && t.attempt != nil && t.attempt.sh.process == &e.process {
		if run, err := machine.ParseID(id); err == nil {
			defer e.waits.begin(e, t.attempt, run)()
		}
	}
	for {
		a, err := e.of(ctx, id, &call{Op: opWait})
		if err != nil {
			return nil, fmt.Errorf("wait for %s: %w", id, err)
		}
		if !a.Over {
			continue // one who is asked from afar does not wait for long
		}
		if i, err := e.Get(ctx, id); err != nil || i.Finished() {
			return i, err
		}
		// Somebody has put it back to work meanwhile.
	}
}

// waitFor waits until the run is closed, or gone.
func (sh *shard) waitFor(ctx context.Context, id string) (over bool, err error) {
	run, err := machine.ParseID(id)
	if err != nil {
		return false, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	err = sh.waitOnce(ctx, run)
	return err == nil, err
}

// waitOnce waits until the run is closed.
func (sh *shard) waitOnce(ctx context.Context, run machine.ID) error {
	over, there := make(chan struct{}), new(bool)
	// Not a read, which is answered also while the end of a run can't be stored.
	err := sh.do(ctx, func(*turn) error {
		r, ok := sh.m.Run(run)
		if *there = ok; ok && !r.Closed() {
			sh.waiters[run] = append(sh.waiters[run], over)
		} else {
			close(over)
		}
		return nil
	})
	if err != nil {
		sh.unwait(run, over)
		return err
	}
	if !*there { // it is over, or was never here
		if _, err = sh.loadEnded(ctx, run.String()); err != nil {
			return err
		}
	}
	select {
	case <-over:
		return sh.over()
	case <-sh.stop:
		return untaken{ErrClosed}
	case <-ctx.Done():
		sh.unwait(run, over)
		return context.Cause(ctx)
	}
}

// unwait takes back a wait. Whoever waited does not wait for that.
func (sh *shard) unwait(id machine.ID, over chan struct{}) {
	go func() {
		_ = sh.do(context.Background(), func(*turn) error { // if the shard ends, there is nothing to take back
			list := slices.DeleteFunc(sh.waiters[id], func(w chan struct{}) bool { return w == over })
			if sh.waiters[id] = list; len(list) == 0 {
				delete(sh.waiters, id)
			}
			return nil
		})
	}()
}
