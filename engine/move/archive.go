package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
)

// writeArchives writes the archives of the target. It must run before the snapshots are written,
// because it adds the definitions of archived runs to them.
func (m *mover) writeArchives(ctx context.Context) error {
	zip := store.NewEncoder(nil)
	packers := make([]packer, len(m.to.leases))
	for i, l := range m.to.leases {
		packers[i] = packer{lease: l, seq: m.to.last[i], zip: zip, seed: m.seed, room: max(store.ArchiveSize/len(packers), store.ArchiveFrame)}
	}
	err := m.readArchives(ctx, func(shard int, r *machine.Run, known *machine.Machine) error {
		m.parts[shard].Learn(r.Def.Hash(), known)
		return packers[shard].add(ctx, r)
	})
	if err != nil {
		return err
	}
	for i := range packers {
		p := &packers[i]
		if err := p.flush(ctx); err != nil {
			return m.to.wrap(i, err)
		}
		m.moved.Bytes += p.stored
		m.want.runs += p.count
		m.want.sum += p.sum
	}
	return nil
}

// countArchives counts the finished runs in the archives of the source, and writes nothing.
func (m *mover) countArchives(ctx context.Context) error {
	return m.readArchives(ctx, func(int, *machine.Run, *machine.Machine) error { return nil })
}

// archive is an archive of the source.
type archive struct {
	shard  int
	name   string
	newest int64
}

// addRun is a function that adds a run to a shard of the target. known has the definition of the
// run.
type addRun func(shard int, r *machine.Run, known *machine.Machine) error

// readArchives reads the archives of the source, oldest first.
func (m *mover) readArchives(ctx context.Context, add addRun) error {
	var list []archive
	for i, f := range m.source {
		for _, name := range f.Archives {
			a := archive{shard: i, name: name}
			_, a.newest, _ = store.ParseArchiveName(name) // it only affects the order
			list = append(list, a)
		}
	}
	slices.SortStableFunc(list, func(a, b archive) int { return cmp.Compare(a.newest, b.newest) })
	seen := make([]recent, len(m.source))
	for n, a := range list {
		seen[a.shard].next()
		if err := m.readArchive(ctx, a, &seen[a.shard], add); err != nil {
			return err
		}
		m.reportProgress("archives", n+1, len(list))
	}
	return nil
}

// readArchive calls add with the runs of an archive. It skips runs that are also in the state or in
// a previous archive.
func (m *mover) readArchive(ctx context.Context, a archive, seen *recent, add addRun) error {
	known := m.source[a.shard].Machine
	var refused error // error of the target, to be distinguished from errors of the archive
	err := store.ReadArchive(ctx, m.from.readers[a.shard], a.name, known, func(r *machine.Run) error {
		shard := m.layout.OfRun(r)
		if _, there := m.parts[shard].Run(r.ID); there || !seen.add(r.ID) {
			return nil
		}
		m.moved.Archived++
		m.moved.Runs[r.State().String()]++
		if refused = add(shard, r, known); refused != nil {
			refused = m.to.wrap(shard, refused)
		}
		return refused
	})
	switch {
	case err == nil || refused != nil:
		return refused
	case m.from.leases == nil && errors.Is(err, journal.ErrNoBlob):
		return nil // the owner has deleted it meanwhile, because its runs were kept long enough
	case m.opts.LeaveUnreadable && ctx.Err() == nil && (errors.Is(err, machine.ErrEncoding) || errors.Is(err, journal.ErrDamaged)):
		m.moved.Unreadable = append(m.moved.Unreadable, a.name)
		return nil
	}
	return m.from.wrap(a.shard, fmt.Errorf("archive %s: %w", a.name, err))
}

// recent has the ids of the runs in the last three archives of a shard. If a process ended after it
// wrote an archive and before it wrote the snapshot, the next archive has the same runs again.
type recent [3]map[machine.ID]bool

func (r *recent) next() {
	copy(r[1:], r[:])
	r[0] = map[machine.ID]bool{}
}

// add adds the id of a run. It returns false if the id is known.
func (r *recent) add(id machine.ID) bool {
	if slices.ContainsFunc(r[:], func(known map[machine.ID]bool) bool { return known[id] }) {
		return false
	}
	r[0][id] = true
	return true
}

// archiveSpan is the longest time, in nanoseconds, between the ends of two runs in an archive. An
// archive is deleted as a whole, so a run may be kept for this much longer than its retention.
const archiveSpan = int64(24 * time.Hour)

// packer writes the archives of a shard of the target.
type packer struct {
	lease journal.Lease
	seq   uint64
	zip   *zstd.Encoder
	room  int // compressed size of a full archive, in bytes

	runs           []byte // encoded runs of the next frame
	data           []byte // compressed frames
	oldest, newest int64  // earliest and latest end of the runs of the archive
	named          int64  // the end, in Unix seconds, in the name of the last archive

	seed   maphash.Seed
	count  int    // number of runs
	sum    uint64 // checksum of the runs
	stored int64  // bytes written
}

func (p *packer) add(ctx context.Context, r *machine.Run) error {
	oldest, newest := min(p.oldest, r.Ended), max(p.newest, r.Ended)
	if len(p.runs)+len(p.data) == 0 || newest-oldest > archiveSpan {
		if err := p.flush(ctx); err != nil {
			return err
		}
		oldest, newest = r.Ended, r.Ended
	}
	p.oldest, p.newest = oldest, newest
	at := len(p.runs)
	p.runs = machine.EncodeRun(r, p.runs)
	p.count++
	p.sum += maphash.Bytes(p.seed, p.runs[at:])
	if len(p.runs) >= store.ArchiveFrame {
		p.endFrame()
	}
	if len(p.data) >= p.room {
		return p.flush(ctx)
	}
	return nil
}

// endFrame compresses the collected runs as a frame. All shards share one encoder, which compresses
// each frame separately: an encoder for each shard would need too much memory.
func (p *packer) endFrame() {
	if len(p.runs) > 0 {
		p.data = p.zip.EncodeAll(machine.AppendArchive(nil, p.runs), p.data)
		p.runs = p.runs[:0]
	}
}

// flush stores the collected frames as an archive, with a name that is unique in the shard.
func (p *packer) flush(ctx context.Context) error {
	if p.endFrame(); len(p.data) == 0 {
		return nil
	}
	p.named = max(p.newest/1e9, p.named+1)
	err := store.PutArchive(ctx, p.lease, store.ArchiveName(p.seq, p.named), p.data)
	p.stored += int64(len(p.data))
	p.data = p.data[:0]
	return err
}
