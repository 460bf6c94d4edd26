package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
)

// RestoreFolder says what to do about a damaged folder.
const RestoreFolder = "restore a backup, which replaces the whole folder"

// logEnd finds out whether the log of a shard has lost entries at its end, or a blob.
type logEnd struct {
	lease      journal.Lease
	shard      int
	acceptLoss bool
	health     *health
}

// check returns an error if the log ends before the entry seq, whose effects shown has, and the loss
// is not accepted. A backend that implements [journal.Witnessed] has checked the end of the log, so shown
// is wrong then.
func (e *logEnd) check(last, seq uint64, shown string) error {
	if _, ok := e.lease.(journal.Witnessed); ok || seq <= last {
		return nil
	}
	loss := journal.Loss{Log: fmt.Sprintf("the log of shard %d", e.shard), From: last + 1, To: seq, Shown: shown}
	if !e.acceptLoss {
		return &journal.LossError{Loss: loss, Restore: "restore a backup of the cluster", Acceptable: true}
	}
	loss.At, loss.Why = time.Now(), journal.WhyAccepted
	e.health.lost([]journal.Loss{loss})
	return nil
}

// checkBlobs returns an error if a blob has the effects of entries that the log does not have. If the
// loss is accepted, it deletes the blob: later entries get the same numbers.
func (e *logEnd) checkBlobs(ctx context.Context) error {
	_, last, err := e.lease.Bounds(ctx)
	if err != nil {
		return err
	}
	blobs, err := e.lease.Blobs(ctx)
	if err != nil {
		return err
	}
	var ahead []string
	for _, b := range blobs {
		for _, prefix := range []string{store.SnapshotPrefix, store.ArchivePrefix} {
			seq, ok := store.ParseName(b.Name, prefix)
			if !ok || seq <= last {
				continue
			}
			if err := e.check(last, seq, b.Name); err != nil {
				return err
			}
			ahead = append(ahead, b.Name)
		}
	}
	return store.Delete(ctx, e.lease, ahead)
}

// checkArchives adds a warning for each archive that is missing or does not have its size. The view has the
// runs of the archive too, so nothing is missing in lists before the view is rebuilt.
func (e *logEnd) checkArchives(ctx context.Context) error {
	_, _, archives, err := store.List(ctx, e.lease)
	if err != nil {
		return err
	}
	if _, ok := e.lease.(journal.Witnessed); !ok {
		return nil // opening a blob of a cluster reads all of it
	}
	for _, name := range archives {
		raw, err := e.lease.Get(ctx, name)
		switch {
		case err == nil:
			_ = raw.Close() // it was not even read
		case store.IsDamage(err):
			e.health.lose(info.Trouble{
				What: "an archive of finished runs is damaged: these runs are missing when the view is rebuilt", Since: time.Now(),
				Error: fmt.Sprintf("archive %s: %v", name, err), Do: RestoreFolder,
			})
		default:
			return err
		}
	}
	return nil
}
