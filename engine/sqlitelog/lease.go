package sqlitelog

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// lease is the ownership of a folder. leaseLog has its methods for entries, and leaseBlobs those for
// blobs.
type lease struct {
	dir        string
	path       string // path of the database
	durability Durability
	epoch      uint64
	identity   uint64 // of the log
	losses     []journal.Loss
	lock       *os.File

	lost    chan struct{}
	lose    func()
	release func() error

	writer      writer
	anchor      *sqlite.Conn // keeps the write-ahead log open while the writer is closed
	readers     readers
	checkpoints *checkpointer
	witness     *witness

	// changing is a lock: it is held while blobs change, and by a backup while it copies them.
	changing chan struct{}

	// copying is a lock that a backup holds.
	copying chan struct{}

	leaseLog
	leaseBlobs
}

var (
	_ journal.Lease        = (*lease)(nil)
	_ journal.Backuper     = (*lease)(nil)
	_ journal.Witnessed    = (*lease)(nil)
	_ journal.LossReporter = (*lease)(nil)
)

// openLease locks a folder and opens the log in it. If the disk is full, it removes the reserve file
// and tries again. If it refuses the log, it changes nothing.
func openLease(dir string, c Config) (*lease, error) {
	path := filepath.Join(dir, "log.db")
	if earlier, ok := unclosed.LoadAndDelete(path); ok {
		if err := earlier.(*lease).closeWriter(); err != nil {
			return nil, describe(path, err)
		}
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	found, err := inspect(dir, c)
	if err != nil {
		return nil, errors.Join(err, unlock(lock), lock.Close())
	}
	noteHolder(lock)
	l, err := openLocked(dir, c.Durability, lock, &found)
	if errors.Is(err, journal.ErrFull) && freeReserve(dir) {
		l, err = openLocked(dir, c.Durability, lock, &found)
	}
	if err != nil {
		unlockDir(lock) //nolint:errcheck // the first error is the one to report
		return nil, err
	}
	return l, nil
}

func openLocked(dir string, d Durability, lock *os.File, found *state) (_ *lease, err error) {
	path := filepath.Join(dir, "log.db")
	if found.loss != nil {
		if err := found.setAside(dir); err != nil {
			return nil, describe(path, err)
		}
	}
	if err := prepareFiles(dir, path); err != nil {
		return nil, describe(path, err)
	}
	if err := rewriteWAL(path, 0); err != nil {
		return nil, describe(path, err)
	}
	conn, err := connectWriter(path, d)
	if err != nil {
		return nil, describe(path, err)
	}
	if err := prepare(conn, path, found.tables); err != nil {
		return nil, closeAfter(conn, err)
	}
	l := &lease{
		dir: dir, path: path, durability: d, lock: lock,
		lost:        make(chan struct{}),
		writer:      writer{path: path, durability: d, turn: make(chan struct{}, 1), conn: conn},
		readers:     newReaders(),
		checkpoints: &checkpointer{wake: make(chan struct{}, 1), done: make(chan struct{})},
		changing:    make(chan struct{}, 1),
		copying:     make(chan struct{}, 1),
	}
	l.leaseLog.lease, l.leaseBlobs.lease = l, l
	l.lose = sync.OnceFunc(func() { close(l.lost) })
	l.release = sync.OnceValue(l.giveUp)
	if err := l.takeOwnership(conn, found); err != nil {
		if sqlite.ErrCode(err) == sqlite.ResultError { // a column is missing
			err = damaged(path, err)
		}
		return nil, closeAfter(conn, describe(path, err))
	}
	if err := mark(dir); err != nil {
		return nil, closeAfter(conn, describe(path, err))
	}
	if l.anchor, err = connectAnchor(path); err != nil {
		return nil, closeAfter(conn, describe(path, err))
	}
	l.witness, err = openWitness(dir, acknowledged{
		log: l.identity, epoch: l.epoch, last: l.last.Load(), lazy: d == OS, boot: bootHash(),
	})
	if err != nil {
		return nil, closeAfter(conn, closeAfter(l.anchor, describe(path, err)))
	}
	l.checkpoints.start(&l.writer, l.readers)
	keepReserve(dir)
	return l, nil
}

// Epoch implements [journal.Lease].
func (l *lease) Epoch() uint64 { return l.epoch }

// Identity implements [journal.Witnessed].
func (l *lease) Identity() uint64 { return l.identity }

// Losses implements [journal.LossReporter].
func (l *lease) Losses() []journal.Loss { return slices.Clone(l.losses) }

// Lost implements [journal.Lease].
func (l *lease) Lost() <-chan struct{} { return l.lost }

// unclosed has the ended leases of this process whose connections are still open and whose lock is
// still held, by the path of the database: see closeWriter.
var unclosed sync.Map // of string to *lease

// closeWriter closes the last connections and releases the lock. When the last connection closes,
// SQLite copies the write-ahead log to the database. That must not happen after a failed sync. So if
// the log can't be rewritten now, the connections and the lock stay open: the next lease of this
// process tries again, or another process does after this one has ended.
func (l *lease) closeWriter() error {
	if _, err := l.writer.open(); err != nil && l.writer.unsynced.Load() {
		unclosed.Store(l.path, l)
		return err
	}
	return errors.Join(l.anchor.Close(), l.writer.close(), unlockDir(l.lock))
}

// usable returns an error if the lease or the context has ended.
func (l *lease) usable(ctx context.Context) error {
	select {
	case <-l.lost:
		return fmt.Errorf("%w: the lease with epoch %d has ended", journal.ErrStale, l.epoch)
	default:
		return ctx.Err()
	}
}

// lockChannel acquires a lock. It fails if the lease or the context has ended.
func (l *lease) lockChannel(ctx context.Context, lock chan struct{}) error {
	return disk.Lock(ctx, lock, l.usable)
}

// takenOver ends the lease, because the epoch in the database shows that another owner has taken
// over. It returns the error.
func (l *lease) takenOver() error {
	l.lose()
	return fmt.Errorf("%w: another process has taken over %[3]s, and epoch %[2]d is over; was its lock file deleted?", journal.ErrStale, l.epoch, l.dir)
}

// confirm returns an error if another owner has taken over.
func (l *lease) confirm(ctx context.Context) error {
	var epoch int64
	err := l.reading(ctx, func(conn *sqlite.Conn) (err error) {
		epoch, err = number(conn, "SELECT epoch FROM meta")
		return err
	})
	if err != nil {
		return describe(l.path, err)
	}
	if uint64(epoch) != l.epoch {
		return l.takenOver()
	}
	return nil
}

// Release implements [journal.Lease].
func (l *lease) Release() error { return l.release() }

func (l *lease) giveUp() error {
	l.lose()
	l.copying <- struct{}{} // wait for a backup to end
	l.checkpoints.stop()
	l.readers.close()
	l.changing <- struct{}{} // wait for changes of blobs to end
	l.writer.turn <- struct{}{}
	l.witness.close()
	err := l.closeWriter()
	<-l.writer.turn
	<-l.changing
	<-l.copying
	return disk.Wrapf(describe(l.path, err), "release %s", l.dir)
}

// lockDir locks a folder. The operating system releases the lock when the process ends in any way.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	held, err := tryLock(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if held {
		holder := lockHolder(f)
		f.Close()
		return nil, fmt.Errorf("%w: %s holds %s; stop it, or use another folder (deleting the lock file does not help)",
			journal.ErrLocked, holder, path)
	}
	return f, nil
}

// noteHolder writes the process id to the lock file. It is only for the error of another process, so
// errors are ignored.
func noteHolder(f *os.File) {
	f.Truncate(0)                                        //nolint:errcheck // see above
	f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) //nolint:errcheck // see above
}

func lockHolder(f *os.File) string {
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	switch {
	case err != nil:
		return "another process"
	case pid == os.Getpid():
		return fmt.Sprintf("this process (pid %d)", pid)
	default:
		return fmt.Sprintf("the process with pid %d", pid)
	}
}

// unlockDir releases the lock. The file stays: if it were removed, a process that has opened the old
// file and one that creates a new file could both get a lock.
func unlockDir(f *os.File) error {
	f.Truncate(0) //nolint:errcheck // the content is only for error messages
	return errors.Join(unlock(f), f.Close())
}

// takeOwnership increments the epoch, records a loss, and reads the bounds and the losses. With any
// durability, the new epoch is on disk before it is used: so no two owners ever have the same epoch.
//
// The log gets a new identity if it has none, if it has lost entries, or if it is a copy: two logs that
// can differ never have the same one.
func (l *lease) takeOwnership(conn *sqlite.Conn, found *state) (err error) {
	if err := pragma(conn, synchronous(Full)); err != nil {
		return err
	}
	if l.identity = found.identity; l.identity == 0 || found.loss != nil || found.copied {
		// log.last names the old identity. If this process ends before it writes the new one, the
		// log must not count as another one.
		if err := errors.Join(disk.Remove(filepath.Join(l.dir, witnessName)), disk.SyncDir(l.dir)); err != nil {
			return err
		}
		l.identity = newIdentity()
	}
	if err := l.recordOwner(conn, found); err != nil {
		return err
	}
	if err := l.readBounds(conn); err != nil {
		return err
	}
	if last := l.last.Load(); found.tables && last != found.last {
		return damaged(l.path, fmt.Errorf("it ends at entry %d when it is open, and at entry %d when it is read", last, found.last))
	}
	if err := l.readLosses(conn); err != nil {
		return err
	}
	return pragma(conn, synchronous(l.durability))
}

func newIdentity() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:])                         // it never fails
	return binary.LittleEndian.Uint64(b[:])>>1 | 1 // SQLite has signed numbers; 0 means none
}

func (l *lease) recordOwner(conn *sqlite.Conn, found *state) (err error) {
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return err
	}
	defer end(&err)
	if err := sqlitex.ExecuteScript(conn, additions, nil); err != nil {
		return err
	}
	epoch, err := number(conn, "UPDATE meta SET epoch = epoch + 1 RETURNING epoch")
	if err != nil {
		return err
	}
	if epoch == 0 {
		return damaged(l.path, errors.New("the table meta is empty"))
	}
	l.epoch = uint64(epoch)
	if err := l.readBlobs(conn, found.tables && found.owned != found.epoch); err != nil {
		return err
	}
	err = sqlitex.Execute(conn, "INSERT OR REPLACE INTO folder VALUES (1, ?1, ?2)",
		&sqlitex.ExecOptions{Args: []any{int64(l.identity), epoch}})
	if err != nil || found.loss == nil {
		return err
	}
	why := journal.WhyAccepted
	if found.expected {
		why = "the machine was restarted, and the durability was os"
	}
	loss, until := found.loss, int64(0)
	if !loss.Until.IsZero() {
		until = loss.Until.UnixNano()
	}
	return sqlitex.Execute(conn, "INSERT INTO losses VALUES (?1, ?2, ?3, ?4, ?5, ?6)", &sqlitex.ExecOptions{
		Args: []any{time.Now().UnixNano(), int64(loss.From), int64(loss.To), loss.Shown, until, why},
	})
}

func (l *lease) readLosses(conn *sqlite.Conn) error {
	l.losses = nil
	return sqlitex.Execute(conn, "SELECT at, first, last, shown, until, why FROM losses ORDER BY at", &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite.Stmt) error {
			loss := journal.Loss{
				Log: l.path, At: time.Unix(0, s.ColumnInt64(0)), From: uint64(s.ColumnInt64(1)), To: uint64(s.ColumnInt64(2)),
				Shown: s.ColumnText(3), Why: s.ColumnText(5),
			}
			if until := s.ColumnInt64(4); until != 0 {
				loss.Until = time.Unix(0, until)
			}
			l.losses = append(l.losses, loss)
			return nil
		},
	})
}
