// Package store has the formats in which the engine stores its state beside the log: snapshots,
// archives of finished runs, and, in a cluster, the decision in which shards the runs of a
// workflow are.
//
// A snapshot is a sequence of blocks: the length of a compressed frame, and the frame. So one
// frame can be read without the others. The inputs and histories of runs with long waits are
// read from there when they are needed; see [Paging].
//
// An archive has the finished runs that the snapshot of the same entry does not have any more.
// It is one compressed stream, or several streams in sequence.
package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

// FrameRuns is the largest number of runs in a frame of a snapshot. To read one run, the whole
// frame must be read.
const FrameRuns = 128

// The prefixes of the names of blobs. The number of an entry comes after the prefix.
const (
	SnapshotPrefix = "snapshot-"
	ArchivePrefix  = "archive-"
)

// SnapshotName returns the name of the snapshot of the state after the entry seq.
func SnapshotName(seq uint64) string { return fmt.Sprintf("snapshot-%020d", seq) }

// ParseName returns the number of the entry in the name of a blob with the prefix.
func ParseName(name, prefix string) (seq uint64, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	_, err := fmt.Sscanf(rest, "%d", &seq)
	return seq, err == nil
}

// Block says where a compressed frame is in a snapshot.
type Block struct {
	at   int64  // offset
	size uint32 // bytes
}

// PutSnapshot stores the snapshot of the state after the entry seq. next returns the frames, one
// after the other, and whether there are more. PutSnapshot returns where the frames are, in the
// order in which they were written, and the size of the snapshot in bytes. It uses an encoder of
// encoders, which may be empty: each needs about a megabyte.
func PutSnapshot(
	ctx context.Context, lease journal.Lease, encoders *sync.Pool, seq uint64, next func(context.Context) (frame []byte, more bool, err error),
) (blocks []Block, size int64, err error) {
	zip, ok := encoders.Get().(*zstd.Encoder)
	if !ok {
		zip = NewEncoder(nil)
	}
	defer encoders.Put(zip)
	err = lease.Put(ctx, SnapshotName(seq), func(out io.Writer) error {
		var frame, buf []byte
		for more := true; more; {
			var err error
			if frame, more, err = next(ctx); err != nil {
				return err
			}
			if len(frame) == 0 {
				continue
			}
			buf = zip.EncodeAll(frame, append(buf[:0], 0, 0, 0, 0))
			block := Block{size + 4, uint32(len(buf) - 4)}
			binary.LittleEndian.PutUint32(buf, block.size)
			blocks, size = append(blocks, block), size+int64(len(buf))
			if _, err := out.Write(buf); err != nil {
				return err
			}
		}
		return nil
	})
	return blocks, size, err
}

// blockReader reads the decompressed frames of a snapshot, in sequence. It remembers the blocks.
type blockReader struct {
	raw    io.Reader
	unzip  *zstd.Decoder
	zipped bytes.Buffer
	at     int64
	blocks []Block
}

// maxBlock is the largest block that is read, in bytes. The frame of the state without runs may
// be large, because it has the keys of all finished runs.
const maxBlock = 1 << 30

// next reads the next block, and appends the decompressed frame to buf.
func (b *blockReader) next(buf []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(b.raw, head[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > maxBlock {
		return nil, fmt.Errorf("%w: a block of %d bytes", machine.ErrEncoding, size)
	}
	// The length may be damaged: allocate memory only as data is read.
	b.zipped.Reset()
	if n, err := io.CopyN(&b.zipped, b.raw, int64(size)); err != nil || n < int64(size) {
		return nil, io.ErrUnexpectedEOF
	}
	b.blocks = append(b.blocks, Block{b.at + 4, size})
	b.at += 4 + int64(size)
	frame, err := b.unzip.DecodeAll(b.zipped.Bytes(), buf)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", machine.ErrEncoding, err)
	}
	return frame, nil
}

// aheadReader reads the frames of a blockReader. A goroutine decompresses the next frame while the
// caller decodes the last one: both take about the same time, and a shard can do nothing before its
// snapshot is read.
type aheadReader struct {
	*io.PipeReader
	from  *blockReader
	ended chan struct{}
}

func readAhead(raw io.Reader) *aheadReader {
	unzip, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(2*maxBlock)) // fails only for wrong options
	r, w := io.Pipe()
	a := &aheadReader{r, &blockReader{raw: raw, unzip: unzip}, make(chan struct{})}
	go func() {
		defer close(a.ended)
		var frame []byte
		var err error
		for err == nil {
			if frame, err = a.from.next(reusable(frame)); err == nil {
				_, err = w.Write(frame)
			}
		}
		_ = w.CloseWithError(err) // never fails
	}()
	return a
}

// close ends the goroutine, and waits for it.
func (a *aheadReader) close() {
	_ = a.PipeReader.Close() // never fails
	<-a.ended
	a.from.unzip.Close()
}

// VerifySnapshot reads a stored snapshot and checks that it is complete.
func VerifySnapshot(ctx context.Context, log journal.Reader, name string) error {
	raw, err := log.Get(ctx, name)
	if err != nil {
		return err
	}
	defer raw.Close()
	in := readAhead(raw)
	defer in.close()
	return machine.Verify(in)
}

// WriteState stores the state of a machine as the snapshot of the entry seq, and returns the size
// of the snapshot in bytes.
func WriteState(ctx context.Context, lease journal.Lease, m *machine.Machine, seq uint64) (size int64, err error) {
	head, _ := m.Clock()
	m.Begin(seq, head)
	s := m.Snapshot()
	defer s.Stop()
	var frame []byte
	_, size, err = PutSnapshot(ctx, lease, new(sync.Pool), seq, func(context.Context) (_ []byte, more bool, err error) {
		frame, more = s.Next(frame[:0], FrameRuns)
		return frame, more, s.Err()
	})
	return size, err
}

// Delete removes blobs.
func Delete(ctx context.Context, lease journal.Lease, names []string) error {
	for _, name := range names {
		if err := lease.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// NewEncoder returns an encoder for streams with small blocks, such as snapshots: with a larger window,
// most of the time would be spent on clearing its memory.
func NewEncoder(w io.Writer) *zstd.Encoder {
	return newEncoder(w, zstd.WithWindowSize(256<<10), zstd.WithLowerEncoderMem(true))
}

// newEncoder returns an encoder with the compression settings of all streams.
func newEncoder(w io.Writer, more ...zstd.EOption) *zstd.Encoder {
	zip, err := zstd.NewWriter(w, append([]zstd.EOption{zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)}, more...)...)
	if err != nil {
		panic(err) // fails only for wrong options
	}
	return zip
}
