package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
)

const (
	viewBatch  = 1000                   // runs of a write
	viewPause  = 25 * time.Millisecond  // before a write that is not full, so that a run that ends soon is written once
	indexPause = 100 * time.Millisecond // without changes, before search is brought up to date
	indexBatch = 256
	viewRetry  = 5 * time.Second // after an error
	maxExpire  = 2000            // runs that leave the view at once
)

// viewWriter keeps the view behind the log. The owner gives it rows, in batches that
// are copies; a goroutine of its own writes them.
type viewWriter struct {
	sh   *shard
	o    *owner
	path string                    // of the view; empty for none
	view atomic.Pointer[view.View] // nil if there is none, or if it can't be opened

	batches chan viewJob
	written chan error // results of writes, for confirm

	todo     []*machine.Run // changed until the entry todoSeq
	todoSeq  uint64
	cursor   uint64         // the entry that the view is as far as
	finished []*machine.Run // in the batch that is being written
	deleted  []string
	busy     bool
	expire   bool      // it is time to look for runs that were kept long enough
	since    time.Time // when the first change came that waits to be written
	hurry    bool      // nothing is held back
	retry    time.Time // not before then, after an error
	sent     []string  // to be deleted, in the batch that is being written
	waits    []viewWait
	pause    *time.Timer
	reopen   time.Time // when to open the view again, if it could not be opened
	done     chan struct{}
}

// init sets the folder of the view; an empty one means that there is none.
func (v *viewWriter) init(sh *shard, dir string) {
	v.sh, v.o = sh, &sh.owner
	if dir != "" {
		v.path = filepath.Join(dir, "view.db")
	}
}

// get returns the view. Without an error it may be nil: then there is none, and all runs
// are in memory.
func (v *viewWriter) get() (*view.View, error) {
	found := v.view.Load()
	if found == nil && v.path != "" {
		return nil, fmt.Errorf("the view can't be opened: %w", cmp.Or(v.sh.health.get(troubleView), errors.New("it is being opened")))
	}
	return found, nil
}

// setMissing notes that the view can't be opened. The engine works without it, and opens it
// later; lists are errors meanwhile.
func (v *viewWriter) setMissing(err error) {
	v.sh.health.set(troubleView, err)
	v.sh.health.logError("can't open the view; lists are not available until it can", "error", err)
	v.cursor, v.todo, v.finished, v.deleted = 0, nil, v.finished[:0], nil
	v.reopen = time.Now().Add(viewRetry)
}

// viewJob is what the goroutine writes at once.
type viewJob struct {
	view.Batch
	expire bool
	busy   bool // more will follow at once
}

// behind returns how many runs the view has yet to see.
func (v *viewWriter) behind() int { return len(v.todo) + v.o.m.Behind() }

// wake returns a channel that is ready when there is something to give to the
// view that was held back.
func (v *viewWriter) wake() <-chan time.Time {
	if v.pause == nil {
		return nil
	}
	return v.pause.C
}

// delay returns how long there is nothing to do but what wake and written say.
func (v *viewWriter) delay() time.Duration {
	if v.reopen.IsZero() {
		return math.MaxInt64
	}
	return time.Until(v.reopen)
}

// startWriting starts the goroutine that writes, if there is a view.
func (v *viewWriter) startWriting() {
	if v.view.Load() == nil {
		return
	}
	v.batches, v.written, v.done = make(chan viewJob, 1), make(chan error, 1), make(chan struct{})
	v.pause = time.NewTimer(time.Hour)
	w := viewGoroutine{sh: v.sh, view: &v.view, batches: v.batches, written: v.written}
	go func(done chan struct{}) {
		defer close(done)
		w.run()
	}(v.done)
}

// stopWriting ends the goroutine.
func (v *viewWriter) stopWriting() {
	if v.batches != nil {
		close(v.batches)
		<-v.done
		v.batches = nil
	}
}

// viewGoroutine writes batches to a view.
type viewGoroutine struct {
	sh      *shard
	view    *atomic.Pointer[view.View]
	batches <-chan viewJob
	written chan<- error
}

// run writes batches as they come, and when none has come for a while,
// or search is too old, adds to what can be searched. The views of a process
// take turns, and leave it time for its work; a batch that waits for its turn
// does no harm, as the next one is larger.
func (w *viewGoroutine) run() {
	pens := w.sh.pens
	idle := time.NewTimer(indexPause)
	defer idle.Stop()
	for {
		select {
		case j, ok := <-w.batches:
			if !ok {
				return
			}
			pens <- struct{}{}
			w.written <- w.write(j)
			<-pens
			if !j.busy {
				idle.Reset(indexPause)
			}
		case <-idle.C:
			select {
			case pens <- struct{}{}:
			default: // others have runs to write, which goes before
				idle.Reset(indexPause)
				continue
			}
			n, err := w.view.Load().Index(context.Background(), indexBatch)
			<-pens
			switch {
			case err != nil:
				w.sh.health.logError("can't add to what is searched", "error", err)
				idle.Reset(time.Minute)
			case n == indexBatch:
				idle.Reset(0)
			}
		}
	}
}

// write writes a batch, and looks for runs that were kept long enough.
func (w *viewGoroutine) write(j viewJob) error {
	ctx, to := context.Background(), w.view.Load()
	err := to.Write(ctx, j.Batch)
	for n := maxExpire; err == nil && n == maxExpire && j.expire; {
		ended := time.Now().Add(-w.sh.cfg.Retention)
		n, err = to.Expire(ctx, []string{"succeeded", "canceled", "replaced"}, ended, maxExpire)
	}
	return err
}

// feed gives the goroutine the next batch, if it is idle.
func (v *viewWriter) feed() {
	if !v.reopen.IsZero() {
		v.tryReopen()
	}
	if !v.reopen.IsZero() {
		return
	}
	m := v.o.m
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
	if v.busy || n == 0 && !v.expire {
		return
	}
	wait := time.Until(v.retry)
	if n < viewBatch && !v.hurry && len(v.waits) == 0 {
		wait = max(wait, viewPause-time.Since(v.since))
	}
	if wait > 0 {
		v.pause.Reset(wait)
		return
	}
	if len(v.todo) == 0 {
		v.todo, v.todoSeq = m.TakeChanged(), v.o.seq
	}
	v.batches <- viewJob{v.nextBatch(), v.expire, n > viewBatch}
	v.busy, v.expire, v.since = true, false, time.Time{}
}

// nextBatch makes the next batch. Only with the last of the runs that changed until an
// entry is the view as far as the entry.
func (v *viewWriter) nextBatch() view.Batch {
	n := min(len(v.todo), viewBatch)
	b := view.Batch{Put: make([]view.Run, 0, n), Cursor: v.cursor}
	for _, r := range v.todo[:n] {
		if !r.Dirty() {
			continue
		}
		r.Seen()
		if _, there := v.o.m.Run(r.ID); !there {
			continue // forgotten meanwhile
		}
		whole := r
		if r.IsCold() {
			var err error
			if whole, err = v.o.m.Copy(r); err != nil {
				v.sh.health.broken(err)
				continue
			}
		}
		b.Put = append(b.Put, row(whole))
		if r.Finished() {
			v.finished = append(v.finished, r)
			if !r.Archived {
				r.Archived = true
				v.sh.snapshots.archive.Add(r)
			}
		}
	}
	v.todo = v.todo[n:]
	if len(v.todo) == 0 {
		v.todo = nil
		b.Cursor, v.cursor = v.todoSeq, v.todoSeq
	}
	b.Delete, v.sent, v.deleted = v.deleted, v.deleted, nil
	return b
}

// confirm takes the result of a write.
func (v *viewWriter) confirm(err error) {
	v.busy = false
	defer func() { v.endWaits(err != nil) }()
	if err != nil {
		v.sh.health.set(troubleView, err)
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
		// The rows are lost, but everything that is in memory can be written again.
		v.sh.health.logError("can't write the view; lists may be incomplete until it can", "error", err)
		v.finished = v.finished[:0]
		v.deleted = append(v.deleted, v.sent...)
		v.markAllChanged()
		v.retry = time.Now().Add(viewRetry)
		return
	}
	v.sh.health.set(troubleView, nil)
	for i, r := range v.finished {
		if !r.Dirty() {
			_ = v.o.m.Forget(r) // finished is finished
		}
		v.finished[i] = nil
	}
	v.finished = v.finished[:0]
}

// markAllChanged makes everything that is in memory be written to the view again.
func (v *viewWriter) markAllChanged() {
	v.o.m.TakeChanged()
	v.todo, v.todoSeq = slices.Clone(v.o.m.All()), v.o.seq
	for _, r := range v.todo {
		r.Soil()
	}
}

// flush writes what the view has yet to see, and ends the writing.
func (v *viewWriter) flush() {
	if v.batches == nil {
		return
	}
	for {
		if v.busy {
			v.confirm(<-v.written)
			if v.sh.health.get(troubleView) != nil {
				break // it will be made up for when the engine is opened next
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
			v.sh.cfg.Logger.Error("close the view", "error", err)
		}
	}
}

// row returns how the run looks in the view.
func row(r *machine.Run) view.Run {
	v := view.Run{
		ID: r.ID.String(), Workflow: r.Def.Name, Key: r.Key, State: r.State().String(),
		Created: time.Unix(0, r.Created), Ended: moment(r.Ended), Next: moment(r.Next()),
		Attempts: r.Attempts(), Input: r.Input, ReplacedBy: r.ReplacedBy().String(),
	}
	if r.Outcome == machine.Dead {
		v.Reason = r.Reason.String()
	}
	v.Step, v.Error, v.Updated = r.Situation()
	if out := r.Result(); len(out) <= preview {
		v.Output = out
	}
	if r.Finished() { // of the others, the memory knows more
		v.Detail = r.EncodeWithout(nil)
	}
	return v
}

const preview = 256

// moment returns the time, or none for zero.
func moment(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// freshWithin is how long a list waits for the view at most.
const freshWithin = time.Second

// viewWait is a list that waits until the view is as far as an entry.
type viewWait struct {
	seq  uint64
	seen chan struct{} // closed when it is
}

// refresh waits until the view has what was acknowledged before the call, but not for
// longer than freshWithin if the owner can't store or the view can't be written: a list
// that is behind is better than none. Any goroutine may call it.
func (v *viewWriter) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, freshWithin)
	defer cancel()
	seen := make(chan struct{})
	err := v.sh.do(ctx, func(*turn) error {
		v.addWait(seen)
		return nil
	})
	if err != nil {
		return
	}
	select {
	case <-seen:
	case <-v.sh.done:
	case <-ctx.Done():
	}
}

// addWait has the channel closed when the view has everything up to now. Nothing is held
// back meanwhile.
func (v *viewWriter) addWait(seen chan struct{}) {
	if v.batches == nil || v.isCurrent() {
		close(seen)
		return
	}
	v.waits = append(v.waits, viewWait{v.o.seq, seen})
}

// isCurrent reports whether the view has everything.
func (v *viewWriter) isCurrent() bool {
	return !v.busy && len(v.deleted) == 0 && v.behind() == 0
}

// endWaits ends the waits that the view is far enough for, and after an error all of them.
func (v *viewWriter) endWaits(failed bool) {
	v.waits = slices.DeleteFunc(v.waits, func(w viewWait) bool {
		over := failed || w.seq <= v.cursor || v.isCurrent()
		if over {
			close(w.seen)
		}
		return over
	})
}
