package admin

import (
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/gateway"
)

// Status is the state of the server.
type Status struct {
	Version      string           `json:"version"`
	Started      time.Time        `json:"started"`
	Uptime       float64          `json:"uptime_s"` // seconds
	Workflows    []WorkflowCounts `json:"workflows"`
	Timers       int              `json:"timers"`             // number of waits and deadlines
	Running      int              `json:"running"`            // number of running attempts
	Stuck        int64            `json:"stuck"`              // handlers whose attempts were given up and that have not returned
	NeedsHandler map[string]int   `json:"needs_handler"`      // steps that wait for a handler, by handler
	ViewBehind   int              `json:"view_behind"`        // runs that lists do not contain yet
	Next         *time.Time       `json:"next,omitempty"`     // end of the first wait or deadline
	Troubles     []engine.Trouble `json:"troubles"`           // problems that make the server unhealthy
	Warnings     []engine.Trouble `json:"warnings,omitempty"` // other problems: scheduled starts that were refused
	Storms       []storm.Storm    `json:"storms"`             // layers whose retries multiply the load at the moment
	Config       ConfigFile       `json:"config"`
	Silent       []int            `json:"silent,omitempty"` // shards that did not answer; their runs are not counted
}

// ConfigFile is the result of the last reload of the configuration file. If the reload fails, the
// server keeps its configuration.
type ConfigFile struct {
	Read    time.Time `json:"read,omitzero"`     // when it was last reloaded; zero if never
	Problem string    `json:"problem,omitempty"` // why the reload failed; empty if it succeeded
	More    int       `json:"more,omitempty"`    // number of further problems
}

// WorkflowCounts has the numbers of runs of a workflow.
type WorkflowCounts struct {
	Name   string         `json:"name"`
	States map[string]int `json:"states"` // by state: runs that have not ended, and dead runs
	Totals Totals         `json:"totals"`

	Paused *engine.PausedWorkflow `json:"paused,omitempty"` // nil if the workflow is not paused
}

// Totals are the counters of a workflow since the log began.
type Totals struct {
	Started   uint64 `json:"started"`
	Succeeded uint64 `json:"succeeded"`
	Dead      uint64 `json:"dead"`
	Canceled  uint64 `json:"canceled"`
	Attempts  uint64 `json:"attempts"`
	Failures  uint64 `json:"failures"`
	Lost      uint64 `json:"lost"`
}

// Callback is a URL with which another system sends one signal to one run.
type Callback struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
}

// Health is the result of a health check.
type Health struct {
	OK       bool     `json:"ok"`
	Troubles []string `json:"troubles,omitempty"` // why the server is not healthy
	Warnings []string `json:"warnings,omitempty"` // do not make the server unhealthy
}

// Backup is the result of a backup.
type Backup struct {
	Dir       string         `json:"dir"`
	Shards    int            `json:"shards,omitempty"` // of the cluster; 0 without a cluster, and then the fields below are not set
	Runs      map[string]int `json:"runs,omitempty"`   // by state
	Keys      int            `json:"keys,omitempty"`
	Schedules int            `json:"schedules,omitempty"`
	LeftOut   []move.LeftOut `json:"left_out,omitempty"` // lost shards, whose runs are not in the copy
}

// Diagnosis has the findings of `tideover doctor` about a server.
type Diagnosis struct {
	Engine   string           `json:"engine"` // where runs are stored, such as "the folder /var/lib/tideover"
	Findings []doctor.Finding `json:"findings"`
}

// ProviderList has all providers, and the result of the last reload of their configuration file.
type ProviderList struct {
	Providers []gateway.Status `json:"providers"`
	Config    ConfigFile       `json:"config"`
}

// SessionPause says how long to pause a session. The zero value means until it is resumed.
type SessionPause struct {
	Until   time.Time `json:"until,omitzero"`
	Tonight bool      `json:"tonight,omitempty"` // until the end of the session's quiet hours; without them, until 7 a.m.
}
