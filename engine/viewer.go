package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// viewer keeps the view behind the log. The owner gives it rows, in batches that
// are copies; a goroutine of its own writes them.
type viewer struct {
	batches chan viewJob
	written chan error

	todo     []*machine.Run // changed until the entry todoSeq
	todoSeq  uint64
	cursor   uint64         // the entry that the view is as far as
	finished []*machine.Run // in the batch that is being written
	deleted  []string
	busy     bool
	expire   bool      // it is time to look for what is kept long enough
	since    time.Time // when the first came of what waits to be written
	hurry    bool      // nothing is held back
	retry    time.Time // not before then, after an error
	sent     []string  // to be deleted, in the batch that is being written
	waits    []viewWait
	pause    *time.Timer
	reopen   time.Time // when to open the view again, if it could not be opened
	done     chan struct{}
}

// absent notes that the view can't be opened. The engine works without it, and opens it
// later; lists are errors meanwhile.
func (v *viewer) absent(sh *shard, err error) {
	sh.health.viewing(err)
	sh.complain("can't open the view; lists are not available until it can", "error", err)
	v.cursor, v.todo, v.finished, v.deleted = 0, nil, v.finished[:0], nil
	v.reopen = time.Now().Add(viewRetry)
}

// errNoView is why a list is not available.
func (sh *shard) errNoView() error {
	if sh.dir == "" {
		return errors.New("this engine has no view")
	}
	return fmt.Errorf("the view can't be opened: %w", cmp.Or(sh.health.view(), errors.New("it is being opened")))
}

// viewJob is what the owner asks of the view.
type viewJob struct {
	view.Batch
	expire bool
	busy   bool // more will follow at once
}

// behind returns how many runs the view has yet to see.
func (v *viewer) behind(m *machine.Machine) int { return len(v.todo) + m.Behind() }

// wake returns a channel that is ready when there is something to give to the
// view that was held back.
func (v *viewer) wake(*machine.Machine) <-chan time.Time {
	if v.pause == nil {
		return nil
	}
	return v.pause.C
}

// start starts the goroutine that writes.
func (v *viewer) start(sh *shard) {
	v.batches, v.written, v.done = make(chan viewJob, 1), make(chan error, 1), make(chan struct{})
	v.pause = time.NewTimer(time.Hour)
	go func() {
		defer close(v.done)
		sh.writeViews(v)
	}()
}

// writeViews writes batches as they come, and when none has come for a while,
// or search is too old, adds to what can be searched. The views of a process
// take turns, and leave it time for its work; a batch that waits for its turn
// does no harm, as the next one is larger.
func (sh *shard) writeViews(v *viewer) {
	idle := time.NewTimer(indexPause)
	defer idle.Stop()
	for {
		select {
		case j, ok := <-v.batches:
			if !ok {
				return
			}
			sh.pens <- struct{}{}
			v.written <- sh.writeView(j)
			<-sh.pens
			if !j.busy {
				idle.Reset(indexPause)
			}
		case <-idle.C:
			select {
			case sh.pens <- struct{}{}:
			default: // others have runs to write, which goes before
				idle.Reset(indexPause)
				continue
			}
			n, err := sh.view.Load().Index(context.Background(), indexBatch)
			<-sh.pens
			switch {
			case err != nil:
				sh.complain("can't add to what is searched", "error", err)
				idle.Reset(time.Minute)
			case n == indexBatch:
				idle.Reset(0)
			}
		}
	}
}

// writeView writes a batch, and looks for what is kept long enough.
func (sh *shard) writeView(j viewJob) error {
	ctx, v := context.Background(), sh.view.Load()
	err := v.Write(ctx, j.Batch)
	for n := maxExpire; err == nil && n == maxExpire && j.expire; {
		ended := time.Now().Add(-sh.cfg.Retention)
		n, err = v.Expire(ctx, []string{"succeeded", "canceled", "replaced"}, ended, maxExpire)
	}
	return err
}

// feed gives the view the next batch, if it is idle.
func (v *viewer) feed(sh *shard) {
	if !v.reopen.IsZero() {
		sh.reopenView()
	}
	if !v.reopen.IsZero() {
		return
	}
	if sh.view.Load() == nil {
		for _, r := range sh.m.TakeChanged() {
			r.Seen()
		}
		sh.m.TakePurged()
		return
	}
	for _, id := range sh.m.TakePurged() {
		v.deleted = append(v.deleted, id.String())
	}
	n := v.behind(sh.m) + len(v.deleted)
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
		v.todo, v.todoSeq = sh.m.TakeChanged(), sh.seq
	}
	v.batches <- viewJob{v.batch(sh), v.expire, n > viewBatch}
	v.busy, v.expire, v.since = true, false, time.Time{}
}

// batch makes the next batch. Only with the last of those that changed until an
// entry is the view as far as the entry.
func (v *viewer) batch(sh *shard) view.Batch {
	n := min(len(v.todo), viewBatch)
	b := view.Batch{Put: make([]view.Run, 0, n), Cursor: v.cursor}
	for _, r := range v.todo[:n] {
		if !r.Dirty() {
			continue
		}
		r.Seen()
		if _, there := sh.m.Run(r.ID); !there {
			continue // forgotten meanwhile
		}
		whole := r
		if r.IsCold() {
			var err error
			if whole, err = sh.m.Copy(r); err != nil {
				sh.health.broken(err)
				continue
			}
		}
		b.Put = append(b.Put, row(whole))
		if r.Finished() {
			v.finished = append(v.finished, r)
			if !r.Archived {
				r.Archived = true
				sh.snapshots.archive.Add(r)
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

// viewed takes the answer to a batch.
func (sh *shard) viewed(err error) {
	v := &sh.viewer
	v.busy = false
	defer func() { v.arrived(sh, err != nil) }()
	if err != nil {
		sh.health.viewing(err)
		if errors.Is(err, view.ErrDamaged) {
			v.stop()
			if err := sh.rebuildView(err); err != nil {
				_ = sh.view.Swap(nil).Close()
				v.absent(sh, err)
				return
			}
			v.start(sh)
			return
		}
		// The rows are lost, but everything that is in memory can be written again.
		sh.complain("can't write the view; lists may be incomplete until it can", "error", err)
		v.finished = v.finished[:0]
		v.deleted = append(v.deleted, v.sent...)
		sh.soil()
		v.retry = time.Now().Add(viewRetry)
		return
	}
	sh.health.viewing(nil)
	for i, r := range v.finished {
		if !r.Dirty() {
			_ = sh.m.Forget(r) // finished is finished
		}
		v.finished[i] = nil
	}
	v.finished = v.finished[:0]
}

// soil makes everything that is in memory be written to the view again.
func (sh *shard) soil() {
	sh.m.TakeChanged()
	sh.viewer.todo, sh.viewer.todoSeq = slices.Clone(sh.m.All()), sh.seq
	for _, r := range sh.viewer.todo {
		r.Soil()
	}
}

// rebuildView makes a new view in the place of one that is of no use.
func (sh *shard) rebuildView(why error) error {
	path := sh.viewPath()
	sh.cfg.Logger.Error("the view is of no use and is made anew from the log", "path", path, "because", why)
	_ = sh.view.Load().Close()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(path + suffix)
	}
	fresh, err := view.Open(context.Background(), path)
	if err != nil {
		return fmt.Errorf("view: %w", err)
	}
	sh.view.Store(fresh)
	return sh.fillView()
}

func (sh *shard) viewPath() string { return filepath.Join(sh.dir, "view.db") }

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
