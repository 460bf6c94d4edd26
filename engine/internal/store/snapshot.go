// Package store has the formats in which the engine stores its state beside the log:
// snapshots, archives of finished runs, and the name under which a cluster keeps where
// the runs of a workflow are.
//
// A snapshot is a sequence of blocks: the length of a compressed frame, and the frame. So
// one frame can be read without the others. Inputs and histories of runs that wait for
// long stay there; see [Paging].
//
// An archive has the finished runs that the snapshot of the same entry no longer has. It
// is one compressed stream, or several after each other.
package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

// FrameRuns is how many runs a frame of a snapshot has: as many are read for one that is
// wanted.
const FrameRuns = 128

// The beginnings of the names of blobs. The number of an entry follows.
const (
	SnapshotPrefix = "snapshot-"
	ArchivePrefix  = "archive-"
)

// SnapshotName returns the name of the snapshot of an entry.
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

// Block is the place of a frame in a snapshot.
type Block struct {
	at   int64
	size uint32
}

// BlockWriter writes the frames of a snapshot and keeps their places.
type BlockWriter struct {
	w      io.Writer
	zip    *zstd.Encoder
	buf    []byte
	at     int64
	blocks []Block
}

// NewBlockWriter returns a writer of a snapshot.
func NewBlockWriter(w io.Writer) *BlockWriter { return &BlockWriter{w: w, zip: NewEncoder(nil)} }

// Write writes a frame.
func (b *BlockWriter) Write(frame []byte) error {
	b.buf = b.zip.EncodeAll(frame, append(b.buf[:0], 0, 0, 0, 0))
	size := uint32(len(b.buf) - 4)
	binary.LittleEndian.PutUint32(b.buf, size)
	b.blocks = append(b.blocks, Block{b.at + 4, size})
	b.at += int64(len(b.buf))
	_, err := b.w.Write(b.buf)
	return err
}

// Size returns the bytes that were written.
func (b *BlockWriter) Size() int64 { return b.at }

// Blocks returns the places of the frames that were written.
func (b *BlockWriter) Blocks() []Block { return b.blocks }

// blockReader reads the frames of blocks one after the other.
type blockReader struct {
	raw    io.Reader
	unzip  *zstd.Decoder
	zipped bytes.Buffer
	frame  []byte
	rest   []byte
	at     int64
	blocks []Block
}

// maxBlock is the size of the largest block that is read. The frame of everything that is
// not part of a run, keys above all, may be large.
const maxBlock = 1 << 30

func newBlockReader(raw io.Reader) *blockReader {
	unzip, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(2*maxBlock)) // the options are right
	return &blockReader{raw: raw, unzip: unzip}
}

func (b *blockReader) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// fill reads the next block.
func (b *blockReader) fill() error {
	var head [4]byte
	if _, err := io.ReadFull(b.raw, head[:]); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > maxBlock {
		return fmt.Errorf("%w: a block of %d bytes", machine.ErrEncoding, size)
	}
	// The memory grows with what is really there: the length may be damaged.
	b.zipped.Reset()
	if n, err := io.CopyN(&b.zipped, b.raw, int64(size)); err != nil || n < int64(size) {
		return io.ErrUnexpectedEOF
	}
	b.blocks = append(b.blocks, Block{b.at + 4, size})
	b.at += 4 + int64(size)
	var err error
	if b.frame, err = b.unzip.DecodeAll(b.zipped.Bytes(), b.frame[:0]); err != nil {
		return fmt.Errorf("%w: %w", machine.ErrEncoding, err)
	}
	b.rest = b.frame
	return nil
}

func (b *blockReader) close() { b.unzip.Close() }

// VerifySnapshot reads a snapshot back.
func VerifySnapshot(ctx context.Context, log journal.Reader, name string) error {
	raw, err := log.Get(ctx, name)
	if err != nil {
		return err
	}
	defer raw.Close()
	in := newBlockReader(raw)
	defer in.close()
	return machine.Verify(in)
}

// WriteState stores a state as the snapshot of an entry, and returns its size.
func WriteState(ctx context.Context, lease journal.Lease, m *machine.Machine, seq uint64) (size int64, err error) {
	head, _ := m.Clock()
	m.Begin(seq, head)
	err = lease.Put(ctx, SnapshotName(seq), func(out io.Writer) error {
		s := m.Snapshot()
		defer s.Stop()
		blocks := NewBlockWriter(out)
		var data []byte
		for more := true; more && s.Err() == nil; {
			if data, more = s.Next(data[:0], FrameRuns); len(data) == 0 {
				continue
			}
			if err := blocks.Write(data); err != nil {
				return err
			}
		}
		size = blocks.Size()
		return s.Err()
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

// NewEncoder returns an encoder with the settings of everything that is stored here.
func NewEncoder(w io.Writer) *zstd.Encoder {
	zip, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // the options are right
	}
	return zip
}
