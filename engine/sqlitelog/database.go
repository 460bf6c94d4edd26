package sqlitelog

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

const (
	applicationID = 0x7469_6465 // "tide"
	format        = 1           // as user_version

	pageSize = 4096

	// Checkpoints are made in the background long before this many pages; the
	// writer makes one itself only when those do not get through.
	checkpointPages = 16_384

	// The file of the write-ahead log is cut to this size when it starts over.
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

// connect opens an existing database file.
func connect(path string, flags sqlite.OpenFlags, pragmas ...string) (*sqlite.Conn, error) {
	conn, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, err
	}
	// Only a person with a shell holds a lock for that long.
	conn.SetBusyTimeout(5 * time.Second)
	for _, p := range append(pragmas, "cell_size_check = ON") {
		if err := pragma(conn, p); err != nil {
			return nil, closeAfter(conn, err)
		}
	}
	return conn, nil
}

// connectWriter opens the database to record in it.
func connectWriter(path string, d Durability) (*sqlite.Conn, error) {
	return connect(path, sqlite.OpenReadWrite, synchronous(d),
		// macOS keeps a plain fsync in the drive's memory.
		"fullfsync = ON", "checkpoint_fullfsync = ON",
		"cache_size = -512", // KiB; it appends, and reads little again
		fmt.Sprintf("wal_autocheckpoint = %d", checkpointPages),
		fmt.Sprintf("journal_size_limit = %d", walSizeLimit))
}

func connectReader(path string) (*sqlite.Conn, error) {
	return connect(path, sqlite.OpenReadOnly, "cache_size = -256") // KiB; it reads from the first entry to the last
}

// connectAnchor opens a connection that has the write-ahead log open. The last connection
// to close would copy the log to the database, and remove it.
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

// prepare makes the database ready under the lock, or refuses it if this version must
// not touch it. An earlier version may have been killed before it had made the tables:
// then there is nothing that shows that there was a log.
func prepare(conn *sqlite.Conn, path string, traces []string) error {
	var found [3]int64
	for i, query := range [...]string{"PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema"} {
		var err error
		if found[i], err = number(conn, query); err != nil {
			return describe(path, err)
		}
	}
	application, version, tables := found[0], found[1], found[2]
	var err error
	switch {
	case application == 0 && version == 0 && tables == 0:
		if err = refuseNew(path, "it has no tables", traces); err == nil {
			err = createTables(conn)
		}
	case application != applicationID:
		return fmt.Errorf("%w: %s is a database of another program (application id %#x)", ErrForeign, path, application)
	case version > format:
		return fmt.Errorf("%w: %s has format %d, this tideover knows formats up to %d; use the newer tideover",
			journal.ErrNewer, path, version, format)
	case version < format:
		return damaged(path, fmt.Errorf("format %d never existed", version))
	default:
		err = useWAL(conn)
	}
	if err == nil {
		err = checkColumns(conn, path)
	}
	if err != nil {
		return describe(path, err)
	}
	return syncDir(filepath.Dir(path))
}

// createTables makes a new database.
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

// checkColumns finds a damaged schema, of which SQLite would say later, and at
// every statement, that there is no such column.
func checkColumns(conn *sqlite.Conn, path string) error {
	n, err := number(conn, `SELECT
		(SELECT count(*) FROM pragma_table_info('log') WHERE name IN ('seq', 'epoch', 'id', 'data')) +
		(SELECT count(*) FROM pragma_table_info('meta') WHERE name IN ('one', 'epoch', 'first'))`)
	if err == nil && n != 7 {
		err = damaged(path, fmt.Errorf("%d of 7 columns are there", n))
	}
	return err
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

// pragma sets one. They take effect when they are compiled, not when they are
// run, so a kept statement would set nothing the second time.
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

// closeAfter closes a connection after an error, which says more than what
// closing may say.
func closeAfter(conn *sqlite.Conn, err error) error {
	conn.Close() //nolint:errcheck // see above
	return err
}
