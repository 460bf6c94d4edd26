package tracing

import (
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/retry"
)

const (
	maxOpen   = 10000 // runs and requests that have no end yet; with more of them, some begin later than they did
	maxEvents = 32    // of one span
)

// Fold makes spans of events. It is not safe for use by several goroutines.
type Fold struct {
	salt string // tells the requests of this process from another's
	open map[string]*trace
}

// trace is a run, or a request, that has not ended.
type trace struct {
	began    time.Time
	waits    []Event
	attempts map[string]time.Time // when those began that are under way
}

// NewFold returns a fold. The salt is different in each process.
func NewFold(salt string) *Fold { return &Fold{salt: salt, open: map[string]*trace{}} }

// subject is whom an event is about.
type subject struct {
	key, trace, root string
	call             bool // a request at the gateway
}

func (f *Fold) subject(ev *retry.Event) (s subject, ok bool) {
	switch {
	case ev.Run != "":
		s.key = "run " + ev.Run
	case strings.HasPrefix(ev.Name, gateway.EventPrefix) && ev.Call > 0:
		s.key, s.call = f.salt+" "+ev.Name+" "+strconv.FormatUint(ev.Call, 10), true
	default:
		return s, false
	}
	s.trace, s.root = id(16, s.key), id(8, s.key, "root")
	return s, true
}

// Add takes an event, and returns the spans that end with it.
func (f *Fold) Add(ev retry.Event) (spans []Span) {
	s, ok := f.subject(&ev)
	if !ok {
		return nil
	}
	t := f.trace(s.key, &ev)
	over := ev.Step == "" && (ev.Kind == retry.Succeeded || ev.Kind == retry.GaveUp || ev.Kind == retry.Canceled)
	switch ev.Kind {
	case retry.AttemptStarted:
		t.begin(&ev)
	case retry.AttemptFailed, retry.AttemptLost:
		spans = append(spans, t.end(s, &ev))
	case retry.Succeeded:
		if ev.Step != "" || s.call {
			spans = append(spans, t.end(s, &ev))
		}
	case retry.Waiting:
		t.wait(s, &ev)
	default:
	}
	if over {
		spans = append(spans, t.root(s, &ev))
		delete(f.open, s.key)
	}
	return spans
}

// trace returns what is known of a subject. Of one that is not known it begins with
// the event, less the time that the event says it has taken.
func (f *Fold) trace(key string, ev *retry.Event) *trace {
	t := f.open[key]
	if t == nil {
		t = &trace{began: ev.Time.Add(-ev.Elapsed), attempts: map[string]time.Time{}}
		if len(f.open) >= maxOpen {
			// In a cluster the end of a run may be seen by another process, so that those that are
			// known the longest are no better than any.
			for other := range f.open {
				delete(f.open, other)
				break
			}
		}
		f.open[key] = t
	}
	return t
}

func attemptKey(ev *retry.Event) string { return ev.Step + " " + strconv.Itoa(ev.Attempt) }

func (t *trace) begin(ev *retry.Event) {
	if len(t.attempts) < maxEvents {
		t.attempts[attemptKey(ev)] = ev.Time
	}
}

// wait notes a wait. The gateway does not tell when attempts begin: after a wait is
// when the next one does.
func (t *trace) wait(s subject, ev *retry.Event) {
	if len(t.waits) < maxEvents {
		t.waits = append(t.waits, Event{nanos(ev.Time), "wait", []Attr{
			number("tideover.attempt", int64(ev.Attempt)), number("tideover.delay_ms", ev.Delay.Milliseconds()), text("tideover.delay_by", ev.By.String()),
		}})
	}
	if s.call {
		next := *ev
		next.Attempt++
		next.Time = ev.Until
		t.begin(&next)
	}
}

// end returns the span of an attempt.
func (t *trace) end(s subject, ev *retry.Event) Span {
	key := attemptKey(ev)
	began, known := t.attempts[key]
	if !known && s.call {
		began = t.began
	} else if !known {
		began = ev.Time // the process that saw it begin is gone
	}
	delete(t.attempts, key)
	kind := kindInternal
	if s.call {
		kind = kindClient
	}
	span := Span{
		TraceID: s.trace, SpanID: id(8, s.key, key), ParentID: s.root, Name: "attempt", Kind: kind, Start: nanos(began), End: nanos(ev.Time),
		Attributes: []Attr{number("tideover.attempt", int64(ev.Attempt))},
	}
	if ev.Step != "" {
		span.Attributes = append(span.Attributes, text("tideover.step", ev.Step))
	}
	if ev.Kind != retry.Succeeded {
		span.Status = failed(ev.Err)
	}
	return span
}

// root returns the span of the run or the request.
func (t *trace) root(s subject, ev *retry.Event) Span {
	kind := kindInternal
	if s.call {
		kind = kindServer
	}
	span := Span{TraceID: s.trace, SpanID: s.root, Name: ev.Name, Kind: kind, Start: nanos(t.began), End: nanos(ev.Time), Events: t.waits}
	if ev.Run != "" {
		span.Attributes = append(span.Attributes, text("tideover.run", ev.Run))
	}
	if s.call {
		span.Attributes = append(span.Attributes, number("tideover.attempts", int64(ev.Attempt)))
	}
	switch ev.Kind {
	case retry.GaveUp:
		span.Attributes = append(span.Attributes, text("tideover.reason", ev.Reason.String()))
		span.Status = failed(ev.Err)
	case retry.Canceled:
		span.Attributes = append(span.Attributes, text("tideover.reason", retry.StopCanceled.String()))
	default:
	}
	return span
}
