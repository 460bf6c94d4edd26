package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

const (
	snapshotAfter = 64 << 20         // bytes of log since the last one, at least
	archiveAfter  = 32 << 20         // bytes of finished runs
	snapshotRuns  = 128              // of a frame: as many are read for one that is wanted
	manyChilled   = 100_000          // runs whose memory is worth giving back
	chillRuns     = 5000             // made cold at once: the owner does nothing else meanwhile
	snapshotAge   = 10 * time.Minute // of the oldest change that is not in one
	restAfter     = 5 * time.Second  // the last change: then there is time to make much log superfluous
	archiveFrame  = 256 << 10
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

	kept     []byte // an archive that could not be stored yet
	keptLast int64  // end of the last run in it
	runs     []byte // finished runs of the frame that is being filled
	frame    []byte
	archived bytes.Buffer
	zip      *zstd.Encoder
	newest   int64 // end of the last run in it
	cancel   context.CancelFunc
	done     chan struct{}
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
	blocks []block
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

// archive keeps a finished run until the next snapshot, which no longer has it.
func (s *snapshots) archive(r *machine.Run) {
	s.runs = r.Encode(s.runs)
	s.newest = max(s.newest, r.Ended)
	if len(s.runs) >= archiveFrame {
		s.flush()
	}
}

// flush ends a frame of finished runs.
func (s *snapshots) flush() {
	if len(s.runs) == 0 {
		return
	}
	if s.zip == nil {
		s.zip = newEncoder(&s.archived)
	}
	s.frame = machine.AppendArchive(s.frame[:0], s.runs)
	_, _ = s.zip.Write(s.frame) // to memory
	s.runs = s.runs[:0]
}

// takeArchive returns the finished runs, compressed, and begins anew.
func (s *snapshots) takeArchive() []byte {
	s.endArchive()
	s.kept = append(s.kept, s.archived.Bytes()...) // streams may follow each other
	s.keptLast = max(s.keptLast, s.newest)
	s.archived, s.newest = bytes.Buffer{}, 0
	return s.kept
}

// endArchive ends the compressed stream of what was archived so far.
func (s *snapshots) endArchive() {
	s.flush()
	if s.zip != nil {
		_ = s.zip.Close() // to memory
		s.zip = nil
	}
}

// unstored calls yield with the archives that are in no blob.
func (s *snapshots) unstored(yield func(io.Reader) error) error {
	s.endArchive()
	for _, data := range [][]byte{s.kept, s.archived.Bytes()} {
		if len(data) == 0 {
			continue
		}
		in, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return err
		}
		err = yield(in)
		in.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// due reports whether it is time for a snapshot.
func (s *snapshots) due(sh *shard) bool {
	if s.log == 0 || !s.free(sh) {
		return false
	}
	return s.log >= max(sh.cfg.snapshotAfter, s.size/2) || s.archived.Len() >= archiveAfter ||
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
	archive := s.takeArchive()
	newest := s.keptLast
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
		s.kept, s.keptLast = nil, 0
		s.size, s.before = w.size, s.taken
		s.turnCold(sh, w.blocks)
		return
	}
	data, more := s.current.Next(nil, snapshotRuns)
	s.frames <- frame{data, !more, s.current.Err()}
	if !more || s.current.Err() != nil {
		s.current.Stop()
	}
}

// turnCold begins to move runs out of memory into the snapshot.
func (s *snapshots) turnCold(sh *shard, blocks []block) {
	raw, err := sh.lease.Get(context.Background(), fmt.Sprintf("snapshot-%020d", s.seq))
	if err != nil {
		sh.cfg.Logger.Error("a snapshot can't be opened; what it has stays in memory", "error", err)
		return
	}
	s.base ^= otherSnapshot
	if s.chill = sh.cold.use(s.base, raw, blocks); !s.chill {
		_ = raw.Close() // it was only read
	}
}

// moveCold goes on with it.
func (s *snapshots) moveCold(sh *shard) {
	if s.chill && !s.current.Chill(sh.clock.last, s.base, chillRuns) {
		s.chill = false
		sh.cold.drop(s.base ^ otherSnapshot)
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
		name := fmt.Sprintf("archive-%020d-%d", seq, newest/1e9)
		w.err = sh.lease.Put(ctx, name, func(out io.Writer) error {
			_, err := out.Write(archive)
			return err
		})
		if w.err != nil {
			return w
		}
	}
	name := fmt.Sprintf("snapshot-%020d", seq)
	w.err = sh.lease.Put(ctx, name, func(out io.Writer) error {
		blocks := newBlockWriter(out)
		err := writeFrames(ctx, blocks, frames, wants)
		w.size, w.blocks = blocks.at, blocks.blocks
		return err
	})
	if w.err != nil {
		return w
	}
	if err := sh.verify(ctx, name); err != nil {
		// It must not be taken for one that can stand in for the log.
		w.err = errors.Join(fmt.Errorf("snapshot %s, read back: %w", name, err), sh.lease.Delete(context.WithoutCancel(ctx), name))
		return w
	}
	w.err = sh.cut(ctx)
	return w
}

// writeFrames asks the owner for frames until the last.
func writeFrames(ctx context.Context, blocks *blockWriter, frames chan frame, wants chan wish) error {
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
			if err := blocks.write(f.data); err != nil {
				return err
			}
		}
		if f.last {
			return nil
		}
	}
}

// verify reads a snapshot back.
func (sh *shard) verify(ctx context.Context, name string) error {
	raw, err := sh.lease.Get(ctx, name)
	if err != nil {
		return err
	}
	defer raw.Close()
	in := newBlockReader(raw)
	defer in.close()
	return machine.Verify(in)
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
		if seq, ok := blobSeq(b.Name, "snapshot-"); ok {
			seqs = append(seqs, seq)
		}
	}
	if len(seqs) >= 2 {
		if err := sh.lease.Truncate(ctx, seqs[len(seqs)-2]+1); err != nil {
			return err
		}
	}
	for n := 0; n+2 < len(seqs); n++ {
		if err := sh.lease.Delete(ctx, fmt.Sprintf("snapshot-%020d", seqs[n])); err != nil {
			return err
		}
	}
	oldest := time.Now().Add(-sh.cfg.Retention).Unix()
	for _, b := range blobs {
		var seq uint64
		var newest int64
		if n, _ := fmt.Sscanf(b.Name, "archive-%d-%d", &seq, &newest); n == 2 && newest < oldest {
			if err := sh.lease.Delete(ctx, b.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// blobSeq returns the sequence in the name of a blob.
func blobSeq(name, prefix string) (seq uint64, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	_, err := fmt.Sscanf(rest, "%d", &seq)
	return seq, err == nil
}

func newEncoder(w io.Writer) *zstd.Encoder {
	zip, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // the options are right
	}
	return zip
}

// openBlob opens a compressed blob.
func openBlob(ctx context.Context, log journal.Reader, name string) (io.ReadCloser, error) {
	raw, err := log.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	unzip, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return &blob{unzip, raw}, nil
}

type blob struct {
	*zstd.Decoder
	raw io.Closer
}

func (b *blob) Close() error {
	b.Decoder.Close()
	return b.raw.Close()
}
