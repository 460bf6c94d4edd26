package sqlitefile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
)

// The sizes of the headers of a write-ahead log and of its frames, in bytes.
const (
	WALHeader   = 32
	FrameHeader = 24
)

// WALSum checks the frames of a write-ahead log. Each frame has a checksum of itself and of everything
// before it.
type WALSum struct {
	order binary.ByteOrder
	salt  [8]byte
	sum   [2]uint32
}

// CheckWALHeader returns the checksum of the header and the page size. valid is false if the header is
// damaged, so that SQLite would ignore the whole log.
func CheckWALHeader(head []byte) (s WALSum, page int, valid bool) {
	s = WALSum{order: binary.LittleEndian, salt: [8]byte(head[16:])}
	if head[3]&1 == 1 {
		s.order = binary.BigEndian
	}
	page = int(binary.BigEndian.Uint32(head[8:]))
	s.add(head[:24])
	valid = binary.BigEndian.Uint32(head)&^1 == 0x377f0682 && page >= 512 && page <= 1<<16 && s.equals(head[24:])
	return s, page, valid
}

// Frames returns how many frames at the beginning of data are intact, and whether all are.
func (s *WALSum) Frames(data []byte, page int) (n int, all bool) {
	for ; len(data) >= FrameHeader+page; data = data[FrameHeader+page:] {
		if !s.frame(data[:FrameHeader+page]) {
			return n, false
		}
		n++
	}
	return n, true
}

// frame reports whether a frame is intact. After a damaged frame, s continues with the checksum that is
// stored in the frame.
func (s *WALSum) frame(data []byte) bool {
	s.add(data[:8])
	s.add(data[FrameHeader:])
	intact := [8]byte(data[8:]) == s.salt && s.equals(data[16:])
	s.sum = [2]uint32{binary.BigEndian.Uint32(data[16:]), binary.BigEndian.Uint32(data[20:])}
	return intact
}

func (s *WALSum) add(data []byte) {
	for ; len(data) >= 8; data = data[8:] {
		s.sum[0] += s.order.Uint32(data) + s.sum[1]
		s.sum[1] += s.order.Uint32(data[4:]) + s.sum[0]
	}
}

func (s *WALSum) equals(stored []byte) bool {
	return s.sum[0] == binary.BigEndian.Uint32(stored) && s.sum[1] == binary.BigEndian.Uint32(stored[4:])
}

// frames says where in a write-ahead log the pages are.
type frames struct {
	page    int              // size of a page; 0 if there are no frames
	offsets map[uint32]int64 // of the pages that were committed, by number
	beyond  map[uint32]int64 // the same if damaged frames are skipped or used as they are; nil if nothing is committed after one
}

// readFrames reads a write-ahead log.
func readFrames(wal io.Reader) (f frames, err error) {
	f.offsets = map[uint32]int64{}
	t := transaction{frames: &f, open: map[uint32]int64{}, into: f.offsets}
	f.page, err = eachFrame(wal, t.add)
	return f, err
}

// eachFrame calls yield with the frames of a write-ahead log and their offsets, until it returns false. A frame
// is valid until yield returns, and sum is the checksum before it. page is the size of a page; 0 if the header
// is damaged, so that SQLite would ignore the log.
func eachFrame(wal io.Reader, yield func(sum *WALSum, frame []byte, at int64) bool) (page int, err error) {
	in := bufio.NewReaderSize(wal, 128<<10)
	head := make([]byte, WALHeader)
	if _, err := io.ReadFull(in, head); err != nil {
		return 0, noEnd(err)
	}
	sum, page, valid := CheckWALHeader(head)
	if !valid {
		return 0, nil
	}
	frame := make([]byte, FrameHeader+page)
	for at := int64(WALHeader); ; at += int64(len(frame)) {
		if _, err := io.ReadFull(in, frame); err != nil {
			return page, noEnd(err)
		}
		if !yield(&sum, frame, at) {
			return page, nil
		}
	}
}

// transaction reads frames one after the other.
type transaction struct {
	frames  *frames
	open    map[uint32]int64 // pages of the transaction that is not committed yet
	into    map[uint32]int64 // the pages that were committed
	damaged bool             // a frame before was damaged
}

// add adds the frame at an offset. It returns false if that and all later ones are older than the
// header.
func (t *transaction) add(sum *WALSum, frame []byte, at int64) bool {
	whole := sum.frame(frame)
	if !whole && [8]byte(frame[8:]) != sum.salt {
		return false
	}
	if !whole && !t.damaged {
		t.damaged, t.into = true, maps.Clone(t.frames.offsets)
		clear(t.open)
	}
	t.open[binary.BigEndian.Uint32(frame)] = at + FrameHeader
	if whole && binary.BigEndian.Uint32(frame[4:]) != 0 {
		maps.Copy(t.into, t.open)
		clear(t.open)
		if t.damaged {
			t.frames.beyond = t.into
		}
	}
	return true
}

// WALPages calls yield with the pages of the write-ahead log of a database, in the order in which they
// were written. commit is true for the last page of a transaction; what comes after the last such page is
// not committed. The data is valid until yield returns. WALPages does not check checksums: the caller has
// written the log and has it open, and no transaction is in progress.
func WALPages(path string, yield func(number uint32, data []byte, commit bool)) error {
	wal, err := os.Open(path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer wal.Close()
	_, err = eachFrame(wal, func(sum *WALSum, frame []byte, _ int64) bool {
		if [8]byte(frame[8:]) != sum.salt {
			return false // the rest is older than the header
		}
		yield(binary.BigEndian.Uint32(frame), frame[FrameHeader:], binary.BigEndian.Uint32(frame[4:]) != 0)
		return true
	})
	return err
}

// noEnd returns the error, nil if it is the end of a file.
func noEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}
