package view

import (
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// appID and version are in the header of the file. A file of another version is removed
// and a new one is filled, which is simpler and safer than changing the old one.
const (
	appID   = 0x74696476 // "tidv"
	version = 2          // 2: patterns of errors are of the first line, and keep exit codes
)

// many is the number of attempts, as the column has it, from which on a run is in the
// index of those that were tried often.
const many = 2 + firstName

// manyIndex is made when a file is opened, also one that was made before there was
// such an index. It has few of the runs of steps that mostly succeed, which a list of
// those that do not would otherwise go through one by one.
var manyIndex = fmt.Sprintf("CREATE INDEX IF NOT EXISTS runs_many ON runs(workflow, state) WHERE attempts>=%d", many)

// Of the indexes, runs_state serves lists by state and workflow, runs_next lists
// by due time, and runs_error groups of errors; the last two have only the runs
// that have such a thing. The place, being the rowid, ends each of them.
//
// In words there are no positions (detail=none): we search for words, not
// phrases. The writer splits texts itself and joins the words with spaces.
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
CREATE VIRTUAL TABLE words USING fts5(
	text, content='', contentless_delete=1, detail=none,
	tokenize=ascii
);
INSERT INTO meta VALUES(1, 0), (2, -9223372036854775808);
`

// Keys of meta.
const (
	metaCursor  int64 = 1
	metaIndexed int64 = 2
)

// pragmas of the writer. In WAL mode, synchronous=NORMAL syncs only when the log
// is moved into the file: a power cut loses the last transactions, cursor and
// rows together, and never leaves a file that is wrong. OFF would save less than
// a microsecond a run and could. The log is kept to 8 MB and the cache to 1 MB;
// with a cache of 4 MB nothing is faster.
var pragmas = []string{
	"PRAGMA page_size=8192", // first, these need an empty file; larger pages leave less unused
	"PRAGMA auto_vacuum=INCREMENTAL",
	"PRAGMA journal_mode=WAL",
	"PRAGMA synchronous=NORMAL",
	"PRAGMA cache_size=-1024",
	"PRAGMA temp_store=MEMORY",
	"PRAGMA wal_autocheckpoint=1000",
	"PRAGMA journal_size_limit=16777216",
	"PRAGMA cell_size_check=ON",
	"PRAGMA trusted_schema=OFF",
}

// pragmas of a reader.
var readPragmas = []string{
	"PRAGMA query_only=ON",
	"PRAGMA cache_size=-1024",
	"PRAGMA temp_store=MEMORY",
	"PRAGMA cell_size_check=ON",
	"PRAGMA trusted_schema=OFF",
}

// create makes the tables of a new file, all or none.
func create(c *sqlite.Conn) error {
	script := fmt.Sprintf("PRAGMA application_id=%d; PRAGMA user_version=%d; %s", appID, version, schema)
	if err := sqlitex.ExecuteScript(c, script, nil); err != nil {
		return err
	}
	// The header says whose file it is; have it in the file, not in the log.
	return sqlitex.ExecuteTransient(c, "PRAGMA wal_checkpoint(TRUNCATE)", nil)
}

// The errors that a caller tells apart.
var (
	// ErrDamaged says that the file can't be read: close the view, delete the
	// file, and fill a new one.
	ErrDamaged = errors.New("the view is damaged")

	// ErrFull says that there is no room on the disk. Nothing was written; the
	// same call may succeed when there is room again, and reading goes on.
	ErrFull = errors.New("no room for the view")

	// ErrClosed says that the view was closed.
	ErrClosed = errors.New("the view is closed")

	// ErrCursor says that Filter.After is not from a page of the same filter.
	ErrCursor = errors.New("no such place in the list")
)

// wrap names the operation and sorts what SQLite reports into the errors above.
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
		// The latter is the file of shared memory that could not grow.
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	return fmt.Errorf("view: %s: %w", op, err)
}

// isDamage reports whether a code is about the content of the file. A short read
// is of one that was cut off.
func isDamage(code sqlite.ResultCode) bool {
	p := code.ToPrimary()
	return p == sqlite.ResultCorrupt || p == sqlite.ResultNotADB || p == sqlite.ResultFormat || code == sqlite.ResultIOErrShortRead
}

// prepare prepares a statement of ours. These have no mistakes, so an error that
// blames the statement means that the schema is not the one we wrote.
func prepare(c *sqlite.Conn, query string) (*sqlite.Stmt, error) {
	s, err := c.Prepare(query)
	if err != nil && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultError {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return s, err
}

// exec runs a statement whose rows do not matter. Its arguments are int64, string or []byte.
func exec(c *sqlite.Conn, query string, args ...any) error {
	s, err := prepare(c, query)
	if err != nil {
		return err
	}
	for i, arg := range args {
		switch arg := arg.(type) {
		case int64:
			s.BindInt64(i+1, arg)
		case string:
			s.BindText(i+1, arg)
		case []byte:
			s.BindBytes(i+1, arg)
		}
	}
	for row := true; row && err == nil; {
		row, err = s.Step()
	}
	if reset := s.Reset(); err == nil {
		err = reset
	}
	return err
}

func execAll(c *sqlite.Conn, queries []string) error {
	for _, q := range queries {
		if err := sqlitex.ExecuteTransient(c, q, nil); err != nil {
			return err
		}
	}
	return nil
}

// each calls f with every row of a query.
func each(c *sqlite.Conn, query string, f func(*sqlite.Stmt) error, args ...int64) error {
	s, err := prepare(c, query)
	if err != nil {
		return err
	}
	defer s.Reset() //nolint:errcheck // it repeats the error of Step
	for i, a := range args {
		s.BindInt64(i+1, a)
	}
	for {
		row, err := s.Step()
		if err != nil || !row {
			return err
		}
		if err := f(s); err != nil {
			return err
		}
	}
}

// queryInt returns the number that a query without parameters answers with.
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
