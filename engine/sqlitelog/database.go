package sqlitelog

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/internal/sqlitefile"
	"github.com/tideover/tideover/engine/journal"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

const (
	applicationID = 0x7469_6465 // "tide", in the header of the database
	format        = 1           // version of the format, stored as user_version

	pageSize = 4096

	// checkpointPages is the size of the write-ahead log, in pages, at which the writer makes
	// a checkpoint itself. The checkpointer makes one much earlier, unless it can't.
	checkpointPages = 16_384

	// walSizeLimit is the size to which the file of the write-ahead log is cut when the log
	// starts from the beginning again.
	walSizeLimit = 16 << 20
)

const schema = `
	CREATE TABLE meta (
		one   INTEGER PRIMARY KEY CHECK (one = 1),
		epoch INTEGER NOT NULL,
		first INTEGER NOT NULL
	);
	INSERT INTO meta VALUES (1, 0, 1);
	CREATE TABLE log (
		seq   INTEGER PRIMARY KEY,
		epoch INTEGER NOT NULL,
		id    BLOB NOT NULL,
		data  BLOB NOT NULL
	);`

// additions creates the tables that earlier versions did not have. Those versions ignore them.
//
// folder has the identity of the log, and the epoch of the last owner that knew these tables: an earlier
// version may have owned the folder since. losses has the losses that were accepted or explained. blobs
// has the blobs of the log; sum is NULL if an earlier version has written the blob.
const additions = `
	CREATE TABLE IF NOT EXISTS folder (
		one      INTEGER PRIMARY KEY CHECK (one = 1),
		identity INTEGER NOT NULL,
		epoch    INTEGER NOT NULL
	);
	CREATE TABLE IF NOT EXISTS losses (
		at    INTEGER NOT NULL,
		first INTEGER NOT NULL,
		last  INTEGER NOT NULL,
		shown TEXT NOT NULL,
		until INTEGER NOT NULL,
		why   TEXT NOT NULL
	);
	CREATE TABLE IF NOT EXISTS blobs (
		name TEXT NOT NULL UNIQUE,
		size INTEGER NOT NULL,
		sum  INTEGER
	);`

// statements has the statements that create the tables, by the name of the table, as SQLite stores them.
// A damaged one would make statements fail only later, when the folder has been changed.
var statements = func() map[string]string {
	list := map[string]string{}
	for text := range strings.SplitSeq(schema+additions, ";") {
		_, text, isTable := strings.Cut(strings.Replace(text, "IF NOT EXISTS ", "", 1), "CREATE TABLE ")
		if name, _, _ := strings.Cut(text, " "); isTable {
			list[name] = "CREATE TABLE " + text
		}
	}
	return list
}()

// connect opens an existing database file and sets the pragmas.
func connect(path string, flags sqlite.OpenFlags, pragmas ...string) (*sqlite.Conn, error) {
	conn, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, err
	}
	// No tideover process holds a lock for this long: only a person with the SQLite shell may.
	conn.SetBusyTimeout(5 * time.Second)
	for _, p := range append(pragmas, "cell_size_check = ON") {
		if err := pragma(conn, p); err != nil {
			return nil, closeAfter(conn, err)
		}
	}
	return conn, nil
}

// connectWriter opens the database for writing.
func connectWriter(path string, d Durability) (*sqlite.Conn, error) {
	return connect(path, sqlite.OpenReadWrite, synchronous(d),
		// On macOS a plain fsync leaves data in the cache of the drive.
		"fullfsync = ON", "checkpoint_fullfsync = ON",
		"cache_size = -512", // in KiB; a small cache is enough for appends
		fmt.Sprintf("wal_autocheckpoint = %d", checkpointPages),
		fmt.Sprintf("journal_size_limit = %d", walSizeLimit))
}

func connectReader(path string) (*sqlite.Conn, error) {
	return connect(path, sqlite.OpenReadOnly, "cache_size = -256") // in KiB; a small cache is enough for sequential reads
}

// connectAnchor opens a connection that keeps the write-ahead log open. Without it, closing the
// writer's connection as the last one would copy the log to the database and remove it.
func connectAnchor(path string) (*sqlite.Conn, error) {
	conn, err := connectReader(path)
	if err != nil {
		return nil, err
	}
	if _, err := number(conn, "SELECT epoch FROM meta"); err != nil {
		return nil, closeAfter(conn, err)
	}
	return conn, nil
}

func synchronous(d Durability) string {
	if d == OS {
		return "synchronous = NORMAL"
	}
	return "synchronous = FULL"
}

// prepare creates the tables if the database has none: an earlier version was killed while it created
// them. The caller must hold the lock of the folder and must have inspected it.
func prepare(conn *sqlite.Conn, path string, tables bool) error {
	err := useWAL(conn)
	if err == nil && !tables {
		n, counted := number(conn, "SELECT count(*) FROM sqlite_schema")
		if err = counted; err == nil && n == 0 {
			err = createTables(conn)
		}
	}
	if err != nil {
		return describe(path, err)
	}
	return disk.SyncDir(filepath.Dir(path))
}

// createTables creates the tables of a new database.
func createTables(conn *sqlite.Conn) error {
	for _, p := range []string{fmt.Sprintf("page_size = %d", pageSize), "auto_vacuum = INCREMENTAL"} {
		if err := pragma(conn, p); err != nil {
			return err
		}
	}
	if err := useWAL(conn); err != nil {
		return err
	}
	return sqlitex.ExecuteScript(conn, schema+fmt.Sprintf(
		"PRAGMA application_id = %d; PRAGMA user_version = %d;", applicationID, format), nil)
}

func useWAL(conn *sqlite.Conn) error {
	var mode string
	err := sqlitex.ExecuteTransient(conn, "PRAGMA journal_mode = WAL", &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite.Stmt) error { mode = s.ColumnText(0); return nil },
	})
	if err == nil && !strings.EqualFold(mode, "wal") {
		err = fmt.Errorf("journal mode is %s, not wal: the file system may lack shared memory", mode)
	}
	return err
}

// pragma executes a pragma. Some pragmas take effect when the statement is compiled and not when it
// is executed, so the statement must not be cached.
func pragma(conn *sqlite.Conn, setting string) error {
	return sqlitex.ExecuteTransient(conn, "PRAGMA "+setting, nil)
}

// number returns the only value of a query's only row.
func number(conn *sqlite.Conn, query string) (n int64, err error) {
	err = sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite.Stmt) error { n = s.ColumnInt64(0); return nil },
	})
	return n, err
}

// closeAfter closes a connection after an error and returns that error.
func closeAfter(conn *sqlite.Conn, err error) error {
	conn.Close() //nolint:errcheck // the first error is the one to report
	return err
}

// ErrForeign says that log.db in the folder is a database of another program.
var ErrForeign = errors.New("not a log of tideover")

// describe adds the path to an error of SQLite, of sqlitefile or of the file system, and makes it match the error
// of package journal that it means: ErrFull or ErrDamaged.
func describe(path string, err error) error {
	if err == nil || errors.Is(err, journal.ErrFull) || errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrStale) {
		return err // nothing to add
	}
	code := resultCode(err).ToPrimary()
	switch {
	case isNoRoom(err), code == sqlite.ResultFull:
		return noRoom(path, err)
	case errors.Is(err, sqlitefile.ErrDamaged), code == sqlite.ResultCorrupt, code == sqlite.ResultNotADB:
		return damaged(path, err)
	case code == sqlite.ResultIOErr && isNoRoom(disk.TryWrite(filepath.Join(filepath.Dir(path), "blobs"))):
		// SQLite reports an exceeded quota, and a disk that is found to be full only at a sync, as
		// an I/O error.
		return noRoom(path, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// resultCode returns the code of an error of SQLite, and ResultOK for others.
func resultCode(err error) sqlite.ResultCode {
	if code := sqlite.ErrCode(err); code != sqlite.ResultError {
		return code
	}
	return sqlite.ResultOK
}

func noRoom(path string, err error) error {
	free := "unknown"
	if n, err := freeBytes(filepath.Dir(path)); err == nil {
		free = fmt.Sprint(n)
	}
	return fmt.Errorf("%w: %s: %s bytes free: %w", journal.ErrFull, path, free, err)
}

func damaged(path string, err error) error {
	return fmt.Errorf("%w: %s: %w; restore a backup, which replaces the whole folder, or move the folder away to start with an empty one",
		journal.ErrDamaged, path, err)
}
