package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

// A snapshot is stored as blocks: the length of the compressed frame, and the
// frame. So one of them can be read without the others, which is where the inputs
// and histories of runs are that wait for long.

// block is where a frame is in a snapshot.
type block struct {
	at   int64
	size uint32
}

// otherSnapshot is added to the numbers of the frames of every other snapshot, so
// that those of two can be told apart while runs are moved from one to the other.
const otherSnapshot = 1 << 31

// coldCache is how many frames are kept as read. Runs that were put into a frame
// together often wake together.
const coldCache = 16

// cold reads runs that are not in memory. It belongs to the owner.
type cold struct {
	files [2]coldFile // by whether otherSnapshot is in a number
	unzip *zstd.Decoder
	cache [coldCache]coldFrame
	next  int
}

type coldFile struct {
	io.ReaderAt
	io.Closer
	blocks []block
}

type coldFrame struct {
	number uint32
	body   []byte
}

// use makes the snapshot one that runs can be read from.
func (c *cold) use(base uint32, raw io.ReadCloser, blocks []block) bool {
	at, ok := raw.(io.ReaderAt)
	if !ok {
		return false
	}
	c.drop(base)
	c.files[base/otherSnapshot] = coldFile{at, raw, blocks}
	return true
}

// drop forgets a snapshot that no run is in any more.
func (c *cold) drop(base uint32) {
	f := &c.files[base/otherSnapshot]
	if f.Closer != nil {
		_ = f.Close() // it was only read
	}
	*f = coldFile{}
	clear(c.cache[:])
}

func (c *cold) close() {
	c.drop(0)
	c.drop(otherSnapshot)
}

// load returns the content of a frame.
func (c *cold) load(number uint32) ([]byte, error) {
	for i := range c.cache {
		if c.cache[i].number == number && c.cache[i].body != nil {
			return c.cache[i].body, nil
		}
	}
	f := &c.files[number/otherSnapshot]
	n := int(number % otherSnapshot)
	if f.ReaderAt == nil || n >= len(f.blocks) {
		return nil, fmt.Errorf("frame %d of a snapshot is not there", n)
	}
	b := f.blocks[n]
	data := make([]byte, b.size)
	if _, err := f.ReadAt(data, b.at); err != nil {
		return nil, fmt.Errorf("frame %d of a snapshot: %w", n, err)
	}
	if c.unzip == nil {
		c.unzip, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1)) // the options are right
	}
	data, err := c.unzip.DecodeAll(data, nil)
	if err != nil {
		return nil, fmt.Errorf("frame %d of a snapshot: %w", n, err)
	}
	body, err := machine.Frame(data)
	if err != nil {
		return nil, fmt.Errorf("frame %d of a snapshot: %w", n, err)
	}
	c.cache[c.next] = coldFrame{number, body}
	c.next = (c.next + 1) % coldCache
	return body, nil
}

// blockWriter writes blocks and remembers where they are.
type blockWriter struct {
	w      io.Writer
	zip    *zstd.Encoder
	buf    []byte
	at     int64
	blocks []block
}

func newBlockWriter(w io.Writer) *blockWriter { return &blockWriter{w: w, zip: newEncoder(nil)} }

func (b *blockWriter) write(frame []byte) error {
	b.buf = b.zip.EncodeAll(frame, append(b.buf[:0], 0, 0, 0, 0))
	size := uint32(len(b.buf) - 4)
	binary.LittleEndian.PutUint32(b.buf, size)
	b.blocks = append(b.blocks, block{b.at + 4, size})
	b.at += int64(len(b.buf))
	_, err := b.w.Write(b.buf)
	return err
}

// blockReader reads the frames of blocks one after the other.
type blockReader struct {
	raw    io.Reader
	unzip  *zstd.Decoder
	zipped bytes.Buffer
	frame  []byte
	rest   []byte
	at     int64
	blocks []block
}

// maxBlock is the size of a frame that is believed. One of everything that is not
// part of a run, keys above all, may be large.
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
	b.blocks = append(b.blocks, block{b.at + 4, size})
	b.at += 4 + int64(size)
	var err error
	if b.frame, err = b.unzip.DecodeAll(b.zipped.Bytes(), b.frame[:0]); err != nil {
		return fmt.Errorf("%w: %w", machine.ErrEncoding, err)
	}
	b.rest = b.frame
	return nil
}

func (b *blockReader) close() { b.unzip.Close() }

// readSnapshot restores a snapshot, and leaves in it what need not be in memory.
func (c *cold) readSnapshot(ctx context.Context, log journal.Reader, name string, now int64) (*machine.Machine, error) {
	raw, err := log.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	in := newBlockReader(raw)
	defer in.close()
	_, random := raw.(io.ReaderAt)
	if !random {
		m, err := machine.Restore(in)
		return m, errors.Join(err, raw.Close())
	}
	m, err := machine.RestoreCold(in, now)
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	c.use(0, raw, in.blocks)
	m.Cold(c.load)
	return m, nil
}
