// Package sqlitefile reads a SQLite database without SQLite. SQLite changes files when it opens a
// database: it creates shared memory, and writes over damaged frames of the write-ahead log later.
// This package changes nothing, so it can look at a database before it is decided whether to open it.
//
// It reads what SQLite would read: the pages of the file, replaced by those of the committed frames of
// the write-ahead log. The format is https://sqlite.org/fileformat2.html. It does not lock anything: the
// caller must keep others from writing.
package sqlitefile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ErrDamaged says that the file is not a SQLite database, or that a part of it can't be read.
var ErrDamaged = errors.New("the database is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// File is an open database.
type File struct {
	db     *os.File
	wal    *os.File // nil if there is none
	frames frames
	size   int // bytes of a page
	usable int // bytes of a page that SQLite uses
	total  int // bytes of both files
	page   []byte
	tables map[string]Table // nil before Tables was called
}

const headerSize = 100 // bytes of the header of a database

// Open opens a database and its write-ahead log for reading.
func Open(path string) (f *File, err error) {
	f = new(File)
	if f.db, err = os.Open(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
			f = nil
		}
	}()
	f.wal, err = os.Open(path + "-wal")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if f.wal != nil {
		if f.frames, err = readFrames(f.wal); err != nil {
			return f, err
		}
	}
	return f, f.readHeader()
}

// Close closes the files.
func (f *File) Close() {
	_ = f.db.Close() // it was only read
	if f.wal != nil {
		_ = f.wal.Close()
	}
}

// readHeader reads the size of pages and checks that the file is a database.
func (f *File) readHeader() error {
	head := make([]byte, headerSize)
	_, err := f.db.ReadAt(head, 0)
	if at, ok := f.frames.offsets[1]; ok {
		_, err = f.wal.ReadAt(head, at)
	}
	switch {
	case errors.Is(err, io.EOF):
		return damaged("it is not a database: it has less than %d bytes", headerSize)
	case err != nil:
		return err
	case string(head[:16]) != "SQLite format 3\x00":
		return damaged("it is not a database")
	}
	f.size = int(binary.BigEndian.Uint16(head[16:]))
	if f.size == 1 {
		f.size = 1 << 16
	}
	f.usable = f.size - int(head[20])
	for _, file := range []*os.File{f.db, f.wal} {
		if file == nil {
			continue
		}
		info, err := file.Stat()
		if err != nil {
			return err
		}
		f.total += int(info.Size())
	}
	if f.size < 512 || f.size&(f.size-1) != 0 || f.usable < 480 || f.frames.page != 0 && f.frames.page != f.size {
		return damaged("the size of a page can't be %d", f.size)
	}
	return nil
}

// Header returns the application id and the user version of the database.
func (f *File) Header() (application, version uint32, err error) {
	p, err := f.read(1)
	if err != nil {
		return 0, 0, err
	}
	return binary.BigEndian.Uint32(p[68:]), binary.BigEndian.Uint32(p[60:]), nil
}

// BeyondDamage returns the database as it would be if the write-ahead log were followed beyond a
// damaged frame. It is nil if no committed frame comes after a damaged one. The result reads the files
// of f, and only serves to find out what is missing: pages may be damaged.
func (f *File) BeyondDamage() *File {
	if f.frames.beyond == nil {
		return nil
	}
	other := *f
	other.frames = frames{page: f.frames.page, offsets: f.frames.beyond}
	other.page, other.tables = nil, nil
	return &other
}

// read returns a page. It is valid until the next call.
func (f *File) read(number uint32) ([]byte, error) {
	if number == 0 {
		return nil, damaged("there is no page 0")
	}
	if f.page == nil {
		f.page = make([]byte, f.size)
	}
	var err error
	if at, ok := f.frames.offsets[number]; ok {
		_, err = f.wal.ReadAt(f.page, at)
	} else {
		_, err = f.db.ReadAt(f.page, int64(number-1)*int64(f.size))
	}
	if errors.Is(err, io.EOF) {
		err = damaged("page %d is missing", number)
	}
	return f.page, err
}

// FilePages calls yield with the pages of the file that the write-ahead log does not replace. The data is
// valid until yield returns.
func (f *File) FilePages(yield func(number uint32, data []byte) error) error {
	head, err := f.read(1)
	if err != nil {
		return err
	}
	count := binary.BigEndian.Uint32(head[28:])
	in := bufio.NewReaderSize(f.db, 1<<20)
	data := make([]byte, f.size)
	for number := uint32(1); number <= count; number++ {
		_, replaced := f.frames.offsets[number]
		_, err := io.ReadFull(in, data)
		switch {
		case noEnd(err) != nil:
			return err
		case replaced:
		case err != nil:
			return damaged("page %d is missing", number)
		default:
			if err := yield(number, data); err != nil {
				return err
			}
		}
	}
	return nil
}
