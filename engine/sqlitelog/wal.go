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
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<62))
	if err != nil {
		return err
	}
	if n := validFrames(data); n < committed {
		return fmt.Errorf("%w: %s-wal: a sync failed, and of %d pages that were written %d are left; nothing that was acknowledged is lost; start the process again",
			journal.ErrDamaged, path, committed, n)
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	return f.Sync()
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
)

// validFrames returns how many frames at the start of a write-ahead log are whole. Each
// has a checksum of itself and everything before it: https://sqlite.org/fileformat2.html
func validFrames(wal []byte) (n int) {
	if len(wal) < walHeader {
		return 0
	}
	var order binary.ByteOrder = binary.LittleEndian
	if wal[3]&1 == 1 {
		order = binary.BigEndian
	}
	page := int(binary.BigEndian.Uint32(wal[8:]))
	salt := [8]byte(wal[16:])
	var sum walSum
	sum.add(order, wal[:24])
	if binary.BigEndian.Uint32(wal)&^1 != 0x377f0682 || page < 512 || page > 1<<16 || !sum.equals(wal[24:]) {
		return 0
	}
	for rest := wal[walHeader:]; len(rest) >= frameHeader+page; rest = rest[frameHeader+page:] {
		sum.add(order, rest[:8])
		sum.add(order, rest[frameHeader:frameHeader+page])
		if [8]byte(rest[8:]) != salt || !sum.equals(rest[16:]) {
			break
		}
		n++
	}
	return n
}

// walSum is the checksum of a write-ahead log.
type walSum [2]uint32

func (s *walSum) add(order binary.ByteOrder, data []byte) {
	for ; len(data) >= 8; data = data[8:] {
		s[0] += order.Uint32(data) + s[1]
		s[1] += order.Uint32(data[4:]) + s[0]
	}
}

func (s *walSum) equals(stored []byte) bool {
	return s[0] == binary.BigEndian.Uint32(stored) && s[1] == binary.BigEndian.Uint32(stored[4:])
}
