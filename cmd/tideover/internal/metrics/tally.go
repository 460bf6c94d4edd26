package metrics

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/retry"
)

// maxNames limits the number of workflows that are counted under their own names, including those of
// earlier configurations.
const maxNames = 1000

// alarmSuffix is the suffix of the workflows of follow-up runs, which start when a run gives up.
const alarmSuffix = ".on-give-up"

// Tally counts the events of durable runs. It is safe for concurrent use.
type Tally struct {
	mu    sync.Mutex
	flows map[storm.Subject]*flow
	waits map[wait]prometheus.Observer // the histograms of lengths, by their labels

	lengths *prometheus.HistogramVec // lengths of waits
}

// flow has the counters of a subject: a workflow, a session, a notifier or a job.
type flow struct {
	storm.Count
	failures, lost uint64
	started        uint64
	ended          map[string]uint64 // by outcome
	retries        map[retry.Source]uint64
	giveUps        map[retry.Reason]uint64
}

// wait has the labels of a histogram of waits.
type wait struct {
	layer string
	by    retry.Source
}

// NewTally returns a tally that counts all workflows as [Other], until [Tally.Know] adds their
// names.
func NewTally() *Tally {
	return &Tally{
		flows: map[storm.Subject]*flow{}, waits: map[wait]prometheus.Observer{},
		lengths: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tideover_wait_seconds", Help: "Planned length of waits before another attempt, by who set them.",
			Buckets: []float64{0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400},
		}, []string{"layer", "by"}),
	}
}

// Know makes the tally count the workflows under their own names from now on. All other workflows
// count as [Other]. Names are never removed, so that counters do not disappear.
func (t *Tally) Know(workflows ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range workflows {
		if len(t.flows) < maxNames {
			t.flow(SubjectOf(name))
		}
	}
}

// flow returns the counters of a subject. It creates them if necessary.
func (t *Tally) flow(s storm.Subject) *flow {
	f := t.flows[s]
	if f == nil {
		f = &flow{ended: map[string]uint64{}, retries: map[retry.Source]uint64{}, giveUps: map[retry.Reason]uint64{}}
		t.flows[s] = f
	}
	return f
}

// bounded returns the subject under which a workflow is counted: its own, or that of [Other].
// Follow-up runs of a workflow that has its own counters have their own, too.
func (t *Tally) bounded(workflow string) storm.Subject {
	s := SubjectOf(workflow)
	if t.flows[s] == nil && (s.Layer != FollowUp || t.flows[SubjectOf(strings.TrimSuffix(workflow, alarmSuffix))] == nil) {
		s.Name = Other
	}
	return s
}

// Observe counts an event. It ignores events without a run.
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
		t.wait(wait{s.Layer, ev.By}).Observe(ev.Delay.Seconds())
	default:
		f.life(&ev)
	}
}

// life counts the start or the end of a run. It ignores all other events.
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

// wait returns the histogram of a wait.
func (t *Tally) wait(w wait) prometheus.Observer {
	h := t.waits[w]
	if h == nil {
		h = t.lengths.WithLabelValues(w.layer, w.by.String())
		t.waits[w] = h
	}
	return h
}

// Counts returns the numbers of attempts of all subjects, for a [storm.Alarm].
func (t *Tally) Counts() map[storm.Subject]storm.Count {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := make(map[storm.Subject]storm.Count, len(t.flows))
	for s, f := range t.flows {
		counts[s] = f.Count
	}
	return counts
}

// The layers of tideover that retry, which are values of the label layer.
const (
	Workflow     = "workflow"
	Session      = "session"
	Notification = "notification"
	Job          = "job"
	FollowUp     = "follow-up" // runs that start when a run gives up; the name is that of its workflow
	Provider     = "provider"
)

// Other is the name under which the tally counts all workflows that it does not know. It bounds the
// number of label values.
const Other = "other"

// prefixes maps the prefixes of internal workflows to layers.
var prefixes = []struct{ prefix, layer string }{
	{session.Prefix, Session}, {"notify.", Notification}, {"nip90.", Job},
}

// SubjectOf returns the layer of a workflow, and its name without the prefix of the layer.
func SubjectOf(workflow string) storm.Subject {
	if of, ok := strings.CutSuffix(workflow, alarmSuffix); ok {
		return storm.Subject{Layer: FollowUp, Name: of}
	}
	for _, p := range prefixes {
		if name, ok := strings.CutPrefix(workflow, p.prefix); ok {
			return storm.Subject{Layer: p.layer, Name: name}
		}
	}
	return storm.Subject{Layer: Workflow, Name: workflow}
}

// WorkflowOf is the inverse of [SubjectOf].
func WorkflowOf(s storm.Subject) string {
	if s.Layer == FollowUp {
		return s.Name + alarmSuffix
	}
	for _, p := range prefixes {
		if s.Layer == p.layer {
			return p.prefix + s.Name
		}
	}
	return s.Name
}
