package store

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

const (
	ArchiveSize  = 32 << 20  // compressed bytes at which an archive is full
	ArchiveFrame = 256 << 10 // bytes of finished runs in a frame, before compression
)

// ArchiveName returns the name of an archive. seq is the number of the entry of the snapshot
// that is written with it, and newest the Unix time in seconds at which its last run ended.
func ArchiveName(seq uint64, newest int64) string {
	return fmt.Sprintf("archive-%020d-%d", seq, newest)
}

// ParseArchiveName returns the arguments of [ArchiveName] for a name. ok is false for other names.
func ParseArchiveName(name string) (seq uint64, newest int64, ok bool) {
	n, _ := fmt.Sscanf(name, "archive-%d-%d", &seq, &newest)
	return seq, newest, n == 2
}

// ReadArchive calls yield with the runs of a stored archive. The machine known must have their
// definitions.
func ReadArchive(ctx context.Context, log journal.Reader, name string, known *machine.Machine, yield func(*machine.Run) error) error {
	raw, err := log.Get(ctx, name)
	if err != nil {
		return err
	}
	defer raw.Close()
	return unzipArchive(raw, known, func(r *machine.Run) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return yield(r)
	})
}

// VerifyBlob reads a blob to its end: the backend may find out only there that it is not the one that was
// stored.
func VerifyBlob(ctx context.Context, log journal.Reader, name string) error {
	raw, err := log.Get(ctx, name)
	if err != nil {
		return err
	}
	defer raw.Close()
	_, err = io.Copy(io.Discard, raw)
	return err
}

// unzipArchive calls yield with the runs of a compressed archive.
func unzipArchive(in io.Reader, known *machine.Machine, yield func(*machine.Run) error) error {
	unzip, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer unzip.Close()
	return known.ReadArchive(unzip, yield)
}

// ArchiveBuffer collects finished runs for the next archive. The zero value is empty. A goroutine
// compresses a full frame, while the caller, which is the owner of a shard, continues.
type ArchiveBuffer struct {
	kept       []byte // the archive that Take returned last, until it is stored
	keptNewest int64  // latest end of a run in kept
	runs       []byte // encoded runs of the next frame
	newest     int64  // latest end of a run since the last Take
	size       int    // bytes of zipped when the last frame was added

	zipping chan struct{} // closed when the last frame is compressed; nil if it is

	// While a frame is compressed, its goroutine uses the following fields.

	before []byte // encoded runs of the frame
	frame  []byte
	zipped bytes.Buffer // compressed frames since the last Take
	zip    *zstd.Encoder
}

// Add adds a finished run.
func (a *ArchiveBuffer) Add(r *machine.Run) {
	a.runs = machine.EncodeRun(r, a.runs)
	a.newest = max(a.newest, r.Ended)
	if len(a.runs) >= ArchiveFrame {
		a.endFrame()
	}
}

func (a *ArchiveBuffer) endFrame() {
	if len(a.runs) == 0 {
		return
	}
	a.Wait()
	a.size = a.zipped.Len()
	a.runs, a.before = a.before[:0], a.runs
	done := make(chan struct{})
	a.zipping = done
	go func() {
		defer close(done)
		if a.zip == nil {
			a.zip = newEncoder(&a.zipped) // of one long stream
		}
		a.frame = machine.AppendArchive(a.frame[:0], a.before)
		_, _ = a.zip.Write(a.frame) // can't fail: it writes to memory
	}()
}

// Wait waits until no frame is being compressed.
func (a *ArchiveBuffer) Wait() {
	if a.zipping != nil {
		<-a.zipping
		a.zipping = nil
	}
}

// endStream ends the compressed stream.
func (a *ArchiveBuffer) endStream() {
	a.endFrame()
	a.Wait()
	if a.zip != nil {
		_ = a.zip.Close() // can't fail: it writes to memory
		a.zip = nil
	}
}

// IsFull reports whether the archive is so large that it should be stored.
func (a *ArchiveBuffer) IsFull() bool { return a.size >= ArchiveSize }

// Take returns an archive of all runs that were added and are not stored yet, and when the last
// of them ended, in Unix nanoseconds. The buffer keeps the archive until Stored is called.
func (a *ArchiveBuffer) Take() (archive []byte, newest int64) {
	a.endStream()
	a.kept = append(a.kept, a.zipped.Bytes()...) // an archive may have several compressed streams
	a.keptNewest = max(a.keptNewest, a.newest)
	a.zipped, a.newest, a.size = bytes.Buffer{}, 0, 0
	return a.kept, a.keptNewest
}

// Stored notes that the archive which Take returned last is stored.
func (a *ArchiveBuffer) Stored() { a.kept, a.keptNewest = nil, 0 }

// Read calls yield with the runs that are in no stored archive. The machine known must have
// their definitions.
func (a *ArchiveBuffer) Read(known *machine.Machine, yield func(*machine.Run) error) error {
	a.endStream()
	both := io.MultiReader(bytes.NewReader(a.kept), bytes.NewReader(a.zipped.Bytes()))
	return unzipArchive(both, known, yield)
}

// PutArchive stores an archive.
func PutArchive(ctx context.Context, lease journal.Lease, name string, archive []byte) error {
	return lease.Put(ctx, name, func(out io.Writer) error {
		_, err := out.Write(archive)
		return err
	})
}
