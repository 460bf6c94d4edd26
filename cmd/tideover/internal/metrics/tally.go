package metrics

import (
	"strings"
	"sync"

	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/retry"
)

// maxNames bounds the names that are counted apart, those of configurations that
// are not in effect any more included.
const maxNames = 1000

// alarmSuffix ends the names of workflows that run when another gives up.
const alarmSuffix = ".on-give-up"

// Tally counts the events of durable runs. It is safe for use by several
// goroutines.
type Tally struct {
	mu    sync.Mutex
	flows map[storm.Subject]*flow
	waits map[wait]*histogram
}

// flow is what happened to the runs of a workflow.
type flow struct {
	storm.Count
	failures, lost uint64
	started        uint64
	ended          map[string]uint64 // by outcome
	retries        map[retry.Source]uint64
	giveUps        map[retry.Reason]uint64
}

// wait is a kind of waits.
type wait struct {
	layer string
	by    retry.Source
}

// NewTally returns a tally that knows no name.
func NewTally() *Tally {
	return &Tally{flows: map[storm.Subject]*flow{}, waits: map[wait]*histogram{}}
}

// Know has the workflows counted by their names from now on. All others are
// [Other]. Names that were known stay: a counter that is gone would be a riddle.
func (t *Tally) Know(workflows ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range workflows {
		if len(t.flows) < maxNames {
			t.flow(SubjectOf(name))
		}
	}
}

// flow returns the counts of a subject, which are made if there are none.
func (t *Tally) flow(s storm.Subject) *flow {
	f := t.flows[s]
	if f == nil {
		f = &flow{ended: map[string]uint64{}, retries: map[retry.Source]uint64{}, giveUps: map[retry.Reason]uint64{}}
		t.flows[s] = f
	}
	return f
}

// bounded returns the subject under which a workflow is counted.
func (t *Tally) bounded(workflow string) storm.Subject {
	s := SubjectOf(strings.TrimSuffix(workflow, alarmSuffix))
	if t.flows[s] == nil {
		s.Name = Other
	}
	return s
}

// Observe counts an event. Those that belong to no run are counted elsewhere.
func (t *Tally) Observe(ev retry.Event) {
	if ev.Run == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.bounded(ev.Name)
	f := t.flow(s)
	switch ev.Kind {
	case retry.AttemptStarted:
		f.Attempts++
		if ev.Attempt <= 1 {
			f.First++
		}
	case retry.AttemptFailed:
		f.failures++
	case retry.AttemptLost:
		f.lost++
	case retry.Waiting:
		f.retries[ev.By]++
		t.wait(wait{s.Layer, ev.By}).observe(ev.Delay)
	default:
		f.life(&ev)
	}
}

// life counts what happens to a run as a whole.
func (f *flow) life(ev *retry.Event) {
	switch {
	case ev.Step != "":
	case ev.Kind == retry.RunStarted:
		f.started++
	case ev.Kind == retry.Succeeded:
		f.ended["succeeded"]++
	case ev.Kind == retry.Canceled:
		f.ended["canceled"]++
	case ev.Kind == retry.GaveUp:
		f.ended["dead"]++
		f.giveUps[ev.Reason]++
	}
}

func (t *Tally) wait(w wait) *histogram {
	h := t.waits[w]
	if h == nil {
		h = new(histogram)
		t.waits[w] = h
	}
	return h
}

// Counts returns the attempts of all subjects, for a [storm.Alarm].
func (t *Tally) Counts() map[storm.Subject]storm.Count {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := make(map[storm.Subject]storm.Count, len(t.flows))
	for s, f := range t.flows {
		counts[s] = f.Count
	}
	return counts
}
