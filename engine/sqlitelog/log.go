package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"zombiezen.com/go/sqlite"

	"github.com/tideover/tideover/engine/journal"
)

// Durability says what an acknowledged append survives.
type Durability int

const (
	// Full is on disk before an append returns: it survives a power cut.
	Full Durability = iota

	// OS is with the operating system before an append returns: it survives a
	// killed process, but a power cut may take the last entries, from the end.
	OS
)

// String returns the name that configurations use.
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

// Config describes a log.
type Config struct {
	Dir        string     // created if it is missing, for the owner only
	Durability Durability // zero means Full
}

// Validate returns all that is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("dir: empty"))
	}
	if c.Durability != Full && c.Durability != OS {
		errs = append(errs, fmt.Errorf("durability: %v is neither full nor os", c.Durability))
	}
	return errors.Join(errs...)
}

// Log is a log in a folder. It implements [journal.Log].
type Log struct {
	dir        string
	durability Durability

	mu     sync.Mutex
	held   *lease // the latest one; it may have been given up
	closed bool
}

var _ journal.Log = (*Log)(nil)

// Open prepares the folder. What is in it is looked at under the lock only, so
// a newer format, a foreign file or damage are errors of [Log.Lease].
func Open(ctx context.Context, c Config) (*Log, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open log %s: %w", c.Dir, err)
	}
	// Absolute, so that no later change of folder moves it, and so that SQLite
	// sees no special name in it.
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", c.Dir, err)
	}
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return &Log{dir: dir, durability: c.Durability}, nil
}

// Lease implements [journal.Log]. The only shard is 0. The lease also
// implements [journal.Backuper].
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
	held, err := openLease(l.dir, l.durability)
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

// CheckVersion returns an error if the linked SQLite has a defect that can cost data.
func CheckVersion() error { return checkVersion(sqlite.VersionNumber) }

// checkVersion takes a version as 1000000*major + 1000*minor + patch.
func checkVersion(number int) error {
	const restart = 3_051_003 // https://sqlite.org/wal.html#walresetbug
	const withdrawn = 3_052_000
	switch {
	case number < restart:
		return fmt.Errorf("SQLite %s can damage a database when its write-ahead log starts over; 3.51.3 can't", versionText(number))
	case number == withdrawn:
		return fmt.Errorf("SQLite %s was withdrawn by its authors", versionText(number))
	default:
		return nil
	}
}

func versionText(number int) string {
	return fmt.Sprintf("%d.%d.%d", number/1_000_000, number/1000%1000, number%1000)
}
