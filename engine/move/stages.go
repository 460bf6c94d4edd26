package move

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

// foldPolicy is the retry policy of reading a log. If the log is in use, its owner may truncate
// entries while they are being read; then there is a newer snapshot to begin with.
var foldPolicy = retry.Must("fixed(1s) attempts=5")

// read reads the source, and distributes its state over the shards of the target.
func (m *mover) read(ctx context.Context) error {
	var from []*machine.Machine
	for i, r := range m.from.readers {
		s, err := retry.Value(ctx, foldPolicy, func(ctx context.Context) (*store.State, error) { return store.Fold(ctx, r) })
		if err != nil {
			return m.from.unreadable(m.from.numbers[i], err)
		}
		m.source, from = append(m.source, s), append(from, s.Machine)
		t, err := s.Machine.Tally(m.seed)
		if err != nil {
			return m.from.wrap(i, err)
		}
		m.want.state.Add(t)
		for h := range s.Machine.Definitions() {
			m.missing[h] = true
		}
		m.reportProgress("read", i+1, len(m.from.readers))
	}
	t := &m.want.state
	for state, n := range t.Runs {
		if n > 0 {
			m.moved.Runs[machine.State(state).String()] = n
		}
	}
	m.moved.Orphans, m.moved.Keys, m.moved.Schedules = t.Orphans, t.Keys, t.Schedules
	m.moved.FromShards, m.moved.ToShards, m.moved.LeftOut = m.from.shards, m.to.shards, m.from.lost
	var err error
	if m.layout, err = m.plan(ctx, from); err != nil {
		return err
	}
	m.parts, err = m.layout.Distribute(from...)
	return err
}

// plan returns the layout of the target. If the target is a cluster, it also stores for each workflow
// in which shards its runs are, which applies to later starts too.
func (m *mover) plan(ctx context.Context, from []*machine.Machine) (*machine.Layout, error) {
	layout := machine.NewLayout(len(m.to.leases), from...)
	limited := map[string]bool{}
	for _, part := range from {
		for name := range part.Workflows() {
			limited[name] = false
		}
		for _, stored := range part.Schedules() {
			var s struct {
				Workflow string `json:"workflow"`
			}
			_ = json.Unmarshal(stored.Data, &s) // can't fail: the engine wrote it
			layout.Starts(stored.Name, s.Workflow)
		}
	}
	for _, name := range m.opts.Limited {
		limited[name] = true
	}
	for name, gathered := range limited {
		if m.to.cluster != nil && !m.opts.DryRun {
			place, err := store.PlaceOf(ctx, m.to.cluster, name, store.PlaceFor(gathered))
			if err != nil {
				return nil, err
			}
			gathered = place == store.Gathered
		}
		if gathered {
			layout.Together(name)
		}
	}
	return layout, nil
}

// prepare marks the target, so that no engine opens it, and removes data of an earlier attempt from
// it.
func (m *mover) prepare(ctx context.Context) error {
	if !m.known {
		if err := m.ticket.put(ctx, m.from.leases[0], originBlob); err != nil {
			return m.from.wrap(0, err)
		}
	}
	if err := m.to.each(m.to.fence(ctx, m.ticket.ID)); err != nil {
		return err
	}
	m.advice = "; the source is unchanged and can still be used; the target can't be used until the move is repeated"
	err := m.to.each(func(_ int, l journal.Lease) error { return m.ticket.put(ctx, l, movingBlob) })
	if err != nil {
		return err
	}
	err = m.to.each(func(at int, l journal.Lease) error { return clearShard(ctx, l, m.to.last[at]) })
	if err != nil {
		return err
	}
	return m.to.each(m.to.fence(ctx, m.ticket.ID)) // a truncation is durable only with the next append
}

// clearShard removes all snapshots, archives and entries of a shard. After that the log does not
// begin with its first entry: so if the new snapshot can't be read, the log counts as damaged and not
// as empty.
func clearShard(ctx context.Context, lease journal.Lease, last uint64) error {
	blobs, err := lease.Blobs(ctx)
	if err != nil {
		return err
	}
	var old []string
	for _, b := range blobs {
		if strings.HasPrefix(b.Name, store.SnapshotPrefix) || strings.HasPrefix(b.Name, store.ArchivePrefix) {
			old = append(old, b.Name)
		}
	}
	if err := store.Delete(ctx, lease, old); err != nil {
		return err
	}
	return lease.Truncate(ctx, last+1)
}

// write writes everything to the target.
func (m *mover) write(ctx context.Context) error {
	if err := m.writeArchives(ctx); err != nil {
		return err
	}
	return m.to.each(func(at int, l journal.Lease) error {
		size, err := store.WriteState(ctx, l, m.parts[at], m.to.last[at])
		if err == nil {
			m.moved.Bytes += size
			m.parts[at] = nil // free its memory for verify
			m.reportProgress("write", at+1, len(m.to.leases))
		}
		return err
	})
}

// verify reads the target back and compares it with the source.
func (m *mover) verify(ctx context.Context) error {
	var got account
	for i := range m.to.leases {
		if err := m.verifyShard(ctx, i, &got); err != nil {
			return m.to.wrap(i, fmt.Errorf("read back: %w", err))
		}
		m.reportProgress("verify", i+1, len(m.to.leases))
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
	s, err := store.Fold(ctx, lease)
	if err != nil {
		return err
	}
	defer s.Close()
	if seq := s.Machine.Seq(); seq != m.to.last[shard] {
		return fmt.Errorf("it is the state of entry %d, want %d", seq, m.to.last[shard])
	}
	if err := m.layout.Check(shard, s.Machine); err != nil {
		return err
	}
	t, err := s.Machine.Tally(m.seed)
	if err != nil {
		return err
	}
	got.state.Add(t)
	for h := range s.Machine.Definitions() {
		delete(m.missing, h)
	}
	for _, name := range s.Archives {
		err := store.ReadArchive(ctx, lease, name, s.Machine, func(r *machine.Run) error {
			if at := m.layout.OfRun(r); at != shard {
				return fmt.Errorf("run %s belongs in shard %d", r.ID, at)
			}
			got.runs++
			got.sum += maphash.Bytes(m.seed, machine.EncodeRun(r, nil))
			return nil
		})
		if err != nil {
			return fmt.Errorf("archive %s: %w", name, err)
		}
	}
	return nil
}

// seal marks the source as moved, and then removes the mark of the target, so that engines can open
// it.
func (m *mover) seal(ctx context.Context) error {
	m.advice = "; repeat the move to complete it, and use neither log before that"
	err := m.from.each(func(at int, l journal.Lease) error {
		if m.arrived {
			return nil // the source is marked already
		}
		k := m.ticket
		k.At, k.Seq = time.Now(), m.from.last[at]
		return k.put(ctx, l, movedBlob)
	})
	if err != nil {
		return err
	}
	// Another process may have taken over a shard while this one was suspended. If that was
	// before the marks, it has appended something and the fence fails, or the fence keeps it
	// from appending. If it is later, that process reads the marks.
	if err := m.from.each(m.from.fence(ctx, m.ticket.ID)); err != nil {
		return err
	}
	begun, err := m.to.marks(ctx, movingBlob)
	if err != nil {
		return err
	}
	fence := m.to.fence(ctx, m.ticket.ID)
	err = m.to.each(func(at int, l journal.Lease) error {
		if begun[at] == nil {
			return nil // an earlier attempt has removed the mark, and an engine may use the shard
		}
		return fence(at, l)
	})
	if err != nil {
		return err
	}
	return m.to.each(func(_ int, l journal.Lease) error { return l.Delete(ctx, movingBlob) })
}
