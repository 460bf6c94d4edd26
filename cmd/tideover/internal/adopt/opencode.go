package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/internal/lazyregexp"
)

// opencode reads the records of opencode: the database opencode.db in its data folder, and the log
// beside it.
type opencode struct{}

// opencodeID matches the id of a session.
var opencodeID = lazyregexp.New(`^ses_[A-Za-z0-9]{1,60}$`)

func (opencode) place(home string, env func(string) string) (path, variable string) {
	if dir := env("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "opencode", "opencode.db"), "XDG_DATA_HOME"
	}
	return filepath.Join(home, ".local", "share", "opencode", "opencode.db"), ""
}

// openDatabase opens a database for reading. Nothing is written, not even the shared memory beside
// it: without a write-ahead log the database is opened as one that never changes.
func openDatabase(path string) (*sqlite.Conn, error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	if err := fileaccess.Check(path, info, fileaccess.Others); err != nil {
		return nil, err
	}
	query := "mode=ro&immutable=1"
	if wal, err := os.Lstat(path + "-wal"); err == nil && wal.Size() > 0 {
		query = "mode=ro&readonly_shm=1"
	}
	uri := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: query}
	return sqlite.OpenConn(uri.String(), sqlite.OpenReadOnly, sqlite.OpenURI)
}

// rows calls yield with the rows of a query.
func rows(place, query string, yield func(s *sqlite.Stmt) error, args ...any) (err error) {
	conn, err := openDatabase(place)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn.SetInterrupt(ctx.Done())
	return sqlitex.Execute(conn, query, &sqlitex.ExecOptions{Args: args, ResultFunc: yield})
}

func (opencode) find(place string, since time.Time) (list []record, more int, err error) {
	n := &newest{since: since}
	err = rows(place, "SELECT id, time_updated FROM session WHERE parent_id IS NULL AND time_archived IS NULL AND time_updated >= ?", func(s *sqlite.Stmt) error {
		if id := s.ColumnText(0); opencodeID.MatchString(id) {
			n.add(record{id: id, changed: time.UnixMilli(s.ColumnInt64(1))})
		}
		return nil
	}, since.UnixMilli())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	return n.sorted(), n.more, err
}

// opencodeMessage is a message of a session.
type opencodeMessage struct {
	Role string `json:"role"`
	Time struct {
		Created   int64 `json:"created"` // in milliseconds
		Completed int64 `json:"completed"`
	} `json:"time"`
	Error *struct {
		Data struct {
			Message string `json:"message"`
		} `json:"data"`
	} `json:"error"`
}

func (opencode) read(place string, r record) (e ending, err error) {
	e.id = r.id
	err = rows(place, "SELECT directory, version FROM session WHERE id = ?", func(s *sqlite.Stmt) error {
		e.dir, e.version = s.ColumnText(0), s.ColumnText(1)
		return nil
	}, r.id)
	switch {
	case err != nil:
		return e, err
	case e.version == "" && e.dir == "":
		return e, errNoSession
	case !strings.HasPrefix(e.version, "1."):
		return e, versionError(e.version)
	}
	const last = "SELECT data FROM message WHERE session_id = ? AND length(data) < 1000000 ORDER BY time_created DESC, id DESC LIMIT 1"
	err = rows(place, last, func(s *sqlite.Stmt) error {
		var m opencodeMessage
		if err := json.Unmarshal([]byte(s.ColumnText(0)), &m); err != nil {
			return err
		}
		switch {
		case m.Role != "assistant":
		case m.Error != nil:
			e.fail(m.Error.Data.Message, time.UnixMilli(max(m.Time.Created, m.Time.Completed)))
		case m.Time.Completed == 0:
			return e.readLog(place, time.UnixMilli(m.Time.Created))
		}
		return nil
	}, r.id)
	return e, err
}

// logFields parses a line of the log: fields of the form name=value or name="value".
func logFields(line string) map[string]string {
	fields := map[string]string{}
	for line != "" {
		name, rest, _ := strings.Cut(line, "=")
		value, after, _ := strings.Cut(rest, " ")
		if quoted, err := strconv.QuotedPrefix(rest); err == nil {
			value, _ = strconv.Unquote(quoted) // it is well-formed
			after = rest[len(quoted):]
		}
		fields[strings.TrimLeft(name, " ")] = value
		line = after
	}
	return fields
}

// readLog reads the last error of the session from the log. opencode repeats a request that was
// rejected because of a limit, and stores nothing about it in the database: if it ends meanwhile,
// only its log says why the last answer, which was begun at a time, is missing.
func (e *ending) readLog(place string, begun time.Time) error {
	t, err := readText(filepath.Dir(place), record{path: "log/opencode.log"})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil && !errors.Is(err, errCut) {
		return fmt.Errorf("log/opencode.log: %w", err)
	}
	for _, line := range t.lines {
		fields := logFields(string(line))
		at, err := time.Parse(time.RFC3339, fields["timestamp"])
		if fields["session.id"] != e.id || err != nil || at.Before(begun.Truncate(time.Second)) {
			continue
		}
		_, message, _ := strings.Cut(fields["error.error"], ": ") // after the name of the error
		switch {
		case fields["level"] == "ERROR" && message != "":
			e.fail(message, at)
		case fields["level"] == "ERROR":
			e.message = ""
		}
	}
	return nil
}

func (opencode) resume(_ *ending, id string) []string {
	return []string{"opencode", "run", "--session", id, "Continue."}
}
