package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/sqlitelog"
)

// open restores the state and records that somebody else has it now.
func (e *Engine) open(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			e.shut()
		}
	}()
	e.patience = ctx
	defer func() { e.patience = context.Background() }()
	boot := sinceBoot
	if e.log = e.cfg.Log; e.log == nil {
		mode := sqlitelog.Full
		if e.cfg.Durability == OS {
			mode = sqlitelog.OS
		}
		if e.log, err = sqlitelog.Open(ctx, sqlitelog.Config{Dir: e.cfg.Dir, Durability: mode}); err != nil {
			return err
		}
	} else {
		boot = func() (time.Duration, string) { return 0, "" }
	}
	if e.lease, err = e.log.Lease(ctx, 0); err != nil {
		return err
	}
	e.clock = newClock(boot)
	if err := e.restore(ctx); err != nil {
		return err
	}
	if e.cfg.Dir != "" {
		if err := e.openView(ctx); err != nil {
			return err
		}
	}
	if err := e.replay(ctx); err != nil {
		return err
	}
	if err := e.takeOver(); err != nil {
		return err
	}
	e.openedAt, e.purgedAt = time.Now(), time.Now()
	if e.view.Load() != nil {
		e.viewer.start(e)
	}
	return nil
}

// shut closes what was opened.
func (e *Engine) shut() {
	e.snapshots.abort()
	e.cold.close()
	if v := e.view.Load(); v != nil {
		if err := v.Close(); err != nil {
			e.cfg.Logger.Error("close the view", "error", err)
		}
	}
	if e.lease != nil {
		if err := e.lease.Release(); err != nil {
			e.cfg.Logger.Error("release the log", "error", err)
		}
	}
	if e.log != nil {
		if err := e.log.Close(); err != nil {
			e.cfg.Logger.Error("close the log", "error", err)
		}
	}
}

// restore reads the last snapshot that can be read.
func (e *Engine) restore(ctx context.Context) error {
	blobs, err := e.lease.Blobs(ctx)
	if err != nil {
		return err
	}
	first, last, err := e.lease.Bounds(ctx)
	if err != nil {
		return err
	}
	var bad []error
	var unreadable []string
	for _, b := range slices.Backward(blobs) {
		seq, ok := blobSeq(b.Name, "snapshot-")
		if !ok || seq+1 < first || seq > last {
			continue
		}
		m, err := e.readSnapshot(ctx, b.Name)
		if errors.Is(err, machine.ErrFormat) {
			return fmt.Errorf("snapshot %s: %w", b.Name, err)
		}
		if err == nil {
			e.m, e.seq = m, m.Seq()
			e.snapshots.size = b.Size
			return e.discard(ctx, unreadable)
		}
		unreadable = append(unreadable, b.Name)
		bad = append(bad, fmt.Errorf("snapshot %s: %w", b.Name, err))
		e.cfg.Logger.Error("a snapshot can't be read; an older one is tried", "name", b.Name, "error", err)
	}
	if first > 1 {
		bad = append(bad, fmt.Errorf("%w: the log begins at entry %d and no snapshot leads up to it; restore a backup", journal.ErrDamaged, first))
		return errors.Join(bad...)
	}
	e.m = machine.New()
	e.m.Cold(e.cold.load)
	return nil
}

// discard removes snapshots that can't be read, now that an older one was: they
// must not be counted on when the log is cut off.
func (e *Engine) discard(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := e.lease.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// replay applies what the log has after the snapshot.
func (e *Engine) replay(ctx context.Context) error {
	known := e.viewer.cursor
	if e.seq == known {
		e.skipView(known)
	}
	for entry, err := range e.lease.Read(ctx, e.seq+1) {
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if err := e.replayEntry(entry); err != nil {
			if errors.Is(err, machine.ErrEncoding) {
				err = fmt.Errorf("%w: %w", journal.ErrDamaged, err)
			}
			return fmt.Errorf("entry %d of the log: %w", entry.Seq, err)
		}
		e.seq = entry.Seq
		e.snapshots.grown(len(entry.Data))
		if e.seq == known {
			e.skipView(known)
		}
	}
	return nil
}

func (e *Engine) replayEntry(entry journal.Entry) error {
	begun := false
	h, err := machine.ReadHeader(entry.Data)
	if err != nil {
		return err
	}
	_, err = machine.ReadEntry(entry.Data, func(rec *machine.Record) error {
		if !begun {
			begun = true
			e.m.Begin(entry.Seq, h)
		}
		return e.m.Apply(rec)
	})
	return err
}

// skipView passes over changes that the view has already. Finished runs are
// archived all the same: what had been archived of them is lost.
func (e *Engine) skipView(known uint64) {
	for _, r := range e.m.TakeChanged() {
		if r.Version() > known {
			e.m.Change(r) // as the snapshot knows it, it is ahead of the replay
			continue
		}
		r.Seen()
		if r.Finished() {
			e.snapshots.archive(r)
			_ = e.m.Forget(r)
		}
	}
	e.m.TakePurged()
}

// takeOver records that this process goes on, what the clock did meanwhile, and
// the attempts that were lost with the last one.
func (e *Engine) takeOver() error {
	t := &e.turn
	head, bootWas := e.m.Clock()
	if err := e.begin(); err != nil {
		return err
	}
	_, boot := e.clock.boot()
	if head.At != 0 {
		if err := e.jump(e.clock.since(head.At, time.Duration(head.SinceBoot), bootWas)); err != nil {
			return err
		}
	}
	if err := t.record(&machine.Record{Kind: machine.Opened, At: t.now, Text: boot, Attempt: int(e.lease.Epoch())}); err != nil {
		return err
	}
	var orphans []attemptKey
	e.m.Orphans(func(run *machine.Run, step int) { orphans = append(orphans, attemptKey{run.ID, step}) })
	for _, o := range orphans {
		run, _ := e.m.Run(o.run)
		rec := e.m.Lose(run, o.step, t.now)
		if err := t.record(&rec); err != nil {
			return err
		}
	}
	if len(orphans) > 0 {
		e.cfg.Logger.Warn("attempts were lost when the process ended last", "attempts", len(orphans))
	}
	if err := e.commit(); err != nil {
		return err
	}
	t.act()
	return nil
}

// openView opens the view. If it is not as far as the snapshot, everything that
// the snapshot and the archives have is written to it.
func (e *Engine) openView(ctx context.Context) error {
	v, err := view.Open(ctx, e.viewPath())
	if err != nil {
		return fmt.Errorf("view: %w", err)
	}
	e.view.Store(v)
	if why := v.Rebuilt(); why != "" {
		e.cfg.Logger.Warn("the view is made anew", "because", why)
	}
	_, last, err := e.lease.Bounds(ctx)
	if err != nil {
		return err
	}
	switch e.viewer.cursor = v.Cursor(); {
	case e.viewer.cursor > last:
		return e.rebuildView(fmt.Errorf("it is of entry %d, and the log ends at %d", e.viewer.cursor, last))
	case e.viewer.cursor < e.m.Seq():
		return e.fillView()
	}
	return nil
}

// fillView writes to the view what is not in the log any more.
func (e *Engine) fillView() error {
	ctx := context.Background()
	e.viewer.cursor = 0
	e.soil()
	blobs, err := e.lease.Blobs(ctx)
	if err != nil {
		return err
	}
	for _, b := range blobs {
		if _, ok := blobSeq(b.Name, "archive-"); !ok {
			continue
		}
		if err := e.fillFrom(ctx, b.Name); err != nil {
			// What ended is gone from the lists, what goes on is not touched.
			e.cfg.Logger.Error("an archive of finished runs can't be read", "name", b.Name, "error", err)
		}
	}
	return e.snapshots.unstored(func(in io.Reader) error { return e.fillWith(ctx, in) })
}

func (e *Engine) fillFrom(ctx context.Context, name string) error {
	in, err := e.openBlob(ctx, name)
	if err != nil {
		return err
	}
	defer in.Close()
	return e.fillWith(ctx, in)
}

// fillWith writes the runs of an archive to the view.
func (e *Engine) fillWith(ctx context.Context, in io.Reader) error {
	var b view.Batch
	flush := func() error {
		err := e.view.Load().Write(ctx, b)
		b.Put = b.Put[:0]
		return err
	}
	err := e.m.ReadArchive(in, func(r *machine.Run) error {
		if b.Put = append(b.Put, row(r)); len(b.Put) >= viewBatch {
			return flush()
		}
		return nil
	})
	return errors.Join(err, flush())
}

// finish ends the engine in order.
func (e *Engine) finish() error {
	e.viewer.flush(e)
	e.shut()
	return ErrClosed
}

// flush writes what the view has yet to see, and ends the writing.
func (v *viewer) flush(e *Engine) {
	if v.batches == nil {
		return
	}
	for {
		if v.busy {
			if err := e.viewed(<-v.written); err != nil {
				break
			}
			if e.health.view() != nil {
				break // it will be made up for when the engine is opened next
			}
		}
		if v.behind(e.m) == 0 {
			break
		}
		v.last, v.retry = time.Time{}, time.Time{}
		v.feed(e)
	}
	v.stop()
}

// stop ends the writing.
func (v *viewer) stop() {
	if v.batches != nil {
		close(v.batches)
		<-v.done
		v.batches = nil
	}
}
