package view

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/internal/sqlitefile"
)

// SQLite has checksums for the frames of the write-ahead log, but none for the pages of the file. The
// file with the suffix sumSuffix has them: when the view is opened, each page must have its checksum, or
// be replaced by a frame of the write-ahead log. Otherwise the file is damaged.
//
// The checksums of pages are written before a checkpoint copies these pages from the write-ahead log to the
// file. So if the process ends in between, the write-ahead log still has the pages. Only the writer makes
// checkpoints.
const (
	sumSuffix = "-sum"
	sumSize   = 4
)

// checkpointFrames is the number of frames in the write-ahead log after which the writer makes a checkpoint.
const checkpointFrames = 1000

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf returns the checksum of a page. 0 means that a checksum is not known.
func sumOf(page []byte) uint32 { return max(crc32.Checksum(page, castagnoli), 1) }

// Check returns an error if a page of the view does not have its checksum.
func Check(path string) error {
	sums, err := os.ReadFile(path + sumSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // an earlier version has written the view
	}
	if err != nil {
		return err
	}
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist), err == nil && info.Size() == 0:
		return nil
	case err != nil:
		return err
	}
	f, err := sqlitefile.Open(path)
	if errors.Is(err, sqlitefile.ErrDamaged) {
		return nil // it is no database: load says so
	}
	if err == nil {
		defer f.Close()
		if app, found, err := f.Header(); err == nil && (app != appID || found != version) {
			return nil // it is no view of this version: load says so
		}
		err = f.FilePages(func(number uint32, data []byte) error {
			at := int(number-1) * sumSize
			if at+sumSize > len(sums) || binary.LittleEndian.Uint32(sums[at:]) != sumOf(data) {
				return fmt.Errorf("%w: page %d of %s is not what was written", ErrDamaged, number, path)
			}
			return nil
		})
	}
	if errors.Is(err, sqlitefile.ErrDamaged) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// sumFile has the checksums of pages, in memory and in a file.
type sumFile struct {
	path   string // of the view
	file   disk.File
	sums   []byte
	staged []pageSum        // of a transaction of the write-ahead log
	dirty  map[int]struct{} // blocks of sums that are not in the file
}

type pageSum struct{ number, sum uint32 }

// sumBlock is how many bytes of checksums are written at once.
const sumBlock = 4096

// openSums opens the checksums of a view that was checked. It makes them if there are none.
func openSums(path string) (s *sumFile, err error) {
	s = &sumFile{path: path, dirty: map[int]struct{}{}}
	s.sums, err = os.ReadFile(path + sumSuffix)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing {
		err = os.WriteFile(path+sumSuffix, nil, 0o600)
	}
	if err == nil {
		s.file, err = disk.Open(path + sumSuffix)
	}
	if err != nil || !missing {
		return s, err
	}
	if err := s.sumAll(); err != nil {
		return nil, errors.Join(err, s.file.Close(), os.Remove(path+sumSuffix))
	}
	return s, nil
}

// sumAll writes the checksums of all pages of the file.
func (s *sumFile) sumAll() error {
	f, err := sqlitefile.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	err = f.FilePages(func(number uint32, data []byte) error {
		s.set(pageSum{number, sumOf(data)})
		return nil
	})
	if err != nil {
		return err
	}
	return s.store()
}

// update writes the checksums of the pages in the write-ahead log, and syncs them.
func (s *sumFile) update() error {
	s.staged = s.staged[:0]
	err := sqlitefile.WALPages(s.path, func(number uint32, data []byte, commit bool) {
		s.staged = append(s.staged, pageSum{number, sumOf(data)})
		if commit {
			for _, p := range s.staged {
				s.set(p)
			}
			s.staged = s.staged[:0]
		}
	})
	if err != nil {
		return err
	}
	return s.store()
}

func (s *sumFile) set(p pageSum) {
	at := int(p.number-1) * sumSize
	if n := at + sumSize - len(s.sums); n > 0 {
		s.sums = append(s.sums, make([]byte, n)...)
	}
	if binary.LittleEndian.Uint32(s.sums[at:]) != p.sum {
		binary.LittleEndian.PutUint32(s.sums[at:], p.sum)
		s.dirty[at/sumBlock] = struct{}{}
	}
}

// store writes the blocks that have changed, and syncs the file.
func (s *sumFile) store() error {
	if len(s.dirty) == 0 {
		return nil
	}
	for block := range s.dirty {
		at := block * sumBlock
		if _, err := s.file.WriteAt(s.sums[at:min(at+sumBlock, len(s.sums))], int64(at)); err != nil {
			return err
		}
	}
	clear(s.dirty)
	return s.file.Sync()
}
