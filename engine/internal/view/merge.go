package view

import (
	"bytes"
	"cmp"
	"errors"
	"math/bits"
	"slices"

	"zombiezen.com/go/sqlite"
)

const (
	mergeCount = 16      // segments of similar size that are merged
	maxMerge   = 1 << 17 // runs that are merged at once, which takes about 100 ms
	maxLevel   = 4       // segments of this level, 65 536 runs, are large enough
)

// level returns the size class of the segment. Merging mergeCount segments of a level makes one of
// the next.
func (g *segment) level() int { return (bits.Len64(uint64(g.runs)) - 1) / 4 }

// mergeable returns segments that should be merged; nil if there are none. Segments that are
// being renewed are left alone.
func (x *indexer) mergeable() []segment {
	var levels [maxLevel][]segment
	for _, g := range x.segments {
		if l := g.level(); l < maxLevel && g.id > x.old {
			levels[l] = append(levels[l], g)
		}
	}
	for _, list := range levels {
		if len(list) < mergeCount {
			continue
		}
		slices.SortStableFunc(list, func(a, b segment) int { return cmp.Compare(a.runs, b.runs) })
		n, runs := 0, int64(0)
		for ; n < mergeCount && (n < 2 || runs+list[n].runs <= maxMerge); n++ {
			runs += list[n].runs
		}
		return list[:n]
	}
	return nil
}

// merge merges the segments into one.
func (x *indexer) merge(list []segment) (err error) {
	// In this order, the places of a word are usually in ascending order.
	slices.SortFunc(list, func(a, b segment) int { return cmp.Compare(a.first, b.first) })
	out := segmentWriter{conn: x.conn, segment: segment{x.nextSegment(), 0, list[0].first, list[0].last}}
	inputs := make([]*mergeInput, 0, len(list))
	defer func() {
		for _, in := range inputs {
			err = errors.Join(err, in.rows.Finalize())
		}
	}()
	for _, g := range list {
		out.runs += g.runs
		out.last = max(out.last, g.last)
		in, err := openInput(x.conn, g)
		if err != nil {
			return err
		}
		inputs = append(inputs, in)
		if err := in.read(); err != nil {
			return err
		}
	}
	if err := mergeWords(&out, inputs); err != nil {
		return err
	}
	if err := out.close(); err != nil {
		return err
	}
	x.segments = append(x.segments, out.segment)
	return x.drop(list)
}

// mergeWords adds all words of the inputs to a segment.
func mergeWords(out *segmentWriter, inputs []*mergeInput) error {
	var word []byte
	var places []int64
	for {
		var least *mergeInput
		for _, in := range inputs {
			if !in.ended && (least == nil || bytes.Compare(in.word, least.word) < 0) {
				least = in
			}
		}
		if least == nil {
			return nil
		}
		word, places = append(word[:0], least.word...), places[:0]
		for _, in := range inputs {
			for !in.ended && bytes.Equal(in.word, word) {
				var err error
				if places, err = appendPlaces(places, in.first, in.list); err != nil {
					return err
				}
				if err := in.read(); err != nil {
					return err
				}
			}
		}
		if !slices.IsSorted(places) {
			slices.Sort(places)
		}
		if err := out.add(word, slices.Compact(places)); err != nil {
			return err
		}
	}
}

// mergeInput reads the entries of a segment that is merged.
type mergeInput struct {
	segment
	blockReader
	rows  *sqlite.Stmt
	data  []byte
	ended bool
}

func openInput(c *sqlite.Conn, g segment) (*mergeInput, error) {
	rows, _, err := c.PrepareTransient("SELECT word, data FROM words WHERE segment=? ORDER BY word, first")
	if err != nil {
		return nil, err
	}
	rows.BindInt64(1, g.id)
	return &mergeInput{segment: g, rows: rows}, nil
}

// read reads the next entry, or sets ended.
func (in *mergeInput) read() error {
	for {
		if ok, err := in.blockReader.read(); ok || err != nil {
			return err
		}
		row, err := in.rows.Step()
		if in.ended = !row; err != nil || !row {
			return err
		}
		in.data = slices.Grow(in.data[:0], in.rows.ColumnLen(1))[:in.rows.ColumnLen(1)]
		in.rows.ColumnBytes(1, in.data)
		in.reset(columnBytes(in.rows, 0), in.data)
	}
}

// drop deletes segments.
func (x *indexer) drop(list []segment) error {
	for _, g := range list {
		for _, q := range [...]string{"DELETE FROM words WHERE segment=?", "DELETE FROM segments WHERE id=?"} {
			if err := exec(x.conn, q, g.id); err != nil {
				return err
			}
		}
	}
	// A new slice: the old one is used again if the transaction fails.
	x.segments = slices.DeleteFunc(slices.Clone(x.segments), func(g segment) bool { return slices.Contains(list, g) })
	return nil
}

// nextSegment returns the id of a new segment.
func (x *indexer) nextSegment() (id int64) {
	for _, g := range x.segments {
		id = max(id, g.id)
	}
	return id + 1
}

// minOutdated is how many entries of runs must be out of date at least before segments are
// renewed.
const minOutdated = 1000

// mustRenew reports whether segments are being renewed, or must be: half of their runs or more are
// out of date.
func (x *indexer) mustRenew() bool {
	runs := int64(0)
	for _, g := range x.segments {
		runs += g.runs
	}
	return x.old != 0 || x.outdated >= max(minOutdated, runs/2)
}

// renew indexes up to most runs again, if segments must be renewed. It does so in order of place,
// and drops each old segment when it has passed its last place.
func (x *indexer) renew(most int) (n int, more bool, err error) {
	if !x.mustRenew() {
		return 0, false, nil
	}
	if x.old == 0 {
		x.old, x.renewed, x.outdated = x.nextSegment()-1, minPlace, 0
	}
	n, last, err := x.collect("SELECT "+columns+" FROM runs WHERE place>? AND place<=? ORDER BY place LIMIT ?", x.renewed, x.indexed, int64(most))
	if err != nil {
		return 0, false, err
	}
	x.renewed = last
	if n < most && !x.words.full() {
		x.renewed = x.indexed
	}
	if err := x.addSegment(); err != nil {
		return 0, false, err
	}
	more = x.renewed < x.indexed
	var done []segment
	for _, g := range x.segments {
		if g.id <= x.old && (g.last <= x.renewed || !more) {
			done = append(done, g)
		}
	}
	if !more {
		x.old = 0
	}
	return n, more, x.drop(done)
}
