package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// maxStreams bounds how many pages are followed at once.
const maxStreams = 512

// part is the part of a page that follows what happens.
type part struct {
	template string
	data     page
	behind   bool // what is shown is not the newest yet
	moving   bool // it changes without events
	polled   bool // nobody tells when it has changed: somebody must look
}

// stream sends the part of a page whenever it has changed, but not more often
// than h.pace.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, run string, look func(context.Context, time.Time) (part, error)) {
	defer h.streams.Add(-1)
	if h.streams.Add(1) > maxStreams {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	if _, err := look(r.Context(), time.Now()); err != nil {
		http.Error(w, h.Redact(err.Error()), statusOf(err))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would gather what is sent
	s := &stream{h: h, out: w, rc: http.NewResponseController(w), look: look}
	s.reader = h.feed.join(run)
	defer h.feed.leave(s.reader)
	s.follow(r.Context())
}

type stream struct {
	h      *handler
	out    http.ResponseWriter
	rc     *http.ResponseController
	reader *reader
	look   func(context.Context, time.Time) (part, error)

	last   []byte
	at     time.Time // of last
	behind bool      // of last
	moving bool
	polled bool
}

// follow ends with the reader, or with the engine.
func (s *stream) follow(ctx context.Context) {
	beat := time.NewTicker(s.h.beat)
	defer beat.Stop()
	var again <-chan time.Time // to look once more, without an event
	looks, patience := 0, s.h.pace
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-s.h.feed.done:
			return
		case <-s.reader.dirty:
			// Lists are a moment behind events, and what is being written to them at
			// this moment is not counted as missing.
			err, looks, patience = s.update(ctx), 2, s.h.pace
		case <-again:
			err, looks = s.refresh(ctx), looks-1
		case <-beat.C:
			if err = s.alive(); err == nil && s.moving {
				err = s.update(ctx)
			} else if err == nil {
				err = s.refresh(ctx) // some changes have no event
			}
		}
		if err != nil {
			return
		}
		switch again = nil; {
		case s.polled:
			again = time.After(s.h.pace)
		case s.behind || looks > 0:
			again, patience = time.After(patience), min(2*patience, s.h.beat)
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

// refresh sends the part if it would be another one even if no time had passed.
func (s *stream) refresh(ctx context.Context) error {
	p, b, err := s.paint(ctx, s.at)
	if err != nil || bytes.Equal(b, s.last) {
		s.behind = p.behind
		return err
	}
	return s.update(ctx)
}

// update sends the part.
func (s *stream) update(ctx context.Context) error {
	now := time.Now()
	p, b, err := s.paint(ctx, now)
	if err != nil {
		return err
	}
	s.last, s.at, s.behind, s.moving, s.polled = b, now, p.behind, p.moving, p.polled
	return s.send("", b)
}

func (s *stream) paint(ctx context.Context, now time.Time) (part, []byte, error) {
	p, err := s.look(ctx, now)
	if err != nil && statusOf(err) == http.StatusNotFound {
		_ = s.send("gone", nil) // the time for which it was kept is over
	}
	if err != nil {
		return p, nil, err
	}
	p.data.Alone, p.data.Storms = s.h.Engine == nil, s.h.storms(now)
	b, err := s.h.render("update", struct {
		Part page
		Name string
	}{p.data, p.template})
	return p, b, err
}

// alive sends the time, which tells the page that the connection is.
func (s *stream) alive() error {
	return s.send("beat", fmt.Appendf(nil, "%d", time.Now().UnixMilli()))
}

func (s *stream) send(event string, data []byte) error {
	var b bytes.Buffer
	if event != "" {
		fmt.Fprintf(&b, "event: %s\n", event)
	}
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	// A reader that takes nothing must not hold the stream for ever, nor may the
	// server's limit for whole answers end it.
	if err := s.rc.SetWriteDeadline(time.Now().Add(20 * time.Second)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.out.Write(b.Bytes()); err != nil {
		return err
	}
	return s.rc.Flush()
}
