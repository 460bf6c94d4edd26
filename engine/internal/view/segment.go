package view

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"zombiezen.com/go/sqlite"

	"github.com/tideover/tideover/engine/internal/codec"
)

// The search index consists of segments. A segment has the words of some runs, and for each word
// the places of the runs that have it. A segment never changes: runs that are new or have other
// words than before get a new segment (collect.go), and segments are merged (merge.go).
//
// So an entry may be out of date: the run was deleted or has other words now. A search therefore
// checks the words of the runs that it finds. Entries of deleted runs are dropped when there are
// many of them (see renew).
//
// FTS5 of SQLite has a similar structure, but indexing a run with it takes three to five times as
// long.

// segment is a row of the table segments.
type segment struct {
	id          int64
	runs        int64 // number of runs
	first, last int64 // its lowest and its highest place
}

// The words of a segment are stored in blocks, in order. A row of the table words is a block; its
// columns word and first are those of its first entry. An entry is a word with the first place
// and some or all of the others. It is encoded as:
//
//	the number of bytes that the word has in common with the word before it  } not for the first
//	the other bytes of the word, after their number                          } entry of a block
//	the places, after their number of bytes; each is the difference from the
//	place before it, and the first one from the first place of the segment
//
// A block with its key is smaller than a quarter of a page, because SQLite would store the rest of
// a larger row in pages of its own.
const (
	maxBlock = 1900
	maxList  = 1000 // bytes of the places of an entry
)

var errBlock = fmt.Errorf("%w: the words of a segment can't be decoded", ErrDamaged)

// segmentWriter writes a segment. Its words must be added in order.
type segmentWriter struct {
	segment
	conn  *sqlite.Conn
	block []byte
	word  []byte // word of the first entry of the block
	first int64  // first place of that entry
	prev  []byte // word of the last entry of the block
	list  []byte
}

const putBlock = "INSERT INTO words VALUES(?, ?, ?, ?)"

// add adds a word with its places, which must be in ascending order.
func (s *segmentWriter) add(word []byte, places []int64) error {
	for len(places) > 0 {
		s.list = s.list[:0]
		before, n := s.segment.first, 0
		for ; n < len(places) && len(s.list) < maxList; n++ {
			s.list = binary.AppendUvarint(s.list, uint64(places[n]-before))
			before = places[n]
		}
		if len(s.block)+len(word)+len(s.list) > maxBlock {
			if err := s.flush(); err != nil {
				return err
			}
		}
		if len(s.block) == 0 {
			s.word, s.first = append(s.word[:0], word...), places[0]
		} else {
			same := 0
			for same < min(len(word), len(s.prev)) && word[same] == s.prev[same] {
				same++
			}
			s.block = binary.AppendUvarint(s.block, uint64(same))
			s.block = codec.AppendBytes(s.block, word[same:])
		}
		s.block = codec.AppendBytes(s.block, s.list)
		s.prev = append(s.prev[:0], word...)
		places = places[n:]
	}
	return nil
}

// flush writes the block.
func (s *segmentWriter) flush() error {
	if len(s.block) == 0 {
		return nil
	}
	err := exec(s.conn, putBlock, s.id, s.word, s.first, s.block)
	s.block = s.block[:0]
	return err
}

// close writes the last block, and the row of the segment.
func (s *segmentWriter) close() error {
	if err := s.flush(); err != nil {
		return err
	}
	return exec(s.conn, "INSERT INTO segments VALUES(?, ?, ?, ?)", s.id, s.runs, s.segment.first, s.last)
}

// blockReader reads the entries of a block.
type blockReader struct {
	word []byte // of the current entry
	list []byte // places of the current entry, encoded
	data codec.Reader
	next bool // the next entry is not the first one
}

// reset begins with the block of a row with the columns word and data. The entries share the
// memory of the data.
func (b *blockReader) reset(word, data []byte) {
	b.word, b.data, b.next = append(b.word[:0], word...), codec.Reader{Data: data}, false
}

// read reads the next entry. It returns false if there is none.
func (b *blockReader) read() (bool, error) {
	if len(b.data.Data) == 0 {
		return false, nil
	}
	if b.next {
		same := b.data.Uvarint()
		if same > uint64(len(b.word)) {
			return false, errBlock
		}
		b.word = append(b.word[:same], b.data.Bytes()...)
	}
	b.next = true
	if b.list = b.data.Bytes(); b.data.Err != nil {
		return false, errBlock
	}
	return true, nil
}

// appendPlaces decodes the places of an entry. The first one is stored relative to base.
func appendPlaces(to []int64, base int64, list []byte) ([]int64, error) {
	for len(list) > 0 {
		v, n := binary.Uvarint(list)
		if n <= 0 {
			return to, errBlock
		}
		base += int64(v)
		to, list = append(to, base), list[n:]
	}
	return to, nil
}

// readSegments returns all segments, the oldest first.
func readSegments(c *sqlite.Conn) (all []segment, err error) {
	err = each(c, "SELECT id, runs, first, last FROM segments ORDER BY id", func(s *sqlite.Stmt) error {
		all = append(all, segment{s.ColumnInt64(0), s.ColumnInt64(1), s.ColumnInt64(2), s.ColumnInt64(3)})
		return nil
	})
	return all, err
}

const (
	// The block that may have a word after its first entry, and the blocks that begin with the
	// word or a later one.
	blockBefore = "SELECT word, data FROM words WHERE segment=? AND word<? ORDER BY word DESC, first DESC LIMIT 1"
	blocksFrom  = "SELECT word, data FROM words WHERE segment=? AND word>=? ORDER BY word, first"
)

// errStop ends each, because enough was read.
var errStop = errors.New("enough was read")

// places returns the places of the runs that have a word, in ascending order. If there are many
// more than most, it returns only some of them, and false.
func (g *segment) places(c *sqlite.Conn, w searchWord, most int) (places []int64, all bool, err error) {
	var b blockReader
	word, found := []byte(w.text), 0
	all = true
	read := func(s *sqlite.Stmt) error {
		b.reset(columnBytes(s, 0), columnBytes(s, 1))
		for {
			ok, err := b.read()
			if err != nil || !ok {
				return err
			}
			switch {
			case bytes.Equal(b.word, word) || w.stem && bytes.HasPrefix(b.word, word):
				if all = len(places) <= most; !all {
					return errStop
				}
				found++
				if places, err = appendPlaces(places, g.first, b.list); err != nil {
					return err
				}
			case bytes.Compare(b.word, word) > 0:
				return errStop
			}
		}
	}
	for _, query := range [...]string{blockBefore, blocksFrom} {
		if err := each(c, query, read, g.id, word); err != nil {
			return nil, false, err
		}
	}
	if w.stem && found > 1 {
		slices.Sort(places)
		places = slices.Compact(places)
	}
	return places, all, nil
}
