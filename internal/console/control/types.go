package control

import (
	"encoding/json"
	"time"

	"github.com/tideover/tideover/engine"
)

// stateNames are the states of a run, in the order in which lists of states show them.
var stateNames = []string{"scheduled", "queued", "running", "waiting", "needs-handler", "succeeded", "dead", "canceled", "replaced", "paused", "undoing"}

// States returns all states of runs, from scheduled to paused.
func States() []string { return append([]string(nil), stateNames...) }

// Workflow is a workflow that can be started.
type Workflow struct {
	Name      string        `json:"name"`
	Timeout   time.Duration `json:"timeout_ns,omitempty"` // of a run; 0 means none
	Steps     []Step        `json:"steps"`
	Schedules []string      `json:"schedules,omitempty"` // names of the schedules that start it
	Next      *time.Time    `json:"next,omitempty"`      // the next start by a schedule

	Paused *engine.PausedWorkflow `json:"paused,omitempty"` // nil if the workflow is not paused
}

// Workflows are the workflows that can be started.
type Workflows struct {
	Workflows []Workflow `json:"workflows"`
	Missing   string     `json:"schedules_missing,omitempty"` // why schedules or pauses are missing: their owner does not answer
}

// Step is the definition of a step of a workflow.
type Step struct {
	Name    string   `json:"name"`
	Needs   []string `json:"needs,omitempty"` // steps that must succeed before it starts
	Policy  string   `json:"policy"`
	Handler string   `json:"handler"`
	MaxLost int      `json:"max_lost"` // how many attempts in a row may be lost because a process ended, before the step fails
}

// Start is a request to start a run.
type Start struct {
	Workflow string          `json:"workflow"`
	Input    json.RawMessage `json:"input,omitempty"`
	Key      string          `json:"key,omitempty"`    // if a run has the key already, no run is started
	Timeout  Span            `json:"timeout,omitzero"` // of the run; 0 means that of the workflow
	At       time.Time       `json:"at,omitzero"`      // when to start it; zero means now
	In       Span            `json:"in,omitzero"`      // delay of the start, instead of At
}

// Started is the response to a [Start]: the new run, or the run that has the key already.
type Started struct {
	ID       string `json:"id"`
	Existing bool   `json:"existing"` // a run with the key existed; no run was started

	InputDiffers bool `json:"input_differs"` // the existing run has another input than the request
}

// Signal is a signal to a run. ID is chosen by the sender; if it is empty, the server chooses one.
type Signal struct {
	Name string
	ID   string          // of two signals with the same id the run gets one
	Data json.RawMessage // the payload; nil means null
}

// Signaled is the response to a [Signal] that is stored.
type Signaled struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

// Reply is the answer of a person to a question of a run.
type Reply struct {
	Choice string `json:"choice"`
	Words  string `json:"words,omitempty"`
}

// Outcome is a short form of the state of a run.
type Outcome struct {
	ID        string            `json:"id"`
	State     string            `json:"state"`
	Step      string            `json:"step,omitempty"`
	Attempts  int               `json:"attempts"`       // of all steps; Retry has those of the step
	Next      *time.Time        `json:"next,omitempty"` // end of the current wait
	Reason    string            `json:"reason,omitempty"`
	LastError string            `json:"last_error,omitempty"`
	Replaced  string            `json:"replaced_by,omitempty"` // the run that replaced this dead one
	Output    json.RawMessage   `json:"output,omitempty"`
	Retry     *engine.RetryInfo `json:"retry,omitempty"`
}

// Filter selects the runs that match all of its fields. A zero field matches every run.
type Filter struct {
	States      []string  `json:"state,omitempty"` // any of them
	Workflow    string    `json:"workflow,omitempty"`
	Search      string    `json:"search,omitempty"` // words, or the beginning of an id
	Error       string    `json:"error,omitempty"`  // the text of an error, or the pattern of a Group; selects runs with similar errors
	Since       time.Time `json:"since,omitzero"`
	Until       time.Time `json:"until,omitzero"`
	MinAttempts int       `json:"min_attempts,omitempty"`
	Tags        []string  `json:"tag,omitempty"`      // all of them, each written as name=value
	Asking      bool      `json:"asking,omitempty"`   // runs that wait for the answer to a question
	Internal    bool      `json:"internal,omitempty"` // include [Internal] workflows; not needed if Workflow names one
	Order       string    `json:"order,omitempty"`    // newest (the default), oldest, next; only in lists
	Limit       int       `json:"limit,omitempty"`
	After       string    `json:"after,omitempty"` // cursor: Next of the previous page

	// Fresh makes a list wait until it contains all runs that were started before the call. It is
	// not part of a request.
	Fresh bool `json:"-"`
}

// Bulk is a request to retry or cancel many runs: the runs in IDs, or those that match Filter.
// Limit and After replace those of the filter.
type Bulk struct {
	IDs    []string `json:"ids,omitempty"`
	Filter *Filter  `json:"filter,omitempty"`
	Limit  int      `json:"limit,omitempty"` // of this request; 0 means 1000, the maximum
	After  string   `json:"after,omitempty"` // Done.Next of the previous request

	// Latest retries with the current definition: a new run replaces each run. A request to cancel
	// runs must not set it.
	Latest bool `json:"latest,omitempty"`
}

// Latest is a request to continue a run with the current definition. Both fields are optional.
type Latest struct {
	From  string          `json:"from,omitempty"`  // the step to begin with
	Input json.RawMessage `json:"input,omitempty"` // replaces the input of the run, and discards all results
}

// Done is the result of [Runs.Bulk].
type Done struct {
	Matched int      `json:"matched"`
	Done    int      `json:"done"`
	Failed  []Failed `json:"failed"`
	Next    string   `json:"next,omitempty"`   // for Bulk.After; empty if there are no more runs
	Silent  []int    `json:"silent,omitempty"` // shards that did not answer; their runs were not changed
}

// Failed is a run that [Runs.Bulk] could not change.
type Failed struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// Dead has the dead runs, grouped by similar errors.
type Dead struct {
	Groups []Group `json:"groups"`
	Silent []int   `json:"silent,omitempty"` // shards that did not answer; their runs are missing
}

// Group is a set of dead runs with similar errors.
type Group struct {
	Error    string    `json:"error"`   // of the newest run
	Pattern  string    `json:"pattern"` // matches the errors of the group; for Filter.Error
	Workflow string    `json:"workflow"`
	Step     string    `json:"step"`
	Count    int       `json:"count"`
	First    time.Time `json:"first"` // start of the oldest run
	Last     time.Time `json:"last"`  // start of the newest run
}
