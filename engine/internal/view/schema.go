package view

import (
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// appID and version are in the header of the file. A file with another version is replaced:
// filling a new view is simpler and safer than converting an old one. Version 2 is converted,
// because its runs are stored in the same way.
const (
	appID   = 0x74696476 // "tidv"
	version = 3          // since 3, there are segments instead of a table of FTS5
)

// many is the value of the column attempts for a run with two attempts. The index runs_many
// has the runs with this value or a larger one.
const many = 2 + firstName

// manyIndex creates the index runs_many. It is executed whenever a file is opened, because older
// files do not have the index. The index has the runs with several attempts, which are often few.
// Without it, a list of them would read all other runs too.
var manyIndex = fmt.Sprintf("CREATE INDEX IF NOT EXISTS runs_many ON runs(workflow, state) WHERE attempts>=%d", many)

// tagTable creates the table of the tags of runs. It is executed whenever a file is opened,
// because older files do not have the table. key is the tagKey of a tag. The table is ordered by
// place, to replace the tags of a run; the index is for lists of the runs with a tag.
const tagTable = `CREATE TABLE IF NOT EXISTS tags(place INTEGER, key INTEGER, PRIMARY KEY(place, key)) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS tags_key ON tags(key, place);`

// The index runs_state is for lists by state and workflow, runs_next for lists by due time, and
// runs_error for groups of errors. The last two have only the runs with a due time or an error.
// SQLite adds the place, which is the rowid, to the end of each index.
const schema = `
CREATE TABLE runs(
	place    INTEGER PRIMARY KEY,
	id       BLOB NOT NULL,
	workflow INTEGER NOT NULL,
	state    INTEGER NOT NULL,
	attempts INTEGER NOT NULL,
	next     INTEGER,
	error    INTEGER,
	body     BLOB NOT NULL
);
CREATE INDEX runs_state ON runs(workflow, state);
CREATE INDEX runs_next ON runs(workflow, state, next) WHERE next IS NOT NULL;
CREATE INDEX runs_error ON runs(error, workflow, state) WHERE error IS NOT NULL;
CREATE TABLE payloads(place INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE aside(id BLOB PRIMARY KEY, place INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE stale(place INTEGER PRIMARY KEY);
CREATE TABLE names(id INTEGER PRIMARY KEY, text BLOB NOT NULL);
CREATE TABLE meta(key INTEGER PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO meta VALUES(1, 0), (2, -9223372036854775808);
` + segmentTables

// segmentTables creates the tables of the search index: see segment.go.
const segmentTables = `
CREATE TABLE segments(id INTEGER PRIMARY KEY, runs INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL);
CREATE TABLE words(
	segment INTEGER, word BLOB, first INTEGER, data BLOB NOT NULL, PRIMARY KEY(segment, word, first)
) WITHOUT ROWID;
`

// fromVersion2 makes a view of version 2 one of version 3. All runs must be indexed again, which
// Index does.
const fromVersion2 = `DROP TABLE IF EXISTS words; DELETE FROM stale; UPDATE meta SET value=-9223372036854775808 WHERE key=2;` +
	segmentTables + `PRAGMA user_version=3;`

// Keys of meta.
const (
	metaCursor   int64 = 1
	metaIndexed  int64 = 2
	metaOutdated int64 = 3
	metaOld      int64 = 4
	metaRenewed  int64 = 5
	metaLog      int64 = 6 // package sqlitelog reads it too, and metaCursor
)

// fields returns the numbers of the state by their keys of meta.
func (s *indexState) fields() map[int64]*int64 {
	return map[int64]*int64{metaIndexed: &s.indexed, metaOutdated: &s.outdated, metaOld: &s.old, metaRenewed: &s.renewed}
}

// pragmas has the settings of the writer. In WAL mode, synchronous=NORMAL syncs only at a
// checkpoint: a power failure may lose the last transactions, but cursor and rows together, and
// never damages the file. synchronous=OFF could damage it, and would save less than a microsecond
// per run. The write-ahead log is limited to 8 MB and the cache to 1 MB: a cache of 4 MB is not
// faster.
var pragmas = []string{
	"PRAGMA page_size=8192", // the first two work only on an empty file; larger pages waste less space
	"PRAGMA auto_vacuum=INCREMENTAL",
	"PRAGMA journal_mode=WAL",
	"PRAGMA synchronous=NORMAL",
	"PRAGMA cache_size=-1024",
	"PRAGMA temp_store=MEMORY",
	"PRAGMA wal_autocheckpoint=0", // see sums.go
	"PRAGMA journal_size_limit=16777216",
	"PRAGMA cell_size_check=ON",
	"PRAGMA trusted_schema=OFF",
}

// readPragmas has the settings of a reader.
var readPragmas = []string{
	"PRAGMA query_only=ON",
	"PRAGMA cache_size=-1024",
	"PRAGMA temp_store=MEMORY",
	"PRAGMA cell_size_check=ON",
	"PRAGMA trusted_schema=OFF",
}

// create creates the tables of a new file, in one transaction.
func create(c *sqlite.Conn) error {
	script := fmt.Sprintf("PRAGMA application_id=%d; PRAGMA user_version=%d; %s", appID, version, schema)
	if err := sqlitex.ExecuteScript(c, script, nil); err != nil {
		return err
	}
	// looksOurs reads the header from the file, so it must not be only in the write-ahead log.
	return sqlitex.ExecuteTransient(c, "PRAGMA wal_checkpoint(TRUNCATE)", nil)
}

// Errors that callers can test for with errors.Is.
var (
	// ErrDamaged says that the file is damaged. The caller should close the view, delete
	// the file, and fill a new one.
	ErrDamaged = errors.New("the view is damaged")

	// ErrFull says that the disk is full. Nothing was written. The same call may succeed
	// when there is space again. Reading still works.
	ErrFull = errors.New("no room for the view")

	// ErrClosed says that the view was closed.
	ErrClosed = errors.New("the view is closed")

	// ErrCursor says that Filter.After is not from a page of the same filter.
	ErrCursor = errors.New("the cursor is not from a list with the same filter")
)

// wrap adds the operation to an error, and makes errors of SQLite match ErrDamaged or ErrFull.
// If ctx interrupted the operation, the error is the cause of ctx.
func wrap(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	switch code := sqlite.ErrCode(err); {
	case code.ToPrimary() == sqlite.ResultInterrupt && ctx.Err() != nil:
		err = context.Cause(ctx)
	case isDamage(code):
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	case code.ToPrimary() == sqlite.ResultFull, code == sqlite.ResultIOErrSHMSize:
		// ResultIOErrSHMSize means that the shared memory file could not grow.
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	return fmt.Errorf("view: %s: %w", op, err)
}

// isDamage reports whether a result code means that the file is damaged. A short read means that
// the file was truncated.
func isDamage(code sqlite.ResultCode) bool {
	p := code.ToPrimary()
	return p == sqlite.ResultCorrupt || p == sqlite.ResultNotADB || p == sqlite.ResultFormat || code == sqlite.ResultIOErrShortRead
}

// prepare prepares a statement of this package. The statements are correct, so an error in the
// statement means that the schema of the file is damaged. The arguments must be int64 or
// []byte.
func prepare(c *sqlite.Conn, query string, args ...any) (*sqlite.Stmt, error) {
	s, err := c.Prepare(query)
	if err != nil && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultError {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	for i, arg := range args {
		switch arg := arg.(type) {
		case int64:
			s.BindInt64(i+1, arg)
		case []byte:
			s.BindBytes(i+1, arg)
		default:
			return nil, fmt.Errorf("argument %d of %q has the type %T", i+1, query, arg)
		}
	}
	return s, nil
}

// exec executes a statement and ignores its rows.
func exec(c *sqlite.Conn, query string, args ...any) error {
	return each(c, query, func(*sqlite.Stmt) error { return nil }, args...)
}

func execAll(c *sqlite.Conn, queries []string) error {
	for _, q := range queries {
		if err := sqlitex.ExecuteTransient(c, q, nil); err != nil {
			return err
		}
	}
	return nil
}

// each calls f with every row of a query, until f returns errStop.
func each(c *sqlite.Conn, query string, f func(*sqlite.Stmt) error, args ...any) error {
	s, err := prepare(c, query, args...)
	if err != nil {
		return err
	}
	defer s.Reset() //nolint:errcheck // it repeats the error of Step
	for {
		row, err := s.Step()
		if err != nil || !row {
			return err
		}
		switch err := f(s); {
		case errors.Is(err, errStop):
			return nil
		case err != nil:
			return err
		}
	}
}

// queryInt returns the first column of a query without parameters; 0 if it has no row.
func queryInt(c *sqlite.Conn, query string) (n int64, err error) {
	err = each(c, query, func(s *sqlite.Stmt) error {
		n = s.ColumnInt64(0)
		return nil
	})
	return n, err
}

func columnBytes(s *sqlite.Stmt, col int) []byte {
	b := make([]byte, s.ColumnLen(col))
	s.ColumnBytes(col, b)
	return b
}
