package storm

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tideover/tideover/retry"
)

// Alarm samples counters and reports when a retry storm begins and ends.
type Alarm struct {
	count func() map[Subject]Count
	tell  func(Change) // called with each beginning and end of a storm

	mu      sync.Mutex
	watch   *Watch
	total   map[Subject]uint64 // number of storms so far
	changed chan struct{}      // signals a new rule; capacity 1
}

// New returns an alarm; call Run to start it. count returns the attempts of all subjects since the
// start. tell is called with each beginning and end of a storm, by one goroutine at a time.
func New(r Rule, count func() map[Subject]Count, tell func(Change)) *Alarm {
	return &Alarm{count: count, tell: tell, watch: NewWatch(r), total: map[Subject]uint64{}, changed: make(chan struct{}, 1)}
}

// Become replaces the rule and keeps the samples.
func (a *Alarm) Become(r Rule) {
	a.mu.Lock()
	a.watch.rule = r // the samples stay
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default: // a signal is pending already
	}
}

// Run takes samples until the context ends.
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
			a.takeSample(time.Now())
		}
	}
}

// pace returns the time between two samples: a tenth of the window, at most a second.
func (a *Alarm) pace() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(min(a.watch.rule.window()/10, time.Second), time.Millisecond)
}

// takeSample takes a sample and reports changes.
func (a *Alarm) takeSample(now time.Time) {
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

// Storms returns the current storms, sorted by layer and name.
func (a *Alarm) Storms() []Storm {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.watch.Storms()
}

// Levels returns the current amplification of each subject.
func (a *Alarm) Levels() map[Subject]Level {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.watch.Levels()
}

// Totals returns the number of storms of each subject so far.
func (a *Alarm) Totals() map[Subject]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.total)
}

// Event returns the change as an event with this name.
func (c Change) Event(name string, now time.Time) retry.Event {
	kind := retry.StormBegan
	if c.Ended {
		kind = retry.StormEnded
	}
	return retry.Event{Kind: kind, Time: now, Name: name, Note: c.String()}
}

// String describes the storm in words.
func (s Storm) String() string {
	return fmt.Sprintf("%s %s: %.1f attempts per first attempt, %d in %s", s.Layer, s.Name, s.Amplification, s.Attempts,
		time.Duration(s.Window*float64(time.Second)).Round(time.Millisecond))
}
