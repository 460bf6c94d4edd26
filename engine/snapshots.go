package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
)

const (
	snapshotAfter = 64 << 20         // bytes of log since the last one, at least
	manyChilled   = 100_000          // runs whose memory is worth giving back
	chillRuns     = 5000             // made cold at once: the owner does nothing else meanwhile
	snapshotAge   = 10 * time.Minute // of the oldest change that is not in one
	restAfter     = 5 * time.Second  // the last change: then there is time to make much log superfluous
)

// snapshots writes one when the log has grown enough, while the engine goes on.
// The owner makes the frames, a goroutine writes them.
type snapshots struct {
	log     int64 // bytes appended since the last one began
	since   time.Time
	rest    time.Time // if nothing is appended until then, there is time for more
	before  int64     // bytes between the last two, which are kept too
	taken   int64     // bytes that the one that is being written will make superfluous, with the next
	size    int64     // of the last one
	seq     uint64
	frames  chan frame
	wants   chan wish // for the next frame, or the end
	current *machine.Snapshot
	base    uint32 // of the numbers of its frames
	chill   bool   // it is complete, and runs are being moved to it

	archive store.ArchiveBuffer // finished runs, which the next snapshot no longer has
	cancel  context.CancelFunc
	done    chan struct{}
}

type frame struct {
	data []byte
	last bool
	err  error
}

// wish is what the writing goroutine says to the owner.
type wish struct {
	over   bool
	err    error
	size   int64
	blocks []store.Block
}

func (s *snapshots) grown(n int) {
	if s.log == 0 {
		s.since = time.Now()
	}
	if t := time.Now().Add(restAfter); t.After(s.rest) {
		s.rest = t
	}
	s.log += int64(n)
}

// wake returns a channel that is ready when the writing goroutine wants something.
func (s *snapshots) wake() <-chan wish {
	if s.done == nil {
		return nil
	}
	return s.wants
}

// due reports whether it is time for a snapshot.
func (s *snapshots) due(sh *shard) bool {
	if s.log == 0 || !s.free(sh) {
		return false
	}
	return s.log >= max(sh.cfg.snapshotAfter, s.size/2) || s.archive.IsFull() ||
		time.Since(s.since) >= s.age(sh) || s.idle(sh)
}

// free reports whether one may be begun.
func (s *snapshots) free(sh *shard) bool { return s.done == nil && !s.chill && !sh.stopping }

// retains reports whether a snapshot would make enough of the log superfluous to
// be worth it when there is nothing else to do.
func (s *snapshots) retains(sh *shard) bool {
	return s.free(sh) && s.before+s.log >= sh.cfg.snapshotAfter
}

// idle reports whether it would, and there is nothing else to do.
func (s *snapshots) idle(sh *shard) bool { return s.retains(sh) && !time.Now().Before(s.rest) }

// age is how old a change may be that is not in a snapshot.
func (s *snapshots) age(sh *shard) time.Duration { return min(snapshotAge, sh.cfg.Retention/4) }

// begin begins a snapshot if it is time.
func (s *snapshots) begin(sh *shard) {
	if !s.due(sh) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.frames, s.wants, s.done = make(chan frame, 1), make(chan wish), make(chan struct{})
	archive, newest := s.archive.Take()
	s.current = sh.m.Snapshot()
	s.seq = s.current.Seq
	s.taken, s.log = s.log, 0
	go func(done chan struct{}) {
		defer close(done)
		w := sh.writeSnapshot(ctx, s.frames, s.wants, s.seq, archive, newest)
		select {
		case s.wants <- w:
		case <-ctx.Done():
		}
	}(s.done)
}

// advance does what the writing goroutine wishes.
func (s *snapshots) advance(sh *shard, w wish) {
	if w.over {
		s.current.Stop()
		s.cancel()
		s.done = nil
		if w.err != nil {
			sh.health.snapshotting(w.err)
			sh.complain("can't write a snapshot; the log grows until it can", "error", w.err)
			s.before += s.taken
			s.log = 1 // try again when the log has grown, or has grown old
			s.since = time.Now()
			s.rest = s.since.Add(s.age(sh))
			return
		}
		sh.health.snapshotting(nil)
		s.archive.Stored()
		s.size, s.before = w.size, s.taken
		s.turnCold(sh, w.blocks)
		return
	}
	data, more := s.current.Next(nil, store.FrameRuns)
	s.frames <- frame{data, !more, s.current.Err()}
	if !more || s.current.Err() != nil {
		s.current.Stop()
	}
}

// turnCold begins to move runs out of memory into the snapshot.
func (s *snapshots) turnCold(sh *shard, blocks []store.Block) {
	raw, err := sh.lease.Get(context.Background(), store.SnapshotName(s.seq))
	if err != nil {
		sh.cfg.Logger.Error("a snapshot can't be opened; what it has stays in memory", "error", err)
		return
	}
	s.base ^= store.OtherSnapshot
	if s.chill = sh.cold.Use(s.base, raw, blocks); !s.chill {
		_ = raw.Close() // it was only read
	}
}

// moveCold goes on with it.
func (s *snapshots) moveCold(sh *shard) {
	if s.chill && !s.current.Chill(sh.clock.last, s.base, chillRuns) {
		s.chill = false
		sh.cold.Drop(s.base ^ store.OtherSnapshot)
		if s.current.Chilled >= manyChilled {
			go runtime.GC() // what they took is not needed again soon
		}
	}
}

// abort ends the writing and waits for it.
func (s *snapshots) abort() {
	if s.done != nil {
		s.cancel()
		<-s.done
		s.done = nil
	}
}

// writeSnapshot stores the archive and the snapshot, reads it back, and cuts off
// what is not needed any more.
func (sh *shard) writeSnapshot(ctx context.Context, frames chan frame, wants chan wish, seq uint64, archive []byte, newest int64) (w wish) {
	w.over = true
	if len(archive) > 0 {
		if w.err = store.PutArchive(ctx, sh.lease, store.ArchiveName(seq, newest/1e9), archive); w.err != nil {
			return w
		}
	}
	name := store.SnapshotName(seq)
	w.err = sh.lease.Put(ctx, name, func(out io.Writer) error {
		blocks := store.NewBlockWriter(out)
		err := writeFrames(ctx, blocks, frames, wants)
		w.size, w.blocks = blocks.Size(), blocks.Blocks()
		return err
	})
	if w.err != nil {
		return w
	}
	if err := store.VerifySnapshot(ctx, sh.lease, name); err != nil {
		// It must not be taken for one that can stand in for the log.
		w.err = errors.Join(fmt.Errorf("snapshot %s, read back: %w", name, err), sh.lease.Delete(context.WithoutCancel(ctx), name))
		return w
	}
	w.err = sh.cut(ctx)
	return w
}

// writeFrames asks the owner for frames until the last.
func writeFrames(ctx context.Context, blocks *store.BlockWriter, frames chan frame, wants chan wish) error {
	for {
		select {
		case wants <- wish{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		f := <-frames
		if f.err != nil {
			return f.err
		}
		if len(f.data) > 0 {
			if err := blocks.Write(f.data); err != nil {
				return err
			}
		}
		if f.last {
			return nil
		}
	}
}

// cut removes what the last two snapshots make superfluous. The one before the
// last is kept, with the log since then, for the day on which the last can't be
// read.
func (sh *shard) cut(ctx context.Context) error {
	blobs, err := sh.lease.Blobs(ctx)
	if err != nil {
		return err
	}
	var seqs []uint64
	for _, b := range blobs {
		if seq, ok := store.ParseName(b.Name, store.SnapshotPrefix); ok {
			seqs = append(seqs, seq)
		}
	}
	if len(seqs) >= 2 {
		if err := sh.lease.Truncate(ctx, seqs[len(seqs)-2]+1); err != nil {
			return err
		}
	}
	for n := 0; n+2 < len(seqs); n++ {
		if err := sh.lease.Delete(ctx, store.SnapshotName(seqs[n])); err != nil {
			return err
		}
	}
	oldest := time.Now().Add(-sh.cfg.Retention).Unix()
	for _, b := range blobs {
		if _, newest, ok := store.ParseArchiveName(b.Name); ok && newest < oldest {
			if err := sh.lease.Delete(ctx, b.Name); err != nil {
				return err
			}
		}
	}
	return nil
}
