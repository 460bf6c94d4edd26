package adopt

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// opencodeSchema has the tables and columns of opencode 1.18 that are read.
const opencodeSchema = `
	CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text NOT NULL, version text NOT NULL, time_updated integer NOT NULL, time_archived integer);
	CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL, data text NOT NULL);`

// The last messages of a session of opencode 1.18.33, as it has recorded them.
const (
	opencodePrompt = `{"role":"user","time":{"created":1795130970569},"agent":"build","model":{"providerID":"fake","modelID":"m"}}`
	opencodeLimit  = `{"parentID":"msg_1","role":"assistant","mode":"build","path":{"cwd":"/src/shop","root":"/"},"cost":0,"modelID":"m","providerID":"fake",` +
		`"time":{"created":1795130976117,"completed":1795130979358},"error":{"name":"APIError","data":{"message":"Usage limit reached for 5 hour. Your limit will reset at 2026-11-20 00:27:40",` +
		`"statusCode":429,"isRetryable":true,"responseBody":"{}"}}}`
	opencodeOpen = `{"parentID":"msg_1","role":"assistant","mode":"build","path":{"cwd":"/src/shop","root":"/"},"cost":0,"modelID":"m","providerID":"fake","time":{"created":1795130928785}}`
	opencodeLog  = `timestamp=2026-11-19T23:28:50.000Z level=ERROR run=b1 message="stream error" session.id=ses_two error.error="AI_APICallError: Usage limit reached. Your limit will reset at 2026-11-29 00:27:40"
timestamp=2026-11-19T23:28:53.573Z level=INFO run=b1 message="llm runtime selected" llm.runtime=ai-sdk llm.provider=fake llm.model=m
timestamp=2026-11-19T23:28:53.591Z level=ERROR run=b1 message="stream error" providerID=fake modelID=m session.id=ses_one small=false error.error="AI_APICallError: Usage limit reached for \"5 hour\". Your limit will reset at 2026-11-20 00:27:40"
timestamp=2026-11-19T23:28:57.822Z level=INFO run=b1 message=stream providerID=fake modelID=m session.id=ses_one small=false
`
)

// opencodeHome is a home folder with a database, in which a process writes.
type opencodeHome struct {
	*home
	folder string
	conn   *sqlite.Conn
}

func newOpencodeHome(t *testing.T) *opencodeHome {
	t.Helper()
	h := &opencodeHome{home: newHome(t)}
	h.folder = filepath.Join(h.path, ".local", "share", "opencode")
	h.mkdir(h.folder)
	conn, err := sqlite.OpenConn(h.database(), sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	h.conn = conn
	t.Cleanup(func() { h.close() })
	h.exec("PRAGMA journal_mode = wal")
	if err := sqlitex.ExecuteScript(conn, opencodeSchema, nil); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *opencodeHome) database() string { return filepath.Join(h.folder, "opencode.db") }

func (h *opencodeHome) close() {
	if h.conn != nil {
		_ = h.conn.Close()
		h.conn = nil
	}
}

func (h *opencodeHome) exec(query string, args ...any) {
	h.Helper()
	if err := sqlitex.Execute(h.conn, query, &sqlitex.ExecOptions{Args: args}); err != nil {
		h.Fatal(err)
	}
}

// session adds a session with these messages.
func (h *opencodeHome) session(id, version string, messages ...string) {
	h.Helper()
	h.exec("INSERT INTO session VALUES (?, NULL, ?, ?, ?, NULL)", id, h.shop, version, now.UnixMilli())
	for i, m := range messages {
		h.message(id, i, m)
	}
}

func (h *opencodeHome) message(id string, i int, data string) {
	h.Helper()
	h.exec("INSERT INTO message VALUES (?, ?, ?, ?)", fmt.Sprint(id, i), id, i, data)
}

// files returns the content of all files in the folder.
func (h *opencodeHome) files() map[string][]byte {
	h.Helper()
	all := map[string][]byte{}
	entries, err := os.ReadDir(h.folder)
	if err != nil {
		h.Fatal(err)
	}
	for _, e := range entries {
		if all[e.Name()], err = os.ReadFile(filepath.Join(h.folder, e.Name())); err != nil {
			h.Fatal(err)
		}
	}
	return all
}

func TestASessionOfOpencodeIsFound(t *testing.T) {
	t.Parallel()
	h := newOpencodeHome(t)
	h.session("ses_one", "1.18.33", opencodePrompt, opencodeLimit)
	h.session("ses_two", "1.18.33", opencodePrompt)
	h.session("ses_bad;--", "1.18.33", opencodePrompt, opencodeLimit)
	h.exec("INSERT INTO session VALUES ('ses_child', 'ses_one', '/src/shop', '1.18.33', ?, NULL)", now.UnixMilli())
	h.message("ses_child", 0, opencodeLimit)
	want := time.Date(2026, 11, 20, 0, 27, 40, 0, time.Local) // it names no zone
	for _, running := range []bool{true, false} {             // with a write-ahead log, and without
		if !running {
			h.close()
		}
		before := h.files()
		s := h.only()
		if s.ID != "ses_one" || s.Dir != h.shop || !s.Reset.Equal(want) || s.LeftAlone != "" || strings.Join(s.Command, " ") != "opencode run --session ses_one Continue." {
			t.Errorf("running %v: %+v", running, s)
		}
		if again, err := h.reader().Check(s); err != nil || again.ID != s.ID || again.LeftAlone != "" {
			t.Errorf("checked again: %+v, %v", again, err)
		}
		after := h.files()
		for name, text := range before {
			shared := running && strings.HasSuffix(name, "-shm") // with the connection that writes, in the same process
			if !shared && !bytes.Equal(after[name], text) {
				t.Errorf("running %v: %s was changed", running, name)
			}
		}
		if len(after) != len(before) {
			t.Errorf("running %v: there are %d files, and there were %d", running, len(after), len(before))
		}
	}
	h.open = []process{{assistant: "opencode", args: []string{"opencode"}, dir: h.path}}
	if s := h.only(); !s.Open {
		t.Error("a process in the folder above may show the session")
	}
}

// opencode repeats a request that a limit has rejected. If it is killed meanwhile, its log has the
// limit.
func TestASessionOfOpencodeThatWasKilled(t *testing.T) {
	t.Parallel()
	h := newOpencodeHome(t)
	h.session("ses_one", "1.18.33", opencodePrompt, opencodeOpen)
	if found := h.find(); len(found.Sessions)+len(found.Problems) != 0 {
		t.Errorf("without a log: %+v", found)
	}
	log := filepath.Join(h.folder, "log", "opencode.log")
	h.write(log, opencodeLog)
	if s := h.only(); s.LeftAlone != "" || !s.Reset.Equal(time.Date(2026, 11, 20, 0, 27, 40, 0, time.Local)) {
		t.Errorf("%+v", s)
	}
	h.write(log, strings.ReplaceAll(opencodeLog, "2026-11-19", "2026-11-18"))
	if found := h.find(); len(found.Sessions) != 0 {
		t.Errorf("an error of an earlier answer: %+v", found)
	}
	h.write(log, opencodeLog+`timestamp=2026-11-19T23:29:00.000Z level=ERROR session.id=ses_one error.error="AI_APICallError: Connection refused"`+"\n")
	if found := h.find(); len(found.Sessions) != 0 {
		t.Errorf("another error: %+v", found)
	}
	h.write(log, opencodeLog)
	h.message("ses_one", 9, opencodePrompt)
	if found := h.find(); len(found.Sessions) != 0 {
		t.Errorf("a new prompt: %+v", found)
	}
}

func TestDatabasesOfOpencodeThatCantBeRead(t *testing.T) {
	t.Parallel()
	h := newOpencodeHome(t)
	h.session("ses_one", "2.0.0", opencodePrompt, opencodeLimit)
	found := h.find()
	if err := found.UnknownVersion(); err == nil || err.Error() != h.database()+": version 2.0.0 is unknown" {
		t.Errorf("the error is %v", err)
	}
	h.exec("DROP TABLE message")
	h.exec("UPDATE session SET version = '1.0.0'")
	if found := h.find(); len(found.Problems) != 1 || len(found.Sessions) != 0 {
		t.Errorf("another schema: %+v", found)
	}
	h.close()
	for _, size := range []int64{5000, 100, 1} {
		if err := os.Truncate(h.database(), size); err != nil {
			t.Fatal(err)
		}
		if found := h.find(); len(found.Problems) != 1 || len(found.Sessions) != 0 {
			t.Errorf("a database of %d bytes: %+v", size, found)
		}
	}
	if err := os.Rename(h.database(), h.database()+"x"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(h.database()+"x", h.database()); err != nil {
		t.Fatal(err)
	}
	if found := h.find(); len(found.Sessions) != 0 {
		t.Errorf("a link: %+v", found)
	}
}
