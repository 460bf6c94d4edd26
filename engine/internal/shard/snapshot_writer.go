package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
)

const (
	manyMoved     = 100_000          // number of runs moved out of memory after which a garbage collection is started
	movedAtOnce   = 5000             // runs that are moved out of memory in one step; the owner does nothing else meanwhile
	framesAtOnce  = 32               // frames that the owner encodes in one step, at most
	encodedAtOnce = 2 << 20          // after this many bytes the owner encodes no further frame in the same step
	encodeTime    = time.Millisecond // after this time the owner encodes no further frame in the same step
	encodeShare   = 8                // or after this part of the time of a turn, if that is longer
	snapshotAge   = 10 * time.Minute // age of the oldest change that is not in a snapshot, at which a snapshot is due
	restAfter     = 5 * time.Second  // time without changes after which the shard counts as idle
	viewPatience  = 30 * time.Second // longest wait of a snapshot for the view
)

// snapshotWriter writes a snapshot when the log has grown enough. The shard keeps working
// meanwhile: the owner encodes the frames of the snapshot, and a goroutine writes them. After
// that it moves runs with long waits out of memory: they are read from the snapshot when they
// are needed.
type snapshotWriter struct {
	process *Process
	state   *state
	lease   journal.Lease
	health  *health

	paging   store.Paging          // reads runs that are in a snapshot and not in memory
	grown    int64                 // bytes appended to the log since the last snapshot began
	since    time.Time             // when the first of these bytes was appended
	rest     time.Time             // the shard is idle from then on, if nothing is appended before
	before   int64                 // bytes of log between the last two snapshots, which are kept
	taken    int64                 // bytes of log between the last snapshot and the one that is being written
	size     int64                 // size of the last snapshot in bytes
	seq      uint64                // last log entry before the snapshot began
	frames   chan []frame          // frames for the writing goroutine
	encoded  []byte                // memory of the last of them; the next ones use it again
	progress chan snapshotProgress // messages of the writing goroutine; nil if nothing is being written
	current  *machine.Snapshot     // the snapshot that is being written, or to which runs are being moved
	base     uint32                // added to the numbers of its frames
	moving   bool                  // the snapshot is complete, and runs are being moved out of memory

	archive store.ArchiveBuffer // finished runs that are not in a stored archive: snapshots leave them out
	cancel  context.CancelFunc  // nil before the first snapshot
	writing sync.WaitGroup      // the writing goroutine
}

type frame struct {
	data []byte
	more bool // other frames follow
	err  error
}

// snapshotProgress is a message of the writing goroutine to the owner. The zero value asks for
// the next frames.
type snapshotProgress struct {
	over   bool  // the writing has ended
	err    error // why it failed
	size   int64
	blocks []store.Block
}

// logGrew notes that n bytes were appended to the log.
func (s *snapshotWriter) logGrew(n int) {
	if s.grown == 0 {
		s.since = time.Now()
	}
	if t := time.Now().Add(restAfter); t.After(s.rest) {
		s.rest = t
	}
	s.grown += int64(n)
}

// isDue reports whether it is time for a snapshot.
func (s *snapshotWriter) isDue() bool {
	if s.grown == 0 || !s.isFree() {
		return false
	}
	return s.grown >= max(s.process.Settings.SnapshotAfter, s.size/2) || s.archive.IsFull() ||
		time.Since(s.since) >= s.maxAge() || s.isIdle()
}

// isFree reports whether a snapshot may begin: none is being written, no runs are being moved,
// and the shard is not stopping.
func (s *snapshotWriter) isFree() bool { return s.progress == nil && !s.moving && !s.state.stopping }

// isWorthwhile reports whether an idle shard should write a snapshot: enough of the log could
// be removed after it.
func (s *snapshotWriter) isWorthwhile() bool {
	return s.isFree() && s.before+s.grown >= s.process.Settings.SnapshotAfter
}

// isIdle reports whether the shard is idle and a snapshot is worthwhile.
func (s *snapshotWriter) isIdle() bool { return s.isWorthwhile() && !time.Now().Before(s.rest) }

// needsEntry reports whether a snapshot is due except that there is no new entry: a snapshot
// needs one to begin at.
func (s *snapshotWriter) needsEntry() bool { return s.grown == 0 && s.isIdle() }

// maxAge returns the age at which a change that is not in a snapshot makes a snapshot due.
func (s *snapshotWriter) maxAge() time.Duration {
	return min(snapshotAge, s.process.Settings.Retention/4)
}

// delay returns how long the snapshotWriter has nothing to do, if the log does not grow.
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

// begin begins a snapshot if one is due. inView returns a channel that is closed when the view has come
// to the last entry.
func (s *snapshotWriter) begin(inView func() <-chan struct{}) {
	if !s.isDue() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.frames, s.progress = make(chan []frame, 1), make(chan snapshotProgress)
	archive, newest := s.archive.Take()
	s.current = s.state.m.Snapshot()
	s.seq = s.current.Seq
	s.taken, s.grown = s.grown, 0
	seen := inView()
	s.writing.Go(func() {
		p := s.write(ctx, s.seq, seen, archive, newest)
		select {
		case s.progress <- p:
		case <-ctx.Done():
		}
	})
}

// advanceAfter handles a message of the writing goroutine, if there is one, after a turn that
// took this long. Under load there is always a request, and turns are long: a snapshot that
// had to wait for its turn among the requests, for each of its frames, would take so long that the
// runs which are started meanwhile fill the memory.
func (s *snapshotWriter) advanceAfter(turn time.Duration) {
	select {
	case p := <-s.progress:
		s.advance(p, turn/encodeShare)
	default:
	}
}

// advance handles a message of the writing goroutine: it sends the next frames, or notes how
// the writing has ended. It takes about as long as given, but at least encodeTime.
func (s *snapshotWriter) advance(p snapshotProgress, most time.Duration) {
	if p.over {
		s.current.Stop()
		s.cancel()
		s.progress, s.encoded = nil, nil
		if p.err != nil {
			s.health.set(troubleSnapshot, p.err)
			s.health.logError("can't write a snapshot; the log grows until it can", "error", p.err)
			s.before += s.taken
			s.grown = 1 // try again after maxAge, or when the log has grown enough
			s.since = time.Now()
			s.rest = s.since.Add(s.maxAge())
			return
		}
		s.health.set(troubleSnapshot, nil)
		s.archive.Stored()
		s.size, s.before = p.size, s.taken
		s.beginMoving(p.blocks)
		return
	}
	frames := s.nextFrames(max(most, encodeTime))
	s.frames <- frames
	if f := frames[len(frames)-1]; !f.more || f.err != nil {
		s.current.Stop()
	}
}

// nextFrames encodes the next frames, until the time is over.
func (s *snapshotWriter) nextFrames(most time.Duration) []frame {
	begin := time.Now()
	frames := make([]frame, 0, framesAtOnce)
	var ends [framesAtOnce]int
	b, more := s.encoded[:0], true
	for n := 0; n < framesAtOnce && more && s.current.Err() == nil; n++ {
		if n > 0 && (len(b) >= encodedAtOnce || time.Since(begin) >= most) {
			break
		}
		b, more = s.current.Next(b, store.FrameRuns)
		ends[n] = len(b)
		frames = append(frames, frame{more: more, err: s.current.Err()})
	}
	at := 0
	for i := range frames { // not before, because Next may have moved the bytes
		frames[i].data = b[at:ends[i]]
		at = ends[i]
	}
	s.encoded = b
	return frames
}

// beginMoving begins to move runs out of memory: they can be read from the snapshot now.
func (s *snapshotWriter) beginMoving(blocks []store.Block) {
	raw, err := s.lease.Get(context.Background(), store.SnapshotName(s.seq))
	if err != nil {
		s.process.Settings.Logger.Error("a snapshot can't be opened; its runs stay in memory", "error", err)
		return
	}
	s.base ^= store.OtherSnapshot
	if s.moving = s.paging.Use(s.base, raw, blocks); !s.moving {
		_ = raw.Close() // an error does not matter: it was only read
	}
}

// moveRuns moves the next runs out of memory, if beginMoving has begun that. After the last one
// it closes the previous snapshot.
func (s *snapshotWriter) moveRuns() {
	if s.moving && !s.current.Chill(s.state.clock.last, s.base, movedAtOnce) {
		s.moving = false
		s.paging.Drop(s.base ^ store.OtherSnapshot)
		if s.current.Chilled >= manyMoved {
			go runtime.GC() // return the memory of these runs soon
		}
	}
}

// close cancels the writing, waits until it has ended, and closes the snapshots.
func (s *snapshotWriter) close() {
	if s.cancel != nil {
		s.cancel()
		s.writing.Wait()
	}
	s.archive.Wait()
	s.paging.Close()
}

// write stores the archive and the snapshot, verifies the snapshot, and removes what is not
// needed any more. The writing goroutine calls it. A snapshot is complete only after the view has come to
// its entry, or after viewPatience: if the process ends between the two, the view must be made anew from
// all archives.
func (s *snapshotWriter) write(ctx context.Context, seq uint64, inView <-chan struct{}, archive []byte, newest int64) (p snapshotProgress) {
	p.over = true
	if len(archive) > 0 {
		if p.err = store.PutArchive(ctx, s.lease, store.ArchiveName(seq, newest/1e9), archive); p.err != nil {
			return p
		}
	}
	var frames []frame // encoded frames that are not written yet
	next := func(ctx context.Context) (data []byte, more bool, err error) {
		if len(frames) == 0 {
			select {
			case s.progress <- snapshotProgress{}:
				frames = <-s.frames
			case <-ctx.Done():
				return nil, false, ctx.Err()
			}
		}
		first := frames[0]
		if frames = frames[1:]; !first.more {
			select {
			case <-inView:
			case <-time.After(viewPatience):
			case <-ctx.Done():
				return nil, false, ctx.Err()
			}
		}
		return first.data, first.more, first.err
	}
	if p.blocks, p.size, p.err = store.PutSnapshot(ctx, s.lease, &s.process.encoders, seq, next); p.err != nil {
		return p
	}
	name := store.SnapshotName(seq)
	if err := store.VerifySnapshot(ctx, s.lease, name); err != nil {
		// Delete it: the log must not be cut because of a damaged snapshot.
		p.err = errors.Join(fmt.Errorf("snapshot %s, read back: %w", name, err), s.lease.Delete(context.WithoutCancel(ctx), name))
		return p
	}
	p.err = s.cutLog(ctx)
	return p
}

// cutLog removes log entries, snapshots and archives that are not needed any more. It keeps the
// last two snapshots and the log since the older of them: if the last snapshot can't be read,
// the older one replaces it.
func (s *snapshotWriter) cutLog(ctx context.Context) error {
	blobs, err := s.lease.Blobs(ctx)
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
		if err := s.lease.Truncate(ctx, seqs[len(seqs)-2]+1); err != nil {
			return err
		}
	}
	var old []string
	for _, seq := range seqs[:max(len(seqs)-2, 0)] {
		old = append(old, store.SnapshotName(seq))
	}
	oldest := time.Now().Add(-s.process.Settings.Retention).Unix()
	for _, b := range blobs {
		if _, newest, ok := store.ParseArchiveName(b.Name); ok && newest < oldest {
			old = append(old, b.Name)
		}
	}
	return store.Delete(ctx, s.lease, old)
}
