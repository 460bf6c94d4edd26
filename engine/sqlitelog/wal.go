package sqlitelog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// After a sync that failed, the system may take for written what is not, and no later
// sync writes it. What is in the write-ahead log must then be written anew before
// anything relies on it: an entry that follows, or a checkpoint. The same holds for a
// folder that another process leaves behind, which may have met such a failure.

// rewriteWAL writes the contents of the write-ahead log anew and syncs them. SQLite uses
// the first frames of it, as many as committed says. No other goroutine may write to
// the database meanwhile.
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

// checkFrames reads the file piece by piece, and returns how many frames at the start are whole.
// It may write what it has read: to check it before is not enough, since the system may forget at
// any time what it could not write.
func checkFrames(f disk.File, rewrite bool) (n int, err error) {
	head := make([]byte, walHeader)
	switch _, err := f.ReadAt(head, 0); {
	case errors.Is(err, io.EOF):
		return 0, nil // it has no frame
	case err != nil:
		return 0, err
	}
	sum, page, valid := checkHeader(head)
	if !valid {
		page = 4096
	}
	if rewrite {
		if _, err := f.WriteAt(head, 0); err != nil {
			return 0, err
		}
	}
	piece := make([]byte, max(rewriteSize/(frameHeader+page), 1)*(frameHeader+page))
	for at := int64(walHeader); ; at += int64(len(piece)) {
		size, err := f.ReadAt(piece, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		if valid {
			var whole int
			whole, valid = sum.frames(piece[:size], page)
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

const (
	walHeader   = 32
	frameHeader = 24
	rewriteSize = 256 << 10 // bytes that are rewritten at once
)

// walSum checks frames of a write-ahead log. Each has a checksum of itself and everything
// before it: https://sqlite.org/fileformat2.html
type walSum struct {
	order binary.ByteOrder
	salt  [8]byte
	sum   [2]uint32
}

// checkHeader returns the checksum so far and the size of a page. It is not valid if SQLite
// would use nothing of the log.
func checkHeader(head []byte) (s walSum, page int, valid bool) {
	s = walSum{order: binary.LittleEndian, salt: [8]byte(head[16:])}
	if head[3]&1 == 1 {
		s.order = binary.BigEndian
	}
	page = int(binary.BigEndian.Uint32(head[8:]))
	s.add(head[:24])
	valid = binary.BigEndian.Uint32(head)&^1 == 0x377f0682 && page >= 512 && page <= 1<<16 && s.equals(head[24:])
	return s, page, valid
}

// frames returns how many of the frames are whole, and whether all are.
func (s *walSum) frames(data []byte, page int) (n int, all bool) {
	for ; len(data) >= frameHeader+page; data = data[frameHeader+page:] {
		s.add(data[:8])
		s.add(data[frameHeader : frameHeader+page])
		if [8]byte(data[8:]) != s.salt || !s.equals(data[16:]) {
			return n, false
		}
		n++
	}
	return n, true
}

func (s *walSum) add(data []byte) {
	for ; len(data) >= 8; data = data[8:] {
		s.sum[0] += s.order.Uint32(data) + s.sum[1]
		s.sum[1] += s.order.Uint32(data[4:]) + s.sum[0]
	}
}

func (s *walSum) equals(stored []byte) bool {
	return s.sum[0] == binary.BigEndian.Uint32(stored) && s.sum[1] == binary.BigEndian.Uint32(stored[4:])
}
