package storm

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tideover/tideover/retry"
)

// Alarm watches counts, and tells when a storm begins and when it ends.
type Alarm struct {
	count func() map[Subject]Count
	tell  func(Change)

	mu      sync.Mutex
	rule    Rule
	watch   *Watch
	total   map[Subject]uint64 // storms that have begun
	changed chan struct{}      // the rule has; has room for one
}

// New returns an alarm that does nothing before Run. count returns the attempts of
// all subjects since the start; tell is called by one goroutine at a time.
func New(r Rule, count func() map[Subject]Count, tell func(Change)) *Alarm {
	return &Alarm{count: count, tell: tell, rule: r, watch: NewWatch(r), total: map[Subject]uint64{}, changed: make(chan struct{}, 1)}
}

// Become changes the rule.
func (a *Alarm) Become(r Rule) {
	a.mu.Lock()
	a.rule = r
	a.watch.Become(r)
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default: // it is to be looked at anyway
	}
}

// Run watches until the context ends.
func (a *Alarm) Run(ctx context.Context) error {
	t := time.NewTicker(a.pace())
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.changed:
			t.Reset(a.pace())
		case <-t.C:
			a.look(time.Now())
		}
	}
}

// pace is the time between two samples: many in a window.
func (a *Alarm) pace() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(min(a.rule.window()/10, time.Second), time.Millisecond)
}

// look takes a sample.
func (a *Alarm) look(now time.Time) {
	counts := a.count()
	a.mu.Lock()
	changes := a.watch.Sample(now, counts)
	for _, c := range changes {
		if !c.Ended {
			a.total[c.Subject]++
		}
	}
	a.mu.Unlock()
	for _, c := range changes {
		a.tell(c)
	}
}

// Storms returns those that go on, by layer and name.
func (a *Alarm) Storms() []Storm {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.watch.Storms()
}

// Levels returns how much retries multiply the load of each subject now.
func (a *Alarm) Levels() map[Subject]Level {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.watch.Levels()
}

// Totals returns how many storms of each subject have begun.
func (a *Alarm) Totals() map[Subject]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.total)
}

// Event returns the change in the shape of all events. name is what the events of
// the subject have as their name.
func (c Change) Event(name string, now time.Time) retry.Event {
	kind := retry.StormBegan
	if c.Ended {
		kind = retry.StormEnded
	}
	return retry.Event{Kind: kind, Time: now, Name: name, Note: c.String()}
}

// String says in words what the storm is.
func (s Storm) String() string {
	return fmt.Sprintf("%s %s: %.1f attempts for each first one, %d in %s", s.Layer, s.Name, s.Amplification, s.Attempts,
		time.Duration(s.Window*float64(time.Second)).Round(time.Millisecond))
}
