package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
)

// A handler that waits for another run keeps its place meanwhile. If waiting
// handlers have all places, and the runs that they wait for need one of these places, that is
// a deadlock. Engine.Wait knows from its context which attempt calls it, so a deadlock is
// detected exactly and not by a timeout. The function of a flow is no attempt: it can't continue
// while it waits for operations that are part of the deadlock.

const (
	deadlockEvery  = time.Second      // time between two checks while handlers wait
	deadlockRemote = 10 * time.Second // the same, if other processes must be asked for states of runs
	deadlockAfter  = time.Minute      // how long a deadlock with runs of other processes must last before it is reported
)

// deadlockWatcher knows the calls of Engine.Wait by handlers of this process, and looks for
// deadlocks among them.
type deadlockWatcher struct {
	process *shard.Process
	shards  func() []*shard.Shard

	mu       sync.Mutex
	waits    map[handlerWait]int // number of calls of Wait, by attempt and run
	watching bool                // the goroutine that looks for deadlocks is running
	watch    sync.WaitGroup
	ctx      context.Context //nolint:containedctx // ends when the engine has stopped
	stop     context.CancelFunc
}

// handlerWait is an attempt whose handler waits for a run.
type handlerWait struct {
	attempt *shard.Attempt
	run     machine.ID
}

// begin notes that a handler waits for a run, if the context is that of a handler of this process. The caller
// must call end when the handler does not wait any more.
func (w *deadlockWatcher) begin(ctx context.Context, id string) (end func()) {
	a := shard.AttemptOf(ctx)
	run, err := machine.ParseID(id)
	if err != nil || a == nil || !a.IsOf(w.process) {
		return func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := handlerWait{a, run}
	w.waits[k]++
	if !w.watching && w.ctx.Err() == nil {
		w.watching = true
		w.watch.Go(w.run)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.waits[k]--; w.waits[k] == 0 {
			delete(w.waits, k)
		}
	}
}

// list returns the runs that each attempt waits for. If it returns none, the goroutine that looks for
// deadlocks must end.
func (w *deadlockWatcher) list() map[*shard.Attempt][]machine.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := map[*shard.Attempt][]machine.ID{}
	for k := range w.waits {
		waits[k.attempt] = append(waits[k.attempt], k.run)
	}
	w.watching = len(waits) > 0
	return waits
}

// close ends the goroutine that looks for deadlocks, for good.
func (w *deadlockWatcher) close() {
	w.mu.Lock()
	w.stop()
	w.mu.Unlock()
	w.watch.Wait()
}

// run looks for deadlocks as long as handlers wait for runs. It reads the shards of the
// process one after the other, not at the same moment. So it reports a deadlock only if it
// finds it twice in a row.
func (w *deadlockWatcher) run() {
	var last shard.Deadlock
	since := time.Now()
	for wait := deadlockEvery; ; {
		select {
		case <-time.After(wait):
		case <-w.ctx.Done():
			return
		}
		waits := w.list()
		if len(waits) == 0 {
			w.report(shard.Deadlock{})
			return
		}
		found, err := w.find(waits)
		if err != nil {
			continue // a shard can't answer: it reports that trouble itself
		}
		if wait = deadlockEvery; found.Remote > 0 {
			wait = deadlockRemote
		}
		again := slices.ContainsFunc(found.Attempts, func(a string) bool { return slices.Contains(last.Attempts, a) })
		last = found
		switch {
		case !again:
			since = time.Now()
			w.report(shard.Deadlock{})
		case found.Remote == 0 || time.Since(since) >= deadlockAfter:
			w.report(found)
		}
	}
}

// report makes a deadlock a trouble of the shard of its first attempt, and clears the
// trouble of all other shards.
func (w *deadlockWatcher) report(d shard.Deadlock) {
	for _, sh := range w.shards() {
		sh.ReportDeadlock(d)
	}
}

// find looks for a deadlock in this process.
func (w *deadlockWatcher) find(waits map[*shard.Attempt][]machine.ID) (d shard.Deadlock, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, fanOut)
	defer cancel()
	return shard.FindDeadlock(ctx, w.process, w.shards(), waits, func(id machine.ID) (workflow string, ok bool) {
		i, err := w.process.Peers.Read(ctx, id.String())
		if err != nil || i.State != info.StateQueued {
			return "", false
		}
		return i.Workflow, true
	})
}
