package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// follow streams the feedback of a run from its start, and ends with the run.
func (s *server) follow(w http.ResponseWriter, r *http.Request, text string) error {
	if _, err := queryOf(r); err != nil {
		return err
	}
	opened := time.Now()
	info, err := s.get(r.Context(), text)
	if err != nil {
		return err
	}
	at, err := readMark(r.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	release, err := s.reserve(r.Context())
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := patient(w, r, 0)
	defer cancel()
	f := &follower{server: s, stream: newStream(w), id: info.ID, opened: opened, resume: at, told: map[happening]bool{}}
	_ = f.run(ctx, info) // the reader is gone, or the server ends
	return nil
}

// mark is the place of an event in the history of a run: its time, and which of
// that time it is. It means the same in every process.
type mark struct {
	time  int64
	index int
}

func (m mark) String() string { return fmt.Sprintf("%d.%d", m.time, m.index) }

func (m mark) before(o mark) bool { return m.time < o.time || m.time == o.time && m.index < o.index }

func readMark(text string) (m mark, err error) {
	if text == "" {
		return mark{index: -1}, nil
	}
	at, index, ok := strings.Cut(text, ".")
	if m.time, err = strconv.ParseInt(at, 10, 64); err == nil && ok {
		m.index, err = strconv.Atoi(index)
	}
	if err != nil || !ok {
		return m, bad("Last-Event-ID", "%q is not the id of an event of a run", excerpt(text))
	}
	return m, nil
}

// happening tells the events of a run apart.
type happening struct {
	kind    retry.EventKind
	step    string
	attempt int
	time    int64
	note    string // of progress: the history has only the last, and not its time
}

func happeningOf(e *retry.Event) happening {
	if e.Kind == retry.Progressed {
		return happening{kind: e.Kind, step: e.Step, attempt: e.Attempt, note: e.Note}
	}
	return happening{kind: e.Kind, step: e.Step, attempt: e.Attempt, time: e.Time.UnixNano()}
}

// follower sends the feedback of one run to one reader. The history of the run is
// what it tells; the engine's events say when to look at it again. So nothing is
// lost when the reader is slow, and nothing is told in two ways.
type follower struct {
	server *server
	stream *stream
	id     string
	opened time.Time // what happened before is in the history
	resume mark      // what the reader has seen before
	told   map[happening]bool
	place  string
}

func (f *follower) run(ctx context.Context, info *engine.Info) error {
	feed := newFeed(ctx, f.server.engine, 0) // from a time before the history was read
	defer feed.stop()
	for {
		if info != nil {
			over, err := f.tell(info)
			if err != nil || over {
				return err
			}
		}
		batch, ok := feed.next(heartbeat)
		if !ok {
			return nil
		}
		look := len(batch) == 0
		for i := range batch {
			again, err := f.live(&batch[i])
			if err != nil {
				return err
			}
			look = look || again
		}
		if info = nil; look {
			var err error
			if info, err = f.server.engine.Get(ctx, f.id); err != nil {
				return err
			}
		}
		if len(batch) == 0 {
			f.stream.beat(f.place)
		}
	}
}

// live takes an event from the engine, and reports whether the history may have
// something new.
func (f *follower) live(e *fed) (look bool, err error) {
	ev := e.Event.Event
	key := happeningOf(&ev)
	switch {
	case ev.Run != f.id || f.told[key]:
		return e.missed > 0, nil
	case ev.Kind != retry.Progressed:
		return true, nil
	case ev.Time.Before(f.opened):
		return e.missed > 0, nil
	}
	f.told[key] = true
	return e.missed > 0, f.send(f.stream.add("", "", Event{Message: describe(&ev, 0), Event: ev}))
}

func (f *follower) send(err error) error {
	if err != nil {
		return err
	}
	return f.stream.flush()
}

// tell sends what is new in the history.
func (f *follower) tell(info *engine.Info) (over bool, err error) {
	at := mark{index: -1}
	for _, e := range feedback(info) {
		now := e.Time.UnixNano()
		if now != at.time {
			at = mark{time: now, index: -1}
		}
		at.index++
		key := happeningOf(&e.Event)
		if f.told[key] {
			continue
		}
		f.told[key] = true
		if !f.resume.before(at) {
			continue
		}
		f.place = at.String()
		if err := f.stream.add("", f.place, e); err != nil {
			return false, err
		}
	}
	if over = info.Finished(); over {
		if err := f.stream.add("end", "", outcome(info)); err != nil {
			return true, err
		}
	}
	return over, f.send(nil)
}
