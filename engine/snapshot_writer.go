package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
)

const (
	snapshotAfter = 64 << 20         // bytes of log since the last one, at least
	manyMoved     = 100_000          // runs whose memory is worth giving back
	movedAtOnce   = 5000             // runs that are moved at once: the owner does nothing else meanwhile
	snapshotAge   = 10 * time.Minute // of the oldest change that is not in one
	restAfter     = 5 * time.Second  // the last change: then there is time to make much log superfluous
)

// snapshotWriter writes a snapshot when the log has grown enough, while the engine goes
// on. The owner makes the frames, a goroutine writes them. Then it moves runs that wait
// for long out of the memory into the snapshot.
type snapshotWriter struct {
	sh *shard
	o  *owner

	paging   store.Paging // reads runs that are in a snapshot and not in memory
	log      int64        // bytes appended since the last one began
	since    time.Time
	rest     time.Time // if nothing is appended until then, there is time for more
	before   int64     // bytes between the last two, which are kept too
	taken    int64     // bytes that the one that is being written will make superfluous, with the next
	size     int64     // of the last one
	seq      uint64
	frames   chan frame
	progress chan snapshotProgress
	current  *machine.Snapshot
	base     uint32 // of the numbers of its frames
	moving   bool   // it is complete, and runs are being moved to it

	archive store.ArchiveBuffer // finished runs, which the next snapshot no longer has
	cancel  context.CancelFunc
	done    chan struct{}
}

type frame struct {
	data []byte
	last bool
	err  error
}

// snapshotProgress is a message of the writing goroutine to the owner: it wants the next
// frame, or has ended.
type snapshotProgress struct {
	over   bool
	err    error
	size   int64
	blocks []store.Block
}

func (s *snapshotWriter) init(sh *shard) { s.sh, s.o = sh, &sh.owner }

// read restores the state of a snapshot.
func (s *snapshotWriter) read(ctx context.Context, b journal.Blob) (*machine.Machine, error) {
	m, err := s.paging.ReadSnapshot(ctx, s.sh.lease, b.Name, s.o.clock.last)
	if err == nil {
		s.size = b.Size
	}
	return m, err
}

// logGrew notes that the log has grown.
func (s *snapshotWriter) logGrew(n int) {
	if s.log == 0 {
		s.since = time.Now()
	}
	if t := time.Now().Add(restAfter); t.After(s.rest) {
		s.rest = t
	}
	s.log += int64(n)
}

// readUnstored reads the finished runs that are in no stored archive.
func (s *snapshotWriter) readUnstored(yield func(*machine.Run) error) error {
	return s.archive.Read(s.o.m, yield)
}

// wake returns a channel that is ready when the writing goroutine has made progress.
func (s *snapshotWriter) wake() <-chan snapshotProgress {
	if s.done == nil {
		return nil
	}
	return s.progress
}

// isDue reports whether it is time for a snapshot.
func (s *snapshotWriter) isDue() bool {
	if s.log == 0 || !s.isFree() {
		return false
	}
	return s.log >= max(s.sh.cfg.snapshotAfter, s.size/2) || s.archive.IsFull() ||
		time.Since(s.since) >= s.maxAge() || s.isIdle()
}

// isFree reports whether one may be begun.
func (s *snapshotWriter) isFree() bool { return s.done == nil && !s.moving && !s.o.stopping }

// isWorthwhile reports whether a snapshot would make enough of the log superfluous when
// there is nothing else to do.
func (s *snapshotWriter) isWorthwhile() bool {
	return s.isFree() && s.before+s.log >= s.sh.cfg.snapshotAfter
}

// isIdle reports whether it would, and there is nothing else to do.
func (s *snapshotWriter) isIdle() bool { return s.isWorthwhile() && !time.Now().Before(s.rest) }

// needsEntry reports whether it is time for a snapshot and only an entry is missing: a
// snapshot needs one to begin at.
func (s *snapshotWriter) needsEntry() bool { return s.log == 0 && s.isIdle() }

// maxAge is how old a change may be that is not in a snapshot.
func (s *snapshotWriter) maxAge() time.Duration { return min(snapshotAge, s.sh.cfg.Retention/4) }

// delay returns how long there is nothing to do, if the log does not grow.
func (s *snapshotWriter) delay() time.Duration {
	switch {
	case s.moving:
		return 0
	case s.isWorthwhile():
		return time.Until(s.rest)
	default:
		return math.MaxInt64
	}
}

// begin begins a snapshot if it is time.
func (s *snapshotWriter) begin() {
	if !s.isDue() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.frames, s.progress, s.done = make(chan frame, 1), make(chan snapshotProgress), make(chan struct{})
	archive, newest := s.archive.Take()
	s.current = s.o.m.Snapshot()
	s.seq = s.current.Seq
	s.taken, s.log = s.log, 0
	go func(done chan struct{}) {
		defer close(done)
		p := s.write(ctx, s.seq, archive, newest)
		select {
		case s.progress <- p:
		case <-ctx.Done():
		}
	}(s.done)
}

// advance makes the frame that the writing goroutine wants, or notes how it has ended.
func (s *snapshotWriter) advance(p snapshotProgress) {
	if p.over {
		s.current.Stop()
		s.cancel()
		s.done = nil
		if p.err != nil {
			s.sh.health.set(troubleSnapshot, p.err)
			s.sh.health.logError("can't write a snapshot; the log grows until it can", "error", p.err)
			s.before += s.taken
			s.log = 1 // try again when the log has grown, or has grown old
			s.since = time.Now()
			s.rest = s.since.Add(s.maxAge())
			return
		}
		s.sh.health.set(troubleSnapshot, nil)
		s.archive.Stored()
		s.size, s.before = p.size, s.taken
		s.beginMoving(p.blocks)
		return
	}
	data, more := s.current.Next(nil, store.FrameRuns)
	s.frames <- frame{data, !more, s.current.Err()}
	if !more || s.current.Err() != nil {
		s.current.Stop()
	}
}

// beginMoving begins to move runs out of memory into the snapshot.
func (s *snapshotWriter) beginMoving(blocks []store.Block) {
	raw, err := s.sh.lease.Get(context.Background(), store.SnapshotName(s.seq))
	if err != nil {
		s.sh.cfg.Logger.Error("a snapshot can't be opened; what it has stays in memory", "error", err)
		return
	}
	s.base ^= store.OtherSnapshot
	if s.moving = s.paging.Use(s.base, raw, blocks); !s.moving {
		_ = raw.Close() // it was only read
	}
}

// moveRuns goes on with it.
func (s *snapshotWriter) moveRuns() {
	if s.moving && !s.current.Chill(s.o.clock.last, s.base, movedAtOnce) {
		s.moving = false
		s.paging.Drop(s.base ^ store.OtherSnapshot)
		if s.current.Chilled >= manyMoved {
			go runtime.GC() // what they took is not needed again soon
		}
	}
}

// close ends the writing, waits for it, and closes the snapshots.
func (s *snapshotWriter) close() {
	if s.done != nil {
		s.cancel()
		<-s.done
		s.done = nil
	}
	s.paging.Close()
}

// write stores the archive and the snapshot, reads it back, and cuts off what is not
// needed any more. It is called by the writing goroutine.
func (s *snapshotWriter) write(ctx context.Context, seq uint64, archive []byte, newest int64) (p snapshotProgress) {
	p.over = true
	lease := s.sh.lease
	if len(archive) > 0 {
		if p.err = store.PutArchive(ctx, lease, store.ArchiveName(seq, newest/1e9), archive); p.err != nil {
			return p
		}
	}
	name := store.SnapshotName(seq)
	p.err = lease.Put(ctx, name, func(out io.Writer) error {
		blocks := store.NewBlockWriter(out)
		err := s.writeFrames(ctx, blocks)
		p.size, p.blocks = blocks.Size(), blocks.Blocks()
		return err
	})
	if p.err != nil {
		return p
	}
	if err := store.VerifySnapshot(ctx, lease, name); err != nil {
		// It must not be taken for one that can stand in for the log.
		p.err = errors.Join(fmt.Errorf("snapshot %s, read back: %w", name, err), lease.Delete(context.WithoutCancel(ctx), name))
		return p
	}
	p.err = s.cutLog(ctx)
	return p
}

// writeFrames asks the owner for frames until the last.
func (s *snapshotWriter) writeFrames(ctx context.Context, blocks *store.BlockWriter) error {
	for {
		select {
		case s.progress <- snapshotProgress{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		f := <-s.frames
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

// cutLog removes what the last two snapshots make superfluous. The one before the
// last is kept, with the log since then, for the day on which the last can't be
// read.
func (s *snapshotWriter) cutLog(ctx context.Context) error {
	lease := s.sh.lease
	blobs, err := lease.Blobs(ctx)
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
		if err := lease.Truncate(ctx, seqs[len(seqs)-2]+1); err != nil {
			return err
		}
	}
	var old []string
	for _, seq := range seqs[:max(len(seqs)-2, 0)] {
		old = append(old, store.SnapshotName(seq))
	}
	oldest := time.Now().Add(-s.sh.cfg.Retention).Unix()
	for _, b := range blobs {
		if _, newest, ok := store.ParseArchiveName(b.Name); ok && newest < oldest {
			old = append(old, b.Name)
		}
	}
	return store.Delete(ctx, lease, old)
}
