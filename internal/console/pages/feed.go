package pages

import (
	"context"
	"sync"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/retry"
)

// feed reads the engine's events for all open pages, and tells the pages when to update.
type feed struct {
	done     chan struct{} // closed after the last event
	activity activity

	mu      sync.Mutex
	last    engine.Event
	readers map[*reader]struct{}
}

// reader is an open page. It learns only that there was an event, not which one.
type reader struct {
	run   string        // id of the run whose events it needs; "" for all events
	dirty chan struct{} // signals an event; buffer of one
}

// newFeed returns a feed that reads events until the engine is closed. runs is nil without an engine;
// then there are no events.
func newFeed(runs *control.Runs) *feed {
	f := &feed{done: make(chan struct{}), readers: map[*reader]struct{}{}}
	if runs == nil {
		return f
	}
	go func() {
		defer close(f.done)
		for ev, missed := range runs.Events(context.Background(), 0) {
			f.activity.count(&ev.Event)
			f.publish(ev, missed > 0)
		}
	}()
	return f
}

func (f *feed) publish(ev engine.Event, missed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = ev
	paused := ev.Run == "" && (ev.Kind == retry.Paused || ev.Kind == retry.Resumed) // of all runs of a workflow
	for r := range f.readers {
		if missed || paused || r.run == "" || r.run == ev.Run {
			r.touch()
		}
	}
}

// touchAll makes all open pages update.
func (f *feed) touchAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		r.touch()
	}
}

// touch makes the page of the reader update.
func (r *reader) touch() {
	select {
	case r.dirty <- struct{}{}:
	default:
	}
}

// subscribe adds a reader for the events of a run; "" means all events. It touches the reader, since
// the page may be outdated already.
func (f *feed) subscribe(run string) *reader {
	r := &reader{run, make(chan struct{}, 1)}
	r.touch()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers[r] = struct{}{}
	return r
}

func (f *feed) unsubscribe(r *reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.readers, r)
}

// latest returns the last event, or an event with Seq 0 if there was none.
func (f *feed) latest() engine.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// Changed makes all open pages update after a change that has no event.
func (h *Data) Changed() { h.feed.touchAll() }
