package engine

import (
	"context"
	"iter"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/retry"
)

// Tell adds an event that did not happen in the engine to the event stream, so that one
// stream has all events of the process. The event is not stored.
func (e *Engine) Tell(ev retry.Event) {
	e.process.hub.publish([]retry.Event{ev}, "")
}

// Events yields the events after the one with sequence number after. 0 means all events
// that are still in memory: none are kept before the first reader or observer. [NewEvents] means
// only events that happen after the call. With each event it yields how many events before
// it were missed because the reader was too slow. It ends when the context ends or the
// engine stops. In a cluster it yields the events of all processes, but it may miss events
// of other processes.
func (e *Engine) Events(ctx context.Context, after uint64) iter.Seq2[Event, uint64] {
	events := e.process.hub.events(ctx, after)
	e.router.followEvents()
	return events
}

// NewEvents is the argument of [Engine.Events] for only new events.
const NewEvents = info.NewEvents

// observe calls the observer with each event of this process, until the stream ends.
func (e *Engine) observe(events iter.Seq2[Event, uint64]) {
	defer close(e.observing)
	for ev, missed := range events {
		if missed > 0 {
			e.cfg.Logger.Warn("the observer was too slow", "events_missed", missed)
		}
		if ev.Member == "" {
			e.show(ev.Event)
		}
	}
}

// show calls the observer with an event. It logs a panic of the observer.
func (e *Engine) show(ev retry.Event) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Logger.Error("the observer panicked", "panic", p)
		}
	}()
	e.cfg.Observer(ev)
}
