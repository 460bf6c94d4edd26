package control

import (
	"encoding/json"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/gateway"
)

// stateNames are the states of a run, in the order of its life.
var stateNames = []string{"scheduled", "queued", "running", "waiting", "needs-handler", "succeeded", "dead", "canceled", "replaced", "paused"}

// States returns the states of a run, in the order of its life.
func States() []string { return append([]string(nil), stateNames...) }

// Status is the state of the server.
type Status struct {
	Version      string           `json:"version"`
	Started      time.Time        `json:"started"`
	Uptime       float64          `json:"uptime_s"`
	Workflows    []WorkflowCounts `json:"workflows"`
	Timers       int              `json:"timers"`        // waits and deadlines
	Running      int              `json:"running"`       // attempts
	Stuck        int64            `json:"stuck"`         // handlers whose attempts were given up and that have not returned
	NeedsHandler map[string]int   `json:"needs_handler"` // steps that wait for a handler, by handler
	ViewBehind   int              `json:"view_behind"`   // runs that lists do not contain yet
	Next         *time.Time       `json:"next,omitempty"`
	Troubles     []engine.Trouble `json:"troubles"`
	Warnings     []engine.Trouble `json:"warnings,omitempty"` // do not make the server unhealthy: scheduled starts that were refused
	Storms       []storm.Storm    `json:"storms"`             // layers whose retries multiply the load at the moment
	Config       ConfigFile       `json:"config"`
	Silent       []int            `json:"silent,omitempty"` // shards that did not answer; their runs are not counted
}

// ConfigFile is the result of the last reload of the configuration file. A file with an error
// changes nothing: the server keeps the configuration that it had.
type ConfigFile struct {
	Read    time.Time `json:"read,omitzero"`     // when it was last reloaded; zero if never
	Problem string    `json:"problem,omitempty"` // why the reload failed; empty if it did not
	More    int       `json:"more,omitempty"`    // number of further problems
}

// WorkflowCounts is the number of runs of a workflow by state.
type WorkflowCounts struct {
	Name   string         `json:"name"`
	States map[string]int `json:"states"` // runs that are not finished, and dead ones
	Totals Totals         `json:"totals"`
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

// Workflow is a workflow that can be started.
type Workflow struct {
	Name      string        `json:"name"`
	Timeout   time.Duration `json:"timeout_ns,omitempty"` // of a run; 0 means none
	Steps     []Step        `json:"steps"`
	Schedules []string      `json:"schedules,omitempty"` // names of those that start it
	Next      *time.Time    `json:"next,omitempty"`      // the first start by one of them
}

// Workflows are the workflows that can be started.
type Workflows struct {
	Workflows []Workflow `json:"workflows"`
	Missing   string     `json:"schedules_missing,omitempty"` // why the schedules are unknown: their owner does not answer
}

// Step is a step of a workflow as it is defined.
type Step struct {
	Name    string   `json:"name"`
	Needs   []string `json:"needs,omitempty"`
	Policy  string   `json:"policy"`
	Handler string   `json:"handler"`
	MaxLost int      `json:"max_lost"` // how many attempts in a row may be lost with a process before the step fails
}

// Start is a request to start a run.
type Start struct {
	Workflow string          `json:"workflow"`
	Input    json.RawMessage `json:"input,omitempty"`
	Key      string          `json:"key,omitempty"`
	Timeout  Span            `json:"timeout,omitzero"`
	At       time.Time       `json:"at,omitzero"`
	In       Span            `json:"in,omitzero"`
}

// Started is a run that was accepted.
type Started struct {
	ID       string `json:"id"`
	Existing bool   `json:"existing"` // a run with the key existed; nothing was started

	InputDiffers bool `json:"input_differs"` // the existing run has another input than the request
}

// Outcome is a short form of the state of a run.
type Outcome struct {
	ID        string            `json:"id"`
	State     string            `json:"state"`
	Step      string            `json:"step,omitempty"`
	Attempts  int               `json:"attempts"`
	Next      *time.Time        `json:"next,omitempty"` // end of the wait
	Reason    string            `json:"reason,omitempty"`
	LastError string            `json:"last_error,omitempty"`
	Replaced  string            `json:"replaced_by,omitempty"` // the run that replaced this dead one
	Output    json.RawMessage   `json:"output,omitempty"`
	Retry     *engine.RetryInfo `json:"retry,omitempty"`
}

// Filter selects runs. A field that is zero selects all.
type Filter struct {
	States      []string  `json:"state,omitempty"` // any of them
	Workflow    string    `json:"workflow,omitempty"`
	Search      string    `json:"search,omitempty"` // words, or the beginning of an id
	Error       string    `json:"error,omitempty"`  // a text, or the pattern of a Group
	Since       time.Time `json:"since,omitzero"`
	Until       time.Time `json:"until,omitzero"`
	MinAttempts int       `json:"min_attempts,omitempty"`
	Internal    bool      `json:"internal,omitempty"` // include runs of [Internal] workflows; Workflow selects one of them without it
	Order       string    `json:"order,omitempty"`    // newest (the default), oldest, next; only in lists
	Limit       int       `json:"limit,omitempty"`
	After       string    `json:"after,omitempty"`

	// Fresh makes a list wait until it contains all runs that were started before. It is not
	// part of a request.
	Fresh bool `json:"-"`
}

// Bulk is a request to retry or cancel runs: those of IDs, or those that match the filter. Its
// own Limit and After count instead of those of the filter. Latest is for retries only.
type Bulk struct {
	IDs    []string `json:"ids,omitempty"`
	Filter *Filter  `json:"filter,omitempty"`
	Limit  int      `json:"limit,omitempty"` // of this request; 0 means 1000, the maximum
	After  string   `json:"after,omitempty"` // Done.Next of the request before

	// Latest retries with the current definition: each run is replaced by a new one.
	Latest bool `json:"latest,omitempty"`
}

// Latest is a request to continue a run with the current definition. Both fields are optional.
type Latest struct {
	From  string          `json:"from,omitempty"`  // the step to begin with
	Input json.RawMessage `json:"input,omitempty"` // replaces the input of the run; results are not kept then
}

// Done is the result of a Bulk.
type Done struct {
	Matched int      `json:"matched"`
	Done    int      `json:"done"`
	Failed  []Failed `json:"failed"`
	Next    string   `json:"next,omitempty"`   // for Bulk.After if there may be more runs
	Silent  []int    `json:"silent,omitempty"` // shards that did not answer; their runs were left alone
}

// Failed is a run of a Bulk for which the operation failed.
type Failed struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// Dead is the dead runs, grouped by how they failed.
type Dead struct {
	Groups []Group `json:"groups"`
	Silent []int   `json:"silent,omitempty"` // shards that did not answer; their runs are missing
}

// Group is a set of dead runs with similar errors.
type Group struct {
	Error    string    `json:"error"`   // of the newest run
	Pattern  string    `json:"pattern"` // for Filter.Error
	Workflow string    `json:"workflow"`
	Step     string    `json:"step"`
	Count    int       `json:"count"`
	First    time.Time `json:"first"` // start of the oldest run
	Last     time.Time `json:"last"`  // start of the newest run
}

// Health is the result of a health check.
type Health struct {
	OK       bool     `json:"ok"`
	Troubles []string `json:"troubles,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // do not make the server unhealthy
}

// Backup is the result of a backup.
type Backup struct {
	Dir       string         `json:"dir"`
	Shards    int            `json:"shards,omitempty"` // of the cluster; 0 without one, and then the following fields are unknown
	Runs      map[string]int `json:"runs,omitempty"`   // by state
	Keys      int            `json:"keys,omitempty"`
	Schedules int            `json:"schedules,omitempty"`
	LeftOut   []move.LeftOut `json:"left_out,omitempty"` // lost shards, whose runs are not in the copy
}

// Diagnosis is what weakens the guarantees of a server.
type Diagnosis struct {
	Engine   string           `json:"engine"` // where runs are stored, in words
	Findings []doctor.Finding `json:"findings"`
}

// ProviderList is all providers, and the result of the last reload of their configuration file.
type ProviderList struct {
	Providers []gateway.Status `json:"providers"`
	Config    ConfigFile       `json:"config"`
}

// SessionPause says for how long a session is paused. The zero value means until it is resumed.
type SessionPause struct {
	Until   time.Time `json:"until,omitzero"`
	Tonight bool      `json:"tonight,omitempty"` // until the end of its quiet hours, or seven in the morning
}
