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

// The operations on many runs.
const (
	BulkRetry       BulkAction = "retry"
	BulkRetryLatest BulkAction = "latest" // with the current definition
	BulkCancel      BulkAction = "cancel"
)

// unfinished are the states of runs that are not over.
var unfinished = []string{"scheduled", "queued", "running", "waiting", "needs-handler", "paused"}

// DefaultStates returns the states of runs that the action applies to if a filter names none.
func (a BulkAction) DefaultStates() []string {
	if a == BulkCancel {
		return slices.Clone(unfinished)
	}
	return []string{"dead"}
}

// PossibleStates returns the states of runs that the action is possible in.
func (a BulkAction) PossibleStates() []string {
	if a == BulkCancel {
		return append([]string{"dead"}, unfinished...)
	}
	return []string{"dead"}
}

// MaxBulk is the largest number of runs that one [Runs.Bulk] changes.
const MaxBulk = 1000

// Validate checks the request and fills in the defaults of the action. A request for all runs
// is an error: it is too easy to send by mistake.
func (b *Bulk) Validate(action BulkAction) error {
	if b.Limit < 1 || b.Limit > MaxBulk {
		return Invalid("limit", "%d is not a number from 1 to %d", b.Limit, MaxBulk)
	}
	switch {
	case (b.Filter == nil) == (len(b.IDs) == 0):
		return Invalid("filter", "either it or ids must say which runs are meant")
	case len(b.IDs) > b.Limit:
		return Invalid("ids", "%d are more than %d", len(b.IDs), b.Limit)
	case slices.Contains(b.IDs, ""):
		return Invalid("ids", "one of them is empty, which would be the beginning of every id")
	case b.Filter == nil && b.After != "":
		return Invalid("after", "is for a filter")
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
			return Invalid("state", "this is not possible with runs that are %s", state)
		}
	}
	f.Order, f.Limit, f.After, f.Fresh = "oldest", b.Limit, b.After, b.After == ""
	return nil
}

// change returns the operation on one run.
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

// Bulk applies the action to at most [MaxBulk] runs. Done.Next is where the next request
// continues. The request must be valid.
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
	// bulkWorkers is how many runs are changed at the same time: the engine stores concurrent
	// changes in one write.
	bulkWorkers = 16

	// bulkTime limits one call of ForAll.
	bulkTime = 15 * time.Second
)

// BulkResult is the result of [Runs.ForAll].
type BulkResult struct {
	Done    int64
	Refused int64 // runs in another state by then, or whose attempt does not end
	More    bool  // the time was over before all runs were reached
}

// ForAll applies the action to all runs of a filter, for 15 seconds at most. It reads the list
// from the oldest run to the newest once, so that it meets a run that dies again only once.
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

// add changes the runs concurrently, until one of the changes finds the engine closed.
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
