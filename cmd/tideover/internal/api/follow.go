package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/eventstream"
	"github.com/tideover/tideover/retry"
)

// follow sends the events of one run, from its start to its end.
func (h eventStream) follow(r *request) (any, error) {
	if err := r.query().err; err != nil {
		return nil, err
	}
	opened := time.Now()
	info, err := h.runs.Lookup(r.Context(), r.id)
	if err != nil {
		return nil, err
	}
	at, err := parsePosition(r.Header.Get("Last-Event-ID"))
	if err != nil {
		return nil, err
	}
	ctx, end, err := h.open(r)
	if err != nil {
		return nil, err
	}
	defer end()
	f := &follower{runs: h.runs, stream: newStream(r), id: info.ID, opened: opened, resume: at, sent: map[eventKey]bool{}}
	f.run(ctx, info)
	return alreadyAnswered{}, nil
}

// position is the position of an event in the history of a run: its time, and its index among the
// events with the same time. It is the same in every process.
type position struct {
	time  int64 // Unix time in nanoseconds
	index int
}

func (p position) String() string { return fmt.Sprintf("%d.%d", p.time, p.index) }

func (p position) before(o position) bool {
	return p.time < o.time || p.time == o.time && p.index < o.index
}

func parsePosition(text string) (p position, err error) {
	if text == "" {
		return position{index: -1}, nil
	}
	at, index, ok := strings.Cut(text, ".")
	if p.time, err = strconv.ParseInt(at, 10, 64); err == nil && ok {
		p.index, err = strconv.Atoi(index)
	}
	if err != nil || !ok {
		return p, control.Invalid("Last-Event-ID", "%q is not the id of an event of a run", control.Excerpt(text))
	}
	return p, nil
}

// eventKey identifies an event of a run.
type eventKey struct {
	kind    retry.EventKind
	step    string
	attempt int
	time    int64
	note    string // only for progress: the history has only the last one, and without its time
}

func keyOf(e *retry.Event) eventKey {
	if e.Kind == retry.Progressed {
		return eventKey{kind: e.Kind, step: e.Step, attempt: e.Attempt, note: e.Note}
	}
	return eventKey{kind: e.Kind, step: e.Step, attempt: e.Attempt, time: e.Time.UnixNano()}
}

// follower sends the events of one run to one client. It sends the stored history of the run, and
// reads it again whenever the engine reports an event of the run. So a slow client misses no event,
// and live events look like those of the history.
type follower struct {
	runs   *control.Runs
	stream *eventstream.Stream
	id     string
	opened time.Time // when the stream began; earlier events are in the history
	resume position  // of the last event that the client received on an earlier connection
	sent   map[eventKey]bool
	place  string // position of the last event that was sent
}

// run sends events until the run has ended, the client disconnects, or the server shuts down.
func (f *follower) run(ctx context.Context, info *engine.Info) {
	feed := newFeed(ctx, f.runs, 0) // includes kept events from before the history was read
	defer feed.stop()
	for over := f.addHistory(info); f.stream.Flush() == nil && !over; {
		batch, ok := feed.next()
		if !ok {
			return
		}
		read := len(batch) == 0
		if read {
			f.stream.Beat(f.place)
		}
		for i := range batch {
			read = f.addLive(&batch[i]) || read
		}
		if !read {
			continue
		}
		if f.stream.Flush() != nil { // progress does not wait for the history
			return
		}
		info, err := f.runs.Get(ctx, f.id)
		if err != nil {
			return
		}
		over = f.addHistory(info)
	}
}

// addLive handles an event that the engine has just reported. It adds a progress event to the next
// write. read is true if the caller must read the history again: after any other event of the run,
// and if events were missed.
func (f *follower) addLive(e *eventWithGap) (read bool) {
	ev := e.Event.Event
	key := keyOf(&ev)
	switch {
	case ev.Run != f.id || f.sent[key]:
	case ev.Kind != retry.Progressed:
		return true
	case !ev.Time.Before(f.opened):
		f.sent[key] = true
		f.stream.AddJSON("", "", control.Event{Message: control.Describe(&ev, 0), Event: ev})
	}
	return e.missed > 0
}

// addHistory adds the events of the history that were not sent before. over reports whether the run
// has ended; then the stream ends, too.
func (f *follower) addHistory(info *engine.Info) (over bool) {
	at := position{index: -1}
	for _, e := range control.History(info) {
		now := e.Time.UnixNano()
		if now != at.time {
			at = position{time: now, index: -1}
		}
		at.index++
		key := keyOf(&e.Event)
		if f.sent[key] {
			continue
		}
		f.sent[key] = true
		if f.resume.before(at) {
			f.place = at.String()
			f.stream.AddJSON("", f.place, e)
		}
	}
	if over = info.Finished(); over {
		f.stream.AddJSON("end", "", control.NewOutcome(info))
	}
	return over
}
