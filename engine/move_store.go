package engine

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

// prepare makes the target one that nobody opens, and removes what an earlier
// attempt has left there.
func (m *mover) prepare(ctx context.Context) error {
	if !m.known {
		if err := m.ticket.put(ctx, m.from.leases[0], originBlob); err != nil {
			return m.from.wrap(0, err)
		}
	}
	for i := range m.to.leases {
		if err := m.to.fence(ctx, i, m.ticket.ID); err != nil {
			return err
		}
	}
	m.advice = "; the source is as it was, the target is of no use until the move is repeated"
	for i, l := range m.to.leases {
		if err := m.ticket.put(ctx, l, movingBlob); err != nil {
			return m.to.wrap(i, err)
		}
	}
	for i, l := range m.to.leases {
		if err := clearShard(ctx, l, m.to.last[i]); err != nil {
			return m.to.wrap(i, err)
		}
		// Without it the removal of the others might not last.
		if err := m.to.fence(ctx, i, m.ticket.ID); err != nil {
			return err
		}
	}
	return nil
}

// clearShard removes all there is. The log then begins after its first entry: with a
// snapshot that can't be read it must be damaged, and not empty.
func clearShard(ctx context.Context, lease journal.Lease, last uint64) error {
	blobs, err := lease.Blobs(ctx)
	if err != nil {
		return err
	}
	for _, b := range blobs {
		if !strings.HasPrefix(b.Name, "snapshot-") && !strings.HasPrefix(b.Name, "archive-") {
			continue
		}
		if err := lease.Delete(ctx, b.Name); err != nil {
			return err
		}
	}
	return lease.Truncate(ctx, last+1)
}

// store writes everything to the target.
func (m *mover) store(ctx context.Context) error {
	if err := m.pack(ctx); err != nil {
		return err
	}
	for i, l := range m.to.leases {
		size, err := writeState(ctx, l, m.parts[i], m.to.last[i])
		if err != nil {
			return m.to.wrap(i, err)
		}
		m.moved.Bytes += size
		m.parts[i] = nil // its memory is of use for reading it back
		m.tell("write", i+1, len(m.to.leases))
	}
	return nil
}

// writeState stores a state as the snapshot of an entry.
func writeState(ctx context.Context, lease journal.Lease, part *machine.Machine, seq uint64) (size int64, err error) {
	head, _ := part.Clock()
	part.Begin(seq, head)
	err = lease.Put(ctx, fmt.Sprintf("snapshot-%020d", seq), func(out io.Writer) error {
		s := part.Snapshot()
		defer s.Stop()
		blocks := newBlockWriter(out)
		var data []byte
		for more := true; more && s.Err() == nil; {
			if data, more = s.Next(data[:0], snapshotRuns); len(data) == 0 {
				continue
			}
			if err := blocks.write(data); err != nil {
				return err
			}
		}
		size = blocks.at
		return s.Err()
	})
	return size, err
}
