package output

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/lockfile"
)

// A segment is a file with records, and a second file with its index, which is written when the
// segment is full. Both begin with a magic text and the mark of the segment.
const (
	segmentMagic = "tideout1"
	indexMagic   = "tideidx1"
	segmentHead  = len(segmentMagic) + markSize
	indexHead    = len(indexMagic) + markSize + 36
	entrySize    = 12
	segmentExt   = ".seg"
	indexExt     = ".idx"
)

// segment is a segment of a store. The fields change only while the store is locked.
type segment struct {
	path    string // without the extension
	number  int
	mark    [markSize]byte
	size    int64     // of the records, with the head of the file
	begun   time.Time // end of the first attempt; zero without records
	last    time.Time // end of the last attempt
	count   int       // records
	entries []entry   // nil if the index file has them
	checked bool      // the index file has the right checksum
}

// entry is the place of a record.
type entry struct {
	run    uint64 // hash of the id of the run
	offset uint32
}

func hashOf(run string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, run) // can't fail
	return h.Sum64()
}

// disk returns how many bytes the files of the segment have, or will have with the index.
func (s *segment) disk() int64 { return s.size + int64(indexHead+entrySize*s.count) }

// create creates the file of a new segment.
func create(dir string, number int) (*segment, *os.File, error) {
	s := &segment{path: filepath.Join(dir, fmt.Sprintf("%08d", number)), number: number, size: int64(segmentHead)}
	_, _ = rand.Read(s.mark[:]) // it never fails
	f, err := os.OpenFile(s.path+segmentExt, os.O_RDWR|os.O_CREATE|os.O_EXCL|lockfile.NoFollow, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if _, err := f.WriteAt(append([]byte(segmentMagic), s.mark[:]...), 0); err != nil {
		return nil, nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return s, f, nil
}

// listSegments returns the paths of the segments in a folder, without extensions, oldest first.
func listSegments(dir string) (list []*segment, err error) {
	files, err := os.ReadDir(dir)
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), segmentExt)
		number, e := strconv.Atoi(name)
		if ok && e == nil && number >= 0 && f.Type().IsRegular() {
			list = append(list, &segment{path: filepath.Join(dir, name), number: number})
		}
	}
	slices.SortFunc(list, func(a, b *segment) int { return cmp.Compare(a.number, b.number) })
	return list, err
}

// errNoSegment means that the beginning of the file is not that of a segment.
var errNoSegment = errors.New("not a segment of outputs")

// open reads what the store must know of a segment that another process has written: from the index
// file or, if there is none, from the records.
func (s *segment) open() error {
	f, err := os.Open(s.path + segmentExt)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, segmentHead)
	if _, err := io.ReadFull(f, head); err != nil || string(head[:len(segmentMagic)]) != segmentMagic {
		return errNoSegment
	}
	s.mark = [markSize]byte(head[len(segmentMagic):])
	if s.readIndexHead() == nil {
		return nil
	}
	return s.scan(f)
}

// scan finds all complete records in the file. It skips damaged parts.
func (s *segment) scan(f *os.File) error {
	all, err := io.ReadAll(io.NewSectionReader(f, 0, maxScan))
	if err != nil {
		return err
	}
	s.begun, s.last, s.count, s.entries, s.size = time.Time{}, time.Time{}, 0, []entry{}, int64(segmentHead)
	for at := segmentHead; ; {
		next := bytes.Index(all[min(at, len(all)):], s.mark[:])
		if next < 0 {
			return nil
		}
		at += next
		m, end, err := decodeAt(all, at, s.mark)
		if err != nil {
			at++
			continue
		}
		s.add(m.Run, int64(at), int64(end), time.UnixMilli(m.Ended))
		at = end
	}
}

// maxScan is more than the size of the largest segment.
const maxScan = maxSegment + headSize + maxMeta + maxData

// decodeAt checks the record at an offset, and returns its meta and its end.
func decodeAt(all []byte, at int, mark [markSize]byte) (m meta, end int, err error) {
	if len(all)-at < headSize {
		return m, 0, errTorn
	}
	head := all[at : at+headSize]
	text, data, err := sizes(head, mark)
	if err != nil || len(all)-at < headSize+text+data {
		return m, 0, errTorn
	}
	middle := at + headSize + text
	if m, err = decodeMeta(head, all[at+headSize:middle]); err != nil {
		return m, 0, err
	}
	if crc32.Checksum(all[middle:middle+data], castagnoli) != order.Uint32(head[markSize+12:]) {
		return m, 0, errTorn
	}
	return m, middle + data, nil
}

// add adds a record that was written.
func (s *segment) add(run string, at, end int64, ended time.Time) {
	s.entries = append(s.entries, entry{hashOf(run), uint32(at)})
	s.count++
	s.size = end
	if s.begun.IsZero() {
		s.begun = ended
	}
	s.last = ended
}

// seal writes the index file. If that fails, the index stays in memory.
func (s *segment) seal() error {
	list := slices.Clone(s.entries)
	slices.SortFunc(list, func(a, b entry) int { return cmp.Or(cmp.Compare(a.run, b.run), cmp.Compare(a.offset, b.offset)) })
	b := make([]byte, indexHead, indexHead+entrySize*len(list))
	copy(b, indexMagic)
	copy(b[len(indexMagic):], s.mark[:])
	rest := b[len(indexMagic)+markSize:]
	order.PutUint64(rest, uint64(s.begun.UnixMilli()))
	order.PutUint64(rest[8:], uint64(s.last.UnixMilli()))
	order.PutUint64(rest[16:], uint64(s.size))
	order.PutUint32(rest[24:], uint32(len(list)))
	for _, e := range list {
		b = order.AppendUint32(order.AppendUint64(b, e.run), e.offset)
	}
	order.PutUint32(rest[28:], crc32.Checksum(b[indexHead:], castagnoli))
	order.PutUint32(rest[32:], crc32.Checksum(b[:indexHead-4], castagnoli))
	f, err := os.OpenFile(s.path+indexExt, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|lockfile.NoFollow, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(s.path+indexExt))
	}
	s.entries, s.checked = nil, true
	return nil
}

// rebuild reads all records, and writes the index file again.
func (s *segment) rebuild() error {
	f, err := os.Open(s.path + segmentExt)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.scan(f); err != nil {
		return err
	}
	_ = s.seal() // on an error, the index stays in memory
	return nil
}

// readIndexHead reads the head of the index file.
func (s *segment) readIndexHead() error {
	f, err := os.Open(s.path + indexExt)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, indexHead)
	if _, err := io.ReadFull(f, b); err != nil {
		return err
	}
	rest := b[len(indexMagic)+markSize:]
	if string(b[:len(indexMagic)]) != indexMagic || [markSize]byte(b[len(indexMagic):]) != s.mark ||
		crc32.Checksum(b[:indexHead-4], castagnoli) != order.Uint32(rest[32:]) {
		return errTorn
	}
	s.begun, s.last = time.UnixMilli(int64(order.Uint64(rest))), time.UnixMilli(int64(order.Uint64(rest[8:])))
	s.size, s.count = int64(order.Uint64(rest[16:])), int(order.Uint32(rest[24:]))
	return nil
}

// offsets returns the offsets of the records of a run, from the copy of a segment.
func (s *segment) offsets(run uint64) (list []uint32, err error) {
	if s.entries != nil {
		for _, e := range s.entries {
			if e.run == run {
				list = append(list, e.offset)
			}
		}
		return list, nil
	}
	f, err := os.Open(s.path + indexExt)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !s.checked {
		if err := checkIndex(f, s.count); err != nil {
			return nil, err
		}
	}
	var b [entrySize]byte
	at := func(i int) (e entry) {
		if _, e := f.ReadAt(b[:], int64(indexHead+i*entrySize)); e != nil {
			err = e
		}
		return entry{order.Uint64(b[:]), order.Uint32(b[8:])}
	}
	for i := sort.Search(s.count, func(i int) bool { return at(i).run >= run }); i < s.count && err == nil; i++ {
		e := at(i)
		if e.run != run {
			break
		}
		list = append(list, e.offset)
	}
	return list, err
}

// checkIndex checks the entries of an index file.
func checkIndex(f *os.File, count int) error {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, int64(indexHead+entrySize*count)))
	if err != nil {
		return err
	}
	if len(b) != indexHead+entrySize*count || crc32.Checksum(b[indexHead:], castagnoli) != order.Uint32(b[indexHead-8:]) {
		return errTorn
	}
	return nil
}

// read reads the record at an offset of a segment. most limits the bytes of the end of each stream
// that are read, without a check of their checksum; -1 means the whole record.
func (s *segment) read(f *os.File, offset uint32, most int) (*Record, error) {
	head := make([]byte, headSize)
	if _, err := f.ReadAt(head, int64(offset)); err != nil {
		return nil, err
	}
	textSize, dataSize, err := sizes(head, s.mark)
	if err != nil {
		return nil, err
	}
	text := make([]byte, textSize)
	if _, err := f.ReadAt(text, int64(offset)+headSize); err != nil {
		return nil, err
	}
	m, err := decodeMeta(head, text)
	if err != nil {
		return nil, err
	}
	start := int64(offset) + headSize + int64(textSize)
	if most >= 0 {
		return m.ends(f, start, most)
	}
	data := make([]byte, dataSize)
	if _, err := f.ReadAt(data, start); err != nil {
		return nil, err
	}
	if crc32.Checksum(data, castagnoli) != order.Uint32(head[markSize+12:]) {
		return nil, errTorn
	}
	return m.record(data)
}

// ends returns the record with the last bytes of each stream, at most that many, as Tail.
func (m *meta) ends(f io.ReaderAt, start int64, most int) (*Record, error) {
	r := m.withoutStreams()
	for _, s := range m.Streams {
		size := cmp.Or(s.Tail, s.Head) // Tail is 0 if nothing is omitted
		tail := make([]byte, max(0, min(size, most)))
		start += int64(s.Head) + int64(s.Tail)
		if _, err := f.ReadAt(tail, start-int64(len(tail))); err != nil {
			return nil, err
		}
		if len(tail) < size {
			tail = cutStart(tail)
		}
		r.Streams = append(r.Streams, Stream{Name: s.Name, Size: s.Size, Lines: s.Lines, More: s.More, Tail: tail})
	}
	return r, nil
}

// visit calls the function for each of these records, if they are of the run, with a function that
// reads the record.
func (s *segment) visit(offsets []uint32, run string, visit func(read func(most int) (*Record, error)) error) error {
	f, err := os.Open(s.path + segmentExt)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, offset := range offsets {
		if err := visit(func(most int) (*Record, error) {
			r, err := s.read(f, offset, most)
			if err == nil && r.Run != run {
				err = ErrNotStored // another run with the same hash
			}
			return r, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// isFile reports whether an open file of the segment still has its name.
func (s *segment) isFile(active *os.File) bool {
	there, err := os.Lstat(s.path + segmentExt)
	if err != nil {
		return false
	}
	ours, err := active.Stat()
	return err == nil && os.SameFile(there, ours)
}

// remove deletes the files of the segment.
func (s *segment) remove() error {
	if err := os.Remove(s.path + segmentExt); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(s.path + indexExt); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
