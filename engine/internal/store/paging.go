package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

// OtherSnapshot is added to the frame numbers of every second snapshot. It distinguishes the
// frames of two snapshots while runs are moved from one to the other.
const OtherSnapshot = 1 << 31

// frameCache is how many decoded frames are cached. Runs of one frame are often needed at the
// same time.
const frameCache = 16

// maxReused is the largest buffer, in bytes, whose memory is used again.
const maxReused = 1 << 20

// Paging reads the parts of cold runs that are not in memory, their inputs and histories, from
// snapshots. Only one goroutine at a time may use it.
type Paging struct {
	files [2]pagedFile // index 1 is for frame numbers with OtherSnapshot
	unzip *zstd.Decoder
	read  []byte // the compressed frame that was read last; its memory is used again
	cache [frameCache]pagedFrame
	next  int // index of the cache entry to replace next
}

type pagedFile struct {
	io.ReaderAt
	io.Closer
	blocks []Block
}

type pagedFrame struct {
	number uint32
	data   []byte // the decompressed frame; its memory is used again for another frame
	body   []byte // its content
}

// reusable returns the memory of b for other data, nil if it is too large to be kept.
func reusable(b []byte) []byte {
	if cap(b) > maxReused {
		return nil
	}
	return b[:0]
}

// Use makes Load read the frames of a snapshot. base is 0 or OtherSnapshot. Use returns false if
// the snapshot does not support random access (io.ReaderAt); the caller must close it then.
func (p *Paging) Use(base uint32, raw io.ReadCloser, blocks []Block) bool {
	at, ok := raw.(io.ReaderAt)
	if !ok {
		return false
	}
	p.Drop(base)
	p.files[base/OtherSnapshot] = pagedFile{at, raw, blocks}
	return true
}

// Drop closes the snapshot of base, which must not be needed by a cold run any more.
func (p *Paging) Drop(base uint32) {
	f := &p.files[base/OtherSnapshot]
	if f.Closer != nil {
		_ = f.Close() // an error does not matter: it was only read
	}
	*f = pagedFile{}
	clear(p.cache[:])
}

// Close closes both snapshots.
func (p *Paging) Close() {
	p.Drop(0)
	p.Drop(OtherSnapshot)
}

// Load returns the content of the frame with this number. It is valid until the next call.
func (p *Paging) Load(number uint32) ([]byte, error) {
	for i := range p.cache {
		if p.cache[i].number == number && p.cache[i].body != nil {
			return p.cache[i].body, nil
		}
	}
	f := &p.files[number/OtherSnapshot]
	n := int(number % OtherSnapshot)
	if f.ReaderAt == nil || n >= len(f.blocks) {
		return nil, fmt.Errorf("frame %d of a snapshot is not there", n)
	}
	b := f.blocks[n]
	p.read = slices.Grow(reusable(p.read), int(b.size))[:b.size]
	if _, err := f.ReadAt(p.read, b.at); err != nil {
		return nil, fmt.Errorf("frame %d of a snapshot: %w", n, err)
	}
	if p.unzip == nil {
		p.unzip, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1)) // fails only for wrong options
	}
	c := &p.cache[p.next]
	c.body = nil
	var err error
	if c.data, err = p.unzip.DecodeAll(p.read, reusable(c.data)); err == nil {
		c.number = number
		c.body, err = machine.Frame(c.data)
	}
	if err != nil {
		return nil, fmt.Errorf("frame %d of a snapshot: %w", n, err)
	}
	p.next = (p.next + 1) % frameCache
	return c.body, nil
}

// ReadSnapshot restores the state of a snapshot. If the snapshot supports random access, runs
// that can be cold at the time now stay in it, and Load reads them later.
func (p *Paging) ReadSnapshot(ctx context.Context, log journal.Reader, name string, now int64) (*machine.Machine, error) {
	raw, err := log.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	in := readAhead(raw)
	_, random := raw.(io.ReaderAt)
	m, err := machine.RestoreAt(in, now, random)
	if err == nil {
		_, err = io.Copy(io.Discard, in) // the backend may find out at the end that the blob is not the one that was stored
	}
	if seq, ok := ParseName(name, SnapshotPrefix); err == nil && ok && m.Seq() != seq {
		err = fmt.Errorf("%w: it is the state of entry %d", journal.ErrDamaged, m.Seq())
	}
	in.close()
	if !random || err != nil {
		return m, errors.Join(err, raw.Close())
	}
	p.Use(0, raw, in.from.blocks)
	m.Cold(p.Load)
	return m, nil
}
