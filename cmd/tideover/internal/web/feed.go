package web

import (
	"context"
	"sync"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/engine"
)

// feed reads the engine's events once for all open pages.
type feed struct {
	done     chan struct{} // closed after the last event
	activity activity

	mu      sync.Mutex
	last    engine.Event
	readers map[*reader]struct{}
}

// reader is an open page. It learns that there was an event, not which one.
type reader struct {
	run   string // whose events it reads; "" for all
	dirty chan struct{}
}

// newFeed reads events until the engine is closed. runs is nil without an engine.
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
	for r := range f.readers {
		if missed || r.run == "" || r.run == ev.Run {
			r.touch()
		}
	}
}

// touchAll marks all readers as changed.
func (f *feed) touchAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		r.touch()
	}
}

// touch marks the reader as changed.
func (r *reader) touch() {
	select {
	case r.dirty <- struct{}{}:
	default:
	}
}

// subscribe adds a reader. It counts as changed: its page may be outdated already.
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

// latest returns the last event. There is none if its Seq is 0.
func (f *feed) latest() engine.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}
