package control

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine"
)

// BulkAction is an operation on many runs.
type BulkAction string

// The actions of [Runs.Bulk] and [Runs.ForAll].
const (
	BulkRetry       BulkAction = "retry"
	BulkRetryLatest BulkAction = "latest" // retry with the current definition of the workflow
	BulkCancel      BulkAction = "cancel"
)

// unfinished are the states of runs that have not ended.
var unfinished = []string{"scheduled", "queued", "running", "waiting", "needs-handler", "paused", "undoing"}

// DefaultStates returns the states that a filter without states selects for the action.
func (a BulkAction) DefaultStates() []string {
	if a == BulkCancel {
		return slices.Clone(unfinished)
	}
	return []string{"dead"}
}

// PossibleStates returns the states in which a run allows the action.
func (a BulkAction) PossibleStates() []string {
	if a == BulkCancel {
		return append([]string{"dead"}, unfinished...)
	}
	return []string{"dead"}
}

// MaxBulk is the largest number of runs that one [Runs.Bulk] changes.
const MaxBulk = 1000

// Validate checks the request and adds the default states of the action to its filter. A request
// with neither ids nor a filter is an error: it would select all runs by mistake.
func (b *Bulk) Validate(action BulkAction) error {
	if b.Limit < 1 || b.Limit > MaxBulk {
		return Invalid("limit", "%d is not a number from 1 to %d", b.Limit, MaxBulk)
	}
	switch {
	case (b.Filter == nil) == (len(b.IDs) == 0):
		return Invalid("filter", "set either filter or ids, and not both")
	case len(b.IDs) > b.Limit:
		return Invalid("ids", "%d ids are more than the limit of %d", len(b.IDs), b.Limit)
	case slices.Contains(b.IDs, ""):
		return Invalid("ids", "one of them is empty, and an empty id matches every run")
	case b.Filter == nil && b.After != "":
		return Invalid("after", "is possible only with filter")
	case b.Filter == nil:
		return nil
	}
	f := b.Filter
	if err := f.Validate(); err != nil {
		return err
	}
	if len(f.States) == 0 {
		f.States = action.DefaultStates()
	}
	for _, state := range f.States {
		if !slices.Contains(action.PossibleStates(), state) {
			return Invalid("state", "the action is not possible for runs in the state %s", state)
		}
	}
	f.Order, f.Limit, f.After, f.Fresh = "oldest", b.Limit, b.After, b.After == ""
	return nil
}

// change returns the function that applies the action to one run.
func (a BulkAction) change(r *Runs) func(ctx context.Context, id, by string) error {
	switch a {
	case BulkCancel:
		return r.engine.Cancel
	case BulkRetryLatest:
		return func(ctx context.Context, id, by string) error {
			_, err := r.RetryLatest(ctx, id, nil, nil, by)
			return err
		}
	default:
		return r.engine.Retry
	}
}

// Bulk applies the action to at most [MaxBulk] runs, one after the other. [Bulk.Validate] must
// have accepted the request. Done.Next is the cursor for the After of the next request.
func (r *Runs) Bulk(ctx context.Context, action BulkAction, b Bulk, by string) (Done, error) {
	done, ids, change := Done{Failed: []Failed{}}, b.IDs, action.change(r)
	if b.Filter != nil {
		page, err := r.ListOf(ctx, *b.Filter)
		if err != nil {
			return done, err
		}
		for i := range page.Runs {
			ids = append(ids, page.Runs[i].ID)
		}
		done.Next, done.Silent = page.Next, page.Silent
	}
	for _, text := range ids {
		if ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		done.Matched++
		id, err := r.Find(ctx, text)
		if err == nil {
			err = r.explain(ctx, id, change(ctx, id, by))
		}
		if err != nil {
			done.Failed = append(done.Failed, Failed{text, AsError(err).Error()})
			continue
		}
		done.Done++
	}
	return done, nil
}

const (
	// bulkWorkers is how many runs ForAll changes at the same time. The engine stores concurrent
	// changes in one write.
	bulkWorkers = 16

	// bulkTime limits one call of ForAll.
	bulkTime = 15 * time.Second
)

// BulkResult is the result of [Runs.ForAll].
type BulkResult struct {
	Done    int64 // runs that were changed
	Refused int64 // runs that were not: the state had changed, or an attempt does not end
	More    bool  // the time limit ended the call before it reached all runs
}

// ForAll applies the action to all runs that match a filter, for 15 seconds at most. It reads the
// list once, from the oldest run to the newest, so that it retries a run that dies again only once.
func (r *Runs) ForAll(ctx context.Context, action BulkAction, f Filter, by string) (result BulkResult, err error) {
	change := action.change(r)
	f.Order, f.Limit = "oldest", 1000
	for end := time.Now().Add(bulkTime); ; {
		list, err := r.engine.List(ctx, f.engine())
		if err == nil {
			err = result.add(ctx, list.Runs, func(id string) error { return change(ctx, id, by) })
		}
		if err != nil || list.Next == "" {
			return result, err
		}
		if f.After = list.Next; time.Now().After(end) {
			result.More = true
			return result, nil
		}
	}
}

// add calls change concurrently for the runs, and counts the results. It stops at the first
// [engine.ErrClosed], which it returns.
func (b *BulkResult) add(ctx context.Context, runs []engine.Info, change func(id string) error) error {
	rest, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range bulkWorkers {
		workers.Go(func() {
			for n := next.Add(1); n <= int64(len(runs)) && rest.Err() == nil; n = next.Add(1) {
				switch err := change(runs[n-1].ID); {
				case err == nil:
					atomic.AddInt64(&b.Done, 1)
				case errors.Is(err, engine.ErrClosed):
					stop(err)
				default:
					atomic.AddInt64(&b.Refused, 1)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(rest)
}
