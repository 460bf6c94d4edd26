package main

import "strings"

// durable is the section of run.sh.
func (r *results) durable() string {
	rate := func(system string) key { return key{system, "tasks/s"} }
	ours := func(value string) key { return key{"tideover", value} }
	goals := []goal{
		{"start and complete, beside River", rate("tideover"), rate("river"), true, 10, "×"},
		{"start and complete, beside River tuned", rate("tideover"), rate("river-tuned"), true, 2, "×"},
		{"start and complete, beside Asynq", rate("tideover"), rate("asynq"), true, 5, "×"},
		{"start, p50", ours("start p50"), key{}, false, 0.5, "ms"},
		{"start, p99", ours("start p99"), key{}, false, 5, "ms"},
		{"late at 5 000/s, p50", ours("late p50"), key{}, false, 1, "ms"},
		{"late at 5 000/s, p99", ours("late p99"), key{}, false, 15, "ms"},
	}
	return join("## Compared with other systems", r.setting("make bench-durable"), "### Goals of the comparison", r.goals(goals),
		"### Measurements of the comparison", r.table(durableRows), durableCounted)
}

var durableRows = []row{
	{"tasks started and completed, per s", []string{"tasks/s"}},
	{"tasks started, per s", []string{"starts/s"}},
	{"tasks of a round", []string{"tasks"}},
	{"seconds of a round", []string{"seconds"}},
	{"start, p50 / p99, ms", []string{"start p50", "start p99"}},
	{"processor time of a task, own / server, µs", []string{"own µs", "server µs"}},
	{"behind when all are completed, s", []string{"settling seconds"}},
	{"falling due, per s", []string{"due/s"}},
	{"late, p50 / p99, ms", []string{"late p50", "late p99"}},
	{"latest, ms", []string{"late max"}},
	{"start of what is due later, p50 / p99, ms", []string{"scheduling p50", "scheduling p99"}},
}

const durableCounted = `What is counted:

- *Started and completed*: 16 goroutines start tasks, each the next one when the last one is stored, while handlers run.
  The time is from the first start until the system itself reports that all are recorded as completed.
- *Start*: from the call to its return. River tuned starts 500 tasks with each call; the value is the time of that call.
- *Processor time*: user and system time of the measured process, and of all processes of the server. For tideover it
  includes the time after the last completion in which lists and search catch up, which is the line *behind*.
- *Late*: from the time for which a task was scheduled, 3 s ahead, to the first line of its handler, while 5 000 a
  second are being scheduled and as many fall due. A system that cannot schedule that many gets as many as it can take,
  which is the line *falling due*. A negative value is early.
- *tideover*: embedded, ` + "`Durability: Full`" + `, all defaults: 256 attempts at once; keeps ended runs for lists and search.
- *river*: defaults, 256 workers, inserts one by one, 32 connections; PostgreSQL with its default settings; keeps ended
  tasks.
- *river-tuned*: ` + "`InsertManyFast`" + ` with 500, 1 000 workers, 1 ms fetch cooldown, 10 ms poll interval.
- *asynq*: defaults, 256 workers; Redis with ` + "`appendfsync always`" + `; deletes ended tasks. It schedules to the second, and
  checks every 5 s.
- Servers are reached through Unix sockets. All data stores start empty.
`

// waiting is the section of waiting.sh.
func (r *results) waiting() string {
	var goals []goal
	for _, s := range r.systems {
		if !strings.HasSuffix(s, " 1000000") {
			continue
		}
		of := func(value string) key { return key{s, value} }
		goals = append(goals,
			goal{s + ": resident, when all wait", of("VmRSS filled"), key{}, false, 600, "MB"},
			goal{s + ": resident, when opened again", of("VmRSS reopened"), key{}, false, 600, "MB"},
			goal{s + ": disk", of("disk"), key{}, false, 900, "MB"},
			goal{s + ": restart", of("restart seconds"), key{}, false, 3, "s"},
			goal{s + ": start of new work, p99, beside an empty engine", of("start p99"), of("empty: start p99"), false, 2, "×"})
	}
	parts := []string{"## Many waiting runs", r.setting("make bench-waiting")}
	if len(goals) > 0 {
		parts = append(parts, "### Goals with many waiting runs", r.goals(goals))
	}
	return join(append(parts, "### Measurements with many waiting runs", r.table(waitingRows), waitingCounted)...)
}

var waitingRows = []row{
	{"**filled**: until all wait, s", []string{"fill seconds"}},
	{"then, until lists and search know them, s", []string{"fill settling seconds"}},
	{"resident / its peak, MB", []string{"VmRSS filled", "VmHWM filled"}},
	{"heap with garbage / live, MB", []string{"heap filled", "live heap filled"}},
	{"disk, MB", []string{"disk"}},
	{"log.db / its -wal, MB", []string{"disk log.db", "disk log.db-wal"}},
	{"view.db / its -wal, MB", []string{"disk view.db", "disk view.db-wal"}},
	{"snapshots, MB", []string{"disk snapshot"}},
	{"**kill -9** until a new run is done, s", []string{"restart seconds"}},
	{"of that, Open, s", []string{"open seconds"}},
	{"resident / its peak, MB", []string{"VmRSS reopened", "VmHWM reopened"}},
	{"heap with garbage / live, MB", []string{"heap reopened", "live heap reopened"}},
	{"**new work**: completed, per s", []string{"tasks/s"}},
	{"the same, empty engine", []string{"empty: tasks/s"}},
	{"start, p50 / p99 / max, ms", []string{"start p50", "start p99", "start max"}},
	{"the same, empty engine", []string{"empty: start p50", "empty: start p99", "empty: start max"}},
	{"while a snapshot is written, ms", []string{"start in a snapshot p50", "start in a snapshot p99", "start in a snapshot max"}},
	{"while none is, ms", []string{"start without p50", "start without p99", "start without max"}},
	{"snapshots / s in them", []string{"snapshots", "snapshot seconds"}},
	{"**falling due**, per s", []string{"due/s"}},
	{"late, p50 / p99, ms", []string{"late p50", "late p99"}},
	{"the same, empty engine", []string{"empty: late p50", "empty: late p99"}},
	{"**at the end**: resident / its peak, MB", []string{"VmRSS at the end", "VmHWM at the end"}},
}

const waitingCounted = `What is counted:

- *delayed* runs were started with a delay of 10 h. *retrying* runs have made an attempt that failed and wait 10 h for
  the next, so they have a history with an error.
- *Filled* is measured 20 s after lists and search contain the runs, without work meanwhile.
- Each part is a separate process. The benchmark neither calls the garbage collector nor returns memory; the engine may.
  MB are 10⁶ bytes. Resident is VmRSS, its peak VmHWM. The live heap is the result of the last automatic collection.
- *Restart*: from kill -9 of the process that filled the folder, which had no work left, until another process has
  opened it and a new run has succeeded. This includes reaping the old process and starting the new one. The files are
  in the page cache.
- *New work*: 16 goroutines start runs that are due at once, as fast as they can, for at least 6 s. They continue until
  a snapshot was written meanwhile, if that happens within six times as long. *Empty engine* is the same with an empty
  folder, just before.
- *While a snapshot is written*: starts that overlap with the writing of a snapshot, or with the time in which the
  process has two snapshots open to verify the new one and release the old one.
- *Falling due*: 25 000 more runs at 5 000 a second, each due 3 s later: delayed runs, or runs that fail once and are
  retried. The delay of a retry counts from the return of the attempt that failed, so it includes storing the failure.
`

// join puts an empty line between the parts.
func join(parts ...string) string {
	for i := range parts {
		parts[i] = strings.TrimSuffix(parts[i], "\n")
	}
	return strings.Join(parts, "\n\n") + "\n"
}
