package adopt

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

const (
	// MaxAge is the age from which a record is not read. It is a day more than the longest limit
	// that a session waits for by default.
	MaxAge = 9 * 24 * time.Hour

	// maxRecords is the number of records of an assistant that are read, the newest ones.
	maxRecords = 500
)

// Session is a session that has stopped at a limit, as its record says.
type Session struct {
	Assistant string    `json:"assistant"` // the name of its command
	ID        string    `json:"id"`
	Dir       string    `json:"dir"` // its folder
	Record    string    `json:"record"`
	Limited   time.Time `json:"limited"`        // when it stopped at the limit
	Reset     time.Time `json:"reset,omitzero"` // the stated end of the limit; zero if none is stated
	Line      string    `json:"line"`           // the message of the limit

	// LeftAlone is why the session must not be adopted; "" if it may be.
	LeftAlone string `json:"left_alone,omitempty"`
	Open      bool   `json:"-"` // it is left alone only because a process may have it open

	Command []string `json:"command"` // resumes the session, in Dir
	Resume  []string `json:"-"`       // the same with {{.Session}} in place of the id
	Pack    string   `json:"-"`       // of detection rules
	Env     []string `json:"-"`       // NAME=VALUE: tells the assistant where its records are, if they are not at the default place
}

// Problem is a record that was not understood.
type Problem struct {
	Assistant string `json:"assistant"`
	Record    string `json:"record"`
	Problem   string `json:"problem"`
	Unknown   bool   `json:"unknown_version,omitempty"` // the record has an unknown version
}

// Found is the result of [Reader.Find].
type Found struct {
	Sessions []Session `json:"sessions"` // the one that stopped last comes first
	Problems []Problem `json:"problems,omitempty"`
	NotRead  int       `json:"not_read,omitempty"` // older records, which were not read because there are too many
}

// UnknownVersion returns an error that names all records of an unknown version; nil if there are none.
func (f *Found) UnknownVersion() error {
	var errs []error
	for _, p := range f.Problems {
		if p.Unknown {
			errs = append(errs, fmt.Errorf("%s: %s", p.Record, p.Problem))
		}
	}
	return errors.Join(errs...)
}

// Reader finds sessions in the records of assistants.
type Reader struct {
	Env  func(name string) string // nil means os.Getenv
	Home string                   // "" means the home folder of the user

	// processes returns the running processes of assistants; nil means those of this machine. Tests
	// replace it.
	processes func() ([]process, error)
}

// assistant reads the records of one assistant. Methods with a record as an argument read only
// this record.
type assistant interface {
	// place returns the folder or the file with the records, and the variable that sets it; "" for
	// the default place.
	place(home string, env func(string) string) (path, variable string)

	// find returns the newest records in the place, and how many others there are. The place exists.
	find(place string, since time.Time) (list []record, more int, err error)

	// read reads the end of a record. It returns errNoSession for a record without a conversation.
	read(place string, r record) (ending, error)

	// resume returns the command that continues a session without a terminal.
	resume(e *ending, id string) []string
}

// record is a place in which an assistant has stored a session.
type record struct {
	path    string // relative to the place of the records; "" for the place itself
	id      string // of the session
	changed time.Time
}

// ending is what the end of a record says.
type ending struct {
	id, dir string
	version string    // of the assistant that has written the record
	message string    // the last error message of the assistant; "" if there is none
	at      time.Time // of the message
	after   string    // what follows the message; "" if nothing does
	flags   []string  // for the command that resumes it
}

// kind describes an assistant.
type kind struct {
	name, pack string
	assistant
}

// kinds are the assistants whose records can be read.
var kinds = []kind{{"claude", "claude-code", claude{}}, {"codex", "codex", codex{}}, {"opencode", "opencode", opencode{}}}

// Assistants returns the names of the assistants whose records can be read.
func Assistants() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// errNoSession means that a record contains no session that can be resumed.
var errNoSession = errors.New("it contains no session")

// versionError means that a record was written by an unknown version.
type versionError string

func (e versionError) Error() string {
	if e == "" {
		return "it names no version"
	}
	return fmt.Sprintf("version %s is unknown", textfmt.TruncateValid(string(e), 100, "…"))
}

// Find returns the sessions of the named assistants that stopped at a limit; no names mean all. It
// reads the newest records first, and only a limited number of them.
func (r *Reader) Find(now time.Time, names ...string) (found Found, err error) {
	open, err := r.running()
	if err != nil {
		return found, fmt.Errorf("listing the running processes: %w", err)
	}
	found.Sessions = []Session{}
	for _, k := range kinds {
		if len(names) > 0 && !slices.Contains(names, k.name) {
			continue
		}
		if err := r.findIn(k, now, open, &found); err != nil {
			found.Problems = append(found.Problems, Problem{Assistant: k.name, Record: r.place(k).path, Problem: err.Error(), Unknown: isVersion(err)})
		}
	}
	slices.SortStableFunc(found.Sessions, func(a, b Session) int { return cmp.Or(b.Limited.Compare(a.Limited), cmp.Compare(a.ID, b.ID)) })
	return found, nil
}

// Check reads the record of a session again, and returns it as it is now.
func (r *Reader) Check(s Session) (Session, error) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == s.Assistant })
	if i < 0 {
		return s, fmt.Errorf("%q is not an assistant whose records can be read", s.Assistant)
	}
	open, err := r.running()
	if err != nil {
		return s, fmt.Errorf("listing the running processes: %w", err)
	}
	place := r.place(kinds[i])
	rel, err := filepath.Rel(place.path, s.Record)
	if err != nil {
		return s, err
	}
	if rel == "." {
		rel = ""
	}
	now, ok, err := r.session(kinds[i], place, record{path: rel, id: s.ID}, open)
	if err == nil && !ok {
		s.LeftAlone = goneOn
		return s, nil
	}
	return now, err
}

func (r *Reader) running() ([]process, error) {
	if r.processes != nil {
		return r.processes()
	}
	return processes()
}

// location is where the records of an assistant are.
type location struct {
	path string
	env  []string
}

func (r *Reader) place(k kind) (l location) {
	env, home := r.Env, r.Home
	if env == nil {
		env = os.Getenv
	}
	if home == "" {
		home, _ = os.UserHomeDir() // without one, no place exists
	}
	path, variable := k.place(home, env)
	if variable != "" {
		l.env = []string{variable + "=" + env(variable)}
	}
	// The user may have moved a whole folder; links inside are not followed.
	if real, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(real, filepath.Base(path))
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path, _ = filepath.EvalSymlinks(path) // it exists
	}
	l.path = path
	return l
}

// findIn adds the sessions of one assistant.
func (r *Reader) findIn(k kind, now time.Time, open []process, found *Found) error {
	place := r.place(k)
	if !filepath.IsAbs(place.path) {
		return nil
	}
	list, more, err := k.find(place.path, now.Add(-MaxAge))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the assistant has no records
	}
	found.NotRead += more
	for _, rec := range list {
		s, ok, err := r.session(k, place, rec, open)
		switch {
		case errors.Is(err, errNoSession) || errors.Is(err, fs.ErrNotExist):
		case err != nil:
			found.Problems = append(found.Problems, Problem{Assistant: k.name, Record: filepath.Join(place.path, rec.path), Problem: err.Error(), Unknown: isVersion(err)})
		case ok:
			found.Sessions = append(found.Sessions, s)
		}
	}
	return err
}

func isVersion(err error) bool {
	_, ok := errors.AsType[versionError](err)
	return ok
}

// session reads a record. ok is false if the session has not stopped at a limit.
func (r *Reader) session(k kind, place location, rec record, open []process) (s Session, ok bool, err error) {
	e, err := k.read(place.path, rec)
	if err != nil {
		return s, false, err
	}
	s = Session{
		Assistant: k.name, ID: e.id, Dir: e.dir, Record: filepath.Join(place.path, rec.path), Limited: e.at, Pack: k.pack, Env: place.env,
		Command: k.resume(&e, e.id), Resume: k.resume(&e, "{{.Session}}"),
	}
	ok, err = s.judge(&e, open)
	return s, ok, err
}
