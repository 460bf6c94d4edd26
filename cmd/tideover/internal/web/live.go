package web

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
)

// maxStreams limits the number of pages with live updates at the same time.
const maxStreams = 512

// part is the part of a page that is updated live.
type part struct {
	template string // name of the page's template; that of the part has the suffix "-live"
	data     page
	behind   bool // lists do not contain the newest runs yet
	moving   bool // the part shows times: it is sent again at every heartbeat
	polled   bool // the part can change without an event: it is checked every h.pace
}

// loader reads the data of a page.
type loader func(ctx context.Context, now time.Time) (part, error)

// loaderOf returns the loader of a page for a request.
type loaderOf func(*http.Request) loader

// always returns a loaderOf that returns load for every request.
func always(load loader) loaderOf { return func(*http.Request) loader { return load } }

// byName returns a loaderOf that calls load with the value that a request has for the wildcard of its
// path, such as the name of a provider.
func byName(wildcard string, load func(ctx context.Context, name string, now time.Time) (part, error)) loaderOf {
	return func(r *http.Request) loader {
		name := r.PathValue(wildcard)
		return func(ctx context.Context, now time.Time) (part, error) { return load(ctx, name, now) }
	}
}

// streams sends live updates to open pages.
type streams struct {
	*layout
	open atomic.Int64  // number of open streams
	pace time.Duration // shortest time between two updates of a page
	beat time.Duration // time between two heartbeats of a stream
}

// stream sends the live part of a page whenever it has changed, at most once per h.pace.
func (h *streams) stream(w http.ResponseWriter, r *http.Request, run string, load loader) {
	defer h.open.Add(-1)
	if h.open.Add(1) > maxStreams {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	if _, err := load(r.Context(), time.Now()); err != nil {
		http.Error(w, h.redact(err.Error()), statusOf(err))
		return
	}
	ctx, cancel := httpserver.LongRequest(w, r, 0)
	defer cancel()
	s := &stream{h: h, out: httpserver.NewEventStream(w, 20*time.Second), load: load, reader: h.feed.subscribe(run)}
	defer h.feed.unsubscribe(s.reader)
	s.follow(ctx)
}

type stream struct {
	h      *streams
	out    *httpserver.EventStream
	reader *reader
	load   loader

	last []byte    // the HTML that was sent last
	at   time.Time // when last was rendered
	part part      // from which last was rendered
}

// follow sends updates until the client disconnects or the engine is closed.
func (s *stream) follow(ctx context.Context) {
	beat := time.NewTicker(s.h.beat)
	defer beat.Stop()
	var again <-chan time.Time // makes the loop check for changes without an event
	looks, delay := 0, s.h.pace
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
			err, looks, delay = s.update(ctx), 2, s.h.pace
		case <-again:
			err, looks = s.refresh(ctx), looks-1
		case <-beat.C:
			if err = s.alive(); err == nil && s.part.moving {
				err = s.update(ctx)
			} else if err == nil {
				err = s.refresh(ctx) // some changes have no event
			}
		}
		if err != nil {
			return
		}
		switch again = nil; {
		case s.part.polled:
			again = time.After(s.h.pace)
		case s.part.behind || looks > 0:
			again, delay = time.After(delay), min(2*delay, s.h.beat)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.h.feed.done:
			return
		case <-time.After(s.h.pace):
		}
	}
}

// refresh sends the part if it has changed. It compares the part as it would have looked at the
// time of the last update, so that the passing of time does not count as a change.
func (s *stream) refresh(ctx context.Context) error {
	p, b, err := s.paint(ctx, s.at)
	if err != nil || bytes.Equal(b, s.last) {
		s.part.behind = p.behind
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

func (s *stream) paint(ctx context.Context, now time.Time) (part, []byte, error) {
	p, err := s.load(ctx, now)
	if err != nil && statusOf(err) == http.StatusNotFound {
		_ = s.send("gone", nil) // the run was deleted at the end of its retention
	}
	if err != nil {
		return p, nil, err
	}
	p.data.Alone, p.data.Storms = !s.h.hasEngine(), s.h.control.System.Storms()
	b, err := s.h.render("update", struct {
		Part page
		Name string
	}{p.data, p.template + "-live"})
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
