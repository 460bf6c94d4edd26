package view

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
)

// collector collects the words of runs in memory, to write them as a segment.
type collector struct {
	numbers map[string]uint32 // number of each word: its index in words
	words   []collected
	places  []int64 // places of the runs, in ascending order
	entries []wordOfRun
}

type collected struct {
	text  string
	runs  int // number of runs with the word
	last  int // the last run with the word: 1 for the first one
	start int // where write puts its runs
}

// wordOfRun says that a run has a word. Both are numbers.
type wordOfRun struct{ word, run uint32 }

// maxEntries limits the memory of a collector to about 20 MB. indexStep runs of 25 words have
// 100 000 entries.
const maxEntries = 1 << 20

// collectorSize is the number of words and entries of a collector.
type collectorSize struct{ words, entries int }

// newCollector returns a collector with memory for about that many words and entries.
func newCollector(size collectorSize) *collector {
	return &collector{
		numbers: make(map[string]uint32, size.words),
		words:   make([]collected, 0, size.words),
		entries: make([]wordOfRun, 0, size.entries),
	}
}

// full reports whether the words must be written before another run is added.
func (c *collector) full() bool { return len(c.entries) >= maxEntries }

// add adds the words of a run. Its place must be higher than those of the runs before it.
func (c *collector) add(place int64, r *Run) {
	c.places = append(c.places, place)
	run, begin := len(c.places), len(c.entries)
	wordsOf(r, func(text string) bool {
		n, ok := c.numbers[text]
		if !ok {
			n = uint32(len(c.words))
			text = strings.Clone(text)
			c.numbers[text] = n
			c.words = append(c.words, collected{text: text})
		}
		if w := &c.words[n]; w.last != run {
			w.last = run
			w.runs++
			c.entries = append(c.entries, wordOfRun{n, uint32(run - 1)})
		}
		return len(c.entries)-begin < maxWords
	})
}

// write writes the segment.
func (c *collector) write(conn *sqlite.Conn, id int64) (segment, error) {
	w := segmentWriter{conn: conn, segment: segment{id, int64(len(c.places)), c.places[0], c.places[len(c.places)-1]}}
	order := c.sorted()
	start := 0
	for _, n := range order {
		c.words[n].start = start
		start += c.words[n].runs
	}
	// Each word gets its places in ascending order, because the entries are in this order.
	places := make([]int64, len(c.entries))
	for _, e := range c.entries {
		word := &c.words[e.word]
		places[word.start] = c.places[e.run]
		word.start++
	}
	var text []byte
	for _, n := range order {
		word := &c.words[n]
		text = append(text[:0], word.text...)
		if err := w.add(text, places[word.start-word.runs:word.start]); err != nil {
			return segment{}, err
		}
	}
	return w.segment, w.close()
}

// sorted returns the numbers of the words in the order of their texts. It compares the first eight
// bytes as a number, which is faster.
func (c *collector) sorted() []uint32 {
	type item struct {
		head uint64
		word uint32
	}
	items := make([]item, len(c.words))
	for i, w := range c.words {
		var head [8]byte
		copy(head[:], w.text)
		items[i] = item{binary.BigEndian.Uint64(head[:]), uint32(i)}
	}
	slices.SortFunc(items, func(a, b item) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		return strings.Compare(c.words[a.word].text, c.words[b.word].text)
	})
	order := make([]uint32, len(items))
	for i, item := range items {
		order[i] = item.word
	}
	return order
}
