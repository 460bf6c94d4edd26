package output

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/cmd/tideover/internal/lockfile"
)

// Defaults of [Config], and the least Limit.
const (
	DefaultLimit     = 1 << 30
	DefaultRetention = 14 * 24 * time.Hour
	MinLimit         = 1 << 20
)

const (
	maxSegment = 16 << 20 // size at which the store begins a new segment
	minSegment = 64 << 10
	parts      = 64 // segments of a store that is full
	periods    = 16 // segments of a store with few outputs
	knownLost  = 256
)

// Config configures a [Store].
type Config struct {
	Dir       string        // only one process may use it; created at the first use, for this user only
	Limit     int64         // most bytes of all files together; 0 means DefaultLimit
	Retention time.Duration // outputs are removed when they are older, at most 1/16 later; 0 means DefaultRetention
	Logger    *slog.Logger  // logs when writing begins to fail and when it works again; nil means slog.Default
}

// Store stores outputs in a folder. It is safe for concurrent use.
type Store struct {
	cfg    Config
	write  func(f *os.File, p []byte, at int64) (int, error) // tests replace it
	mu     sync.Mutex
	loaded bool
	list   []*segment // oldest first
	active *os.File   // file of the last segment; nil means that the next record begins a segment
	next   int        // number of the next segment

	problem error // the last write failed
	failed  int   // outputs that were not stored since writing began to fail
	lost    []lostOutput
}

// lostOutput is an output that could not be stored.
type lostOutput struct {
	attempt Attempt
	why     error
}

// New returns a store. It reads the folder at the first use.
func New(cfg Config) *Store {
	cfg.Limit, cfg.Retention = cmp.Or(cfg.Limit, DefaultLimit), cmp.Or(cfg.Retention, DefaultRetention)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Store{cfg: cfg, write: (*os.File).WriteAt}
}

// segmentSize returns the size at which a segment is full.
func (c *Config) segmentSize() int64 { return min(max(c.Limit/parts, minSegment), maxSegment) }

// Run removes old outputs until the context ends, also if no new ones are stored.
func (s *Store) Run(ctx context.Context) {
	every := min(max(s.cfg.Retention/(2*periods), time.Second), time.Hour)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		s.mu.Lock()
		if err := s.tidy(time.Now()); err != nil {
			s.report(err) // nil does not say that a write would succeed
		}
		s.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// tidy removes old segments, and writes the index files that could not be written before.
func (s *Store) tidy(now time.Time) error {
	if err := s.load(); err != nil {
		return err
	}
	err := s.expire(now)
	for i, seg := range s.list {
		if seg.entries != nil && (i < len(s.list)-1 || s.active == nil) {
			err = errors.Join(err, seg.seal())
		}
	}
	return err
}

// Close closes the files. The store can still be used: it opens them again.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.release()
}

// release closes the file of the last segment.
func (s *Store) release() error {
	if s.active == nil {
		return nil
	}
	f := s.active
	s.active = nil
	return f.Close()
}

// load reads the folder, unless it was read before.
func (s *Store) load() error {
	if s.loaded {
		return nil
	}
	if err := cmp.Or(os.MkdirAll(s.cfg.Dir, 0o700), fileaccess.CheckFolder(s.cfg.Dir)); err != nil {
		return err
	}
	list, err := listSegments(s.cfg.Dir)
	if err != nil {
		return err
	}
	s.list = nil
	for _, seg := range list {
		s.next = seg.number + 1
		err := seg.open()
		if errors.Is(err, errNoSegment) || err == nil && seg.count == 0 {
			err = cmp.Or(seg.remove(), errNoSegment)
		}
		switch {
		case errors.Is(err, errNoSegment):
			continue
		case err != nil:
			return err
		}
		s.list = append(s.list, seg)
	}
	s.loaded = true
	s.resume()
	s.removeOrphans()
	return errors.Join(s.expire(time.Now()), s.makeRoom(0))
}

// resume prepares the segments that have no index file: the last one gets further records, and the
// others get an index file.
func (s *Store) resume() {
	for i, seg := range s.list {
		if seg.entries == nil {
			continue
		}
		if i < len(s.list)-1 {
			_ = seg.seal() // on an error, the index stays in memory
			continue
		}
		f, err := os.OpenFile(seg.path+segmentExt, os.O_RDWR|lockfile.NoFollow, 0)
		if err != nil {
			continue // the next record begins a new segment
		}
		if err := f.Truncate(seg.size); err != nil { // removes an incomplete record
			_ = f.Close()
			continue
		}
		s.active = f
	}
}

// removeOrphans removes index files without a segment, which a crash may leave.
func (s *Store) removeOrphans() {
	names, _ := filepath.Glob(filepath.Join(s.cfg.Dir, "*"+indexExt)) // the pattern is valid
	for _, name := range names {
		if _, err := os.Lstat(strings.TrimSuffix(name, indexExt) + segmentExt); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(name) // a file that stays is small
		}
	}
}

// Append stores the output of an attempt. It does not sync the file. If it returns an error, the
// output is not stored; [Store.Problem] returns the error until a write succeeds.
func (s *Store) Append(r *Record) error {
	data, err := r.encode([markSize]byte{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.append(r, data)
	}
	if s.report(err); err != nil {
		s.failed++
		s.lost = append(s.lost[max(0, len(s.lost)+1-knownLost):], lostOutput{r.Attempt, err})
		return fmt.Errorf("the output of attempt %d of step %s was not stored: %w", r.Number, r.Step, err)
	}
	s.failed = 0
	return nil
}

// report logs when writing begins to fail, and when it works again.
func (s *Store) report(err error) {
	switch {
	case err != nil && s.problem == nil:
		s.cfg.Logger.Warn("outputs of attempts can't be stored", "folder", s.cfg.Dir, "error", err)
	case err == nil && s.problem != nil:
		s.cfg.Logger.Info("outputs of attempts can be stored again", "folder", s.cfg.Dir, "not_stored", s.failed)
	}
	s.problem = err
}

// append writes a record. data is the record as it is stored, without the mark.
func (s *Store) append(r *Record, data []byte) error {
	if err := s.load(); err != nil {
		return err
	}
	now := time.Now()
	if err := s.expire(now); err != nil {
		return err
	}
	need := int64(len(data) + entrySize)
	if need+int64(segmentHead+indexHead) > s.cfg.Limit {
		return fmt.Errorf("it has %d bytes, more than all outputs together may have", len(data))
	}
	if err := s.ready(need, now); err != nil {
		return err
	}
	if err := s.makeRoom(need); err != nil {
		return err
	}
	if s.active == nil { // makeRoom has removed the only segment
		if err := s.begin(); err != nil {
			return err
		}
	}
	seg := s.list[len(s.list)-1]
	copy(data, seg.mark[:])
	if n, err := s.write(s.active, data, seg.size); err != nil {
		if n > 0 && s.active.Truncate(seg.size) != nil {
			_ = s.finish() // the rest of the record stays, and is skipped
		}
		return err
	}
	seg.add(r.Run, seg.size, seg.size+int64(len(data)), r.Ended)
	return nil
}

// ready begins a new segment if there is none, or if the last one is full, old or was removed by
// another program.
func (s *Store) ready(need int64, now time.Time) error {
	if s.active != nil {
		seg := s.list[len(s.list)-1]
		if !seg.isFile(s.active) {
			_ = s.release()
			s.list = s.list[:len(s.list)-1]
		} else if seg.count > 0 && (seg.disk()+need > s.cfg.segmentSize() || now.Sub(seg.begun) > s.cfg.Retention/periods) {
			_ = s.finish()
		}
	}
	if s.active != nil {
		return nil
	}
	if err := s.makeRoom(need + int64(segmentHead+indexHead)); err != nil {
		return err
	}
	return s.begin()
}

// begin begins a new segment.
func (s *Store) begin() error {
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return err
	}
	seg, f, err := create(s.cfg.Dir, s.next)
	if err != nil {
		return err
	}
	s.next++
	seg.entries = []entry{}
	s.list, s.active = append(s.list, seg), f
	return nil
}

// finish ends the last segment.
func (s *Store) finish() error {
	seg := s.list[len(s.list)-1]
	return errors.Join(s.release(), seg.seal())
}

// expire removes the segments whose outputs are all too old. It also removes a segment without
// outputs that gets none any more, because the first write to it failed.
func (s *Store) expire(now time.Time) error {
	for len(s.list) > 0 {
		seg := s.list[0]
		if seg.count == 0 && len(s.list) == 1 && s.active != nil || seg.count > 0 && now.Sub(seg.last) <= s.cfg.Retention {
			return nil
		}
		if err := s.removeOldest(); err != nil {
			return err
		}
	}
	return nil
}

// makeRoom removes the oldest segments until there is room for some more bytes.
func (s *Store) makeRoom(need int64) error {
	for len(s.list) > 0 && diskSize(s.list)+need > s.cfg.Limit {
		if err := s.removeOldest(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) removeOldest() error {
	if len(s.list) == 1 {
		_ = s.release()
	}
	if err := s.list[0].remove(); err != nil {
		return err
	}
	s.list = slices.Delete(s.list, 0, 1)
	return nil
}

// diskSize returns the bytes of all files of segments.
func diskSize(list []*segment) (n int64) {
	for _, seg := range list {
		n += seg.disk()
	}
	return n
}

// Usage describes what a store has.
type Usage struct {
	Bytes   int64 // of all files
	Records int
	Oldest  time.Time // end of the oldest attempt; zero without records
}

// Usage returns what the store has.
func (s *Store) Usage() (u Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seg := range s.list {
		if u.Records == 0 {
			u.Oldest = seg.begun
		}
		u.Records += seg.count
	}
	u.Bytes = diskSize(s.list)
	return u
}

// Problem returns why outputs are not stored at the moment, and how many were not stored since then;
// nil if the last write succeeded.
func (s *Store) Problem() (failed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed, s.problem
}

// ErrNotStored means that the store has no output of an attempt.
var ErrNotStored = errors.New("no output of the attempt is stored")

// Get returns the output of an attempt. If several match, it is the one that was stored last: see
// [Attempt.Matches]. If there is none, the error matches [ErrNotStored]; if it
// could not be written, the error says why.
func (s *Store) Get(a Attempt) (*Record, error) {
	r, err := s.newest(a.Run, -1, func(r *Record) bool { return r.Matches(a) })
	if r != nil || err != nil {
		return r, err
	}
	if why := s.Lost(a); why != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotStored, why)
	}
	return nil, ErrNotStored
}

// newest returns the last stored record of a run that matches; nil if there is none.
func (s *Store) newest(run string, most int, matches func(*Record) bool) (*Record, error) {
	var found *Record
	err := s.each(run, func(read func(most int) (*Record, error)) error {
		r, err := read(0)
		if err != nil || !matches(r) {
			return nil // a damaged record
		}
		if r, err = read(most); err == nil {
			found = r
		}
		return nil
	})
	return found, err
}

// Ends returns the outputs of a run in the order in which they were stored, with the last bytes of
// each stream, at most that many, as [Stream.Tail]. An attempt that was stored twice is returned twice.
func (s *Store) Ends(run string, most int) (list []*Record, err error) {
	err = s.each(run, func(read func(most int) (*Record, error)) error {
		if r, err := read(most); err == nil { // otherwise a damaged record
			list = append(list, r)
		}
		return nil
	})
	return list, err
}

// Lost returns why the output of an attempt could not be stored; nil if that is not known. The store
// knows the last 256 of them since it was opened.
func (s *Store) Lost(a Attempt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range slices.Backward(s.lost) {
		if l.attempt.Matches(a) {
			return l.why
		}
	}
	return nil
}

// each calls visit for each record of a run, oldest first, with a function that reads the record.
func (s *Store) each(run string, visit func(read func(most int) (*Record, error)) error) error {
	s.mu.Lock()
	if err := s.load(); err != nil {
		s.mu.Unlock()
		return err
	}
	list := make([]segment, len(s.list))
	for i, seg := range s.list {
		list[i] = *seg // entries are only appended, never changed
	}
	s.mu.Unlock()
	for i := range list {
		offsets, err := s.offsets(&list[i], run)
		if err == nil && len(offsets) > 0 {
			err = list[i].visit(offsets, run, visit)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return err
		}
	}
	return nil
}

// offsets returns the offsets of the records of a run. If the index file is damaged or missing, it
// writes the file again.
func (s *Store) offsets(seg *segment, run string) ([]uint32, error) {
	list, err := seg.offsets(hashOf(run))
	if err == nil && (seg.entries != nil || seg.checked) {
		return list, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.list, func(own *segment) bool { return own.number == seg.number })
	if i < 0 {
		return nil, fs.ErrNotExist // removed meanwhile
	}
	own := s.list[i]
	if err == nil {
		own.checked = true
		return list, nil
	}
	if own.entries == nil {
		if err := own.rebuild(); err != nil {
			return nil, err
		}
	}
	return own.offsets(hashOf(run))
}
