package engine

import (
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/view"
)

// Filter says which runs are listed.
type Filter struct {
	States      []string // any of them; none means all
	Workflow    string
	Exclude     []string // workflows that are left out: names, and beginnings and ends of such as in "a.*" and "*.b"
	Search      string   // words, or the beginning of one
	ErrorLike   string   // the pattern of a Group
	Since       time.Time
	Until       time.Time
	MinAttempts int
	Order       string // newest (the default), oldest, or next for the end of the wait
	After       string // Page.Next of the page before
	Limit       int    // 0 means 50, and 1000 is the most
	Fresh       bool   // the list waits, for a second at most, until it has what was acknowledged before
}

// Page is a part of a list.
type Page struct {
	Runs   []Info `json:"runs"` // without steps; input and output may be cut
	Next   string `json:"next,omitempty"`
	Behind int    `json:"behind,omitempty"` // runs that a search has yet to learn of
	Silent []int  `json:"silent,omitempty"` // shards that did not answer: their runs are missing
}

// passed is the cursor of a shard whose runs are not in a list.
const passed = "-"

func (f *Filter) view() view.Filter {
	return view.Filter{
		States: f.States, Workflow: f.Workflow, Exclude: f.Exclude, Search: f.Search, Error: f.ErrorLike, Since: f.Since, Until: f.Until,
		MinAttempts: f.MinAttempts, After: f.After, Limit: f.Limit,
		Order: view.Order(f.Order),
	}
}

// matches is for engines without a view.
func (f *Filter) matches(r *view.Run) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, r.State)) && (f.Workflow == "" || f.Workflow == r.Workflow) &&
		!view.Like(f.Exclude, r.Workflow) && r.Attempts >= f.MinAttempts && (f.Since.IsZero() || !r.Created.Before(f.Since)) && (f.Until.IsZero() || r.Created.Before(f.Until)) &&
		(f.Search == "" || strings.Contains(strings.Join([]string{r.ID, r.Key, r.Workflow, r.Error, string(r.Input)}, "\n"), f.Search))
}

// summary returns the short form of a run.
func summary(r *view.Run) Info {
	i := Info{
		ID: r.ID, Workflow: r.Workflow, Key: r.Key, State: r.State, Created: r.Created, Updated: r.Updated,
		Attempts: r.Attempts, Step: r.Step, Error: r.Error, Reason: r.Reason, ReplacedBy: r.ReplacedBy,
		InputPreview: string(r.Input), OutputPreview: string(r.Output),
	}
	if !r.Ended.IsZero() {
		i.Ended = &r.Ended
	}
	if !r.Next.IsZero() {
		i.Next = &r.Next
	}
	return i
}

// Group is dead runs that failed alike: with the same pattern of error, in the same
// step of the same workflow.
type Group struct {
	Error    string // of the newest run
	Pattern  string // for Filter.ErrorLike
	Workflow string
	Step     string
	Count    int
	First    time.Time // Created of the oldest run
	Last     time.Time // Created of the newest run
}

// Groups are the dead runs, grouped by how they failed.
type Groups struct {
	Groups []Group
	Silent []int // shards that did not answer: their runs are missing
}

// Stats is where everything is.
type Stats struct {
	Workflows []WorkflowStats `json:"workflows"`
	Waiting   int             `json:"timers"`           // waits and deadlines
	Running   int             `json:"running"`          // attempts
	Queued    int             `json:"queued"`           // steps that are due and wait for a free place, at most
	Oldest    *time.Time      `json:"oldest,omitempty"` // since when the first of them has been due
	Stuck     int64           `json:"stuck"`            // handlers that were given up and have not returned
	Missing   map[string]int  `json:"needs_handler"`    // steps that wait for a handler, by handler
	Behind    int             `json:"view_behind"`      // runs the view has yet to see
	Next      *time.Time      `json:"next,omitempty"`
	Troubles  []Trouble       `json:"troubles,omitempty"`
	Warnings  []Trouble       `json:"warnings,omitempty"` // see [Engine.Warnings]
	Silent    []int           `json:"silent,omitempty"`   // shards that did not answer: they are not counted
}

// Totals counts what happened since the log began.
type Totals struct {
	Started, Succeeded, Dead, Canceled uint64 // runs
	Attempts, Failures, Lost           uint64 // attempts
}

// WorkflowStats is where the runs of a workflow are.
type WorkflowStats struct {
	Name   string         `json:"name"`
	States map[string]int `json:"states"` // runs that are not finished, and dead ones
	Totals Totals         `json:"totals"` // since the log began
}
