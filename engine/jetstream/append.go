package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/engine/journal"
)

// Append implements [journal.Lease]. It gives up after some seconds; then the
// caller may repeat it.
func (l *leaseLog) Append(ctx context.Context, expected uint64, id journal.ID, data []byte) (seq uint64, err error) {
	if err := l.append(ctx, journal.Entry{Seq: expected + 1, Epoch: l.lease.epoch, ID: id, Data: data}); err != nil {
		return 0, fmt.Errorf("append after %d to shard %d: %w", expected, l.lease.shard, plain(err))
	}
	return expected + 1, nil
}

func (l *leaseLog) append(ctx context.Context, e journal.Entry) (err error) {
	if len(e.Data) > journal.MaxEntry {
		return fmt.Errorf("%w: %d bytes, at most %d", journal.ErrTooLarge, len(e.Data), journal.MaxEntry)
	}
	if err := l.lease.lock(ctx, l.appending); err != nil {
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
	if err := l.lease.usable(ctx); err != nil {
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
	if found.Epoch > l.lease.epoch {
		l.lease.lose(errTakenOver)
	}
	return fmt.Errorf("%w: another entry %d was recorded, with epoch %d; this lease has epoch %d",
		journal.ErrStale, found.Seq, found.Epoch, l.lease.epoch)
}

// explainMissing returns why the log has no entry with the sequence of e.
func (l *leaseLog) explainMissing(ctx context.Context, e journal.Entry) error {
	s, err := l.lease.backend.logStateSince(ctx, l.stream, l.last.Load())
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
