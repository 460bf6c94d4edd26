// Package journal is the contract between the engine and what keeps its log.
//
// The truth of an engine is a log: entries in one order, each appended after a
// known one. A backend keeps the entries of a shard, and beside them blobs: the
// snapshots that let the log be cut off, and the archives of what has ended. It
// knows nothing of what is in them; the engine checks its own sums.
//
// Package journaltest has the suite that every backend passes.
package journal

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// MaxEntry is the largest entry, in bytes, that every backend must take.
const MaxEntry = 900_000

// The errors that a caller tells apart. A backend wraps them with what it knows.
var (
	// ErrStale says that another owner has recorded something, or has the lease:
	// nothing that this owner knows is certain any more, and it must stop.
	ErrStale = errors.New("another owner has the log")

	// ErrLocked says that another process has the lease now.
	ErrLocked = errors.New("the log is in use by another process")

	// ErrFull says that there is no room. Nothing was recorded; the same append
	// may succeed when there is room again.
	ErrFull = errors.New("no room for the log")

	// ErrDamaged says that what was stored can't be read back.
	ErrDamaged = errors.New("the log is damaged")

	// ErrNewer says that the log was written by a newer version.
	ErrNewer = errors.New("the log has a newer format")

	// ErrTooLarge says that an entry exceeds MaxEntry.
	ErrTooLarge = errors.New("entry too large")

	// ErrNoBlob says that there is no blob of that name.
	ErrNoBlob = errors.New("no such blob")
)

// ID names an append, so that it can be repeated after an answer was lost.
type ID [16]byte

// Entry is one element of the log.
type Entry struct {
	Seq   uint64 // position, from 1, without gaps
	Epoch uint64 // of the lease under which it was appended
	ID    ID
	Data  []byte
}

// Log is a backend. Its methods may be called by several goroutines.
type Log interface {
	// Lease makes the caller the owner of a shard, or fails with ErrLocked. The
	// epoch of a lease is larger than that of every lease before it, also after
	// a crash.
	Lease(ctx context.Context, shard int) (Lease, error)

	// Close gives up all leases.
	Close() error
}

// Lease is the right to record in a shard. Appends are called by one goroutine at a
// time; everything else by any, also while an append is under way. After Release
// everything is ErrStale.
type Lease interface {
	Reader

	// Epoch returns the number of the lease, from 1.
	Epoch() uint64

	// Append records an entry after the one with the sequence expected, and
	// returns when it is as durable as the backend promises. The same append,
	// by its id, may be repeated under the same lease after any error: if it had
	// been recorded after all, that is a success. Appending after anything but the last entry, or
	// under a lease that has been taken over, is ErrStale.
	Append(ctx context.Context, expected uint64, id ID, data []byte) (seq uint64, err error)

	// Truncate removes the entries below the sequence, at most all there are, in
	// steps that do not hold up appends for long.
	Truncate(ctx context.Context, below uint64) error

	// Put stores what write writes as a blob, whole or not at all, as durable as
	// an entry. An existing blob of that name is replaced.
	Put(ctx context.Context, name string, write func(io.Writer) error) error

	// Delete removes a blob. One that is not there is not an error.
	Delete(ctx context.Context, name string) error

	// Lost is closed when the lease has been taken over or given up.
	Lost() <-chan struct{}

	// Release gives up the lease.
	Release() error
}

// Reader reads what is recorded in a shard.
type Reader interface {
	// Bounds returns the sequences of the first and the last entry. In an empty
	// log last is first-1; a new one has the bounds 1 and 0.
	Bounds(ctx context.Context) (first, last uint64, err error)

	// Read yields the entries from the sequence on, in order, up to the last one
	// at the time of the call. A sequence that was cut off is an error. Data is
	// valid until the next turn.
	Read(ctx context.Context, from uint64) iter.Seq2[Entry, error]

	// Get opens a blob, or fails with ErrNoBlob.
	Get(ctx context.Context, name string) (io.ReadCloser, error)

	// Blobs lists all blobs by name, in the order of their names.
	Blobs(ctx context.Context) ([]Blob, error)
}

// Blob describes a stored blob. Names are made of lower-case letters, digits,
// dots and dashes, with no dot at either end.
type Blob struct {
	Name string
	Size int64
	Time time.Time
}

// A Backuper can copy a shard while it is in use. The copy is a folder that the
// backend opens like the original; it holds every entry that was there when
// Backup was called, and the blobs that go with them.
type Backuper interface {
	Backup(ctx context.Context, dir string) error
}

// The severities of a [Finding], the worst first.
const (
	Broken = "broken" // it does not work, or loses what was acknowledged
	Weak   = "weak"   // it promises less than it should
	Note   = "note"   // worth knowing
)

// Finding is something about the servers, the disks or the configuration that weakens
// what a log promises.
type Finding struct {
	Severity string `json:"severity"`
	What     string `json:"what"` // what was found
	Why      string `json:"why"`  // what that means
	Do       string `json:"do"`   // what to change
}
