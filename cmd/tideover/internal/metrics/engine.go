package metrics

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
)

// askTime limits how long a scrape waits for the engine's numbers. If they take longer, the scrape
// returns only the other metrics.
const askTime = 5 * time.Second

// Source collects the gauges about the engine of this process, its files and its sessions.
type Source struct {
	Engine    *engine.Engine
	Clustered bool   // the engine is a member of a cluster
	Tally     *Tally // knows which workflows are counted under their own names

	// Sessions returns the sessions; nil means that there are none.
	Sessions func(context.Context) ([]session.Status, error)
}

// Describe implements [prometheus.Collector].
func (s *Source) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, metricRuns, metricPaused, metricQueue, metricOldest, metricTimers, metricRunning, metricStuck, metricBehind,
		metricTroubles, metricWarnings, metricDisk, metricShards, metricSessions)
}

// Collect implements [prometheus.Collector]. It leaves out metrics whose values it can't read.
func (s *Source) Collect(out chan<- prometheus.Metric) {
	ch := sink(out)
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	if stats, shards, err := s.Engine.Operator().OwnStats(ctx); err == nil {
		s.runs(ch, stats.Workflows)
		s.load(ch, &stats)
		if s.Clustered {
			ch.gauge(metricShards, float64(shards))
		}
	}
	s.disk(ch)
	s.sessions(ctx, ch)
}

// runStates are the states for which runs are counted.
var runStates = []string{"scheduled", "queued", "running", "waiting", "needs-handler", "paused", "undoing", "dead"}

// runs collects the numbers of runs by state, and which workflows are paused. A workflow without runs
// has zeros.
func (s *Source) runs(ch sink, workflows []engine.WorkflowStats) {
	sums, paused := map[storm.Subject]map[string]int{}, map[storm.Subject]float64{}
	s.Tally.mu.Lock()
	for subject := range s.Tally.flows {
		sums[subject] = map[string]int{}
	}
	for _, w := range workflows {
		subject := s.Tally.bounded(w.Name)
		if sums[subject] == nil {
			sums[subject] = map[string]int{}
		}
		for state, n := range w.States {
			sums[subject][state] += n
		}
		if w.Paused != nil {
			paused[subject] = 1
		}
	}
	s.Tally.mu.Unlock()
	for subject, states := range sums {
		if subject.Layer == Workflow {
			ch.gauge(metricPaused, paused[subject], subject.Layer, subject.Name)
		}
		for _, state := range runStates {
			ch.gauge(metricRuns, float64(states[state]), subject.Layer, subject.Name, state)
		}
	}
}

func (s *Source) load(ch sink, stats *engine.Stats) {
	oldest := 0.0
	if stats.Oldest != nil {
		oldest = max(time.Since(*stats.Oldest).Seconds(), 0)
	}
	ch.gauge(metricQueue, float64(stats.Queued))
	ch.gauge(metricOldest, oldest)
	ch.gauge(metricTimers, float64(stats.Waiting))
	ch.gauge(metricRunning, float64(stats.Running))
	ch.gauge(metricStuck, float64(stats.Stuck))
	ch.gauge(metricBehind, float64(stats.Behind))
	ch.gauge(metricTroubles, float64(len(stats.Troubles)))
	ch.gauge(metricWarnings, float64(len(stats.Warnings)))
}

// disk collects the sizes of the files in the data folder: a sum for each label that partOf
// returns.
func (s *Source) disk(ch sink) {
	files, err := s.Engine.Operator().DiskUsage()
	if err != nil {
		return
	}
	parts := map[string]int64{"log": 0, "view": 0, "snapshot": 0, "rest": 0}
	for name, size := range files {
		parts[partOf(name)] += size
	}
	for part, size := range parts {
		ch.gauge(metricDisk, float64(size), part)
	}
}

// partOf returns the label of a file in the data folder. It compares prefixes, since SQLite has
// further files beside a database, such as log.db-wal.
func partOf(name string) string {
	base := filepath.Base(name)
	switch {
	case strings.HasPrefix(base, "log.db"):
		return "log"
	case strings.HasPrefix(base, "view.db"):
		return "view"
	case strings.HasPrefix(base, "snapshot-"):
		return "snapshot"
	}
	return "rest"
}

// sessions collects the numbers of sessions by state.
func (s *Source) sessions(ctx context.Context, ch sink) {
	if s.Sessions == nil {
		return
	}
	list, err := s.Sessions(ctx)
	if err != nil {
		return
	}
	states := map[string]int{}
	for _, one := range list {
		states[one.State]++
	}
	for _, state := range session.States {
		ch.gauge(metricSessions, float64(states[state]), state)
	}
}
