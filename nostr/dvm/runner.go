package dvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/recentset"
	"github.com/tideover/tideover/limit"
)

// ErrClosed means that a runner accepts no more jobs.
var ErrClosed = errors.New("the runner is closed")

// Runner runs jobs in this process: it implements [Jobs] for a provider that
// needs no store. When it is closed, unfinished jobs are cancelled and their
// customers notified.
//
// An attempt that does not stop keeps its worker until it does, so that there
// are never more attempts than workers. So does a job whose end cannot be
// published because the outboxes of all relays are full.
type Runner struct {
	cfg    RunnerConfig
	budget *limit.Budget // retry budget that all jobs share; nil means none
	group  sync.WaitGroup

	closing chan struct{} // closed by Close

	mu     sync.Mutex
	closed bool
	active map[string]*job
	queue  []*job // jobs that wait for a worker
	busy   int    // number of busy workers
	recent recentset.Set
	stats  RunnerStats
}

// RunnerStats counts what a runner does.
type RunnerStats struct {
	Running   int    `json:"running"`
	Waiting   int    `json:"waiting"`
	Stuck     int    `json:"stuck"` // attempts that did not stop in time, and still run
	Late      uint64 `json:"late"`  // results after the end of their attempt, which were dropped
	Succeeded uint64 `json:"succeeded"`
	Failed    uint64 `json:"failed"`
	Cancelled uint64 `json:"cancelled"`
}

// NewRunner returns a runner. The error lists all problems of the
// configuration.
func NewRunner(cfg RunnerConfig) (*Runner, error) {
	cfg = cfg.withDefaults()
	err := cfg.validate()
	r := &Runner{cfg: cfg, closing: make(chan struct{}), active: map[string]*job{}, recent: recentset.New(recentKept)}
	if err == nil && cfg.Policy.Budget != (limit.BudgetSpec{}) {
		r.budget, err = limit.NewBudget(cfg.Policy.Budget)
	}
	if err == nil {
		_, err = r.newJob(&Request{Timeout: time.Second}).retrier()
	}
	if err != nil {
		return nil, fmt.Errorf("dvm.NewRunner: %w", err)
	}
	return r, nil
}

// Start implements [Jobs].
func (r *Runner) Start(_ context.Context, req *Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return ErrClosed
	case r.active[req.ID] != nil || r.recent.Has(req.ID):
		return nil
	case r.busy >= r.cfg.Workers && len(r.queue) >= r.cfg.Queue:
		return ErrOverloaded
	}
	j := r.newJob(req)
	r.active[req.ID] = j
	r.queue = append(r.queue, j)
	r.startWaiting()
	return nil
}

// startWaiting gives waiting jobs to free workers. The caller holds the lock.
func (r *Runner) startWaiting() {
	for r.busy < r.cfg.Workers && len(r.queue) > 0 {
		j := r.queue[0]
		r.queue = slices.Delete(r.queue, 0, 1)
		r.busy++
		r.group.Go(func() {
			defer r.release()
			j.run()
		})
	}
}

func (r *Runner) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy--
	r.startWaiting()
}

// recordEnd records that a job is over.
func (r *Runner) recordEnd(j *job, s State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.active, j.r.ID)
	r.recent.Add(j.r.ID)
	r.queue = slices.DeleteFunc(r.queue, func(other *job) bool { return other == j })
	switch s {
	case Succeeded:
		r.stats.Succeeded++
	case Cancelled:
		r.stats.Cancelled++
	default:
		r.stats.Failed++
	}
}

// Cancel implements [Jobs]. Only the customer may cancel a job.
func (r *Runner) Cancel(_ context.Context, id, by string) error {
	r.mu.Lock()
	j := r.active[id]
	r.mu.Unlock()
	switch {
	case j == nil:
		return nil
	case j.r.Customer != by:
		return fmt.Errorf("cancel %s: %s is not its customer", id, by)
	}
	j.cancelNow("")
	return nil
}

// Active implements [Jobs].
func (r *Runner) Active() []ActiveJob {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]ActiveJob, 0, len(r.active))
	for _, j := range r.active {
		list = append(list, ActiveJob{j.r.ID, j.r.Customer, j.r.Created})
	}
	return list
}

// History returns the history of a job that is not over.
func (r *Runner) History(id string) (History, bool) {
	r.mu.Lock()
	j := r.active[id]
	r.mu.Unlock()
	if j == nil {
		return History{}, false
	}
	return j.snapshot(), true
}

// Stats returns the counters of the runner.
func (r *Runner) Stats() RunnerStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Running, s.Waiting = r.busy, len(r.queue)
	return s
}

// Close accepts no more jobs, cancels the present ones, notifies their
// customers that the provider is shutting down, and waits until everything has
// ended or the context ends. It does not wait until the events are published;
// flush the link for that.
func (r *Runner) Close(ctx context.Context) error {
	r.mu.Lock()
	if !r.closed {
		close(r.closing)
	}
	r.closed = true
	jobs := slices.SortedFunc(maps.Values(r.active), func(a, b *job) int { return cmp.Compare(a.r.ID, b.r.ID) })
	r.mu.Unlock()
	for _, j := range jobs {
		j.cancelNow("provider shutting down")
	}
	ended := make(chan struct{})
	go func() { // it ends when the last handler returns
		r.group.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close: %d jobs have not stopped: %w", r.Stats().Running, context.Cause(ctx))
	}
}
