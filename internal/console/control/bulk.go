package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
)

// BulkAction is an operation on many runs.
type BulkAction string

// The actions of [Runs.Bulk] and [Runs.StartBulk].
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
			err = explain(ctx, r.engine, id, change(ctx, id, by))
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
	// bulkWorkers is how many runs a BulkJob changes at the same time. The engine stores concurrent
	// changes in one write.
	bulkWorkers = 16

	// bulkChangeTimeout limits the change of one run: its owner in a cluster may not answer.
	bulkChangeTimeout = 20 * time.Second
)

// BulkResult has the numbers of runs of a [BulkJob].
type BulkResult struct {
	Done    int64 // runs that were changed
	Refused int64 // runs whose state does not allow the change, or that do not exist any more
	Failed  int64 // runs that were not changed for another reason: their shard did not answer, for example
}

// BulkJob is a change of many runs in the background.
type BulkJob struct {
	done chan struct{}

	mu     sync.Mutex
	result BulkResult
	failed error // of the first run that counts as failed
	silent []int // shards that did not answer, so that their runs are not in the list
	err    error // why the job has stopped
}

// Progress returns how many runs were changed so far.
func (j *BulkJob) Progress() BulkResult {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.result
}

// Done returns a channel that is closed when the job has ended.
func (j *BulkJob) Done() <-chan struct{} { return j.done }

// Err returns why a job that has ended did not reach all runs, or could not change some of them; nil
// if it reached all. Runs that count as refused are no error.
func (j *BulkJob) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	errs := []error{j.err}
	if len(j.silent) > 0 {
		errs = append(errs, fmt.Errorf("%s: %w", NotChanged(j.silent), engine.ErrAway))
	}
	if n := j.result.Failed; n > 0 {
		errs = append(errs, fmt.Errorf("%s not changed, the first because: %w", textfmt.Plural(int(n), "run"), j.failed))
	}
	return errors.Join(errs...)
}

// count counts the result of the change of one run.
func (j *BulkJob) count(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err == nil:
		j.result.Done++
	case AsError(err).Status < http.StatusInternalServerError:
		j.result.Refused++
	default:
		j.result.Failed++
		j.failed = cmp.Or(j.failed, err)
	}
}

// StartBulk applies the action to the runs with the ids, or to all runs that match the filter if ids
// is nil, in the background. The job ends when it has reached all runs, when the context ends, or
// when the engine is closed. It reads the list once, from the oldest run to the newest, so that it
// retries a run that dies again only once. by names the user.
func (r *Runs) StartBulk(ctx context.Context, action BulkAction, ids []string, f Filter, by string) *BulkJob {
	j := &BulkJob{done: make(chan struct{})}
	change := func(id string) error {
		ctx, cancel := context.WithTimeout(ctx, bulkChangeTimeout)
		defer cancel()
		return action.change(r)(ctx, id, by)
	}
	go func() {
		defer close(j.done)
		var err error
		if ids != nil {
			err = j.add(ctx, ids, change)
		} else {
			err = j.addMatching(ctx, r, f, change)
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		j.err = err
	}()
	return j
}

// addMatching calls change for the runs that match a filter, page by page, from the oldest run to the
// newest. It records the shards that do not answer.
func (j *BulkJob) addMatching(ctx context.Context, r *Runs, f Filter, change func(id string) error) error {
	f.Order, f.Limit = "oldest", 1000
	for {
		list, err := r.engine.List(ctx, f.engine())
		if err != nil {
			return err
		}
		j.missed(list.Silent)
		ids := make([]string, len(list.Runs))
		for i := range list.Runs {
			ids[i] = list.Runs[i].ID
		}
		if err := j.add(ctx, ids, change); err != nil || list.Next == "" {
			return err
		}
		f.After = list.Next
	}
}

// missed records shards that did not answer.
func (j *BulkJob) missed(shards []int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.silent = append(j.silent, shards...)
	slices.Sort(j.silent)
	j.silent = slices.Compact(j.silent)
}

// add calls change concurrently for the runs, and counts the results. It stops at the first
// [engine.ErrClosed], which it returns.
func (j *BulkJob) add(ctx context.Context, ids []string, change func(id string) error) error {
	rest, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range bulkWorkers {
		workers.Go(func() {
			for n := next.Add(1); n <= int64(len(ids)) && rest.Err() == nil; n = next.Add(1) {
				err := change(ids[n-1])
				if errors.Is(err, engine.ErrClosed) {
					stop(err)
					continue
				}
				j.count(err)
			}
		})
	}
	workers.Wait()
	return context.Cause(rest)
}
