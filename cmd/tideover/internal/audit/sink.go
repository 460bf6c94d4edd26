package audit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

const (
	queued   = 8192        // capacity of the queue, in events
	maxBatch = 64 << 10    // bytes after which a batch is written
	pause    = time.Second // delay after a failed write
)

// Config configures a [Sink]. Only Path is required.
type Config struct {
	Path     string
	MaxSize  int64            // size in bytes at which the file is rotated; 0 means never
	Keep     int              // number of rotated files: Path.1 is the newest
	Redactor *secret.Redactor // redacts secrets; nil means none
	Logger   *slog.Logger     // logs when writing starts to fail and when it works again; nil means slog.Default
}

// Sink writes events to the audit log. It is safe for concurrent use.
type Sink struct {
	redactor *secret.Redactor
	logger   *slog.Logger
	file     *file
	queue    chan record
	dropped  atomic.Int64 // lines that were dropped since the last line with their number
	limits   map[EntryKind]*entryLimit
	drops    struct{ late, limited atomic.Int64 } // since the sink was opened
	failure  atomic.Pointer[error]                // why the last write failed; nil if it succeeded
	closing  chan struct{}                        // closed by Close
	once     sync.Once
	done     chan struct{} // closed when run has returned
	err      error         // why events are missing; may be read only after done is closed
}

// record is an event or an entry.
type record struct {
	event retry.Event
	entry *Entry // nil for an event
}

// entryLimit limits the entries of one kind.
type entryLimit struct {
	rate    *limit.Rate
	dropped atomic.Int64 // since the last line with their number
}

// Open opens the audit log, and starts a goroutine that writes events until [Sink.Close]. It
// returns an error if the file can't be opened. A full disk is no error: the events are written when
// there is room.
func Open(cfg Config) (*Sink, error) {
	s := &Sink{
		redactor: cmp.Or(cfg.Redactor, new(secret.Redactor)), logger: cmp.Or(cfg.Logger, slog.Default()),
		file:  &file{path: cfg.Path, maxSize: cfg.MaxSize, keep: cfg.Keep},
		queue: make(chan record, queued), closing: make(chan struct{}), done: make(chan struct{}),
		limits: map[EntryKind]*entryLimit{},
	}
	for _, kind := range []EntryKind{RequestRefused, LoggedIn} {
		rate, err := limit.NewRate(limit.RateConfig{Rate: limit.Frequency{Events: 1, Per: entryEvery}, Burst: entryBurst})
		if err != nil {
			return nil, err
		}
		s.limits[kind] = &entryLimit{rate: rate}
	}
	err := s.file.open()
	if err != nil && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return nil, err
	}
	s.report(err)
	go s.run()
	return s, nil
}

// Observe puts the event in the queue, or drops it if the queue is full. It does not block. After
// Close it does nothing.
func (s *Sink) Observe(e retry.Event) { s.enqueue(record{event: e}) }

func (s *Sink) enqueue(r record) {
	select {
	case <-s.closing:
		return
	default:
	}
	select {
	case s.queue <- r:
	default:
		s.drop()
	}
}

// drop counts a line that is not written.
func (s *Sink) drop() {
	s.dropped.Add(1)
	s.drops.late.Add(1)
}

// Close writes the events in the queue and closes the file. It returns an error if events could not be
// written.
func (s *Sink) Close() error {
	s.once.Do(func() { close(s.closing) })
	<-s.done
	return s.err
}

// run writes until the sink is closed and the queue is empty.
func (s *Sink) run() {
	defer close(s.done)
	for {
		select {
		case e := <-s.queue:
			s.store(s.gather(s.line(nil, e)))
		case <-s.closing:
			for batch := s.gather(nil); len(batch) > 0; batch = s.gather(nil) {
				s.store(batch)
			}
			if batch := s.lastDrops(nil); len(batch) > 0 {
				s.store(batch)
			}
			s.err = errors.Join(s.err, s.file.close())
			return
		}
	}
}

// gather adds queued events to the batch, up to the size of one write. If events were dropped, it adds
// a line with their number.
func (s *Sink) gather(batch []byte) []byte {
	for len(batch) < maxBatch && len(s.queue) > 0 { // can't block: no other goroutine receives
		batch = s.line(batch, <-s.queue)
	}
	if n := s.dropped.Swap(0); n > 0 {
		why := fmt.Errorf("%d events were dropped: they could not be written in time", n)
		batch = s.line(batch, record{event: retry.Event{Kind: retry.HookFailed, Time: time.Now(), Name: "audit", Err: why}})
	}
	return batch
}

// lastDrops adds a line for each kind of entries that were dropped, when the sink is closed.
func (s *Sink) lastDrops(batch []byte) []byte {
	for _, kind := range slices.Sorted(maps.Keys(s.limits)) {
		if n := s.limits[kind].dropped.Swap(0); n > 0 {
			batch = s.line(batch, record{entry: droppedEntry(kind, n)})
		}
	}
	return batch
}

// line appends a line for the event or the entry.
func (s *Sink) line(batch []byte, r record) []byte {
	var data []byte
	var err error
	if r.entry != nil {
		data, err = json.Marshal(r.entry)
	} else {
		data, err = json.Marshal(r.event)
	}
	if err != nil {
		s.drop() // it has a time that JSON can't represent
		return batch
	}
	return append(append(batch, s.redactor.Bytes(data)...), '\n')
}

// store writes a batch, and retries until it is written or the sink is closed; then it tries once more.
// Meanwhile new events wait in the queue.
func (s *Sink) store(batch []byte) {
	for last := false; ; {
		n, err := s.file.write(batch)
		s.report(err)
		if err == nil {
			return
		}
		batch = batch[n:]
		if last {
			s.err = fmt.Errorf("audit: not all events were written: %w", err)
			return
		}
		select {
		case <-time.After(pause):
		case <-s.closing:
			last = true
		}
	}
}

// report logs once when writing starts to fail, and once when it works again.
func (s *Sink) report(err error) {
	failing := s.failure.Load() != nil
	switch {
	case err != nil && !failing:
		s.logger.Error("audit log can't be written, retrying", "path", s.file.path, "error", err)
	case err == nil && failing:
		s.logger.Info("audit log can be written again", "path", s.file.path)
	}
	if err == nil {
		s.failure.Store(nil)
	} else {
		s.failure.Store(&err)
	}
}
