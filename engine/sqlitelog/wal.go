package sqlitelog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/internal/sqlitefile"
	"github.com/tideover/tideover/engine/journal"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// After a failed sync, the operating system may treat data as written that is not on disk, and no
// later sync writes it. So the content of the write-ahead log must be written again before a later
// append or a checkpoint relies on it. The same is done when a folder is opened, because the process
// before may have had such a failure.

// rewriteWAL writes the content of the write-ahead log again and syncs it. committed is the number of
// frames that SQLite uses; it fails if fewer frames are intact. No other goroutine may write to the
// database meanwhile.
func rewriteWAL(path string, committed int) (err error) {
	f, err := disk.Open(path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, rewrite := range []bool{false, true} {
		n, err := checkFrames(f, rewrite)
		if err != nil {
			return err
		}
		if n < committed {
			return fmt.Errorf("%w: %s-wal: a sync failed, and of %d pages that were written %d are left; nothing that was acknowledged is lost; start the process again",
				journal.ErrDamaged, path, committed, n)
		}
	}
	return f.Sync()
}

// checkFrames reads the file in pieces and returns how many frames at its beginning are intact.
// With rewrite, it writes each piece back. It checks the frames in that pass too, because the
// operating system may at any time drop data that it could not write to disk.
func checkFrames(f disk.File, rewrite bool) (n int, err error) {
	head := make([]byte, sqlitefile.WALHeader)
	switch _, err := f.ReadAt(head, 0); {
	case errors.Is(err, io.EOF):
		return 0, nil // the file has no frames
	case err != nil:
		return 0, err
	}
	sum, page, valid := sqlitefile.CheckWALHeader(head)
	if !valid {
		page = 4096
	}
	if rewrite {
		if _, err := f.WriteAt(head, 0); err != nil {
			return 0, err
		}
	}
	piece := make([]byte, max(rewriteSize/(sqlitefile.FrameHeader+page), 1)*(sqlitefile.FrameHeader+page))
	for at := int64(sqlitefile.WALHeader); ; at += int64(len(piece)) {
		size, err := f.ReadAt(piece, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		if valid {
			var whole int
			whole, valid = sum.Frames(piece[:size], page)
			n += whole
		}
		if rewrite {
			if _, err := f.WriteAt(piece[:size], at); err != nil {
				return n, err
			}
		}
		if size < len(piece) {
			return n, nil
		}
	}
}

// walFrames returns how many frames of the write-ahead log SQLite uses.
func walFrames(conn *sqlite.Conn) (n int, err error) {
	err = sqlitex.ExecuteTransient(conn, "PRAGMA wal_checkpoint(NOOP)", &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite.Stmt) error { n = s.ColumnInt(1); return nil },
	})
	return n, err
}

// rewriteSize is how many bytes are rewritten at once.
const rewriteSize = 256 << 10
