package shard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/describe"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/internal/plainjson"
)

// queries reads the runs of a shard, in the goroutines of callers: from memory, by the
// owner, or from the view.
type queries struct{ sh *Shard }

// load returns a copy of a run, from memory or from the view.
func (q queries) load(ctx context.Context, id string) (*machine.Run, error) {
	r, err := q.loadHeld(ctx, id)
	return r.run, err
}

// heldRun is a copy of a run, and why steps of it that are due have not begun.
type heldRun struct {
	run  *machine.Run
	held map[int]*info.Held
}

// loadHeld is load, with the reasons why steps have not begun.
func (q queries) loadHeld(ctx context.Context, id string) (heldRun, error) {
	run, err := machine.ParseID(id)
	if err != nil {
		return heldRun{}, fmt.Errorf("%w: %q", machine.ErrUnknown, id)
	}
	found, err := ask(ctx, &q.sh.requests, func(Recorder) (heldRun, error) {
		r, ok := q.sh.owner.m.Run(run)
		if !ok {
			return heldRun{}, machine.ErrUnknown
		}
		copied, err := q.sh.owner.m.Copy(r)
		return heldRun{copied, q.sh.dispatcher.heldSteps(r)}, err
	})
	switch {
	case err == nil:
		return found, nil
	case !errors.Is(err, machine.ErrUnknown):
		return heldRun{}, fmt.Errorf("%w: %s", err, id)
	}
	found.run, err = q.loadEnded(ctx, id)
	return found, err
}

// stored reports whether the run is stored. Unlike load, it waits until all earlier records
// are stored: load also returns runs that are only in memory, and are lost if they can't be
// stored.
func (q queries) stored(ctx context.Context, id machine.ID) (bool, error) {
	found, err := change(ctx, &q.sh.requests, func(Recorder) (bool, error) {
		_, ok := q.sh.owner.m.Run(id)
		return ok, nil
	})
	if n, ok := errors.AsType[NotAccepted](err); ok {
		return false, n.error // an earlier call may have been accepted
	}
	if err != nil || found {
		return found, err
	}
	if _, err = q.loadEnded(ctx, id.String()); errors.Is(err, machine.ErrUnknown) {
		return false, nil
	}
	return err == nil, err
}

// loadEnded returns a run that has ended, and is no longer in memory.
func (q queries) loadEnded(ctx context.Context, id string) (*machine.Run, error) {
	v, err := q.sh.View()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", id, err)
	case v == nil:
		return nil, fmt.Errorf("%w: %s", machine.ErrUnknown, id)
	}
	row, ok, err := v.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if !ok || len(row.Detail) == 0 {
		return nil, fmt.Errorf("%w: %s", machine.ErrUnknown, id)
	}
	copied, err := ask(ctx, &q.sh.requests, func(Recorder) (*machine.Run, error) { return q.sh.owner.m.Decode(row.Detail) })
	if err != nil {
		return nil, err
	}
	copied.Input = row.Input
	return copied, nil
}

func (q queries) get(ctx context.Context, id string) (*info.Info, error) {
	r, err := q.loadHeld(ctx, id)
	if err != nil {
		return nil, err
	}
	i := describe.Run(r.run)
	q.sh.pauses.describe(i, r.run.Flow().IsUndoing())
	for k := range i.Steps {
		n := k
		if r.run.IsFlow() {
			n = i.Steps[k].Number
		}
		i.Steps[k].Held = r.held[n]
	}
	return i, nil
}

// wait waits until the run has an outcome and no attempt of it is running.
func (q queries) wait(ctx context.Context, id string) error {
	run, err := machine.ParseID(id)
	if err != nil {
		return fmt.Errorf("%w: %q", machine.ErrUnknown, id)
	}
	w := &waiter{over: make(chan struct{})}
	found, err := ask(ctx, &q.sh.requests, func(Recorder) (waitState, error) { return q.sh.owner.waiters.watch(&q.sh.owner.state, run, w), nil })
	switch {
	case err != nil:
		w.canceled.Store(true)
		return err
	case found == notInMemory: // it has ended, or was never here
		_, err = q.loadEnded(ctx, id)
		return err
	case found == endNotStored:
		// The owner answers a request that is no read when all records before it are stored.
		return q.sh.Do(ctx, func(Recorder) error { return nil })
	case found == endStored:
		return nil
	}
	select {
	case <-w.over:
		return q.sh.Err()
	case <-q.sh.stop:
		return NotAccepted{ErrClosed}
	case <-ctx.Done():
		w.canceled.Store(true)
		return context.Cause(ctx)
	}
}

// list returns a page of runs, and for each run the cursor of a list that continues after it.
func (q queries) list(ctx context.Context, f info.Filter) (a Answer, err error) {
	v, err := q.sh.View()
	if err != nil {
		return a, fmt.Errorf("list: %w", err)
	}
	if v == nil {
		a.Page, err = q.listAll(ctx, &f)
		return a, err
	}
	a.Page = new(info.Page)
	if f.After == Passed {
		return a, nil
	}
	if f.Fresh {
		q.refresh(ctx)
	}
	p, err := v.List(ctx, describe.ViewFilter(&f))
	if err != nil {
		return Answer{}, err
	}
	a.Page.Next, a.Page.Behind = p.Next, p.SearchBehind
	for i := range p.Runs {
		a.Page.Runs = append(a.Page.Runs, describe.Summary(&p.Runs[i]))
		q.sh.pauses.describe(&a.Page.Runs[i], a.Page.Runs[i].State == info.StateUndoing)
	}
	a.Cursors, a.Distance = p.Cursors, p.Distance
	return a, nil
}

// refresh waits until the view has everything that was acknowledged before the call. It waits
// for at most freshWithin, in case the owner can't store or the view can't be written: an old
// list is better than none.
func (q queries) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, freshWithin)
	defer cancel()
	seen := make(chan struct{})
	err := q.sh.Do(ctx, func(Recorder) error {
		q.sh.views.addWait(seen)
		return nil
	})
	if err != nil {
		return
	}
	select {
	case <-seen:
	case <-q.sh.done:
	case <-ctx.Done():
	}
}

// listAll is list for a shard without a view. It returns all runs in memory that match the
// filter.
func (q queries) listAll(ctx context.Context, f *info.Filter) (*info.Page, error) {
	page, err := ask(ctx, &q.sh.requests, func(Recorder) (*info.Page, error) {
		page := new(info.Page)
		for _, r := range q.sh.owner.m.All() {
			row := describe.Row(r) // without a view there is no folder, and nothing is cold
			if describe.Matches(f, &row) {
				page.Runs = append(page.Runs, describe.Summary(&row))
				q.sh.pauses.describe(&page.Runs[len(page.Runs)-1], r.Flow().IsUndoing())
			}
		}
		return page, nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(page.Runs, func(a, b info.Info) int { return cmp.Compare(b.ID, a.ID) })
	return page, nil
}

// groups returns the dead runs of the shard grouped by how they failed.
func (q queries) groups(ctx context.Context, limit int, exclude []string) ([]info.Group, error) {
	v, err := q.sh.View()
	if err == nil && v == nil {
		err = errors.New("this engine has no view")
	}
	if err != nil {
		return nil, fmt.Errorf("groups: %w", err)
	}
	return v.Groups(ctx, view.Filter{States: []string{"dead"}, Exclude: exclude}, limit)
}

// find returns the ids of the runs that begin with the text, or have it as key.
func (q queries) find(ctx context.Context, text string, limit int) ([]string, error) {
	ids, err := ask(ctx, &q.sh.requests, func(Recorder) (ids []string, err error) {
		if id, _, ok := q.sh.owner.m.Keyed(text); ok {
			ids = append(ids, id.String())
		}
		return ids, nil
	})
	if err != nil || len(ids) > 0 {
		return ids, err
	}
	v, err := q.sh.View()
	if err != nil {
		return nil, fmt.Errorf("find: %w", err)
	}
	if v == nil {
		return nil, nil
	}
	return v.Find(ctx, text, limit)
}

// Passed is the cursor of a shard whose search results are left out, because other shards have
// closer matches.
const Passed = "-"

// finished has the states of runs that are removed from memory when the view has them.
var finished = map[machine.State]bool{machine.StateSucceeded: true, machine.StateCanceled: true, machine.StateReplaced: true}

// stats returns the statistics of the shard.
func (q queries) stats(ctx context.Context) (*info.Stats, error) {
	sh := q.sh
	s, err := ask(ctx, &sh.requests, func(Recorder) (s *info.Stats, err error) {
		s = new(info.Stats)
		for _, name := range slices.Sorted(maps.Keys(sh.owner.m.Workflows())) {
			w := sh.owner.m.Workflows()[name]
			ws := info.WorkflowStats{Name: name, States: map[string]int{}, Totals: w.Totals, Paused: describePause(w.Pause)}
			for state, n := range w.Counts {
				if n > 0 && !finished[machine.State(state)] {
					ws.States[machine.State(state).String()] = n
				}
			}
			s.Workflows = append(s.Workflows, ws)
		}
		s.Waiting, s.Running, s.Missing = sh.owner.m.Waiting(), len(sh.dispatcher.running), sh.owner.m.ParkedHandlers()
		s.Behind = sh.views.behind()
		for _, queue := range sh.owner.m.Busy() {
			if queue.Workflow.Pause != nil {
				continue
			}
			s.Queued += queue.Len()
			if at, ok := queue.Oldest(); ok {
				s.Oldest = Earlier(s.Oldest, describe.Pointer(at))
			}
		}
		for run, step := range sh.owner.m.Suspects() {
			s.Queued++
			s.Oldest = Earlier(s.Oldest, describe.Pointer(run.Step(step).At))
		}
		if next := sh.owner.m.Next(); next != 1<<63-1 {
			s.Next = describe.Pointer(next)
		}
		return s, nil
	})
	if err == nil {
		s.Stuck, s.Troubles, s.Warnings = sh.stuck.now.Load(), sh.Troubles(), sh.Warnings()
	}
	return s, err
}

// Earlier returns the earlier one of two times; nil is later than any.
func Earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}

// definition returns the definition of a run, and the run without its history and results:
// both must fit into one message to another process.
func (q queries) definition(ctx context.Context, id string) (text json.RawMessage, info *info.Info, err error) {
	r, err := q.load(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	info = describe.Run(r)
	info.Output, info.Notes = nil, nil
	for i := range info.Steps {
		info.Steps[i].Output, info.Steps[i].Progress, info.Steps[i].Attempts = nil, nil, nil
	}
	return r.Def.Text(), info, nil
}

// history returns the history of a run.
func (q queries) history(ctx context.Context, id string) (json.RawMessage, error) {
	r, err := q.load(ctx, id)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	h := replay.History{Format: replay.Format, Run: r.ID.String(), Workflow: r.Def.Name, Version: r.Def.Version, State: r.State().String(), At: now}
	if h.Data, err = machine.Extract(r, now.UnixNano()); err != nil {
		return nil, fmt.Errorf("history of run %s: %w", id, err)
	}
	return plainjson.Marshal(h)
}
