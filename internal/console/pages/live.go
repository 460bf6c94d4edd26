package pages

import (
	"bytes"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/eventstream"
)

// maxStreams limits the number of pages with live updates at the same time.
const maxStreams = 512

// Part is the part of a page that is updated live.
type Part struct {
	Template string // name of the page's template; that of the part has the suffix "-live"
	Data     Page
	Behind   bool // lists do not contain the newest runs yet
	Moving   bool // the part shows times: it is sent again at every heartbeat
	Polled   bool // the part can change without an event: it is checked every h.Pace
}

// Loader reads the data of a page.
type Loader func(ctx context.Context, now time.Time) (Part, error)

// LoaderOf returns the loader of a page for a request.
type LoaderOf func(*http.Request) Loader

// Always returns a LoaderOf that returns load for every request.
func Always(load Loader) LoaderOf { return func(*http.Request) Loader { return load } }

// ByName returns a LoaderOf that calls load with the value that a request has for the wildcard of its
// path, such as the name of a provider.
func ByName(wildcard string, load func(ctx context.Context, name string, now time.Time) (Part, error)) LoaderOf {
	return func(r *http.Request) Loader {
		name := r.PathValue(wildcard)
		return func(ctx context.Context, now time.Time) (Part, error) { return load(ctx, name, now) }
	}
}

// Streams sends live updates to open pages.
type Streams struct {
	*Layout
	open atomic.Int64  // number of open streams
	Pace time.Duration // shortest time between two updates of a page
	Beat time.Duration // time between two heartbeats of a stream
}

// Stream sends the live part of a page whenever it has changed, at most once per h.Pace.
func (h *Streams) Stream(w http.ResponseWriter, r *http.Request, run string, load Loader) {
	defer h.open.Add(-1)
	if h.open.Add(1) > maxStreams {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	if _, err := load(r.Context(), time.Now()); err != nil {
		http.Error(w, h.Redact(err.Error()), StatusOf(err))
		return
	}
	ctx, cancel := h.options.LongRequest(w, r)
	defer cancel()
	s := &stream{h: h, out: eventstream.New(w, 20*time.Second), load: load, reader: h.feed.subscribe(run)}
	defer h.feed.unsubscribe(s.reader)
	s.follow(ctx)
}

type stream struct {
	h      *Streams
	out    *eventstream.Stream
	reader *reader
	load   Loader

	last []byte    // the HTML that was sent last
	at   time.Time // when last was rendered
	part Part      // from which last was rendered
}

// follow sends updates until the client disconnects or the engine is closed.
func (s *stream) follow(ctx context.Context) {
	beat := time.NewTicker(s.h.Beat)
	defer beat.Stop()
	var again <-chan time.Time // makes the loop check for changes without an event
	looks, delay := 0, s.h.Pace
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-s.h.feed.done:
			return
		case <-s.reader.dirty:
			// Lists show an event only a moment later, and part.behind may be false while they are
			// being written: check twice more.
			err, looks, delay = s.update(ctx), 2, s.h.Pace
		case <-again:
			err, looks = s.refresh(ctx), looks-1
		case <-beat.C:
			if err = s.alive(); err == nil && s.part.Moving {
				err = s.update(ctx)
			} else if err == nil {
				err = s.refresh(ctx) // some changes have no event
			}
		}
		if err != nil {
			return
		}
		switch again = nil; {
		case s.part.Polled:
			again = time.After(s.h.Pace)
		case s.part.Behind || looks > 0:
			again, delay = time.After(delay), min(2*delay, s.h.Beat)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.h.feed.done:
			return
		case <-time.After(s.h.Pace):
		}
	}
}

// refresh sends the part if it has changed. It compares the part as it would have looked at the
// time of the last update, so that the passing of time does not count as a change.
func (s *stream) refresh(ctx context.Context) error {
	p, b, err := s.paint(ctx, s.at)
	if err != nil || bytes.Equal(b, s.last) {
		s.part.Behind = p.Behind
		return err
	}
	return s.update(ctx)
}

// update renders the part for the current time and sends it.
func (s *stream) update(ctx context.Context) error {
	now := time.Now()
	p, b, err := s.paint(ctx, now)
	if err != nil {
		return err
	}
	s.last, s.at, s.part = b, now, p
	return s.send("", b)
}

func (s *stream) paint(ctx context.Context, now time.Time) (Part, []byte, error) {
	p, err := s.load(ctx, now)
	if err != nil && StatusOf(err) == http.StatusNotFound {
		_ = s.send("gone", nil) // the run was deleted at the end of its retention
	}
	if err != nil {
		return p, nil, err
	}
	p.Data.Alone, p.Data.Storms, p.Data.File = !s.h.HasEngine(), s.h.storms(), s.h.options.File
	live, err := s.h.execute(p.Template+"-live", p.Data)
	if err != nil {
		return p, nil, err
	}
	b, err := s.h.render("update", struct {
		Part Page
		Live template.HTML
	}{p.Data, template.HTML(live)}) //nolint:gosec // a template has rendered it
	return p, b, err
}

// alive sends a heartbeat with the time, so that the page knows that the connection works.
func (s *stream) alive() error {
	return s.send("beat", fmt.Appendf(nil, "%d", time.Now().UnixMilli()))
}

func (s *stream) send(event string, data []byte) error {
	s.out.Add(event, "", data)
	return s.out.Flush()
}

// Open returns the number of pages with live updates that are open.
func (h *Streams) Open() int64 { return h.open.Load() }
