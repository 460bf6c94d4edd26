// Package memlog keeps a log in memory: for tests, and for work that may be lost.
package memlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// Store is what a log in memory is kept in. It outlives the logs, so that an
// engine can be closed and opened again. The zero Store is empty.
type Store struct {
	mu      sync.Mutex
	first   uint64 // sequence of entries[0]; 0 means 1
	entries []journal.Entry
	blobs   map[string]blob
	epoch   uint64
	owner   *lease
}

type blob struct {
	data []byte
	time time.Time
}

// Open returns a log that is kept in the store.
func (s *Store) Open() journal.Log { return &log{store: s} }

type log struct {
	store  *Store
	closed bool
	lease  *lease
}

func (l *log) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case shard != 0:
		return nil, fmt.Errorf("memlog: there is no shard %d", shard)
	case l.closed:
		return nil, errors.New("memlog: the log is closed")
	case s.owner != nil:
		return nil, fmt.Errorf("memlog: %w", journal.ErrLocked)
	}
	if s.blobs == nil {
		s.blobs, s.first = map[string]blob{}, 1
	}
	s.epoch++
	s.owner = &lease{log: s, epoch: s.epoch, lost: make(chan struct{})}
	l.lease = s.owner
	return s.owner, nil
}

func (l *log) Close() error {
	l.store.mu.Lock()
	owned := l.lease
	l.closed, l.lease = true, nil
	l.store.mu.Unlock()
	if owned == nil {
		return nil
	}
	return owned.Release()
}

type lease struct {
	log   *Store
	epoch uint64
	lost  chan struct{}
}

func (s *lease) Epoch() uint64         { return s.epoch }
func (s *lease) Lost() <-chan struct{} { return s.lost }

func (s *lease) Release() error {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if s.log.owner == s {
		s.log.owner = nil
		close(s.lost)
	}
	return nil
}

// use takes the log for a while, if the lease still holds.
func (s *lease) use(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.log.mu.Lock()
	if s.log.owner != s {
		s.log.mu.Unlock()
		return nil, fmt.Errorf("memlog: %w", journal.ErrStale)
	}
	return s.log.mu.Unlock, nil
}

func (s *lease) Bounds(ctx context.Context) (first, last uint64, err error) {
	unlock, err := s.use(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer unlock()
	return s.log.first, s.log.last(), nil
}

func (s *Store) last() uint64 { return s.first + uint64(len(s.entries)) - 1 }

func (s *lease) Append(ctx context.Context, expected uint64, id journal.ID, data []byte) (uint64, error) {
	l := s.log
	unlock, err := s.use(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if len(data) > journal.MaxEntry {
		return 0, fmt.Errorf("memlog: %w: %d bytes", journal.ErrTooLarge, len(data))
	}
	if n := len(l.entries); n > 0 && l.last() == expected+1 && l.entries[n-1].ID == id && l.entries[n-1].Epoch == s.epoch {
		return expected + 1, nil
	}
	if l.last() != expected {
		return 0, fmt.Errorf("memlog: %w: the last entry is %d, not %d", journal.ErrStale, l.last(), expected)
	}
	l.entries = append(l.entries, journal.Entry{Seq: expected + 1, Epoch: s.epoch, ID: id, Data: bytes.Clone(data)})
	return expected + 1, nil
}

func (s *lease) Read(ctx context.Context, from uint64) iter.Seq2[journal.Entry, error] {
	list, err := s.list(ctx, from)
	return func(yield func(journal.Entry, error) bool) {
		if err != nil {
			yield(journal.Entry{}, err)
			return
		}
		for _, e := range list {
			unlock, err := s.use(ctx)
			if err != nil {
				yield(journal.Entry{}, err)
				return
			}
			unlock()
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (s *lease) list(ctx context.Context, from uint64) ([]journal.Entry, error) {
	unlock, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	l := s.log
	switch {
	case from < l.first:
		return nil, fmt.Errorf("memlog: entry %d was cut off, the first is %d", from, l.first)
	case from > l.last():
		return nil, nil
	}
	return slices.Clone(l.entries[from-l.first:]), nil
}

func (s *lease) Truncate(ctx context.Context, below uint64) error {
	l := s.log
	unlock, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	below = min(below, l.last()+1)
	if below > l.first {
		l.entries = slices.Clone(l.entries[below-l.first:])
		l.first = below
	}
	return nil
}

func (s *lease) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return err
	}
	if err := write(&b); err != nil {
		return err
	}
	unlock, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s.log.blobs[name] = blob{b.Bytes(), time.Now()}
	return nil
}

func (s *lease) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	unlock, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	b, ok := s.log.blobs[name]
	if !ok {
		return nil, fmt.Errorf("memlog: %w: %s", journal.ErrNoBlob, name)
	}
	return io.NopCloser(bytes.NewReader(b.data)), nil
}

func (s *lease) Blobs(ctx context.Context) (list []journal.Blob, err error) {
	unlock, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, name := range slices.Sorted(maps.Keys(s.log.blobs)) {
		b := s.log.blobs[name]
		list = append(list, journal.Blob{Name: name, Size: int64(len(b.data)), Time: b.time})
	}
	return list, nil
}

func (s *lease) Delete(ctx context.Context, name string) error {
	unlock, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	delete(s.log.blobs, name)
	return nil
}

// checkName refuses what is not a name by the contract.
func checkName(name string) error {
	ok := name != "" && name[0] != '.' && name[len(name)-1] != '.'
	for _, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-')
	}
	if !ok {
		return fmt.Errorf("memlog: %q is not the name of a blob", name)
	}
	return nil
}
