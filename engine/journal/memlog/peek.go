package memlog

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/tideover/tideover/engine/journal"
)

// reader reads a shard that another member may own.
type reader struct {
	member *Member
	shard  *shard
}

// Peek implements [journal.Cluster].
func (m *Member) Peek(ctx context.Context, number int) (journal.Reader, error) {
	if err := m.suffer(ctx, m.fault(Operation{Name: "peek", Shard: number})); err != nil {
		return nil, err
	}
	unlock, err := m.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if number < 0 || number >= len(m.store.shards) {
		return nil, fmt.Errorf("memlog: there is no shard %d", number)
	}
	return &reader{m, m.store.shards[number]}, nil
}

func (r *reader) Bounds(ctx context.Context) (first, last uint64, err error) {
	unlock, err := r.member.enter(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer unlock()
	return r.shard.first, r.shard.last(), nil
}

func (r *reader) Read(ctx context.Context, from uint64) iter.Seq2[journal.Entry, error] {
	list, err := r.list(ctx, from)
	return func(yield func(journal.Entry, error) bool) {
		if err != nil {
			yield(journal.Entry{}, err)
			return
		}
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (r *reader) list(ctx context.Context, from uint64) ([]journal.Entry, error) {
	unlock, err := r.member.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return r.shard.from(from)
}

func (r *reader) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	unlock, err := r.member.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return r.shard.get(name)
}

func (r *reader) Blobs(ctx context.Context) ([]journal.Blob, error) {
	unlock, err := r.member.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return r.shard.list(), nil
}
