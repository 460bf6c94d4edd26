// Package journal is the contract between the engine and the backends that store
// its log.
//
// All state of an engine follows from a log: entries in one order, each appended
// after a known one. A backend stores the entries of a shard, and blobs: snapshots,
// which allow the engine to truncate the log, and archives of runs that have ended.
// A backend does not interpret entries and blobs; the engine has checksums of its
// own in them.
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

// MaxEntry is the size of the largest entry, in bytes, that every backend must accept.
const MaxEntry = 900_000

// Format is the newest format of entries and blobs that an engine of this version can read.
// Each process of a cluster publishes its own: see [Member].
const Format = 4

// The errors that a caller distinguishes. A backend wraps them with details.
var (
	// ErrStale means that another owner has the lease or has recorded something. What
	// this owner knows may be out of date, and it must stop.
	ErrStale = errors.New("another owner has the log")

	// ErrLocked means that another process has the lease now.
	ErrLocked = errors.New("the log is in use by another process")

	// ErrFull means that there is no room, such as on the disk. Nothing was recorded;
	// the same append may succeed when there is room again.
	ErrFull = errors.New("no room for the log")

	// ErrDamaged means that stored data is missing or can't be read.
	ErrDamaged = errors.New("the log is damaged")

	// ErrNewer means that a newer version of tideover has written the log.
	ErrNewer = errors.New("the log has a newer format")

	// ErrTooLarge means that an entry is larger than MaxEntry.
	ErrTooLarge = errors.New("entry too large")

	// ErrNoBlob means that there is no blob of that name.
	ErrNoBlob = errors.New("no such blob")
)

// ID identifies an append, so that it can be repeated after its answer was lost.
type ID [16]byte

// Entry is one element of the log.
type Entry struct {
	Seq   uint64 // position, from 1, without gaps
	Epoch uint64 // epoch of the lease under which it was appended
	ID    ID
	Data  []byte
}

// Log is a backend. Its methods may be called by several goroutines.
//
// A log and its leases may implement further interfaces. What a backend lacks without each:
//
//   - [Cluster], of a log: only one process at a time can use the log, and it uses only shard 0.
//   - [Shared], of a lease: nothing without Cluster. All leases of a Cluster must implement it.
//   - [Clocked], of a lease: the engine does not notice that the clock was set forward while no
//     process had the shard, or that the clock of the next machine is ahead: waits end early.
//   - [Witnessed], of a lease: the engine notices lost entries only if a snapshot, an archive or
//     its own copy of the runs has their effects, and it can't tell a copy that belongs to another
//     log. It notices a damaged archive only when it reads the archive.
//   - [LossReporter], of a lease: losses that the backend has recorded are not reported as troubles.
//   - [Backuper], of a lease: without Cluster there are no backups of an engine in use. Those of a
//     Cluster read its shards and do not need it.
type Log interface {
	// Lease makes the caller the owner of a shard, or fails with ErrLocked. The
	// epoch of a lease is larger than that of every lease before it, also after
	// a crash.
	Lease(ctx context.Context, shard int) (Lease, error)

	// Close releases all leases.
	Close() error
}

// Lease is the right to record in a shard. Append may be called by one goroutine at a
// time; the other methods by any, also during an Append. After Release all methods
// fail with ErrStale.
type Lease interface {
	Reader

	// Epoch returns the number of the lease, from 1.
	Epoch() uint64

	// Append records an entry after the one with the sequence expected, and
	// returns when it is as durable as the backend promises. An append with the
	// same id may be repeated under the same lease after any error: it succeeds if
	// the entry was recorded the first time. Append fails with ErrStale if expected
	// is not the last entry, or if another process has taken over the lease.
	Append(ctx context.Context, expected uint64, id ID, data []byte) (seq uint64, err error)

	// Truncate removes the entries before the sequence; if the log ends before it, all
	// entries. It works in steps, so that it does not block appends for long.
	Truncate(ctx context.Context, below uint64) error

	// Put stores a blob with the contents that write writes, completely or not at all,
	// and as durable as an entry. It replaces a blob of the same name.
	Put(ctx context.Context, name string, write func(io.Writer) error) error

	// Delete removes a blob. It succeeds if there is no blob of that name.
	Delete(ctx context.Context, name string) error

	// Lost returns a channel that is closed when another process has taken over the
	// lease, or when it was released.
	Lost() <-chan struct{}

	// Release ends the lease, so that another process can lease the shard.
	Release() error
}

// Reader reads the entries and blobs of a shard.
type Reader interface {
	// Bounds returns the sequences of the first and the last entry. In an empty
	// log last is first-1; a new one has the bounds 1 and 0.
	Bounds(ctx context.Context) (first, last uint64, err error)

	// Read yields the entries from the sequence on, in order, up to the last one
	// at the time of the call. A sequence that was truncated is an error. The data of
	// an entry is valid until the next iteration.
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

// Backuper is implemented by a [Lease] whose backend can copy the shard while it is in
// use. The copy is a folder that the backend opens like the original. It has every entry
// that was recorded when Backup was called, and the blobs that belong to them.
type Backuper interface {
	Backup(ctx context.Context, dir string) error
}

// The severities of a [Finding], the worst first.
const (
	Broken = "broken" // the log does not work, or loses acknowledged entries
	Weak   = "weak"   // a failure may stop the log or lose acknowledged entries
	Note   = "note"   // worth knowing, but without such a risk
)

// Finding is something about the servers, the disks or the configuration that weakens
// what a log promises.
type Finding struct {
	Severity string `json:"severity"`
	What     string `json:"what"` // the observation
	Why      string `json:"why"`  // its consequence
	Do       string `json:"do"`   // the advice: what to change
}
