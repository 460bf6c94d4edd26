package web

import (
	"context"
	"sync"

	"github.com/tideover/tideover/engine"
)

// feed reads the engine's events once for all pages that are open.
type feed struct {
	done  chan struct{} // closed when there will be no more events
	pulse pulse

	mu      sync.Mutex
	last    engine.Event
	readers map[*reader]struct{}
}

// reader is a page that is open. Events are gathered: it learns that something
// happened, not what.
type reader struct {
	run   string // the only one that matters to it; "" for all
	dirty chan struct{}
}

// follow reads events until the engine is closed. There are none without one.
func follow(e *engine.Engine) *feed {
	f := &feed{done: make(chan struct{}), readers: map[*reader]struct{}{}}
	if e == nil {
		return f
	}
	go func() {
		defer close(f.done)
		for ev, missed := range e.Events(context.Background(), 0) {
			f.pulse.count(&ev.Event)
			f.tell(ev, missed > 0)
		}
	}()
	return f
}

func (f *feed) tell(ev engine.Event, missed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = ev
	for r := range f.readers {
		if missed || r.run == "" || r.run == ev.Run {
			r.touch()
		}
	}
}

// stir makes all readers look again.
func (f *feed) stir() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		r.touch()
	}
}

// touch makes the reader look again.
func (r *reader) touch() {
	select {
	case r.dirty <- struct{}{}:
	default:
	}
}

// join adds a reader, which is dirty from the start: what its page shows may be
// old already.
func (f *feed) join(run string) *reader {
	r := &reader{run, make(chan struct{}, 1)}
	r.touch()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers[r] = struct{}{}
	return r
}

func (f *feed) leave(r *reader) {
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
