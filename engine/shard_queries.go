package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
)

// queries reads the runs of a shard, in the goroutines of callers: from memory, by the
// owner, or from the view.
type queries struct{ sh *shard }

// load returns a copy of a run, from memory or from the view.
func (q *queries) load(ctx context.Context, id string) (*machine.Run, error) {
	run, err := machine.ParseID(id)
	if err != nil {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	copied, err := ask(ctx, q.sh, func(*turn) (*machine.Run, error) {
		r, ok := q.sh.owner.m.Run(run)
		if !ok {
			return nil, ErrNotFound
		}
		return q.sh.owner.m.Copy(r)
	})
	switch {
	case err == nil:
		return copied, nil
	case !errors.Is(err, ErrNotFound):
		return nil, fmt.Errorf("%w: %s", err, id)
	}
	return q.loadEnded(ctx, id)
}

// stored reports whether the run is stored. Unlike load, it waits until all earlier records
// are stored: load also returns runs that are only in memory, and are lost if they can't be
// stored.
func (q *queries) stored(ctx context.Context, id machine.ID) (bool, error) {
	found := new(bool)
	err := q.sh.do(ctx, func(*turn) error {
		_, *found = q.sh.owner.m.Run(id)
		return nil
	})
	if n, ok := errors.AsType[notAccepted](err); ok {
		return false, n.error // an earlier call may have been accepted
	}
	if err != nil || *found {
		return err == nil, err
	}
	_, err = q.loadEnded(ctx, id.String())
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// loadEnded returns a run that has ended, and is no longer in memory.
func (q *queries) loadEnded(ctx context.Context, id string) (*machine.Run, error) {
	v, err := q.sh.views.get()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", id, err)
	case v == nil:
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	row, ok, err := v.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if !ok || len(row.Detail) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	copied, err := ask(ctx, q.sh, func(*turn) (*machine.Run, error) { return q.sh.owner.m.Decode(row.Detail) })
	if err != nil {
		return nil, err
	}
	copied.Input = row.Input
	return copied, nil
}

func (q *queries) get(ctx context.Context, id string) (*Info, error) {
	r, err := q.load(ctx, id)
	if err != nil {
		return nil, err
	}
	i := describe(r)
	q.sh.pauses.describe(i, r.IsUndoing())
	return i, nil
}

// wait waits until the run has an outcome and no attempt of it is running.
func (q *queries) wait(ctx context.Context, id string) error {
	run, err := machine.ParseID(id)
	if err != nil {
		return fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	w := &waiter{over: make(chan struct{})}
	found, err := ask(ctx, q.sh, func(*turn) (waitState, error) { return q.sh.owner.addWaiter(run, w), nil })
	switch {
	case err != nil:
		w.canceled.Store(true)
		return err
	case found == notInMemory: // it has ended, or was never here
		_, err = q.loadEnded(ctx, id)
		return err
	case found == endNotStored:
		// The owner answers a request that is no read when all records before it are stored.
		return q.sh.do(ctx, func(*turn) error { return nil })
	case found == endStored:
		return nil
	}
	select {
	case <-w.over:
		return q.sh.stopError()
	case <-q.sh.stop:
		return notAccepted{ErrClosed}
	case <-ctx.Done():
		w.canceled.Store(true)
		return context.Cause(ctx)
	}
}

// list returns a page of runs, and for each run the cursor of a list that continues after it.
func (q *queries) list(ctx context.Context, f Filter) (a answer, err error) {
	v, err := q.sh.views.get()
	if err != nil {
		return a, fmt.Errorf("list: %w", err)
	}
	if v == nil {
		a.Page, err = q.listAll(ctx, &f)
		return a, err
	}
	a.Page = new(Page)
	if f.After == passed {
		return a, nil
	}
	if f.Fresh {
		q.sh.views.refresh(ctx)
	}
	p, err := v.List(ctx, f.view())
	if err != nil {
		return answer{}, err
	}
	a.Page.Next, a.Page.Behind = p.Next, p.SearchBehind
	for i := range p.Runs {
		a.Page.Runs = append(a.Page.Runs, summary(&p.Runs[i]))
		q.sh.pauses.describe(&a.Page.Runs[i], a.Page.Runs[i].State == StateUndoing)
	}
	a.Cursors, a.Distance = p.Cursors, p.Distance
	return a, nil
}

// listAll is list for a shard without a view. It returns all runs in memory that match the
// filter.
func (q *queries) listAll(ctx context.Context, f *Filter) (*Page, error) {
	page, err := ask(ctx, q.sh, func(*turn) (*Page, error) {
		page := new(Page)
		for _, r := range q.sh.owner.m.All() {
			row := row(r) // without a view there is no folder, and nothing is cold
			if f.matches(&row) {
				page.Runs = append(page.Runs, summary(&row))
				q.sh.pauses.describe(&page.Runs[len(page.Runs)-1], r.IsUndoing())
			}
		}
		return page, nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(page.Runs, func(a, b Info) int { return cmp.Compare(b.ID, a.ID) })
	return page, nil
}

// groups returns the dead runs of the shard grouped by how they failed.
func (q *queries) groups(ctx context.Context, limit int, exclude []string) ([]Group, error) {
	v, err := q.sh.views.get()
	if err == nil && v == nil {
		err = errors.New("this engine has no view")
	}
	if err != nil {
		return nil, fmt.Errorf("groups: %w", err)
	}
	found, err := v.Groups(ctx, view.Filter{States: []string{"dead"}, Exclude: exclude}, limit)
	groups := make([]Group, len(found))
	for i, g := range found {
		groups[i] = Group(g)
	}
	return groups, err
}

// find returns the ids of the runs that begin with the text, or have it as key.
func (q *queries) find(ctx context.Context, text string, limit int) ([]string, error) {
	ids, err := ask(ctx, q.sh, func(*turn) (ids []string, err error) {
		if id, ok := q.sh.owner.m.ByKey(text); ok {
			ids = append(ids, id.String())
		}
		return ids, nil
	})
	if err != nil || len(ids) > 0 {
		return ids, err
	}
	v, err := q.sh.views.get()
	if err != nil {
		return nil, fmt.Errorf("find: %w", err)
	}
	if v == nil {
		return nil, nil
	}
	return v.Find(ctx, text, limit)
}

// finished has the states of runs that are removed from memory when the view has them.
var finished = map[machine.State]bool{machine.StateSucceeded: true, machine.StateCanceled: true, machine.StateReplaced: true}

// stats returns the statistics of the shard.
func (q *queries) stats(ctx context.Context) (*Stats, error) {
	s, err := ask(ctx, q.sh, func(*turn) (s *Stats, err error) {
		s = new(Stats)
		names := slices.Sorted(maps.Keys(q.sh.owner.m.Workflows()))
		for _, name := range names {
			w := q.sh.owner.m.Workflows()[name]
			ws := WorkflowStats{Name: name, States: map[string]int{}, Totals: Totals(w.Totals), Paused: describePause(w.Pause)}
			for state, n := range w.Counts {
				if n > 0 && !finished[machine.State(state)] {
					ws.States[machine.State(state).String()] = n
				}
			}
			s.Workflows = append(s.Workflows, ws)
		}
		s.Waiting, s.Running, s.Missing = q.sh.owner.m.Waiting(), len(q.sh.dispatcher.running), q.sh.owner.m.ParkedHandlers()
		s.Behind = q.sh.views.behind()
		for _, queue := range q.sh.owner.m.Busy() {
			if queue.Workflow.Pause != nil {
				continue
			}
			s.Queued += queue.Len()
			if at, ok := queue.Oldest(); ok {
				s.Oldest = earlier(s.Oldest, pointer(at))
			}
		}
		for run, step := range q.sh.owner.m.Suspects() {
			s.Queued++
			s.Oldest = earlier(s.Oldest, pointer(run.Step(step).At))
		}
		if next := q.sh.owner.m.Next(); next != 1<<63-1 {
			s.Next = pointer(next)
		}
		return s, nil
	})
	if err == nil {
		s.Stuck, s.Troubles, s.Warnings = q.sh.dispatcher.stuckNow.Load(), q.sh.health.list(), q.sh.health.listWarnings()
	}
	return s, err
}

// waiter is a caller that waits for the end of a run.
type waiter struct {
	over     chan struct{} // closed when the run is closed, or the owner has stopped
	canceled atomic.Bool   // the caller does not wait any more
}

// waitState is the state of a run that a caller wants to wait for.
type waitState int

const (
	notInMemory  waitState = iota
	stillOpen              // the waiter was added
	endNotStored           // the run is closed by a record that is not stored yet
	endStored
)

// addWaiter adds a waiter for the run if the run is open.
func (o *owner) addWaiter(run machine.ID, w *waiter) waitState {
	r, ok := o.m.Run(run)
	switch {
	case !ok:
		return notInMemory
	case !r.Closed():
		o.waiters.add(run, w)
		return stillOpen
	case r.Version() > o.seq:
		return endNotStored
	default:
		return endStored
	}
}
