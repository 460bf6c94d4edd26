package tracing

import (
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/retry"
)

const (
	maxOpen   = 10000 // runs and requests that are remembered until they end; see Fold.trace
	maxEvents = 32    // waits of one root span, and attempts at the same time
)

// Fold converts events to spans. It is not safe for concurrent use.
type Fold struct {
	salt string            // distinguishes the requests of this process from those of others
	open map[string]*trace // by subject.key
}

// trace is a run or a request that has not ended.
type trace struct {
	began    time.Time
	waits    []Event
	attempts map[string]time.Time // start of each running attempt, by attemptKey
}

// NewFold returns a fold. The salt must be different in each process.
func NewFold(salt string) *Fold { return &Fold{salt: salt, open: map[string]*trace{}} }

// subject is the run or the request that an event is about.
type subject struct {
	key, trace, root string // an unambiguous name, the id of the trace, and that of its root span
	call             bool   // it is a request to the gateway
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

// Add adds an event, and returns the spans that end with the event.
func (f *Fold) Add(ev retry.Event) (spans []Span) {
	s, ok := f.subject(&ev)
	if !ok {
		return nil
	}
	if f.open[s.key] == nil && (ev.Kind == retry.FailedOver || ev.Kind == retry.HedgeStarted) {
		return nil // a request that then succeeds at its first attempt has no event for its end
	}
	t := f.trace(s.key, &ev)
	over := ev.Step == "" && (ev.Kind == retry.Succeeded || ev.Kind == retry.GaveUp || ev.Kind == retry.Canceled)
	switch ev.Kind {
	case retry.AttemptStarted:
		t.begin(&ev)
	case retry.AttemptFailed, retry.AttemptLost:
		spans = append(spans, t.endSpan(s, &ev))
	case retry.Succeeded:
		if ev.Step != "" || s.call {
			spans = append(spans, t.endSpan(s, &ev))
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

// trace returns the trace of a subject. A new trace starts at the time of the event, minus
// the time that the call has taken so far. If there are maxOpen traces, it forgets one of
// them, whose root span then starts too late.
func (f *Fold) trace(key string, ev *retry.Event) *trace {
	t := f.open[key]
	if t == nil {
		t = &trace{began: ev.Time.Add(-ev.Elapsed), attempts: map[string]time.Time{}}
		if len(f.open) >= maxOpen {
			// It forgets any trace, not the oldest: in a cluster, another process may see the end of
			// a run, so that the age of a trace does not say whether it will end here.
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

// wait adds a wait to the trace. The gateway sends no event at the start of an attempt, so
// for a request the next attempt starts at the end of the wait.
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

// endSpan returns the span of an attempt that ends with the event.
func (t *trace) endSpan(s subject, ev *retry.Event) Span {
	key := attemptKey(ev)
	began, known := t.attempts[key]
	if !known && s.call {
		began = t.began
	} else if !known {
		began = ev.Time // the start is unknown: another process saw it
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

// root returns the root span, of a run or a request that ends with the event.
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
