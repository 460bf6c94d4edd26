package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
)

// leaseLog gives the owner of a shard access to its log.
type leaseLog struct {
	own       *ownership
	stream    logStream
	subject   string
	appending chan struct{} // held by an append

	first, last atomic.Uint64 // sequences of the first and the last entry, as far as they are known
	unsure      atomic.Bool   // an append ended without an answer
}

// Bounds implements [journal.Lease]. It asks for the bounds until there is an answer.
func (l *leaseLog) Bounds(ctx context.Context) (first, last uint64, err error) {
	for a := range asks.Attempts(ctx, &err) {
		first, last, err = l.boundsOnce(a.Context())
	}
	return first, last, disk.Wrapf(plain(err), "bounds of shard %d", l.own.shard)
}

// boundsOnce asks the leader of the stream for the bounds of the log.
func (l *leaseLog) boundsOnce(ctx context.Context) (first, last uint64, err error) {
	if err := l.own.usable(ctx); err != nil {
		return 0, 0, err
	}
	s, err := l.stream.stateSince(ctx, l.last.Load())
	if err != nil {
		return 0, 0, err
	}
	l.extend(s)
	return s.first, s.last, nil
}

// extend raises the known bounds to those of the state.
func (l *leaseLog) extend(s logState) {
	raise(&l.first, s.first)
	raise(&l.last, s.last)
}

// truncate removes the entries before the sequence.
func (l *leaseLog) truncate(ctx context.Context, below uint64) (err error) {
	if err := l.own.lock(ctx, l.own.changing); err != nil {
		return err
	}
	defer func() { <-l.own.changing }()
	below = min(below, l.last.Load()+1)
	if below <= l.first.Load() {
		return nil
	}
	for a := range asks.Attempts(ctx, &err) {
		err = errors.Join(l.own.usable(a.Context()), l.own.confirm(a.Context()))
		if err == nil {
			err = l.stream.purge(a.Context(), "", below)
		}
	}
	if err == nil {
		raise(&l.first, below)
	}
	return err
}

// append records the entry, and repeats the request for some seconds.
func (l *leaseLog) append(ctx context.Context, e journal.Entry) (err error) {
	if len(e.Data) > journal.MaxEntry {
		return fmt.Errorf("%w: %d bytes, at most %d", journal.ErrTooLarge, len(e.Data), journal.MaxEntry)
	}
	if err := l.own.lock(ctx, l.appending); err != nil {
		return err
	}
	defer func() { <-l.appending }()
	if !l.unsure.Load() && e.Seq != l.last.Load()+1 {
		// The caller repeats an append that was recorded, or does not know the last
		// entry.
		for a := range asks.Attempts(ctx, &err) {
			err = l.compare(a.Context(), e)
		}
		return err
	}
	m := encode(l.subject, e)
	for a := range appends.Attempts(ctx, &err) {
		err = l.publish(a.Context(), e, m)
	}
	return err
}

// publish sends the entry once. The caller may repeat it after every error: the server
// stores the entry only directly after the entry before it, and only once.
func (l *leaseLog) publish(ctx context.Context, e journal.Entry, m *nats.Msg) error {
	if err := l.own.usable(ctx); err != nil {
		return err
	}
	ack, err := l.stream.publish(ctx, m)
	switch {
	case err == nil && ack.Sequence == e.Seq && !ack.Duplicate:
		l.recorded(e.Seq)
		return nil
	case err == nil && ack.Sequence != e.Seq:
		return fmt.Errorf("%w: entry %d has the id of this append already", journal.ErrStale, ack.Sequence)
	case err == nil, errors.Is(err, errConflict):
		return l.compare(ctx, e)
	case errors.Is(err, errGone):
		return l.stream.deleted(err)
	case !errors.Is(err, journal.ErrFull):
		l.unsure.Store(true)
	}
	return err
}

func (l *leaseLog) recorded(seq uint64) {
	raise(&l.last, seq)
	l.unsure.Store(false)
}

// compare returns nil if the log has exactly this entry at its sequence, and
// ErrStale if it has another one there.
func (l *leaseLog) compare(ctx context.Context, e journal.Entry) error {
	found, err := l.stream.entry(ctx, e.Seq)
	if errors.Is(err, errNoMessage) {
		return l.explainMissing(ctx, e)
	}
	if err != nil {
		return err
	}
	if found.ID == e.ID && found.Epoch == e.Epoch {
		l.recorded(e.Seq)
		return nil
	}
	if found.Epoch > l.own.epoch {
		l.own.lose(errTakenOver)
	}
	return fmt.Errorf("%w: another entry %d was recorded, with epoch %d; this lease has epoch %d",
		journal.ErrStale, found.Seq, found.Epoch, l.own.epoch)
}

// explainMissing returns why the log has no entry with the sequence of e.
func (l *leaseLog) explainMissing(ctx context.Context, e journal.Entry) error {
	s, err := l.stream.stateSince(ctx, l.last.Load())
	switch {
	case err != nil:
		return err
	case s.last+1 == e.Seq:
		// The leader rejects the entry because an earlier attempt has sent it and the
		// replicas have not confirmed it yet. It may still be dropped.
		return fmt.Errorf("%w: stream %s has not confirmed entry %d yet", errNoQuorum, l.stream.name, e.Seq)
	default:
		return fmt.Errorf("%w: the log has the entries %d to %d", journal.ErrStale, s.first, s.last)
	}
}

// The largest answer to one request of read.
const (
	batchEntries = 2000
	batchBytes   = 4 << 20
)

// Read implements [journal.Lease].
func (l *leaseLog) Read(ctx context.Context, from uint64) iter.Seq2[journal.Entry, error] {
	last, err := l.last.Load(), error(nil)
	if l.unsure.Load() { // the result of an append is not known: ask the leader
		_, last, err = l.Bounds(ctx)
	}
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
		yield(journal.Entry{}, fmt.Errorf("read shard %d: %w", l.own.shard, plain(err)))
	}
}

// fetch returns the next entries from the sequence from on, at least one; none if from is
// after last.
func (l *leaseLog) fetch(ctx context.Context, from, last uint64) (entries []journal.Entry, err error) {
	for a := range asks.Attempts(ctx, &err) {
		if err = l.own.usable(a.Context()); err != nil {
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
		first, last, err := l.boundsOnce(ctx) // a log with a gap is an error
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
