package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/tideover/tideover/engine/internal/sqlitefile"
	"github.com/tideover/tideover/engine/journal"
)

// Reader reads the log of a folder and changes nothing. A process may use the folder meanwhile. The zero
// Reader is that of an empty log.
type Reader struct {
	dir    string
	live   *sqlite.Conn // keeps a process that uses the folder from removing what is read; nil if there is none
	file   *sqlitefile.File
	state  state
	blobs  map[string]blobRecord
	losses []journal.Loss
}

var _ journal.Reader = (*Reader)(nil)

// OpenReader opens the log of the folder for reading. It fails with the error with which [Log.Lease] would
// refuse the log. If a process uses the folder, the log was not refused.
func OpenReader(dir string, d Durability) (_ *Reader, err error) {
	r := &Reader{dir: dir, blobs: map[string]blobRecord{}}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	path := filepath.Join(dir, "log.db")
	if isLocked(dir) {
		if r.live, err = connectReader(path); err == nil {
			err = pragma(r.live, "query_only = ON")
		}
		if err == nil {
			err = sqlitex.ExecuteTransient(r.live, "BEGIN", nil)
		}
		if err == nil {
			_, err = number(r.live, "SELECT epoch FROM meta")
		}
		if err != nil {
			return nil, describe(path, err)
		}
	} else {
		if r.state, err = inspect(dir, Config{Durability: d}); err != nil || !r.state.tables {
			return r, err
		}
	}
	if r.file, err = sqlitefile.Open(path); err == nil {
		err = r.load(path)
	}
	if err != nil {
		return nil, describe(path, err)
	}
	return r, nil
}

// isLocked reports whether a process uses the folder.
func isLocked(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return false
	}
	defer f.Close()
	held, err := tryLock(f)
	if err == nil && !held {
		_ = unlock(f) // closing it does the same
	}
	return held
}

func (r *Reader) load(path string) (err error) {
	if err = r.state.read(r.file, path); err != nil {
		return err
	}
	if r.blobs, err = readRecords(r.file); err != nil {
		return err
	}
	if r.state.owned != r.state.epoch {
		if r.blobs, err = adoptBlobs(r.dir, r.blobs); err != nil {
			return err
		}
	}
	return r.file.Rows("losses", 0, func(_ int64, row []sqlitefile.Value) error {
		if len(row) >= 6 {
			r.losses = append(r.losses, journal.Loss{
				Log: path, At: time.Unix(0, row[0].Int), From: uint64(row[1].Int), To: uint64(row[2].Int),
				Shown: string(row[3].Bytes), Why: string(row[5].Bytes),
			})
		}
		return nil
	})
}

// Close closes the files.
func (r *Reader) Close() {
	if r.file != nil {
		r.file.Close()
	}
	if r.live != nil {
		_ = r.live.Close() // nothing was written with it
	}
}

// Live reports whether a process uses the folder.
func (r *Reader) Live() bool { return r.live != nil }

// Identity returns the identity of the log; 0 if it has none.
func (r *Reader) Identity() uint64 { return r.state.identity }

// Losses returns the losses that are recorded in the log.
func (r *Reader) Losses() []journal.Loss { return r.losses }

// Bounds implements [journal.Reader].
func (r *Reader) Bounds(context.Context) (first, last uint64, err error) {
	if !r.state.tables {
		return 1, 0, nil
	}
	return r.state.first, r.state.last, nil
}

// Read implements [journal.Reader].
func (r *Reader) Read(ctx context.Context, from uint64) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		if !r.state.tables {
			return
		}
		path, next, stop := filepath.Join(r.dir, "log.db"), from, errors.New("stop")
		err := r.file.Rows("log", int64(from), func(seq int64, row []sqlitefile.Value) error {
			e := journal.Entry{Seq: uint64(seq)}
			if e.Seq != next || len(row) < 4 || copy(e.ID[:], row[2].Bytes) != len(e.ID) {
				return damaged(path, fmt.Errorf("entry %d is missing", next))
			}
			e.Epoch, e.Data = uint64(row[1].Int), row[3].Bytes
			if next++; !yield(e, nil) {
				return stop
			}
			return ctx.Err()
		})
		if err == nil && next != r.state.last+1 {
			err = damaged(path, fmt.Errorf("entry %d is missing", next))
		}
		if err != nil && !errors.Is(err, stop) {
			yield(journal.Entry{}, describe(path, err))
		}
	}
}

// Get implements [journal.Reader].
func (r *Reader) Get(_ context.Context, name string) (io.ReadCloser, error) {
	record, ok := r.blobs[name]
	return openBlob(r.dir, name, record, ok, nil)
}

// Blobs implements [journal.Reader].
func (r *Reader) Blobs(context.Context) (list []journal.Blob, err error) {
	for _, name := range slices.Sorted(maps.Keys(r.blobs)) {
		list = append(list, journal.Blob{Name: name, Size: r.blobs[name].size})
	}
	return list, nil
}
