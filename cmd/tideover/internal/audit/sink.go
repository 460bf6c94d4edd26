package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

const (
	queued   = 8192        // events that may wait to be written
	maxBatch = 64 << 10    // bytes that are gathered for one write
	pause    = time.Second // after a failure to write
)

// Config says where the trail is and how much of it is kept. Only Path is needed.
type Config struct {
	Path     string
	MaxSize  int64            // bytes after which the file is put aside; 0 means never
	Keep     int              // files kept beside the one that is written: Path.1 is the newest
	Redactor *secret.Redactor // takes secrets out; nil means that there are none
	Logger   *slog.Logger     // told when writing begins to fail, and when it works again; nil means slog's default
}

// Sink writes events to the trail. It is safe for use by several goroutines.
type Sink struct {
	redactor *secret.Redactor
	logger   *slog.Logger
	file     *file
	queue    chan retry.Event
	dropped  atomic.Int64 // since the last line that says so
	failing  bool         // the last write failed; the writer's own
	closing  chan struct{}
	once     sync.Once
	done     chan struct{} // closed when the writer has ended
	err      error         // why not all was written; to be read after done
}

// Open opens the trail, so that what is wrong with the place shows at once, and
// starts to write. [Sink.Close] ends it.
func Open(cfg Config) (*Sink, error) {
	f := &file{path: cfg.Path, maxSize: cfg.MaxSize, keep: cfg.Keep}
	if err := f.open(); err != nil {
		return nil, err
	}
	s := &Sink{
		redactor: cfg.Redactor, logger: cfg.Logger, file: f,
		queue: make(chan retry.Event, queued), closing: make(chan struct{}), done: make(chan struct{}),
	}
	if s.redactor == nil {
		s.redactor = new(secret.Redactor)
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	go s.run()
	return s, nil
}

// Observe puts the event in the queue, or drops it when the queue is full. It does
// not wait. After Close it does nothing.
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

// Close writes what is in the queue and closes the file. Its error says that, and
// why, not all could be written.
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

// gather adds what else is in the queue, up to the size of one write, and how much
// was dropped.
func (s *Sink) gather(batch []byte) []byte {
	for len(batch) < maxBatch {
		select {
		case e := <-s.queue:
			batch = s.line(batch, e)
			continue
		default:
		}
		break
	}
	if n := s.dropped.Swap(0); n > 0 {
		why := fmt.Errorf("%d events were dropped, because they could not be written in time", n)
		batch = s.line(batch, retry.Event{Kind: retry.HookFailed, Time: time.Now(), Name: "audit", Err: why})
	}
	return batch
}

// line adds a line for the event.
func (s *Sink) line(batch []byte, e retry.Event) []byte {
	data, err := json.Marshal(e)
	if err != nil {
		s.dropped.Add(1) // a time that has no JSON form
		return batch
	}
	return append(append(batch, s.redactor.Bytes(data)...), '\n')
}

// store writes a batch, and tries again until it is written or the sink is closed.
// Events that come meanwhile wait in the queue.
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
			s.err = fmt.Errorf("audit: not all was written: %w", err)
			return
		}
	}
}

// report tells of a change: once that writing fails, once that it works again.
func (s *Sink) report(err error) {
	switch {
	case err != nil && !s.failing:
		s.logger.Error("audit trail can't be written, will try again", "path", s.file.path, "error", err)
	case err == nil && s.failing:
		s.logger.Info("audit trail is written again", "path", s.file.path)
	}
	s.failing = err != nil
}
