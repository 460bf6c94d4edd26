package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/tideover/tideover/engine/journal"
)

// The largest answer to one request of Read.
const (
	batchEntries = 2000
	batchBytes   = 4 << 20
)

// Read implements [journal.Lease].
func (l *leaseLog) Read(ctx context.Context, from uint64) iter.Seq2[journal.Entry, error] {
	last, err := l.lastKnown(ctx)
	return func(yield func(journal.Entry, error) bool) {
		for next := from; err == nil; {
			var entries []journal.Entry
			entries, err = l.fetch(ctx, next, last)
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
			if err == nil && len(entries) == 0 {
				return
			}
			next += uint64(len(entries))
		}
		yield(journal.Entry{}, fmt.Errorf("read shard %d: %w", l.lease.shard, plain(err)))
	}
}

// lastKnown returns the last sequence of the log. It asks the leader only if the result
// of an append is not known.
func (l *leaseLog) lastKnown(ctx context.Context) (uint64, error) {
	if l.unsure.Load() {
		_, last, err := l.Bounds(ctx)
		return last, err
	}
	return l.last.Load(), nil
}

// fetch returns the next entries from the sequence from on, at least one; none if from is
// after last.
func (l *leaseLog) fetch(ctx context.Context, from, last uint64) (entries []journal.Entry, err error) {
	for a := range asks.Attempts(ctx, &err) {
		if err = l.lease.usable(a.Context()); err != nil {
			continue
		}
		if first := l.first.Load(); from < first {
			return nil, fmt.Errorf("entry %d was truncated: the first entry is %d", from, first)
		}
		if from > last {
			return nil, nil
		}
		entries, err = l.fetchBatch(a.Context(), from, last)
		if len(entries) > 0 && (err == nil || !errors.Is(err, journal.ErrDamaged)) {
			return entries, nil // the next fetch asks for the rest
		}
		if err == nil || errors.Is(err, errNoMessage) {
			entries, err = l.fetchOne(a.Context(), from)
		}
	}
	return entries, err
}

// fetchBatch asks any replica for the next entries. A replica that is behind returns
// fewer of them, or none.
func (l *leaseLog) fetchBatch(ctx context.Context, from, last uint64) (entries []journal.Entry, err error) {
	request := getRequest{Seq: from, Batch: int(min(last+1-from, batchEntries)), MaxBytes: batchBytes}
	_, err = l.stream.batch(ctx, request, func(m message) error {
		if m.Seq != from+uint64(len(entries)) {
			return errStop // an entry is missing: the caller asks the leader for it
		}
		e, err := decode(m)
		if err != nil {
			return err
		}
		entries = append(entries, e)
		if len(entries) == request.Batch {
			return errStop // servers do not always send the mark for the end of a batch
		}
		return nil
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return entries, err
}

// errStop ends a batch without an error.
var errStop = errors.New("no further message is needed")

// fetchOne asks the leader, which has all entries, for one entry.
func (l *leaseLog) fetchOne(ctx context.Context, seq uint64) ([]journal.Entry, error) {
	e, err := l.stream.entry(ctx, seq)
	if errors.Is(err, errNoMessage) {
		first, last, err := l.bounds(ctx) // a log with a gap is an error
		if err == nil {
			err = fmt.Errorf("entry %d is not there: the log has the entries %d to %d", seq, first, last)
		}
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	return []journal.Entry{e}, nil
}
