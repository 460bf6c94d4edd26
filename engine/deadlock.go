package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// A handler that waits for another run keeps its place meanwhile. If all places are
// kept in this way by handlers that wait for runs which need one of these places,
// nothing goes on. Engine.Wait knows from its context which attempt it is called in,
// so such a deadlock is found, and not guessed.

const (
	deadlockEvery  = time.Second      // between two searches while handlers wait
	deadlockRemote = 10 * time.Second // the same, while the states of runs are asked of other processes
	deadlockAfter  = time.Minute      // how long runs of other processes must be queued for it
)

// deadlockWatcher has the calls of Wait that are made in handlers of this process, and
// looks for deadlocks among them.
type deadlockWatcher struct {
	router *router

	mu       sync.Mutex
	waits    map[handlerWait]int // how many calls there are of each
	watching bool                // the goroutine that looks for deadlocks runs
	closed   bool
	stop     context.CancelFunc
	watch    sync.WaitGroup
}

// handlerWait is an attempt whose handler waits for a run.
type handlerWait struct {
	attempt *attempt
	run     machine.ID
}

// begin notes that a handler waits for a run, and returns a function that ends that.
func (w *deadlockWatcher) begin(a *attempt, run machine.ID) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := handlerWait{a, run}
	w.waits[k]++
	if !w.watching && !w.closed {
		var ctx context.Context
		ctx, w.stop = context.WithCancel(context.Background())
		w.watching = true
		w.watch.Go(func() { w.run(ctx) })
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.waits[k]--; w.waits[k] == 0 {
			delete(w.waits, k)
		}
	}
}

// list returns which runs each attempt waits for. Without any, it reports that the
// goroutine that looks for deadlocks may end.
func (w *deadlockWatcher) list() (waits map[*attempt][]machine.ID, ends bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waits) == 0 {
		w.watching = false
		return nil, true
	}
	waits = map[*attempt][]machine.ID{}
	for k := range w.waits {
		waits[k.attempt] = append(waits[k.attempt], k.run)
	}
	return waits, false
}

// close ends the goroutine that looks for deadlocks, for good.
func (w *deadlockWatcher) close() {
	w.mu.Lock()
	w.closed = true
	if w.stop != nil {
		w.stop()
	}
	w.mu.Unlock()
	w.watch.Wait()
}

// run looks for deadlocks for as long as handlers wait for runs. The
// shards of a process are not looked at in the same moment: what is found counts
// when it is found twice.
func (w *deadlockWatcher) run(ctx context.Context) {
	var last deadlock
	since := time.Now()
	for wait := deadlockEvery; ; {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		waits, ends := w.list()
		if ends {
			w.report(deadlock{})
			return
		}
		found, err := w.find(ctx, waits)
		if err != nil {
			continue // a shard can't answer, which is a trouble of its own
		}
		if wait = deadlockEvery; found.remote > 0 {
			wait = deadlockRemote
		}
		again := slices.ContainsFunc(found.attempts, func(a string) bool { return slices.Contains(last.attempts, a) })
		last = found
		switch {
		case !again:
			since = time.Now()
			w.report(deadlock{})
		case found.remote == 0 || time.Since(since) >= deadlockAfter:
			w.report(found)
		}
	}
}

// report makes a deadlock a trouble of the shard of its first attempt, where
// troubles are looked for, or clears the trouble if there is none.
func (w *deadlockWatcher) report(d deadlock) {
	for _, sh := range w.router.shards() {
		if len(d.attempts) == 0 || sh.number != d.shard {
			if sh.health.get(troubleDeadlock) != nil {
				w.router.process.cfg.Logger.Info("the deadlock is over", "shard", sh.number)
			}
			sh.health.set(troubleDeadlock, nil)
			continue
		}
		if sh.health.get(troubleDeadlock) == nil {
			w.router.process.cfg.Logger.Error("deadlock: attempts wait for runs that can't begin", "shard", sh.number, "why", d.text)
		}
		sh.health.set(troubleDeadlock, errors.New(d.text))
	}
}

// deadlock is a set of attempts that wait for each other's places. Without attempts
// there is none.
type deadlock struct {
	attempts []string // id of the run, step and number of each
	shard    int      // of the first
	remote   int      // runs of other processes that are queued, and waited for
	text     string
}

// find looks at all shards of this process.
func (w *deadlockWatcher) find(ctx context.Context, waits map[*attempt][]machine.ID) (d deadlock, err error) {
	ctx, cancel := context.WithTimeout(ctx, fanOut)
	defer cancel()
	g := &waitGraph{
		places: w.router.process.cfg.Concurrency, attempts: map[attemptKey]*waitingAttempt{}, runs: map[machine.ID]*waitedRun{},
		stepLimits: map[limitKey]int{}, runLimits: map[limitKey]*runLimit{},
	}
	for _, sh := range w.router.shards() {
		_, err := ask(ctx, sh, func(*turn) (struct{}, error) { g.addShard(sh, waits); return struct{}{}, nil })
		if err != nil {
			return d, err
		}
	}
	g.full = w.router.process.places.none()
	if stuck := g.stuck(); len(stuck) > 0 && len(g.elsewhere) > 0 {
		w.askElsewhere(ctx, g)
	}
	return g.deadlock(g.stuck()), nil
}

// askElsewhere asks for the states of runs that other processes own.
func (w *deadlockWatcher) askElsewhere(ctx context.Context, g *waitGraph) {
	for id := range g.elsewhere {
		if i, err := w.router.process.getRun(ctx, id.String()); err == nil && i.State == StateQueued {
			g.elsewhere[id] = i.Workflow
		} else {
			delete(g.elsewhere, id)
		}
	}
	g.asked = true
}
