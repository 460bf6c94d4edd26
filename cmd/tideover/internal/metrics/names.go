package metrics

import "github.com/prometheus/client_golang/prometheus"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tideover_"+name, help, labels, nil)
}

// layerDesc returns the description of a metric with the labels layer and name.
func layerDesc(name, help string, labels ...string) *prometheus.Desc {
	return desc(name, help, append([]string{"layer", "name"}, labels...)...)
}

// Metrics that a [Tally] computes from events.
var (
	metricAttempts = layerDesc("attempts_total", "Attempts that were started.")
	metricFirst    = layerDesc("first_attempts_total", "Attempts that were started, without retries.")
	metricFailures = layerDesc("attempt_failures_total", "Attempts that failed.")
	metricLost     = layerDesc("attempts_lost_total", "Attempts during which the process ended.")
	metricRetries  = layerDesc("retries_total", "Waits before another attempt, by who set them.", "by")
	metricGiveUps  = layerDesc("giveups_total", "Runs that gave up, by reason.", "reason")
	metricStarted  = layerDesc("runs_started_total", "Runs that were accepted.")
	metricEnded    = layerDesc("runs_ended_total", "Runs that ended, by outcome.", "outcome")
)

// Metrics about retry storms.
var (
	metricAmplified = layerDesc("amplification", "Recent attempts per first attempt; 1 means no retries.")
	metricStorm     = layerDesc("retry_storm", "1 during a retry storm.")
	metricStorms    = layerDesc("retry_storms_total", "Retry storms that have begun.")
)

// Metrics that a [Source] reads from the engine of this process.
var (
	metricRuns     = layerDesc("runs", "Runs that are not finished, and dead ones, by state.", "state")
	metricPaused   = layerDesc("workflow_paused", "1 if the workflow is paused: no attempt of its runs begins.")
	metricQueue    = desc("queue_depth", "Steps that are due and wait because of a concurrency limit; without those of paused workflows.")
	metricOldest   = desc("queue_oldest_seconds", "How long the oldest due step has waited, without those of paused workflows; 0 if there is none.")
	metricTimers   = desc("timers", "Pending waits and deadlines.")
	metricRunning  = desc("attempts_running", "Attempts under way.")
	metricStuck    = desc("handlers_stuck", "Handlers that were given up and have not returned.")
	metricBehind   = desc("view_behind_runs", "Runs that lists do not show yet.")
	metricTroubles = desc("troubles", "Problems that keep the engine from working.")
	metricWarnings = desc("warnings", "Schedules whose last start was rejected, and functions of flows that are blocked outside of an operation.")
	metricDisk     = desc("disk_bytes", "Size of the files in the data folder, by part.", "part")
	metricShards   = desc("cluster_shards_owned", "Shards that this process owns; absent without a cluster.")
	metricSessions = desc("sessions", "Sessions, by state.", "state")
)
