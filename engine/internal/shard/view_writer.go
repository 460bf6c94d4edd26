package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/internal/describe"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/internal/view"
)

const (
	viewBatch    = 1000                   // most runs in a batch
	viewPause    = 25 * time.Millisecond  // delay before a batch that is not full, so that a run that ends soon is written once
	indexPause   = 100 * time.Millisecond // time without batches after which the search index is updated
	indexBatch   = 4096                   // runs that are indexed at once
	maxUnindexed = 12_000                 // if more runs are not indexed, indexing does not wait for a pause
	viewRetry    = 5 * time.Second        // delay after an error
	maxExpire    = 2000                   // runs that are deleted from the view at once
)

// viewWriter keeps the view up to date. The owner makes batches, which are copies of runs, and
// a goroutine writes them.
type viewWriter struct {
	state   *state
	end     *logEnd
	archive *store.ArchiveBuffer // of the snapshots; gets the finished runs that the view has
	path    string               // path of the view; "" if the shard has no view
	viewGoroutine

	todo     []*machine.Run // runs that changed up to the entry todoSeq, and are in no batch yet
	todoSeq  uint64
	cursor   uint64         // the view has all changes up to this entry, once the current batch is written
	put      []view.Run     // runs of the batch that is being written; the next batch uses the memory again
	finished []*machine.Run // finished runs of that batch
	deleted  []string       // ids of runs to delete with the next batch
	busy     bool           // a batch is being written
	expire   bool           // the next batch also deletes runs that were kept long enough
	since    time.Time      // when the first change that is in no batch happened
	hurry    bool           // write batches that are not full at once
	retry    time.Time      // after an error: when to write the next batch
	sent     []string       // ids of runs to delete in the batch that is being written
	waits    []viewWait
	pause    *time.Timer    // wakes the owner when a delayed batch is due
	reopen   time.Time      // when to try to open the view again; zero if it is open
	writing  sync.WaitGroup // the writing goroutine
}

// get returns the view. If the view and the error are both nil, the shard has no view, and all
// runs are in memory. Any goroutine may call it.
func (v *viewWriter) get() (*view.View, error) {
	found := v.view.Load()
	if found == nil && v.path != "" {
		return nil, fmt.Errorf("the view can't be opened: %w", cmp.Or(v.health.get(troubleView), errors.New("it is being opened")))
	}
	return found, nil
}

// setMissing notes that the view can't be opened. The shard works without the view, and tries
// to open it again later. Lists fail meanwhile.
func (v *viewWriter) setMissing(err error) {
	v.health.set(troubleView, err)
	v.health.logError("can't open the view; lists are not available until it can", "error", err)
	v.cursor, v.todo, v.finished, v.deleted = 0, nil, v.finished[:0], nil
	v.reopen = time.Now().Add(viewRetry)
}

// viewJob is a batch for the writing goroutine.
type viewJob struct {
	view.Batch
	expire bool // also delete runs that were kept long enough
	busy   bool // another batch follows at once
}

// behind returns the number of changed runs that are in no batch yet.
func (v *viewWriter) behind() int { return len(v.todo) + v.state.m.Behind() }

// wake returns a channel that is ready when a delayed batch is due; nil if nothing is written.
func (v *viewWriter) wake() <-chan time.Time {
	if v.pause == nil {
		return nil
	}
	return v.pause.C
}

// delay returns the time until the view is to be opened again. Other events of the viewWriter
// come by wake and written.
func (v *viewWriter) delay() time.Duration {
	if v.reopen.IsZero() {
		return math.MaxInt64
	}
	return time.Until(v.reopen)
}

// startWriting starts the writing goroutine, if the view is open.
func (v *viewWriter) startWriting() {
	if v.view.Load() == nil {
		return
	}
	v.batches, v.written = make(chan viewJob, 1), make(chan error, 1)
	v.pause, v.unindexed = time.NewTimer(time.Hour), 0
	v.writing.Go(v.run)
}

// stopWriting ends the writing goroutine, and waits for it.
func (v *viewWriter) stopWriting() {
	if v.batches != nil {
		close(v.batches)
		v.writing.Wait()
		v.batches = nil
	}
}

// viewGoroutine writes batches to a view.
type viewGoroutine struct {
	process *Process
	health  *health

	view    atomic.Pointer[view.View] // nil if the shard has no view, or it can't be opened
	batches chan viewJob              // nil if the goroutine does not run
	written chan error                // results of writes, for confirm

	unindexed int // about how many runs were written since the search index was up to date
}

// run writes batches as they come. When none has come for indexPause, it updates the search
// index. If many runs are not indexed, it indexes some of them after a batch. The semaphore viewWriters
// leaves processors for other work. While a batch waits, changes are collected for the next, larger batch.
func (w *viewGoroutine) run() {
	idle := time.NewTimer(indexPause)
	defer idle.Stop()
	for {
		select {
		case j, ok := <-w.batches:
			if !ok {
				return
			}
			w.process.viewWriters <- struct{}{}
			w.written <- w.write(j)
			if w.unindexed += len(j.Put); w.unindexed > maxUnindexed {
				w.index()
			}
			<-w.process.viewWriters
			if !j.busy {
				idle.Reset(indexPause)
			}
		case <-idle.C:
			select {
			case w.process.viewWriters <- struct{}{}:
			default: // other views are being written: batches go before indexing
				idle.Reset(indexPause)
				continue
			}
			more, err := w.index()
			<-w.process.viewWriters
			switch {
			case err != nil:
				idle.Reset(time.Minute)
			case more:
				idle.Reset(0)
			}
		}
	}
}

// index indexes some runs. It returns whether there are more.
func (w *viewGoroutine) index() (more bool, err error) {
	n, err := w.view.Load().Index(context.Background(), indexBatch)
	if err != nil {
		w.health.logError("can't update the search index", "error", err)
	}
	if w.unindexed -= n; err != nil || n < indexBatch {
		w.unindexed = 0
	}
	return n == indexBatch, err
}

// write writes a batch. If the job says so, it also deletes runs that were kept long enough.
func (w *viewGoroutine) write(j viewJob) error {
	ctx, to := context.Background(), w.view.Load()
	err := to.Write(ctx, j.Batch)
	for n := maxExpire; err == nil && n == maxExpire && j.expire; {
		ended := time.Now().Add(-w.process.Settings.Retention)
		n, err = to.Expire(ctx, []string{"succeeded", "canceled", "replaced"}, ended, maxExpire)
	}
	return err
}

// feed sends the next batch to the writing goroutine, if that is idle and there are changes.
func (v *viewWriter) feed() {
	if !v.reopen.IsZero() && !v.tryReopen() {
		return
	}
	m := v.state.m
	if v.view.Load() == nil {
		for _, r := range m.TakeChanged() {
			r.Seen()
		}
		m.TakePurged()
		return
	}
	for _, id := range m.TakePurged() {
		v.deleted = append(v.deleted, id.String())
	}
	n := v.behind() + len(v.deleted)
	if n > 0 && v.since.IsZero() {
		v.since = time.Now()
	}
	// An entry without changes of runs also counts: a snapshot may begin at it, and a view that is
	// older than the snapshot must be built anew.
	if v.busy || n == 0 && !v.expire && v.cursor >= v.state.seq {
		return
	}
	if wait := v.batchDelay(n); wait > 0 {
		v.pause.Reset(wait)
		return
	}
	if len(v.todo) == 0 {
		v.todo, v.todoSeq = m.TakeChanged(), v.state.seq
	}
	v.batches <- viewJob{v.nextBatch(), v.expire, n > viewBatch}
	v.busy, v.expire, v.since = true, false, time.Time{}
}

// batchDelay returns how long a batch of n runs has to wait.
func (v *viewWriter) batchDelay(n int) time.Duration {
	wait := time.Until(v.retry)
	if n < viewBatch && !v.hurry && len(v.waits) == 0 {
		wait = max(wait, viewPause-time.Since(v.since))
	}
	return wait
}

// nextBatch makes the next batch. Its cursor becomes todoSeq only with the last runs of todo:
// only then has the view all changes up to that entry. If no other run has changed since, it has
// all changes.
func (v *viewWriter) nextBatch() view.Batch {
	n := min(len(v.todo), viewBatch)
	b := view.Batch{Put: slices.Grow(v.put[:0], n), Cursor: v.cursor}
	for _, r := range v.todo[:n] {
		if !r.Dirty() {
			continue
		}
		r.Seen()
		if _, there := v.state.m.Run(r.ID); !there {
			continue // removed from memory meanwhile
		}
		whole := r
		if r.IsCold() {
			var err error
			if whole, err = v.state.m.Copy(r); err != nil {
				v.health.broken(err)
				continue
			}
		}
		b.Put = append(b.Put, describe.Row(whole))
		if r.Finished() {
			v.finished = append(v.finished, r)
			if !r.Archived {
				r.Archived = true
				v.archive.Add(r)
			}
		}
	}
	v.todo = v.todo[n:]
	if len(v.todo) == 0 {
		v.todo = nil
		if v.state.m.Behind() == 0 {
			v.todoSeq = v.state.seq
		}
		b.Cursor, v.cursor = v.todoSeq, v.todoSeq
	}
	v.put = b.Put
	b.Delete, v.sent, v.deleted = v.deleted, v.deleted, nil
	return b
}

// confirm handles the result of writing a batch.
func (v *viewWriter) confirm(err error) {
	v.busy = false
	if clear(v.put); v.behind() < viewBatch {
		v.put = nil
	}
	defer func() { v.endWaits(err != nil) }()
	if err != nil {
		v.health.set(troubleView, err)
		if errors.Is(err, view.ErrDamaged) {
			v.stopWriting()
			if err := v.rebuild(err); err != nil {
				_ = v.view.Swap(nil).Close()
				v.setMissing(err)
				return
			}
			v.startWriting()
			return
		}
		// The batch is lost: write all runs in memory again.
		v.health.logError("can't write the view; lists may be incomplete until it can", "error", err)
		v.finished = v.finished[:0]
		v.deleted = append(v.deleted, v.sent...)
		v.markAllChanged()
		v.cursor = v.view.Load().Cursor()
		v.retry = time.Now().Add(viewRetry)
		return
	}
	v.health.set(troubleView, nil)
	for i, r := range v.finished {
		if !r.Dirty() {
			_ = v.state.m.Forget(r) // can't fail: the run is finished
		}
		v.finished[i] = nil
	}
	v.finished = v.finished[:0]
}

// markAllChanged marks all runs in memory as changed, so that they are written again.
func (v *viewWriter) markAllChanged() {
	v.state.m.TakeChanged()
	v.todo, v.todoSeq = slices.Clone(v.state.m.All()), v.state.seq
	for _, r := range v.todo {
		r.Soil()
	}
}

// flush writes all changes to the view, and ends the writing goroutine.
func (v *viewWriter) flush() {
	if v.batches == nil {
		return
	}
	for {
		if v.busy {
			v.confirm(<-v.written)
			if v.health.get(troubleView) != nil {
				break // the changes are written when the shard is opened next
			}
		}
		if v.behind() == 0 {
			break
		}
		v.hurry, v.retry = true, time.Time{}
		v.feed()
	}
	v.stopWriting()
}

// close closes the view.
func (v *viewWriter) close() {
	if found := v.view.Load(); found != nil {
		if err := found.Close(); err != nil {
			v.process.Settings.Logger.Error("can't close the view", "error", err)
		}
	}
}

// freshWithin is the longest time that a list waits for the view.
const freshWithin = time.Second

// viewWait is a wait until the view has all changes up to an entry. Batches are not delayed meanwhile.
type viewWait struct {
	seq  uint64        // number of the entry
	seen chan struct{} // closed when the view has them
	list bool          // a list waits: it needs no cursor of the view, and does not wait longer after an error
}

// addWait closes the channel when the view has all changes up to now, or after an error.
func (v *viewWriter) addWait(seen chan struct{}) {
	if v.batches == nil || v.isCurrent() {
		close(seen)
		return
	}
	v.waits = append(v.waits, viewWait{v.state.seq, seen, true})
}

// reaches returns a channel that is closed when the cursor of the view has come to the last entry, or
// the shard has no view.
func (v *viewWriter) reaches() <-chan struct{} {
	seen := make(chan struct{})
	if v.batches == nil {
		close(seen)
		return seen
	}
	v.waits = append(v.waits, viewWait{seq: v.state.seq, seen: seen})
	return seen
}

// isCurrent reports whether the view has all changes.
func (v *viewWriter) isCurrent() bool {
	return !v.busy && len(v.deleted) == 0 && v.behind() == 0
}

// endWaits ends the waits whose entries the view has, and those of lists if a write has failed.
func (v *viewWriter) endWaits(failed bool) {
	v.waits = slices.DeleteFunc(v.waits, func(w viewWait) bool {
		over := !failed && w.seq <= v.cursor || w.list && (failed || v.isCurrent())
		if over {
			close(w.seen)
		}
		return over
	})
}
