package api

import (
	"encoding/json"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
)

// Prefix is where the API is mounted.
const Prefix = "/api/v1/"

// The states of a run, in the order of its life.
var stateNames = []string{"scheduled", "queued", "running", "waiting", "needs-handler", "succeeded", "dead", "canceled", "replaced", "paused"}

// States returns the states of a run, in the order of its life.
func States() []string { return append([]string(nil), stateNames...) }

// Status is how the server is.
type Status struct {
	Version      string           `json:"version"`
	Started      time.Time        `json:"started"`
	Uptime       float64          `json:"uptime_s"`
	Workflows    []WorkflowCounts `json:"workflows"`
	Timers       int              `json:"timers"`        // waits and deadlines
	Running      int              `json:"running"`       // attempts
	Stuck        int64            `json:"stuck"`         // handlers that were given up and have not returned
	NeedsHandler map[string]int   `json:"needs_handler"` // steps that wait for a handler, by handler
	ViewBehind   int              `json:"view_behind"`   // runs that lists have yet to see
	Next         *time.Time       `json:"next,omitempty"`
	Troubles     []engine.Trouble `json:"troubles"`
	Warnings     []engine.Trouble `json:"warnings,omitempty"` // it works, and someone should look at these: scheduled starts that were refused
	Storms       []storm.Storm    `json:"storms"`             // layers whose retries multiply the load now
	Config       ConfigFile       `json:"config"`
	Silent       []int            `json:"silent,omitempty"` // shards that did not answer: they are not counted
}

// ConfigFile is what became of the file of the configuration. A file that is wrong
// changes nothing: what the server does is older than the file then.
type ConfigFile struct {
	Read    time.Time `json:"read,omitzero"`     // when it was last read again; zero if it was not since the start
	Problem string    `json:"problem,omitempty"` // why it was not taken over then
	More    int       `json:"more,omitempty"`    // so many other problems it has
}

// WorkflowCounts is where the runs of a workflow are.
type WorkflowCounts struct {
	Name   string         `json:"name"`
	States map[string]int `json:"states"` // runs that are not finished, and dead ones
	Totals Totals         `json:"totals"`
}

// Totals is what happened to a workflow since the log began.
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

// Workflows are what can be started.
type Workflows struct {
	Workflows []Workflow `json:"workflows"`
	Missing   string     `json:"schedules_missing,omitempty"` // why they have no schedules here: nobody answers for them
}

// Step is a step of a workflow as it was written.
type Step struct {
	Name    string   `json:"name"`
	Needs   []string `json:"needs,omitempty"`
	Policy  string   `json:"policy"`
	Handler string   `json:"handler"`
	MaxLost int      `json:"max_lost"` // how many attempts in a row may be lost with a process and are made again
}

// Start is what a run is started with.
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
	Existing bool   `json:"existing"` // the key was known, nothing was started

	InputDiffers bool `json:"input_differs"` // and the existing run has another input than the request
}

// Outcome is how a run stands, in short.
type Outcome struct {
	ID        string            `json:"id"`
	State     string            `json:"state"`
	Step      string            `json:"step,omitempty"`
	Attempts  int               `json:"attempts"`
	Next      *time.Time        `json:"next,omitempty"` // end of the wait
	Reason    string            `json:"reason,omitempty"`
	LastError string            `json:"last_error,omitempty"`
	Replaced  string            `json:"replaced_by,omitempty"` // the run that does the work of this dead one
	Output    json.RawMessage   `json:"output,omitempty"`
	Retry     *engine.RetryInfo `json:"retry,omitempty"`
}

// Filter says which runs are meant. What is zero does not matter.
type Filter struct {
	States      []string  `json:"state,omitempty"` // any of them
	Workflow    string    `json:"workflow,omitempty"`
	Search      string    `json:"search,omitempty"` // words, or the beginning of an id
	Error       string    `json:"error,omitempty"`  // a text, or the pattern of a Group
	Since       time.Time `json:"since,omitzero"`
	Until       time.Time `json:"until,omitzero"`
	MinAttempts int       `json:"min_attempts,omitempty"`
	Internal    bool      `json:"internal,omitempty"` // also runs of workflows that are [Internal]; one that is named is meant anyway
	Order       string    `json:"order,omitempty"`    // newest (the default), oldest, next; only in lists
	Limit       int       `json:"limit,omitempty"`
	After       string    `json:"after,omitempty"`
}

// Bulk says which runs are retried or canceled: those of IDs, or those that
// match the filter. Limit and After of the filter are not used, but these. Latest is
// only for those that are retried.
type Bulk struct {
	IDs    []string `json:"ids,omitempty"`
	Filter *Filter  `json:"filter,omitempty"`
	Limit  int      `json:"limit,omitempty"` // of this request; 0 means 1000, which is the most
	After  string   `json:"after,omitempty"` // Done.Next of the request before

	// Latest retries with the current definition: each run is replaced by a new one.
	Latest bool `json:"latest,omitempty"`
}

// Latest says how a run is continued with the current definition; both may be left out.
type Latest struct {
	From  string          `json:"from,omitempty"`  // the step to begin with
	Input json.RawMessage `json:"input,omitempty"` // instead of that of the run; no result is kept then
}

// Done is what became of a Bulk.
type Done struct {
	Matched int      `json:"matched"`
	Done    int      `json:"done"`
	Failed  []Failed `json:"failed"`
	Next    string   `json:"next,omitempty"`   // for Bulk.After, if there may be more
	Silent  []int    `json:"silent,omitempty"` // shards that did not answer: nothing was done with their runs
}

// Failed is a run with which something could not be done.
type Failed struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// Dead is the dead runs, grouped by how they failed.
type Dead struct {
	Groups []Group `json:"groups"`
	Silent []int   `json:"silent,omitempty"` // shards that did not answer: their runs are missing
}

// Group is dead runs that failed alike.
type Group struct {
	Error    string    `json:"error"`   // of the newest run
	Pattern  string    `json:"pattern"` // for Filter.Error
	Workflow string    `json:"workflow"`
	Step     string    `json:"step"`
	Count    int       `json:"count"`
	First    time.Time `json:"first"` // when the oldest run was started
	Last     time.Time `json:"last"`  // and the newest
}

// Health is the answer to healthz.
type Health struct {
	OK       bool     `json:"ok"`
	Troubles []string `json:"troubles,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // they do not make it unhealthy
}
