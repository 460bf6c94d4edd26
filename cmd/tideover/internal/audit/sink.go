package audit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tideover/tideover/internal/secret"
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
	queue    chan retry.Event
	dropped  atomic.Int64  // events that were dropped since the last line with their number
	failing  bool          // the last write failed; used by run only
	closing  chan struct{} // closed by Close
	once     sync.Once
	done     chan struct{} // closed when run has returned
	err      error         // why events are missing; may be read only after done is closed
}

// Open opens the audit log, and starts a goroutine that writes events until [Sink.Close]. It
// returns an error if the file can't be opened. A full disk is no error: the events are written when
// there is room.
func Open(cfg Config) (*Sink, error) {
	s := &Sink{
		redactor: cmp.Or(cfg.Redactor, new(secret.Redactor)), logger: cmp.Or(cfg.Logger, slog.Default()),
		file:  &file{path: cfg.Path, maxSize: cfg.MaxSize, keep: cfg.Keep},
		queue: make(chan retry.Event, queued), closing: make(chan struct{}), done: make(chan struct{}),
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
func (s *Sink) Observe(e retry.Event) {
	select {
	case <-s.closing:
		return
	default:
	}
	select {
	case s.queue <- e:
	default:
		s.dropped.Add(1)
	}
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
		batch = s.line(batch, retry.Event{Kind: retry.HookFailed, Time: time.Now(), Name: "audit", Err: why})
	}
	return batch
}

// line appends a line for the event.
func (s *Sink) line(batch []byte, e retry.Event) []byte {
	data, err := json.Marshal(e)
	if err != nil {
		s.dropped.Add(1) // the event has a time that JSON can't represent
		return batch
	}
	return append(append(batch, s.redactor.Bytes(data)...), '\n')
}

// store writes a batch, and retries until it is written or the sink is closed. Meanwhile new events
// wait in the queue.
func (s *Sink) store(batch []byte) {
	for {
		n, err := s.file.write(batch)
		if err == nil {
			s.report(nil)
			return
		}
		batch = batch[n:]
		s.report(err)
		select {
		case <-time.After(pause):
		case <-s.closing:
			s.err = fmt.Errorf("audit: not all events were written: %w", err)
			return
		}
	}
}

// report logs once when writing starts to fail, and once when it works again.
func (s *Sink) report(err error) {
	switch {
	case err != nil && !s.failing:
		s.logger.Error("audit log can't be written, retrying", "path", s.file.path, "error", err)
	case err == nil && s.failing:
		s.logger.Info("audit log can be written again", "path", s.file.path)
	}
	s.failing = err != nil
}
