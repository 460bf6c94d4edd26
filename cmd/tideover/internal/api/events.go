package api

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/eventstream"
	"github.com/tideover/tideover/retry"
)

// eventStream handles requests for event streams.
type eventStream struct {
	runs    *control.Runs
	process string        // distinguishes the event numbers of this process from those of others
	streams chan struct{} // limits the streams over TCP
	local   chan struct{} // limits the streams over the Unix socket
}

// newEventStream returns the handler of event streams. It makes the engine keep its latest events
// from now on, for readers that connect later.
func newEventStream(runs *control.Runs, streams, local int) eventStream {
	runs.LastEvent()
	return eventStream{runs, strconv.FormatUint(rand.Uint64N(1<<40), 36), make(chan struct{}, streams), make(chan struct{}, local)}
}

// open counts a stream against the limit of TCP or of the Unix socket, and returns its context. The
// caller must call end when the stream has ended.
func (h eventStream) open(r *request) (ctx context.Context, end func(), err error) {
	limit := h.streams
	if httpserver.Local(r.Context()) {
		limit = h.local
	}
	select {
	case limit <- struct{}{}:
		ctx, cancel := httpserver.LongRequest(r.w, r.Request, 0)
		return ctx, func() { cancel(); <-limit }, nil
	default:
		return nil, nil, control.NewError(control.CodeBusy, "too many event streams are open", "")
	}
}

// eventFilter selects events.
type eventFilter struct {
	run, workflow string
	kinds         []string
	after         uint64
	restarted     bool // the client named an event of another process; after is 0 then
	follow        bool // keep the stream open for new events
}

// filter parses the query of a request for events.
func (h eventStream) filter(r *request) (f eventFilter, err error) {
	q := r.query("after", "run", "workflow", "kind", "follow")
	f = eventFilter{workflow: q.values["workflow"], follow: q.yes("follow", true), after: engine.NewEvents}
	if q.err != nil {
		return f, q.err
	}
	f.kinds = strings.FieldsFunc(q.values["kind"], func(r rune) bool { return r == ',' })
	for _, kind := range f.kinds {
		if !slices.Contains(control.Kinds(), kind) {
			e := control.Invalid("kind", "unknown kind %q", control.Excerpt(kind))
			return f, e.WithHint("want one of " + strings.Join(control.Kinds(), ", "))
		}
	}
	if run := q.values["run"]; run != "" {
		if f.run, err = h.runs.Find(r.Context(), run); err != nil {
			return f, err
		}
	}
	return f, h.parsePosition(cmp.Or(r.Header.Get("Last-Event-ID"), q.values["after"]), &f)
}

// parsePosition sets the position after which events are sent. The text is the number or the id of
// an event, "now", or empty, which means now.
func (h eventStream) parsePosition(text string, f *eventFilter) error {
	if text == "" || text == "now" {
		return nil
	}
	number, process, ok := strings.Cut(text, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n == engine.NewEvents {
		return control.Invalid("after", "%q is neither the number of an event nor now", control.Excerpt(text))
	}
	if f.after = n; ok && process != h.process {
		f.after, f.restarted = 0, true
	}
	return nil
}

func (f *eventFilter) matches(e *engine.Event) bool {
	return (f.run == "" || e.Run == f.run) && (f.workflow == "" || e.Name == f.workflow) &&
		(len(f.kinds) == 0 || slices.Contains(f.kinds, e.Kind.String()))
}

// id returns the id of an event in the stream: its number and a random text for this process. Each
// process numbers its events from 1, so the number alone would be ambiguous after a restart.
func (h eventStream) id(seq uint64) string { return strconv.FormatUint(seq, 10) + "-" + h.process }

// events sends the events that match a filter.
func (h eventStream) events(r *request) (any, error) {
	f, err := h.filter(r)
	if err != nil {
		return nil, err
	}
	ctx, end, err := h.open(r)
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !f.follow {
		cancel() // the engine still yields the events that it has kept
	}
	if f.after == engine.NewEvents {
		f.after = h.runs.LastEvent()
	}
	out := &eventWriter{handler: h, stream: newStream(r), filter: f, position: h.id(f.after)}
	if f.restarted {
		out.stream.AddJSON("missed", "", control.Missed{Why: "the server was restarted"})
	}
	out.stream.Beat(out.position) // starts the response, with the position
	out.run(ctx)
	return alreadyAnswered{}, nil
}

// eventWriter sends events to one client.
type eventWriter struct {
	handler  eventStream
	stream   *eventstream.Stream
	filter   eventFilter
	last     retry.Event // the previous event, sent or not
	position string      // id of that event
}

// run sends events until the client disconnects or the feed ends.
func (t *eventWriter) run(ctx context.Context) {
	feed := newFeed(ctx, t.handler.runs, t.filter.after)
	defer feed.stop()
	for t.stream.Flush() == nil {
		batch, ok := feed.next()
		if !ok {
			return
		}
		for i := range batch {
			t.add(&batch[i])
		}
		if len(batch) == 0 {
			t.stream.Beat(t.position)
		}
	}
}

// add adds an event to the next write if it matches the filter. If events were missed before it,
// add first adds a message about them.
func (t *eventWriter) add(e *eventWithGap) {
	t.position = t.handler.id(e.Seq)
	if e.missed > 0 && t.filter.after != 0 {
		missed := control.Missed{Count: e.missed, Why: "the client was too slow, or disconnected for too long"}
		t.stream.AddJSON("missed", "", missed)
	}
	t.filter.after = e.Seq
	ev := e.Event.Event
	if ev.Kind == retry.Waiting && t.last.Kind == retry.AttemptFailed && t.last.Run == ev.Run && t.last.Step == ev.Step {
		ev.Err = t.last.Err
	}
	t.last = ev
	if t.filter.matches(&e.Event) {
		event := control.Event{Seq: e.Seq, Message: control.Describe(&ev, 0), Member: e.Member, Event: ev}
		t.stream.AddJSON("", t.position, event)
	}
}

// eventWithGap is an event, and how many events before it were missed.
type eventWithGap struct {
	engine.Event
	missed uint64
}

// feed collects the engine's events in batches, so that a burst of events needs only one write.
type feed struct {
	events chan eventWithGap
	cancel context.CancelFunc
	tick   *time.Ticker
}

func newFeed(ctx context.Context, runs *control.Runs, after uint64) *feed {
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{events: make(chan eventWithGap, 64), cancel: cancel, tick: time.NewTicker(control.Heartbeat)}
	go func() {
		defer close(f.events)
		for ev, missed := range runs.Events(ctx, after) {
			f.events <- eventWithGap{ev, missed}
		}
	}()
	return f
}

// next waits for an event and returns it with the events that are already queued behind it. It
// returns an empty batch if no event came within a heartbeat, and false at the end of the feed.
func (f *feed) next() (batch []eventWithGap, ok bool) {
	f.tick.Reset(control.Heartbeat)
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
				return batch, true // the next call returns the end
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
	for range f.events { // until the goroutine closes the channel
	}
}

// readerTimeout is how long a write to a client may take before the stream is closed.
const readerTimeout = 30 * time.Second

func newStream(r *request) *eventstream.Stream {
	return eventstream.New(r.w, readerTimeout)
}
