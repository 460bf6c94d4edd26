package sqlitelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"zombiezen.com/go/sqlite"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/validate"
)

// Durability says what an acknowledged append survives.
type Durability int

const (
	// Full means that an entry is on disk when its append returns: it survives a power failure.
	Full Durability = iota

	// OS means that an entry is written to the operating system when its append returns: it
	// survives the end of the process, but a power failure may lose the last entries.
	OS
)

// String returns the name of the durability in configurations: "full" or "os".
func (d Durability) String() string {
	switch d {
	case Full:
		return "full"
	case OS:
		return "os"
	default:
		return fmt.Sprintf("Durability(%d)", int(d))
	}
}

// Config has the settings of a log.
type Config struct {
	Dir        string     // folder of the log; created if it does not exist, accessible only for the owner
	Durability Durability // the zero value means Full

	// AcceptLoss opens a log that ends before what was acknowledged: without it, Lease fails with a
	// [journal.LossError]. The loss is recorded in the log.
	AcceptLoss bool

	// CheckEntry returns an error if the data of an entry is damaged. Lease calls it for the entries
	// after the last snapshot, before it changes anything. nil means no check.
	CheckEntry func(data []byte) error
}

// Validate returns all errors of the configuration.
func (c Config) Validate() error {
	var found validate.Problems
	found.Check(c.Dir != "", "dir: empty")
	found.Check(c.Durability == Full || c.Durability == OS, "durability: %v is neither full nor os", c.Durability)
	return errors.Join(found...)
}

// Log is a log in a folder. It implements [journal.Log].
type Log struct {
	dir string
	cfg Config

	mu     sync.Mutex
	held   *lease // the latest lease, which may have been released; nil before the first
	closed bool
}

var _ journal.Log = (*Log)(nil)

// Open creates the folder if it does not exist. It does not read the files in it: [Log.Lease] does
// that under the lock, and returns the errors of a newer format, a foreign file or damage.
func Open(ctx context.Context, c Config) (*Log, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	// Make the path absolute: the working directory may change later, and SQLite gives some
	// names, such as ":memory:", a special meaning.
	dir, err := filepath.Abs(c.Dir)
	if err = cmp.Or(ctx.Err(), err); err == nil {
		err = makeDir(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", c.Dir, err)
	}
	return &Log{dir: dir, cfg: c}, nil
}

// Lease implements [journal.Log]. shard must be 0. The lease also implements [journal.Backuper].
func (l *Log) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	if shard != 0 {
		return nil, fmt.Errorf("lease shard %d of %s: an embedded log has shard 0 only", shard, l.dir)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("lease %s: %w", l.dir, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("lease %s: %w", l.dir, os.ErrClosed)
	}
	held, err := openLease(l.dir, l.cfg)
	if err != nil {
		return nil, fmt.Errorf("lease %s: %w", l.dir, err)
	}
	l.held = held
	return held, nil
}

// Close implements [journal.Log].
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.held == nil {
		return nil
	}
	return l.held.Release()
}

// CheckVersion returns an error if the linked version of SQLite has a bug that can damage data.
func CheckVersion() error { return checkVersion(sqlite.VersionNumber) }

// checkVersion is CheckVersion for the version 1000000*major + 1000*minor + patch.
func checkVersion(number int) error {
	const restart = 3_051_003 // https://sqlite.org/wal.html#walresetbug
	const withdrawn = 3_052_000
	switch {
	case number < restart:
		return fmt.Errorf("SQLite %s can damage a database when its write-ahead log starts from the beginning again; use 3.51.3 or newer", versionText(number))
	case number == withdrawn:
		return fmt.Errorf("SQLite %s was withdrawn by its authors", versionText(number))
	default:
		return nil
	}
}

func versionText(number int) string {
	return fmt.Sprintf("%d.%d.%d", number/1_000_000, number/1000%1000, number%1000)
}
