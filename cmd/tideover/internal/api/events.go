package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// Missed tells a reader that there were events which it has not been sent.
type Missed struct {
	Count uint64 `json:"missed"` // 0 means that nobody knows: the server was started anew
	Why   string `json:"why"`
}

// reserve takes one of the places for streams. Those over TCP do not take the
// places of the socket's owner.
func (s *server) reserve(ctx context.Context) (func(), error) {
	places := s.streams
	if Local(ctx) {
		places = s.local
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		return nil, &Problem{Status: http.StatusServiceUnavailable, Code: CodeBusy, Message: "there are too many streams of events"}
	}
}

// wish is which events somebody wants to see.
type wish struct {
	run, workflow string
	kinds         []string
	after         uint64
	lost          bool // after is of another process
	follow        bool
}

func (s *server) wish(r *http.Request) (f wish, err error) {
	q, err := queryOf(r, "after", "run", "workflow", "kind", "follow")
	if err != nil {
		return f, err
	}
	f = wish{workflow: q["workflow"], follow: true, after: engine.Now}
	if text := q["follow"]; text != "" {
		if f.follow, err = strconv.ParseBool(text); err != nil {
			return f, bad("follow", "%q is neither true nor false", excerpt(text))
		}
	}
	for kind := range strings.SplitSeq(q["kind"], ",") {
		if kind == "" {
			continue
		}
		if !slices.Contains(Kinds(), kind) {
			p := bad("kind", "there is no kind %q", excerpt(kind))
			p.Hint = "there are " + strings.Join(Kinds(), ", ")
			return f, p
		}
		f.kinds = append(f.kinds, kind)
	}
	if q["run"] != "" {
		if f.run, err = s.find(r.Context(), q["run"]); err != nil {
			return f, err
		}
	}
	after := q["after"]
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		after = last
	}
	return f, s.place(after, &f)
}

// place reads from where somebody wants to go on: a number, or the id of an event.
func (s *server) place(text string, f *wish) error {
	if text == "" || text == "now" {
		return nil
	}
	number, boot, ok := strings.Cut(text, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n == engine.Now {
		return bad("after", "%q is not the number of an event, or now", excerpt(text))
	}
	if f.after = n; ok && boot != s.boot {
		f.after, f.lost = 0, true
	}
	return nil
}

// Kinds returns the names of the kinds of events.
func Kinds() (names []string) {
	for k := retry.AttemptStarted; k <= retry.NeedsHandler; k++ {
		names = append(names, k.String())
	}
	return names
}

func (f *wish) wants(e *engine.Event) bool {
	return (f.run == "" || e.Run == f.run) && (f.workflow == "" || e.Name == f.workflow) &&
		(len(f.kinds) == 0 || slices.Contains(f.kinds, e.Kind.String()))
}

// id is the place of an event in the stream. The numbers of the engine begin anew
// in each process, so that alone they could stand for an event of another.
func (s *server) id(seq uint64) string { return strconv.FormatUint(seq, 10) + "-" + s.boot }

// events streams what happens.
func (s *server) events(w http.ResponseWriter, r *http.Request, _ string) error {
	f, err := s.wish(r)
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
	if !f.follow {
		cancel() // what is there is sent all the same
	}
	if f.after == engine.Now {
		f.after = s.latest()
	}
	t := &teller{server: s, stream: newStream(w), wish: f}
	if f.lost {
		_ = t.stream.add("missed", "", Missed{Why: "the server was started anew"})
	}
	t.place = s.id(t.wish.after)
	t.stream.beat(t.place) // the answer begins, and says from where
	if t.stream.flush() == nil {
		_ = t.run(ctx) // the reader is gone, or the server ends
	}
	return nil
}

// latest returns the number of the last event.
func (s *server) latest() (seq uint64) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for e := range s.engine.Events(over, 0) {
		seq = e.Seq
	}
	return seq
}

// teller sends events to one reader.
type teller struct {
	server *server
	stream *stream
	wish   wish
	last   retry.Event // the event before
	place  string
}

func (t *teller) run(ctx context.Context) error {
	feed := newFeed(ctx, t.server.engine, t.wish.after)
	defer feed.stop()
	for {
		batch, ok := feed.next(heartbeat)
		if !ok {
			return nil
		}
		for i := range batch {
			if err := t.tell(&batch[i]); err != nil {
				return err
			}
		}
		if len(batch) == 0 {
			t.stream.beat(t.place)
		}
		if err := t.stream.flush(); err != nil {
			return err
		}
	}
}

func (t *teller) tell(e *fed) error {
	t.place = t.server.id(e.Seq)
	if e.missed > 0 && t.wish.after != 0 {
		if err := t.stream.add("missed", "", Missed{Count: e.missed, Why: "the reader was too slow, or away for too long"}); err != nil {
			return err
		}
	}
	t.wish.after = e.Seq
	ev := e.Event.Event
	if ev.Kind == retry.Waiting && t.last.Kind == retry.AttemptFailed && t.last.Run == ev.Run && t.last.Step == ev.Step {
		ev.Err = t.last.Err
	}
	t.last = ev
	if !t.wish.wants(&e.Event) {
		return nil
	}
	return t.stream.add("", t.place, Event{Seq: e.Seq, Message: describe(&ev, 0), Member: e.Member, Event: ev})
}

// fed is an event and how many were missed before it.
type fed struct {
	engine.Event
	missed uint64
}

// feed makes batches of the engine's events, so that a burst is one write.
type feed struct {
	events chan fed
	cancel context.CancelFunc
	tick   *time.Ticker
}

func newFeed(ctx context.Context, e *engine.Engine, after uint64) *feed {
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{events: make(chan fed, 64), cancel: cancel, tick: time.NewTicker(heartbeat)}
	quit := make(chan struct{})
	stop := cancel
	f.cancel = func() { stop(); close(quit) }
	go func() {
		defer close(f.events)
		for ev, missed := range e.Events(ctx, after) {
			select {
			case f.events <- fed{ev, missed}:
			case <-quit:
				return
			}
		}
	}()
	return f
}

// next returns the events that are there, waiting for the first; none after a
// while; false at the end.
func (f *feed) next(wait time.Duration) (batch []fed, ok bool) {
	f.tick.Reset(wait)
	select {
	case e, ok := <-f.events:
		if !ok {
			return nil, false
		}
		batch = append(batch, e)
	case <-f.tick.C:
		return nil, true
	}
	for len(batch) < cap(f.events) {
		select {
		case e, ok := <-f.events:
			if !ok {
				return batch, true // the end is seen next time
			}
			batch = append(batch, e)
		default:
			return batch, true
		}
	}
	return batch, true
}

// stop ends the feed and waits for its goroutine.
func (f *feed) stop() {
	f.cancel()
	f.tick.Stop()
	for range f.events { // until it is closed
	}
}
