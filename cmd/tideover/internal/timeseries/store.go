package timeseries

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/atomicfile"
	"github.com/tideover/tideover/retry"
)

const (
	// MaxWorkflows is how many workflows have a series of their own. The others share [Other].
	MaxWorkflows = 200

	// Other is the name of the series for all workflows without one of their own.
	Other = "(other)"

	// saveInterval is how often the file is written: a process that is killed loses the counts since
	// the last write.
	saveInterval = time.Minute

	// maxPending is for how many runs without an attempt the store remembers that they have had none.
	// Runs whose shard has moved to another process stay in this list.
	maxPending = 20_000
)

// Store counts the runs of a process. It is safe for concurrent use. All methods of a nil store do
// nothing.
type Store struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	since   time.Time // when the counts began
	all     *series
	byName  map[string]*series  // including Other
	pending map[string]struct{} // ids of runs that have had no attempt yet
	changed bool                // since the file was written

	saving   sync.Mutex // held while the file is written
	failures bool       // the file could not be written the last time; guarded by saving
}

// Open returns a store with the counts of the file, if it exists. If the file can't be read, the store
// logs a warning and begins with no counts.
func Open(path string, log *slog.Logger) *Store {
	s := &Store{path: path, log: log, since: time.Now(), all: new(series), byName: map[string]*series{}, pending: map[string]struct{}{}}
	data, err := os.ReadFile(path)
	if err == nil {
		err = s.decode(data)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.since, s.all, s.byName = time.Now(), new(series), map[string]*series{}
		log.Warn("the charts begin anew, because their file can't be read", "file", path, "error", err)
	}
	return s
}

// Observe counts an event of a run. It ignores other events.
func (s *Store) Observe(ev retry.Event) {
	if s == nil || ev.Run == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if change := s.changeOf(&ev); change != nil {
		now := time.Now()
		s.all.count(ev.Time, now, change)
		s.series(ev.Name, now).count(ev.Time, now, change)
		s.changed = true
	}
}

// changeOf returns the function that counts an event, or nil if the event does not count. The caller
// holds s.mu.
func (s *Store) changeOf(ev *retry.Event) func(*interval) {
	switch {
	case ev.Kind == retry.AttemptStarted:
		if _, first := s.pending[ev.Run]; !first {
			return nil
		}
		delete(s.pending, ev.Run)
		if at, ok := created(ev.Run); ok {
			wait := max(ev.Time.Sub(at), 0)
			return func(i *interval) { i.wait.observe(wait) }
		}
	case ev.Step != "":
	case ev.Kind == retry.RunStarted:
		s.addPending(ev.Run)
		return func(i *interval) { i.counts[started] = addUp(i.counts[started], 1) }
	case ev.Kind == retry.Succeeded:
		return s.end(ev, succeeded)
	case ev.Kind == retry.GaveUp:
		return s.end(ev, failed)
	case ev.Kind == retry.Canceled:
		return s.end(ev, canceled)
	}
	return nil
}

// addPending adds a run that has had no attempt yet. If there are too many, it removes another one,
// whose wait then does not count. The caller holds s.mu.
func (s *Store) addPending(run string) {
	if len(s.pending) >= maxPending {
		for other := range s.pending {
			delete(s.pending, other)
			break
		}
	}
	s.pending[run] = struct{}{}
}

// end returns the function that counts the end of a run. The caller holds s.mu.
func (s *Store) end(ev *retry.Event, outcome int) func(*interval) {
	delete(s.pending, ev.Run)
	at, ok := created(ev.Run)
	took := max(ev.Time.Sub(at), 0)
	return func(i *interval) {
		i.counts[outcome] = addUp(i.counts[outcome], 1)
		if ok && outcome != canceled {
			i.took.observe(took)
		}
	}
}

// created returns when a run was created. Its id begins with that time, in milliseconds, in the
// encoding of a ULID.
func created(run string) (time.Time, bool) {
	const alphabet, length = "0123456789abcdefghjkmnpqrstvwxyz", 10
	if len(run) < length {
		return time.Time{}, false
	}
	var ms int64
	for _, c := range []byte(run[:length]) {
		digit := strings.IndexByte(alphabet, c)
		if digit < 0 {
			return time.Time{}, false
		}
		ms = ms<<5 | int64(digit)
	}
	return time.UnixMilli(ms), true
}

// series returns the series of a workflow, and adds it if there is room. The caller holds s.mu.
func (s *Store) series(name string, now time.Time) *series {
	if one := s.byName[name]; one != nil {
		return one
	}
	if s.isFull() {
		for other, one := range s.byName { // forget those that no chart shows any more
			if other != Other && now.Sub(one.last) > longest {
				delete(s.byName, other)
			}
		}
	}
	if s.isFull() {
		name = Other
	}
	if s.byName[name] == nil {
		s.byName[name] = new(series)
	}
	return s.byName[name]
}

// isFull reports whether no further workflow gets a series of its own.
func (s *Store) isFull() bool {
	n := len(s.byName)
	if s.byName[Other] != nil {
		n--
	}
	return n >= MaxWorkflows
}

// Chart has the counts of a range.
type Chart struct {
	Range
	Since  time.Time // when the counts began
	Merged bool      // the workflow has no series of its own: its runs count for Other
	Points []Point   // the oldest first; the last interval is not complete yet
	Total  Point     // of all points
}

// Chart returns the counts of a workflow, or of all workflows if the name is "". It returns false if
// there is no range of this name.
func (s *Store) Chart(workflow, name string) (Chart, bool) {
	k := slices.IndexFunc(Ranges[:], func(r Range) bool { return r.Name == name })
	if s == nil || k < 0 {
		return Chart{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, one := Chart{Range: Ranges[k], Since: s.since}, s.all
	if workflow != "" {
		one = s.byName[workflow]
		c.Merged = one == nil && s.isFull()
	}
	if one == nil {
		one = new(series)
	}
	c.Points, c.Total = one.points(k, time.Now())
	return c, true
}

// Run writes the file every minute, if there were events, until the context ends.
func (s *Store) Run(ctx context.Context) {
	if s == nil {
		return
	}
	ticks := time.NewTicker(saveInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			s.save()
		}
	}
}

// Close writes the file.
func (s *Store) Close() {
	if s != nil {
		s.save()
	}
}

// save writes the file if there were events. It logs the first of several errors in a row.
func (s *Store) save() {
	s.saving.Lock()
	defer s.saving.Unlock()
	stored := s.takeChanges()
	if stored == nil {
		return
	}
	data, err := stored.encode()
	if err == nil {
		err = atomicfile.Write(s.path, data)
	}
	if err != nil {
		if !s.failures {
			s.log.Warn("the charts can't be stored", "file", s.path, "error", err)
		}
		s.mu.Lock()
		s.changed = true
		s.mu.Unlock()
	}
	s.failures = err != nil
}

// takeChanges returns the content of the file, or nil if the file has it already.
func (s *Store) takeChanges() *storedFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.changed {
		return nil
	}
	s.changed = false
	return s.stored(time.Now())
}
