package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
)

// open restores the state and records that somebody else has it now.
func (sh *shard) open(ctx context.Context, log journal.Log) (err error) {
	defer func() {
		if err != nil {
			sh.shut()
		}
	}()
	sh.patience = ctx
	defer func() { sh.patience = context.Background() }()
	boot := sh.cfg.uptime
	if sh.cfg.Log != nil { // it may have been another machine that was there last
		boot = func() (time.Duration, string) { return 0, "" }
	}
	if sh.lease, err = log.Lease(ctx, sh.number); err != nil {
		return err
	}
	if err := move.Check(ctx, sh.lease); err != nil {
		return err
	}
	sh.clock = newClock(boot)
	if err := sh.restore(ctx); err != nil {
		return err
	}
	if sh.dir != "" {
		if err := sh.openView(ctx); err != nil {
			if errors.Is(err, journal.ErrDamaged) || ctx.Err() != nil {
				return err
			}
			sh.viewer.absent(sh, err)
		}
	}
	if err := sh.replay(ctx); err != nil {
		return err
	}
	if err := sh.takeOver(); err != nil {
		return err
	}
	sh.openedAt, sh.purgedAt = time.Now(), time.Now()
	sh.warnOfSchedules()
	if sh.view.Load() != nil {
		sh.viewer.start(sh)
	}
	return nil
}

// reopenView opens a view that could not be opened before.
func (sh *shard) reopenView() {
	v := &sh.viewer
	if v.reopen.IsZero() || time.Now().Before(v.reopen) {
		return
	}
	if err := sh.openView(context.Background()); err != nil {
		v.absent(sh, err)
		return
	}
	v.reopen = time.Time{}
	sh.health.viewing(nil)
	v.start(sh)
}

// shut closes what was opened.
func (sh *shard) shut() {
	sh.snapshots.abort()
	sh.cold.Close()
	if v := sh.view.Load(); v != nil {
		if err := v.Close(); err != nil {
			sh.cfg.Logger.Error("close the view", "error", err)
		}
	}
	if sh.lease != nil {
		if err := sh.lease.Release(); err != nil {
			sh.cfg.Logger.Error("release the log", "error", err)
		}
	}
}

// restore reads the last snapshot that can be read.
func (sh *shard) restore(ctx context.Context) error {
	blobs, err := sh.lease.Blobs(ctx)
	if err != nil {
		return err
	}
	first, last, err := sh.lease.Bounds(ctx)
	if err != nil {
		return err
	}
	var bad []error
	var unreadable []string
	for _, b := range slices.Backward(blobs) {
		seq, ok := store.ParseName(b.Name, store.SnapshotPrefix)
		if !ok || seq+1 < first || seq > last {
			continue
		}
		m, err := sh.cold.ReadSnapshot(ctx, sh.lease, b.Name, sh.clock.last)
		if errors.Is(err, machine.ErrFormat) {
			return fmt.Errorf("snapshot %s: %w", b.Name, err)
		}
		if err == nil {
			sh.m, sh.seq = m, m.Seq()
			sh.snapshots.size = b.Size
			return sh.discard(ctx, unreadable)
		}
		if !store.IsDamage(err) {
			return fmt.Errorf("snapshot %s: %w", b.Name, err)
		}
		unreadable = append(unreadable, b.Name)
		bad = append(bad, fmt.Errorf("snapshot %s: %w", b.Name, err))
		sh.cfg.Logger.Error("a snapshot can't be read; an older one is tried", "name", b.Name, "error", err)
	}
	if first > 1 {
		bad = append(bad, fmt.Errorf("%w: the log begins at entry %d and no snapshot leads up to it; restore a backup", journal.ErrDamaged, first))
		return errors.Join(bad...)
	}
	sh.m = machine.New()
	sh.m.Cold(sh.cold.Load)
	return nil
}

// discard removes snapshots that can't be read, now that an older one was: they
// must not be counted on when the log is cut off.
func (sh *shard) discard(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := sh.lease.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// replay applies what the log has after the snapshot.
func (sh *shard) replay(ctx context.Context) error {
	known := sh.viewer.cursor
	if sh.seq == known {
		sh.skipView(known)
	}
	for entry, err := range sh.lease.Read(ctx, sh.seq+1) {
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if err := store.Apply(sh.m, entry); err != nil {
			return err
		}
		sh.seq = entry.Seq
		sh.snapshots.grown(len(entry.Data))
		if sh.seq == known {
			sh.skipView(known)
		}
	}
	return nil
}

// skipView passes over changes that the view has already. Finished runs are
// archived all the same: what had been archived of them is lost.
func (sh *shard) skipView(known uint64) {
	for _, r := range sh.m.TakeChanged() {
		if r.Version() > known {
			sh.m.Change(r) // as the snapshot knows it, it is ahead of the replay
			continue
		}
		r.Seen()
		if r.Finished() {
			sh.snapshots.archive.Add(r)
			_ = sh.m.Forget(r)
		}
	}
	sh.m.TakePurged()
}

// takeOver records that this process goes on, what the clock did meanwhile, and
// the attempts that were lost with the last one.
func (sh *shard) takeOver() error {
	t := &sh.turn
	head, bootWas := sh.m.Clock()
	orphans := sh.orphans()
	if err := sh.begin(); err != nil {
		return err
	}
	_, boot := sh.clock.boot()
	if head.At != 0 {
		if err := sh.jump(sh.clock.since(head.At, time.Duration(head.SinceBoot), bootWas)); err != nil {
			return err
		}
	}
	if err := t.record(&machine.Record{Kind: machine.Opened, At: t.now, Text: boot, Attempt: int(sh.lease.Epoch())}); err != nil {
		return err
	}
	_, shared := sh.lease.(journal.Shared) // it may not have been this process
	var names []string
	for _, o := range orphans {
		run, _ := sh.m.Run(o.run)
		rec := sh.m.Lose(run, o.step, t.now, o.alone)
		if shared {
			rec.Text = strings.Replace(rec.Text, "the process died", "the process died, or was cut off from the cluster,", 1)
		}
		if err := t.record(&rec); err != nil {
			return err
		}
		names = append(names, o.run.String())
	}
	sh.warnOfLost(names)
	if err := sh.commit(); err != nil {
		return err
	}
	t.act()
	return nil
}

// orphan is an attempt that ran when the last process ended.
type orphan struct {
	attemptKey
	alone bool // no other attempt ran in that process
}

// orphans returns the attempts that are running by the state, before anything of this process
// is recorded. One that is the only one of all there are ran alone, whatever was recorded.
func (sh *shard) orphans() (list []orphan) {
	sh.m.Orphans(func(run *machine.Run, step int) {
		list = append(list, orphan{attemptKey{run.ID, step}, sh.m.RanAlone(run, step)})
	})
	if len(list) == 1 && sh.shards == 1 {
		list[0].alone = true
	}
	return list
}

// maxNamed is how many runs a line of the log names.
const maxNamed = 10

// warnOfLost names the runs whose attempts were lost.
func (sh *shard) warnOfLost(runs []string) {
	if n := len(runs); n > 0 {
		sh.cfg.Logger.Warn("attempts were lost with the process that made them", "attempts", n, "shard", sh.number,
			"runs", strings.Join(slices.Compact(runs[:min(n, maxNamed)]), ","))
	}
}

// openView opens the view. If it is not as far as the snapshot, everything that
// the snapshot and the archives have is written to it.
func (sh *shard) openView(ctx context.Context) (err error) {
	v, err := view.Open(ctx, sh.viewPath())
	if err != nil {
		return err
	}
	sh.view.Store(v)
	defer func() {
		if err != nil {
			_ = sh.view.Swap(nil).Close() // the error before says more
		}
	}()
	if why := v.Rebuilt(); why != "" {
		sh.cfg.Logger.Warn("the view is made anew", "because", why)
	}
	_, last, err := sh.lease.Bounds(ctx)
	if err != nil {
		return err
	}
	switch sh.viewer.cursor = v.Cursor(); {
	case sh.viewer.cursor > 0 && last == 0:
		return fmt.Errorf("%w: the log has no entries, and %s knows %d: restore a backup, or use another folder to begin with nothing",
			journal.ErrDamaged, sh.viewPath(), sh.viewer.cursor)
	case sh.viewer.cursor > last:
		return sh.rebuildView(fmt.Errorf("it is of entry %d, and the log ends at %d", sh.viewer.cursor, last))
	case sh.viewer.cursor > 0 && sh.viewer.cursor < sh.m.Seq():
		// Another owner has been here, or a backup was restored.
		return sh.rebuildView(fmt.Errorf("it is of entry %d, and the snapshot is of %d", sh.viewer.cursor, sh.m.Seq()))
	case sh.viewer.cursor < sh.m.Seq():
		return sh.fillView()
	}
	return nil
}

// fillView writes to the view what is not in the log any more.
func (sh *shard) fillView() error {
	ctx := context.Background()
	sh.viewer.cursor = 0
	sh.soil()
	blobs, err := sh.lease.Blobs(ctx)
	if err != nil {
		return err
	}
	for _, b := range blobs {
		if _, ok := store.ParseName(b.Name, store.ArchivePrefix); !ok {
			continue
		}
		if err := sh.fillWith(ctx, func(yield func(*machine.Run) error) error {
			return store.ReadArchive(ctx, sh.lease, b.Name, sh.m, yield)
		}); err != nil {
			if !store.IsDamage(err) {
				return fmt.Errorf("archive %s: %w", b.Name, err)
			}
			// What ended is gone from the lists, what goes on is not touched.
			sh.cfg.Logger.Error("an archive of finished runs can't be read", "name", b.Name, "error", err)
		}
	}
	return sh.fillWith(ctx, func(yield func(*machine.Run) error) error { return sh.snapshots.archive.Read(sh.m, yield) })
}

// fillWith writes the runs that read yields to the view.
func (sh *shard) fillWith(ctx context.Context, read func(yield func(*machine.Run) error) error) error {
	var b view.Batch
	flush := func() error {
		if len(b.Put) == 0 {
			return nil
		}
		err := sh.view.Load().Write(ctx, b)
		b.Put = b.Put[:0]
		return err
	}
	err := read(func(r *machine.Run) error {
		if b.Put = append(b.Put, row(r)); len(b.Put) >= viewBatch {
			return flush()
		}
		return nil
	})
	return errors.Join(err, flush())
}

// finish ends the engine in order.
func (sh *shard) finish() error {
	sh.viewer.flush(sh)
	sh.shut()
	return ErrClosed
}

// flush writes what the view has yet to see, and ends the writing.
func (v *viewer) flush(sh *shard) {
	if v.batches == nil {
		return
	}
	for {
		if v.busy {
			sh.viewed(<-v.written)
			if sh.health.view() != nil {
				break // it will be made up for when the engine is opened next
			}
		}
		if v.behind(sh.m) == 0 {
			break
		}
		v.hurry, v.retry = true, time.Time{}
		v.feed(sh)
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
