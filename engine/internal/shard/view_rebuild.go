package shard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tideover/tideover/engine/internal/describe"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/journal"
)

// open opens the view, unless the shard has none. If the view is older than the snapshot, all
// runs of the snapshot and the archives are written to it.
func (v *viewWriter) open(ctx context.Context) (err error) {
	if v.path == "" {
		return nil
	}
	opened, err := view.Open(ctx, v.path)
	if err != nil {
		return err
	}
	v.view.Store(opened)
	defer func() {
		if err != nil {
			_ = v.view.Swap(nil).Close() // err is the error to report
		}
	}()
	if why := opened.Rebuilt(); why != "" {
		v.process.Settings.Logger.Warn("the view is rebuilt", "because", why)
	}
	ours, err := v.adopt(ctx)
	if err != nil {
		return err
	}
	_, last, err := v.end.lease.Bounds(ctx)
	if err != nil {
		return err
	}
	switch v.cursor = opened.Cursor(); {
	case !ours:
		return v.rebuild(errors.New("it belongs to another log, or to this one before it lost entries"))
	case v.cursor > last:
		if err := v.end.check(last, v.cursor, v.path); err != nil {
			return err
		}
		return v.rebuild(fmt.Errorf("the view includes entry %d, and the log ends at entry %d", v.cursor, last))
	case v.cursor > 0 && v.cursor < v.state.m.Seq():
		// Another process owned the shard meanwhile, or a backup was restored.
		return v.rebuild(fmt.Errorf("the view ends at entry %d, before the snapshot of entry %d", v.cursor, v.state.m.Seq()))
	case v.cursor < v.state.m.Seq():
		return v.fill()
	}
	return nil
}

// adopt makes the view one of the log. It returns false if the view belongs to another log.
func (v *viewWriter) adopt(ctx context.Context) (ours bool, err error) {
	log, ok := v.end.lease.(journal.Witnessed)
	if !ok {
		return true, nil
	}
	return v.view.Load().Adopt(ctx, log.Identity())
}

// tryReopen opens a view that could not be opened before, if it is time to try again. It returns
// whether the view is open.
func (v *viewWriter) tryReopen() bool {
	if time.Now().Before(v.reopen) {
		return false
	}
	if err := v.open(context.Background()); err != nil {
		v.setMissing(err)
		return false
	}
	v.reopen = time.Time{}
	v.health.set(troubleView, nil)
	v.startWriting()
	return true
}

// rebuild deletes a view that can't be used, and makes a new one.
func (v *viewWriter) rebuild(why error) error {
	v.process.Settings.Logger.Error("the view can't be used and is rebuilt from the log", "path", v.path, "because", why)
	_ = v.view.Load().Close()
	for _, suffix := range []string{"", "-wal", "-shm", "-sum"} {
		_ = os.Remove(v.path + suffix)
	}
	fresh, err := view.Open(context.Background(), v.path)
	if err != nil {
		return fmt.Errorf("view: %w", err)
	}
	v.view.Store(fresh)
	if _, err := v.adopt(context.Background()); err != nil {
		return err
	}
	return v.fill()
}

// fill writes all runs to an empty view: first the finished runs of the archives. Those in
// memory are marked as changed, and are written later.
func (v *viewWriter) fill() error {
	ctx := context.Background()
	v.cursor = 0
	v.markAllChanged()
	_, _, archives, err := store.List(ctx, v.end.lease)
	if err != nil {
		return err
	}
	for _, name := range archives {
		err := store.VerifyBlob(ctx, v.end.lease, name)
		if err == nil {
			err = fillView(ctx, v.view.Load(), func(yield func(*machine.Run) error) error {
				return store.ReadArchive(ctx, v.end.lease, name, v.state.m, yield)
			})
		}
		switch {
		case store.IsDamage(err):
			// The finished runs of this archive are missing in lists. Other runs are
			// not affected.
			v.health.set(troubleArchive, fmt.Errorf("archive %s: %w; finished runs are missing in lists: restore a backup, which replaces the whole folder", name, err))
			v.process.Settings.Logger.Error("an archive of finished runs can't be read", "name", name, "error", err)
		case err != nil:
			return fmt.Errorf("archive %s: %w", name, err)
		}
	}
	return fillView(ctx, v.view.Load(), func(yield func(*machine.Run) error) error {
		return v.archive.Read(v.state.m, yield) // finished runs that are in no stored archive
	})
}

// fillView writes the runs that read yields to a view, in batches.
func fillView(ctx context.Context, to *view.View, read func(yield func(*machine.Run) error) error) error {
	var b view.Batch
	flush := func() error {
		if len(b.Put) == 0 {
			return nil
		}
		err := to.Write(ctx, b)
		b.Put = b.Put[:0]
		return err
	}
	err := read(func(r *machine.Run) error {
		if b.Put = append(b.Put, describe.Row(r)); len(b.Put) >= viewBatch {
			return flush()
		}
		return nil
	})
	return errors.Join(err, flush())
}

// skipKnown drops the collected changes if seq, the last entry that was replayed, is the last
// entry that the view has: the view has these changes already. Finished runs are still added to
// the archive, because the buffer of the previous process is lost.
func (v *viewWriter) skipKnown(seq uint64) {
	if seq != v.cursor {
		return
	}
	for _, r := range v.state.m.TakeChanged() {
		if r.Version() > v.cursor {
			v.state.m.Change(r) // the snapshot has a later state of the run than the view
			continue
		}
		r.Seen()
		if r.Finished() {
			v.archive.Add(r)
			_ = v.state.m.Forget(r)
		}
	}
	v.state.m.TakePurged()
}
