package engine

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// verify reads the target back, and compares it with what was in the source.
func (m *mover) verify(ctx context.Context) error {
	var got account
	for i := range m.to.leases {
		if err := m.verifyShard(ctx, i, &got); err != nil {
			return m.to.wrap(i, fmt.Errorf("read back: %w", err))
		}
		m.tell("verify", i+1, len(m.to.leases))
	}
	if got != m.want {
		return fmt.Errorf("what was read back is not what was written: %+v, want %+v", got, m.want)
	}
	if len(m.missing) > 0 {
		return fmt.Errorf("%d definitions were not read back", len(m.missing))
	}
	return nil
}

func (m *mover) verifyShard(ctx context.Context, shard int, got *account) error {
	lease := m.to.leases[shard]
	f, err := fold(ctx, lease)
	if err != nil {
		return err
	}
	defer f.cold.close()
	if seq := f.m.Seq(); seq != m.to.last[shard] {
		return fmt.Errorf("it is the state of entry %d, want %d", seq, m.to.last[shard])
	}
	if err := m.layout.Check(shard, f.m); err != nil {
		return err
	}
	t, err := f.m.Tally(m.seed)
	if err != nil {
		return err
	}
	got.state.Add(t)
	for h := range f.m.Definitions() {
		delete(m.missing, h)
	}
	for _, name := range f.archives {
		err := readArchive(ctx, lease, name, f.m, func(r *machine.Run) error {
			if at := m.layout.OfRun(r); at != shard {
				return fmt.Errorf("run %s belongs in shard %d", r.ID, at)
			}
			got.runs++
			got.sum += maphash.Bytes(m.seed, r.Encode(nil))
			return nil
		})
		if err != nil {
			return fmt.Errorf("archive %s: %w", name, err)
		}
	}
	return nil
}

// seal marks the source, and then makes the target one that can be opened.
func (m *mover) seal(ctx context.Context) error {
	m.advice = "; repeat the move to complete it, until then neither log can be relied on"
	for i, l := range m.from.leases {
		if m.arrived {
			break // it is marked
		}
		k := m.ticket
		k.At, k.Seq = time.Now(), m.from.last[i]
		if err := k.put(ctx, l, movedBlob); err != nil {
			return m.from.wrap(i, err)
		}
	}
	// Somebody may have taken a shard over while this process slept. Whoever did so
	// before the marks has recorded something, or can't after this; whoever does so
	// later sees them.
	for i := range m.from.leases {
		if err := m.from.fence(ctx, i, m.ticket.ID); err != nil {
			return err
		}
	}
	begun, err := m.to.marks(ctx, movingBlob)
	if err != nil {
		return err
	}
	for i, k := range begun {
		if k == nil {
			continue // an earlier attempt came that far, and somebody may use it
		}
		if err := m.to.fence(ctx, i, m.ticket.ID); err != nil {
			return err
		}
	}
	for i, l := range m.to.leases {
		if err := l.Delete(ctx, movingBlob); err != nil {
			return m.to.wrap(i, err)
		}
	}
	return nil
}
