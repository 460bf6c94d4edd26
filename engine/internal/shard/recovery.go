package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
)

// recovery restores the state of a shard from the last snapshot and the log, and records that
// this process is the owner.
type recovery struct{ *Shard }

func (r recovery) run(ctx context.Context) error {
	if log, ok := r.Lease.(journal.LossReporter); ok {
		r.health.lost(log.Losses())
	}
	r.owner.storeWait = ctx
	defer func() { r.owner.storeWait = context.Background() }()
	for _, step := range []func(context.Context) error{r.restore, r.openView, r.end.checkArchives, r.replay, r.takeOver} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	r.owner.openedAt, r.owner.purge.at = time.Now(), time.Now()
	return nil
}

// openView opens the view, or notes that it can't be opened.
func (r recovery) openView(ctx context.Context) error {
	err := r.views.open(ctx)
	if errors.Is(err, journal.ErrDamaged) || ctx.Err() != nil {
		return err
	}
	if err != nil {
		r.views.setMissing(err)
	}
	return nil
}

// restore reads the newest snapshot that is not damaged. Without snapshots the state is empty,
// if the log is complete from its first entry.
func (r recovery) restore(ctx context.Context) error {
	if log := r.process.replay; log != nil {
		r.owner.m = log.Machine
		return nil
	}
	if err := r.end.checkBlobs(ctx); err != nil {
		return err
	}
	first, snapshots, _, err := store.List(ctx, r.Lease)
	if err != nil {
		return err
	}
	var bad []error
	var unreadable []string
	for _, b := range snapshots {
		m, err := r.snapshots.paging.ReadSnapshot(ctx, r.Lease, b.Name, r.owner.clock.last)
		if err == nil {
			r.owner.m, r.owner.seq, r.snapshots.size = m, m.Seq(), b.Size
			// Delete the damaged snapshots: cutLog must not rely on them.
			return store.Delete(ctx, r.Lease, unreadable)
		}
		if errors.Is(err, machine.ErrFormat) || !store.IsDamage(err) {
			return fmt.Errorf("snapshot %s: %w", b.Name, err)
		}
		unreadable = append(unreadable, b.Name)
		bad = append(bad, fmt.Errorf("snapshot %s: %w", b.Name, err))
		r.process.Settings.Logger.Error("a snapshot can't be read; an older one is tried", "name", b.Name, "error", err)
	}
	if first > 1 {
		bad = append(bad, fmt.Errorf("%w: the log begins at entry %d and no snapshot leads up to it; restore a backup", journal.ErrDamaged, first))
		return errors.Join(bad...)
	}
	r.owner.m = machine.New()
	r.owner.m.Cold(r.snapshots.paging.Load)
	return nil
}

// replay applies the entries of the log that are newer than the snapshot.
func (r recovery) replay(ctx context.Context) error {
	r.views.skipKnown(r.owner.seq)
	return store.Replay(ctx, r.Lease, r.owner.m, func(entry journal.Entry) {
		r.owner.seq = entry.Seq
		r.snapshots.logGrew(len(entry.Data))
		r.views.skipKnown(r.owner.seq)
	})
}

// takeOver records that this process is the owner now, by how much its clock is ahead of that
// of the previous process, and which attempts were lost with that process.
func (r recovery) takeOver(ctx context.Context) error {
	o, t := &r.owner, &r.owner.turn
	head, bootWas := o.m.Clock()
	ahead, known := r.ahead(ctx, bootWas)
	orphans, recalls := r.orphans()
	if err := o.beginTurn(); err != nil {
		return err
	}
	_, boot := o.clock.boot()
	if head.At != 0 {
		if err := o.recordJump(o.clock.since(head.At, time.Duration(head.SinceBoot), bootWas, ahead, known)); err != nil {
			return err
		}
	}
	if err := t.record(new(machine.Open(boot, r.Lease.Epoch(), t.now))); err != nil {
		return err
	}
	_, shared := r.Lease.(journal.Shared) // in a cluster the previous owner may still be alive, but cut off
	var names []string
	for _, orphan := range orphans {
		run, _ := o.m.Run(orphan.run)
		rec := machine.LoseAttempt(run, orphan.step, t.now, orphan.alone)
		if shared {
			rec.Text = strings.Replace(rec.Text, "the process died", "the process died, or was cut off from the cluster,", 1)
		}
		if err := t.record(&rec); err != nil {
			return err
		}
		names = append(names, orphan.run.String())
	}
	for _, id := range recalls {
		run, _ := o.m.Run(id)
		rec := machine.RecallFunction(run, t.now)
		if err := t.record(&rec); err != nil {
			return err
		}
	}
	for _, run := range slices.Clone(o.m.All()) {
		switch { // the previous process may not have told its family
		case run.Outcome != machine.Undecided && run.IsNeeded():
			r.family.inform(t, run.ID)
		case run.Flow().IsUndoing():
			r.family.cancelChildren(t, run)
		}
	}
	r.warnOfLost(names)
	if err := t.commit(); err != nil {
		return err
	}
	t.act()
	return nil
}

// ahead returns by how much the time since boot of this machine is ahead of that of the machine
// of the previous owner. If that is not known in a cluster, it reports that waits may be wrong.
func (r recovery) ahead(ctx context.Context, bootWas string) (by time.Duration, known bool) {
	l, shared := r.Lease.(journal.Clocked)
	if _, boot := r.owner.clock.boot(); !shared || boot != "" && boot == bootWas {
		return 0, false
	}
	if bootWas != "" {
		by, known = l.Ahead(ctx, bootWas)
	}
	if last := r.owner.m.LastDue(); !known && last > 0 {
		r.health.clockUnknown(last)
		r.process.Settings.Logger.Warn(clockTrouble, "shard", r.Number, "error", errClockUnknown)
	}
	return by, known
}

// orphan is an attempt that was running when the previous process ended.
type orphan struct {
	attemptKey
	alone bool // no other attempt ran in that process
}

// orphans returns the attempts that are running according to the restored state. It must be
// called before this process records anything. If there is only one orphan and only one shard,
// it ran alone. recalls has the runs whose function waited for an operation: the function does not
// count as lost, and an operation only if it was running.
func (r recovery) orphans() (list []orphan, recalls []machine.ID) {
	r.owner.m.Orphans(func(run *machine.Run, step int) {
		if run.IsFunction(step) && machine.AwaitsOp(run) {
			recalls = append(recalls, run.ID)
		} else {
			list = append(list, orphan{attemptKey{run.ID, step}, r.owner.m.RanAlone(run, step)})
		}
	})
	if len(list) == 1 && r.shards == 1 {
		list[0].alone = true
	}
	return list, recalls
}

// maxNamed is how many runs a log line names at most.
const maxNamed = 10

// warnOfLost logs the runs whose attempts were lost.
func (r recovery) warnOfLost(runs []string) {
	if n := len(runs); n > 0 {
		r.process.Settings.Logger.Warn("attempts were lost with the process that made them", "attempts", n, "shard", r.Number,
			"runs", strings.Join(slices.Compact(runs[:min(n, maxNamed)]), ","))
	}
}
