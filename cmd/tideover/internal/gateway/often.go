package gateway

import (
	"sync"
	"time"

	"github.com/tideover/tideover/retry"
)

// How often the same thing is worth a line, and how many things are told apart.
const (
	sayEvery = 10 * time.Second
	maxSaid  = 1000
)

// often is what was said of late. Under load the same is told of every request, of
// which one in a while is enough.
type often struct {
	mu   sync.Mutex
	said map[saying]*silent
}

// saying is what makes two events the same.
type saying struct {
	kind retry.EventKind
	name string // whose request it is
	why  string
}

// silent is when a thing was said, and how often it would have been since.
type silent struct {
	at   time.Time
	more int
}

// first reports whether the event is the first of its like for a while, and how
// many were not since the one before.
func (o *often) first(ev *retry.Event) (first bool, more int) {
	like := saying{ev.Kind, ev.Name, ev.Note}
	if ev.Kind == retry.Waiting {
		like.why = ev.By.String() // errors have ports and times in them
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.said[like]; s != nil && now.Sub(s.at) < sayEvery {
		s.more++
		return false, 0
	} else if s != nil {
		more = s.more
	} else if o.said == nil || len(o.said) >= maxSaid {
		o.said = map[saying]*silent{}
	}
	o.said[like] = &silent{at: now}
	return true, more
}
