package main

import (
	"strings"

	"github.com/tideover/tideover/internal/benchreport"
)

// durable returns the section with the measurements of run.sh.
func durable(r *benchreport.Results) string {
	ours := func(value string) benchreport.Key { return benchreport.Of("tideover", value) }
	beside := func(system string) benchreport.Measure {
		return ours("tasks/s").Over(benchreport.Of(system, "tasks/s"))
	}
	goals := []benchreport.Goal{
		benchreport.AtLeast("start and complete, beside River", beside("river"), 10, "×"),
		benchreport.AtLeast("start and complete, beside River tuned", beside("river-tuned"), 2, "×"),
		benchreport.AtLeast("start and complete, beside Asynq", beside("asynq"), 5, "×"),
		benchreport.AtLeast("a flow of one operation, beside a workflow of one step", benchreport.Of("tideover-flow", "tasks/s").Over(ours("tasks/s")), 0.8, "×"),
		benchreport.AtMost("start, p50", ours("start p50").Median, 0.5, "ms"),
		benchreport.AtMost("start, p99", ours("start p99").Median, 5, "ms"),
		benchreport.AtMost("late at 5 000/s, p50", ours("late p50").Median, 1, "ms"),
		benchreport.AtMost("late at 5 000/s, p99", ours("late p99").Median, 15, "ms"),
	}
	return benchreport.Join(setting(r, "make bench-durable"), "### Goals of the comparison", r.Goals(goals),
		"### Measurements of the comparison", r.Table(durableRows))
}

var durableRows = []benchreport.Row{
	benchreport.Medians("tasks started and completed, per s", "tasks/s"),
	benchreport.Medians("tasks started, per s", "starts/s"),
	benchreport.Medians("tasks of a round", "tasks"),
	benchreport.Medians("seconds of a round", "seconds"),
	benchreport.Medians("start, p50 / p99, ms", "start p50", "start p99"),
	benchreport.Medians("processor time of a task, own / server, µs", "own µs", "server µs"),
	benchreport.Medians("behind when all are completed, s", "settling seconds"),
	benchreport.Medians("falling due, per s", "due/s"),
	benchreport.Medians("late, p50 / p99, ms", "late p50", "late p99"),
	benchreport.Medians("latest, ms", "late max"),
	benchreport.Medians("start of what is due later, p50 / p99, ms", "scheduling p50", "scheduling p99"),
}

// waiting returns the section with the measurements of waiting.sh.
func waiting(r *benchreport.Results) string {
	var goals []benchreport.Goal
	for _, s := range r.Systems {
		if !strings.HasSuffix(s, " 1000000") {
			continue
		}
		of := func(value string) benchreport.Key { return benchreport.Of(s, value) }
		disk := 900.0
		if strings.HasPrefix(s, "sleeping ") {
			disk = 1800 // each has three results of 100 bytes
		}
		goals = append(goals,
			benchreport.AtMost(s+": resident, when all wait", of("VmRSS filled").Median, 600, "MB"),
			benchreport.AtMost(s+": its peak, beside that", of("VmHWM filled").Over(of("VmRSS filled")), 2, "×"),
			benchreport.AtMost(s+": resident, when opened again", of("VmRSS reopened").Median, 600, "MB"),
			benchreport.AtMost(s+": disk", of("disk").Median, disk, "MB"),
			benchreport.AtMost(s+": restart", of("restart seconds").Median, 3, "s"),
			benchreport.AtMost(s+": start of new work, p99, beside an empty engine", of("start p99").Over(of("empty: start p99")), 2, "×"))
	}
	parts := []string{setting(r, "make bench-waiting")}
	if len(goals) > 0 {
		parts = append(parts, "### Goals with many waiting runs", r.Goals(goals))
	}
	return benchreport.Join(append(parts, "### Measurements with many waiting runs", r.Table(waitingRows))...)
}

var waitingRows = []benchreport.Row{
	benchreport.Medians("**filled**: until all wait, s", "fill seconds"),
	benchreport.Medians("then, until lists and search know them, s", "fill settling seconds"),
	benchreport.Medians("resident / its peak, MB", "VmRSS filled", "VmHWM filled"),
	benchreport.Medians("heap with garbage / live, MB", "heap filled", "live heap filled"),
	benchreport.Medians("disk, MB", "disk"),
	benchreport.Medians("log.db / its -wal, MB", "disk log.db", "disk log.db-wal"),
	benchreport.Medians("view.db / its -wal, MB", "disk view.db", "disk view.db-wal"),
	benchreport.Medians("snapshots, MB", "disk snapshot"),
	benchreport.Medians("**kill -9** until a new run is done, s", "restart seconds"),
	benchreport.Medians("of that, Open, s", "open seconds"),
	benchreport.Medians("resident / its peak, MB", "VmRSS reopened", "VmHWM reopened"),
	benchreport.Medians("heap with garbage / live, MB", "heap reopened", "live heap reopened"),
	benchreport.Medians("**new work**: completed, per s", "tasks/s"),
	benchreport.Medians("the same, empty engine", "empty: tasks/s"),
	benchreport.Medians("start, p50 / p99 / max, ms", "start p50", "start p99", "start max"),
	benchreport.Medians("the same, empty engine", "empty: start p50", "empty: start p99", "empty: start max"),
	benchreport.Medians("while a snapshot is written, ms", "start in a snapshot p50", "start in a snapshot p99", "start in a snapshot max"),
	benchreport.Medians("while none is, ms", "start without p50", "start without p99", "start without max"),
	benchreport.Medians("snapshots / s in them", "snapshots", "snapshot seconds"),
	benchreport.Medians("**falling due**, per s", "due/s"),
	benchreport.Medians("late, p50 / p99, ms", "late p50", "late p99"),
	benchreport.Medians("the same, empty engine", "empty: late p50", "empty: late p99"),
	benchreport.Medians("**at the end**: resident / its peak, MB", "VmRSS at the end", "VmHWM at the end"),
}
