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
	head := make([]byte, walHeader)
	switch _, err := f.ReadAt(head, 0); {
	case errors.Is(err, io.EOF):
		return 0, nil // the file has no frames
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

// walSum checks the frames of a write-ahead log. Each frame has a checksum of itself and of everything
// before it: https://sqlite.org/fileformat2.html
type walSum struct {
	order binary.ByteOrder
	salt  [8]byte
	sum   [2]uint32
}

// checkHeader returns the checksum of the header and the page size. valid is false if the header is
// damaged, so that SQLite would ignore the whole log.
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

// frames returns how many frames at the beginning of data are intact, and whether all are.
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
