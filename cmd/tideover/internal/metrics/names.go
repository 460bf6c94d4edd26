package metrics

import "github.com/prometheus/client_golang/prometheus"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tideover_"+name, help, labels, nil)
}

// of returns the description of a metric of a part of a layer.
func of(name, help string, labels ...string) *prometheus.Desc {
	return desc(name, help, append([]string{"layer", "name"}, labels...)...)
}

// What is counted from events.
var (
	metricAttempts = of("attempts_total", "Attempts that were started.")
	metricFirst    = of("first_attempts_total", "Attempts that were started, without retries.")
	metricFailures = of("attempt_failures_total", "Attempts that failed.")
	metricLost     = of("attempts_lost_total", "Attempts during which the process ended.")
	metricRetries  = of("retries_total", "Waits before another attempt, by who set them.", "by")
	metricWaits    = desc("wait_seconds", "Planned length of waits before another attempt, by who set them.", "layer", "by")
	metricGiveUps  = of("giveups_total", "Runs that gave up, by reason.", "reason")
	metricStarted  = of("runs_started_total", "Runs that were accepted.")
	metricEnded    = of("runs_ended_total", "Runs that ended, by outcome.", "outcome")
)

// What is known of storms.
var (
	metricAmplified = of("amplification", "Recent attempts per first attempt; 1 means no retries.")
	metricStorm     = of("retry_storm", "1 while retries are a storm.")
	metricStorms    = of("retry_storms_total", "Retry storms that have begun.")
)

// What is read from the engine, of this process.
var (
	metricRuns     = of("runs", "Runs that are not finished, and dead ones, by state.", "state")
	metricQueue    = desc("queue_depth", "Steps that are due and wait for a free place.")
	metricOldest   = desc("queue_oldest_seconds", "How long the oldest due step has waited; 0 if there is none.")
	metricTimers   = desc("timers", "Waits and deadlines.")
	metricRunning  = desc("attempts_running", "Attempts under way.")
	metricStuck    = desc("handlers_stuck", "Handlers that were given up and have not returned.")
	metricBehind   = desc("view_behind_runs", "Runs that lists do not show yet.")
	metricTroubles = desc("troubles", "Problems that keep the engine from working.")
	metricWarnings = desc("warnings", "Schedules whose last start was rejected.")
	metricDisk     = desc("disk_bytes", "Size of the files in the data folder, by part.", "part")
	metricShards   = desc("cluster_shards_owned", "Shards that this process owns; absent without a cluster.")
	metricSessions = desc("sessions", "Sessions, by state.", "state")
)
