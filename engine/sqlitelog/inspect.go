package sqlitelog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/sqlitefile"
	"github.com/tideover/tideover/engine/journal"
)

// The log never ends before what was acknowledged. inspect checks that before SQLite opens the folder,
// because SQLite writes over the damaged part of a write-ahead log, and with it over the evidence.

// state is what the files of a folder say about its log.
type state struct {
	tables      bool // there is a log
	identity    uint64
	epoch       uint64
	owned       uint64 // epoch of the last owner that has registered its blobs; 0 if there was none
	first, last uint64 // numbers of the first and last entry
	copied      bool   // no other file shows that the log was open in this folder: a backup has made it

	// loss says what is missing; nil if nothing is.
	loss *journal.LossError

	// expected says that a power failure explains the loss, because the durability was OS.
	expected bool
}

// inspect reads the files of a folder, and compares the end of the log with them. It fails if the log
// must not be opened. It changes nothing.
func inspect(dir string, c Config) (s state, err error) {
	path := filepath.Join(dir, "log.db")
	blobs, _ := filepath.Glob(filepath.Join(dir, "blobs", "[^.]*")) // fails only for a wrong pattern
	size, err := fileSize(path)
	if err != nil {
		return s, err
	}
	if size <= 0 {
		why := "it is empty"
		if size < 0 {
			why = "it is missing"
		}
		return s, refuseNew(path, why, tracesOfLog(dir, len(blobs)))
	}
	f, err := sqlitefile.Open(path)
	if err != nil {
		return s, describe(path, err)
	}
	defer f.Close()
	if err := s.read(f, path); err != nil {
		return s, describe(path, err)
	}
	if !s.tables {
		return s, refuseNew(path, "it has no tables", tracesOfLog(dir, len(blobs)))
	}
	s.compare(dir, f, blobs, c.Durability)
	switch {
	case s.loss == nil && c.CheckEntry != nil:
		err = s.checkEntries(f, blobs, c.CheckEntry)
	case s.loss != nil && !s.expected && !(c.AcceptLoss && s.loss.Acceptable):
		return s, s.loss
	}
	return s, describe(path, err)
}

// checkEntries reads the entries after the last snapshot that is what was stored.
func (s *state) checkEntries(f *sqlitefile.File, blobs []string, check func([]byte) error) error {
	records, err := readRecords(f)
	if err != nil {
		return err
	}
	next := s.first
	for _, path := range slices.Backward(blobs) { // in the order of their names
		name := filepath.Base(path)
		r, ok := records[name]
		if !strings.HasPrefix(name, "snapshot-") || !ok && s.owned == s.epoch || ok && r.verify(path) != nil {
			continue
		}
		next = max(next, entryOf(name)+1)
		break
	}
	err = f.Rows("log", int64(next), func(seq int64, row []sqlitefile.Value) error {
		if uint64(seq) != next || len(row) < 4 {
			return fmt.Errorf("%w: entry %d is missing", sqlitefile.ErrDamaged, next)
		}
		if err := check(row[3].Bytes); err != nil {
			return fmt.Errorf("%w: entry %d: %w", sqlitefile.ErrDamaged, seq, err)
		}
		next++
		return nil
	})
	if err == nil && next <= s.last {
		err = fmt.Errorf("%w: entry %d is missing", sqlitefile.ErrDamaged, next)
	}
	return err
}

// read reads the identity, the epoch and the bounds of the log.
func (s *state) read(f *sqlitefile.File, path string) error {
	application, version, err := f.Header()
	if err != nil {
		return err
	}
	tables, err := f.Tables()
	if err != nil {
		return err
	}
	if application == 0 && version == 0 && len(tables) == 0 {
		return nil // a process was killed while it created the tables
	}
	if err := checkSchema(path, application, version, tables); err != nil {
		return err
	}
	if err := s.readMeta(f, path); err != nil {
		return err
	}
	err = f.Rows("folder", 0, func(_ int64, row []sqlitefile.Value) error {
		if len(row) >= 3 {
			s.identity, s.owned = uint64(row[1].Int), uint64(row[2].Int)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.readBounds(f, path)
}

// checkSchema returns an error if a database is not a log, or one of another version.
func checkSchema(path string, application, version uint32, tables map[string]sqlitefile.Table) error {
	switch {
	case application != applicationID:
		return fmt.Errorf("%w: %s is a database of another program (application id %#x)", ErrForeign, path, application)
	case version > format:
		return fmt.Errorf("%w: %s has format %d, this tideover knows formats up to %d; use the newer tideover",
			journal.ErrNewer, path, version, format)
	case version < format:
		return damaged(path, fmt.Errorf("format %d never existed", version))
	case tables["meta"].Root == 0 || tables["log"].Root == 0:
		return damaged(path, errors.New("a table is missing"))
	}
	for name, t := range tables {
		if want, known := statements[name]; known && t.SQL != want {
			return damaged(path, fmt.Errorf("the table %s was created by %q, not by %q", name, t.SQL, want))
		}
	}
	return nil
}

func (s *state) readMeta(f *sqlitefile.File, path string) error {
	err := f.Rows("meta", 0, func(_ int64, row []sqlitefile.Value) error {
		if len(row) < 3 {
			return damaged(path, errors.New("the table meta has too few columns"))
		}
		s.tables, s.epoch, s.first = true, uint64(row[1].Int), uint64(row[2].Int)
		return nil
	})
	if err == nil && !s.tables {
		err = damaged(path, errors.New("the table meta is empty"))
	}
	return err
}

func (s *state) readBounds(f *sqlitefile.File, path string) error {
	lowest, last, ok, err := f.Ends("log")
	switch {
	case err != nil:
		return err
	case !ok:
		s.last = s.first - 1
	case uint64(lowest) != s.first:
		return damaged(path, fmt.Errorf("the first entry is %d, not %d", lowest, s.first))
	default:
		s.last = uint64(last)
	}
	return nil
}

// claim is an entry that was acknowledged according to a file.
type claim struct {
	seq   uint64
	shown string // the file
	until time.Time
	lazy  bool // with the durability OS, a power failure may lose the entry but not the file
}

// compare sets loss if the log ends before an entry that another file of the folder shows.
func (s *state) compare(dir string, f *sqlitefile.File, blobs []string, d Durability) {
	o := readOthers(dir)
	marked, err := fileSize(filepath.Join(dir, markerName))
	s.copied = !o.witnessed && o.viewLog == 0 && o.viewLast == 0 && marked < 0 && err == nil
	loss := journal.Loss{Log: filepath.Join(dir, "log.db")}
	if o.witnessed && !s.isOurs(o.seen.log) && (o.viewLog == 0 || !s.isOurs(o.viewLog)) {
		loss.Shown = witnessName
		s.lose(dir, loss, blobs)
		return
	}
	most := s.latestClaim(o, f, blobs)
	if most.seq <= s.last {
		return
	}
	loss.From, loss.To, loss.Shown, loss.Until = s.last+1, most.seq, most.shown, most.until
	s.expected = most.lazy && (o.witnessed && o.seen.lazy && o.rebooted || !o.witnessed && d == OS)
	s.lose(dir, loss, blobs)
}

// others is what other files of the folder show.
type others struct {
	seen              acknowledged
	witnessed         bool // seen is valid
	rebooted          bool // since seen was written
	viewLog, viewLast uint64
}

func readOthers(dir string) (o others) {
	o.seen, o.witnessed = readWitness(dir)
	o.viewLog, o.viewLast = readView(filepath.Join(dir, "view.db"))
	o.rebooted = o.seen.boot == [16]byte{} || o.seen.boot != bootHash()
	return o
}

// isOurs reports whether a file that has this identity belongs to the log, as far as that is known.
func (s *state) isOurs(identity uint64) bool {
	return identity == 0 || s.identity == 0 || identity == s.identity
}

// latestClaim returns the last entry that was acknowledged according to the other files.
func (s *state) latestClaim(o others, f *sqlitefile.File, blobs []string) (most claim) {
	add := func(c claim) {
		if c.seq > most.seq {
			most = c
		}
	}
	witnessed := o.witnessed && s.isOurs(o.seen.log)
	if witnessed {
		add(claim{seq: o.seen.last, shown: witnessName, until: o.seen.until, lazy: true})
	}
	// In the boot in which it was written, log.last is exact. A view that shows a later entry is damaged then.
	if exact := witnessed && !o.rebooted; s.isOurs(o.viewLog) && !exact {
		add(claim{seq: o.viewLast, shown: "view.db", lazy: true})
	}
	if last := beyond(f); last > s.last+1 { // the last entry in the frames may not be acknowledged
		add(claim{seq: last - 1, shown: "log.db-wal behind a damaged frame", lazy: true})
	}
	for _, path := range blobs {
		add(claim{seq: entryOf(filepath.Base(path)), shown: "blobs/" + filepath.Base(path)})
	}
	return most
}

// lose sets loss. The log can be opened in spite of it if it begins with its first entry, or if a
// snapshot leads up to its first entry.
func (s *state) lose(dir string, loss journal.Loss, blobs []string) {
	s.loss = &journal.LossError{
		Loss: loss, Acceptable: s.first == 1,
		Restore: fmt.Sprintf("restore a backup, which replaces the whole folder %s", dir),
	}
	for _, path := range blobs {
		name := filepath.Base(path)
		if n := entryOf(name); loss.To != 0 && strings.HasPrefix(name, "snapshot-") && n+1 >= s.first && n <= s.last {
			s.loss.Acceptable = true
		}
	}
}

// entryOf returns the number of the entry in the name of a blob, up to which the blob has the effects of
// entries; 0 if it has none.
func entryOf(name string) uint64 {
	_, rest, _ := strings.Cut(name, "-")
	digits, _, _ := strings.Cut(rest, "-")
	if len(digits) != 20 {
		return 0
	}
	n, _ := strconv.ParseUint(digits, 10, 64)
	return n
}

// beyond returns the last entry that is in the write-ahead log behind a damaged frame; 0 if there is
// none.
func beyond(f *sqlitefile.File) uint64 {
	other := f.BeyondDamage()
	if other == nil {
		return 0
	}
	_, last, _, err := other.Ends("log")
	if err != nil {
		return 0
	}
	return uint64(last)
}

// The keys in the table meta of a view: the number of the last entry that the view includes, and the
// identity of the log.
const (
	viewCursor   = 1
	viewIdentity = 6
)

// readView returns the identity of the log that a view belongs to, and the last entry that it includes;
// 0 if they are not known. The engine builds a damaged view anew.
func readView(path string) (identity, last uint64) {
	if n, err := fileSize(path); err != nil || n <= 0 {
		return 0, 0
	}
	f, err := sqlitefile.Open(path)
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	err = f.Rows("meta", 0, func(key int64, row []sqlitefile.Value) error {
		switch {
		case len(row) < 2:
		case key == viewCursor:
			last = uint64(row[1].Int)
		case key == viewIdentity:
			identity = uint64(row[1].Int)
		}
		return nil
	})
	if err != nil {
		return 0, 0
	}
	return identity, last
}

// setAside moves the blobs that have the effects of lost entries out of the way: later entries get the
// same numbers.
func (s *state) setAside(dir string) error {
	blobs, _ := filepath.Glob(filepath.Join(dir, "blobs", "[^.]*")) // as above
	aside := filepath.Join(dir, "lost")
	for _, path := range blobs {
		if s.loss.To != 0 && entryOf(filepath.Base(path)) <= s.last {
			continue
		}
		if err := makeDir(aside); err != nil {
			return err
		}
		if err := os.Rename(path, filepath.Join(aside, filepath.Base(path))); err != nil {
			return err
		}
	}
	return nil
}
