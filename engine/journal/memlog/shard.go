package memlog

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// shard is one log with its blobs.
type shard struct {
	first   uint64 // sequence of entries[0]
	entries []journal.Entry
	bytes   uint64 // size of all entries
	blobs   map[string]blob
	epoch   uint64 // epoch of the latest lease
	owner   *lease // nil if there is none
}

type blob struct {
	data []byte
	time time.Time
}

func (s *shard) last() uint64 { return s.first + uint64(len(s.entries)) - 1 }

// bounds returns the sequences of the first and the last entry.
func (s *shard) bounds() ([2]uint64, error) { return [2]uint64{s.first, s.last()}, nil }

// append records an entry, unless the last entry has the same id and epoch already. It
// keeps the data.
func (s *shard) append(epoch, expected uint64, id journal.ID, data []byte) (uint64, error) {
	if n := len(s.entries); n > 0 && s.last() == expected+1 && s.entries[n-1].ID == id && s.entries[n-1].Epoch == epoch {
		return expected + 1, nil
	}
	if s.last() != expected {
		return 0, fmt.Errorf("memlog: %w: the last entry is %d, not %d", journal.ErrStale, s.last(), expected)
	}
	s.entries = append(s.entries, journal.Entry{Seq: expected + 1, Epoch: epoch, ID: id, Data: data})
	s.bytes += uint64(len(data))
	return expected + 1, nil
}

// from returns the entries from the sequence on.
func (s *shard) from(seq uint64) ([]journal.Entry, error) {
	switch {
	case seq < s.first:
		return nil, fmt.Errorf("memlog: entry %d was truncated: the first entry is %d", seq, s.first)
	case seq > s.last():
		return nil, nil
	}
	return slices.Clone(s.entries[seq-s.first:]), nil
}

func (s *shard) truncate(below uint64) {
	below = min(below, s.last()+1)
	if below <= s.first {
		return
	}
	for _, e := range s.entries[:below-s.first] {
		s.bytes -= uint64(len(e.Data))
	}
	s.entries = slices.Clone(s.entries[below-s.first:])
	s.first = below
}

// reader reads a shard that another member may own.
type reader struct {
	member *Member
	shard  *shard
}

// Peek implements [journal.Cluster].
func (m *Member) Peek(ctx context.Context, number int) (journal.Reader, error) {
	_, unlock, err := m.begin(ctx, Operation{Name: "peek", Shard: number})
	if err != nil {
		return nil, err
	}
	defer unlock()
	if number < 0 || number >= len(m.store.shards) {
		return nil, fmt.Errorf("memlog: there is no shard %d", number)
	}
	return &reader{m, m.store.shards[number]}, nil
}

// read reads the shard, if the member can reach the store.
func read[T any](ctx context.Context, r *reader, from func(*shard) (T, error)) (result T, err error) {
	unlock, err := r.member.enter(ctx)
	if err != nil {
		return result, err
	}
	defer unlock()
	return from(r.shard)
}

func (r *reader) Bounds(ctx context.Context) (first, last uint64, err error) {
	b, err := read(ctx, r, (*shard).bounds)
	return b[0], b[1], err
}

func (r *reader) Read(ctx context.Context, from uint64) iter.Seq2[journal.Entry, error] {
	list, err := read(ctx, r, func(s *shard) ([]journal.Entry, error) { return s.from(from) })
	return entries(list, err, func() error { return nil })
}

// entries yields the list, or err if it is not nil. Before each entry it calls usable, and
// ends with the error of that.
func entries(list []journal.Entry, err error, usable func() error) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		for _, e := range list {
			if err = usable(); err != nil {
				break
			}
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(journal.Entry{}, err)
		}
	}
}

func (r *reader) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	return read(ctx, r, func(s *shard) (io.ReadCloser, error) { return s.get(name) })
}

func (r *reader) Blobs(ctx context.Context) ([]journal.Blob, error) {
	return read(ctx, r, (*shard).list)
}
