package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/sqlitelog"
)

const notStarted = "the server does not start with it"

// Examine reads the log and the snapshots in the folder [Config.Dir] of an engine, and returns what is
// wrong with them. deep also reads the archives and the view. It changes nothing. An engine may use the
// folder meanwhile.
func Examine(ctx context.Context, dir string, d Durability, deep bool) ([]journal.Finding, error) {
	log, err := sqlitelog.OpenReader(dir, sqlitelog.Durability(d))
	if loss, ok := errors.AsType[*journal.LossError](err); ok {
		return []journal.Finding{{Severity: journal.Broken, What: loss.Loss.String(), Why: notStarted, Do: loss.Remedy()}}, nil
	}
	if err != nil {
		return []journal.Finding{{Severity: journal.Broken, What: err.Error(), Why: notStarted, Do: shard.RestoreFolder}}, ctx.Err()
	}
	defer log.Close()
	x := examination{ctx: ctx, log: log}
	for _, loss := range log.Losses() {
		x.add(journal.Note, "start the missing runs again, if that was not done yet", "runs may be missing, or in an earlier state",
			"%v; %s (recorded at %s)", loss, loss.Why, loss.At.UTC().Format("2006-01-02 15:04"))
	}
	x.entries()
	x.blobs(deep)
	if deep && !log.Live() {
		if err := view.Check(filepath.Join(dir, "view.db")); err != nil {
			x.add(journal.Note, "nothing: the server builds the view anew when it starts", "lists and searches would be wrong", "%v", err)
		}
	}
	return x.found, ctx.Err()
}

// examination collects what is wrong with a log.
type examination struct {
	ctx   context.Context //nolint:containedctx // it is that of one call
	log   *sqlitelog.Reader
	found []journal.Finding
}

func (x *examination) add(severity, do, why, what string, args ...any) {
	x.found = append(x.found, journal.Finding{Severity: severity, What: fmt.Sprintf(what, args...), Why: why, Do: do})
}

// entries reads all entries, and checks their checksums.
func (x *examination) entries() {
	first, _, _ := x.log.Bounds(x.ctx) // a Reader knows them
	for e, err := range x.log.Read(x.ctx, first) {
		if err == nil {
			_, err = machine.ReadEntry(e.Data, func(machine.Header, *machine.Record) error { return nil })
			if err != nil {
				err = fmt.Errorf("entry %d of the log: %w", e.Seq, err)
			}
		}
		if err != nil {
			x.add(journal.Broken, shard.RestoreFolder, notStarted, "%v", err)
			return
		}
	}
}

// blobs reads the snapshots, and with deep the archives.
func (x *examination) blobs(deep bool) {
	first, snapshots, archives, err := store.List(x.ctx, x.log)
	if err != nil {
		x.add(journal.Broken, shard.RestoreFolder, notStarted, "%v", err)
		return
	}
	readable := 0
	for _, b := range snapshots {
		err := errors.Join(store.VerifyBlob(x.ctx, x.log, b.Name), store.VerifySnapshot(x.ctx, x.log, b.Name))
		switch {
		case err == nil:
			readable++
		case !x.removed(err):
			x.add(journal.Weak, shard.RestoreFolder+", if the server does not write a new snapshot", "if the other snapshot is damaged too, the server does not start",
				"snapshot %s: %v", b.Name, err)
		}
	}
	if first > 1 && readable == 0 && !x.log.Live() {
		x.add(journal.Broken, shard.RestoreFolder, notStarted, "the log begins at entry %d, and no snapshot leads up to it", first)
	}
	for _, name := range archives {
		// Without deep, only open it: that finds out whether it is there and has its size.
		err := error(nil)
		if deep {
			err = store.VerifyBlob(x.ctx, x.log, name)
		} else if f, opened := x.log.Get(x.ctx, name); opened != nil {
			err = opened
		} else {
			err = f.Close()
		}
		if err != nil && !x.removed(err) {
			x.add(journal.Broken, shard.RestoreFolder, "finished runs are missing in lists when the view is built anew", "archive %s: %v", name, err)
		}
	}
}

// removed reports whether the error may only mean that the engine that uses the folder has removed a blob
// meanwhile.
func (x *examination) removed(err error) bool {
	return x.log.Live() && errors.Is(err, fs.ErrNotExist)
}
