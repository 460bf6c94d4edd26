package engine

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/view"
)

// Filter says which runs [Engine.List] returns, and in which order. A field with its zero
// value does not exclude any run.
type Filter struct {
	States      []string // runs in any of these states
	Workflow    string
	Exclude     []string  // leaves out these workflows: names, or patterns with a * at the beginning or end, as "a.*" and "*.b"
	Search      string    // words, or beginnings of words, of the key, workflow, error, input, status or tags
	ErrorLike   string    // runs with errors of this pattern: see Group.Pattern
	Since       time.Time // runs that were created at this time or later
	Until       time.Time // runs that were created before this time
	MinAttempts int
	Tags        []string // runs with all these tags, each written as name=value: see SetTag
	Asking      bool     // runs that wait for the answer to a question: see Ask
	Order       string   // "newest" (the default), "oldest", or "next": by the end of the current wait
	After       string   // Page.Next of the previous page; "" for the first page
	Limit       int      // most runs of a page; 0 means 50, and the maximum is 1000
	Fresh       bool     // wait, for at most a second, until the list includes everything that was acknowledged before the call
}

// Page is a part of a list.
type Page struct {
	Runs   []Info `json:"runs"`             // without steps; input and output only as previews
	Next   string `json:"next,omitempty"`   // cursor of the next page, for Filter.After; "" if this is the last one
	Behind int    `json:"behind,omitempty"` // number of changed runs that searches do not find yet
	Silent []int  `json:"silent,omitempty"` // shards that did not answer: their runs are missing
}

// passed is the cursor of a shard whose search results are left out, because other shards have
// closer matches.
const passed = "-"

// asking is the tag, in the view, of runs that wait for the answer to a question. SetTag rejects
// its name.
var asking = view.Tag(askingName, "open")

const askingName = "?"

// tags returns the tags that the runs must have.
func (f *Filter) tags() []string {
	if !f.Asking {
		return f.Tags
	}
	return append(slices.Clone(f.Tags), asking)
}

func (f *Filter) view() view.Filter {
	return view.Filter{
		States: f.States, Workflow: f.Workflow, Exclude: f.Exclude, Search: f.Search, Error: f.ErrorLike, Since: f.Since, Until: f.Until,
		MinAttempts: f.MinAttempts, Tags: f.tags(), After: f.After, Limit: f.Limit,
		Order: view.Order(f.Order),
	}
}

// matches reports whether a run passes the filter. It is for engines without a view.
func (f *Filter) matches(r *view.Run) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, r.State)) && (f.Workflow == "" || f.Workflow == r.Workflow) &&
		!view.Like(f.Exclude, r.Workflow) && r.Attempts >= f.MinAttempts && (f.Since.IsZero() || !r.Created.Before(f.Since)) && (f.Until.IsZero() || r.Created.Before(f.Until)) &&
		!slices.ContainsFunc(f.tags(), func(tag string) bool { return !hasTag(r, tag) }) &&
		(f.Search == "" || strings.Contains(searchText(r), f.Search))
}

// hasTag reports whether the run has a tag, written as name=value.
func hasTag(r *view.Run, tag string) bool {
	for name, value := range r.Tags {
		if view.Tag(name, value) == tag {
			return true
		}
	}
	return false
}

// searchText returns the texts in which a search looks.
func searchText(r *view.Run) string {
	texts := []string{r.ID, r.Key, r.Workflow, r.Error, r.Status, string(r.Input)}
	return strings.Join(slices.AppendSeq(texts, maps.Values(r.Tags)), "\n")
}

// summary returns a run as it is shown in lists.
func summary(r *view.Run) Info {
	i := Info{
		ID: r.ID, Workflow: r.Workflow, Key: r.Key, State: r.State, Created: r.Created, Updated: r.Updated,
		Ended: nonZero(r.Ended), Next: nonZero(r.Next), Attempts: r.Attempts,
		Step: r.Step, Error: r.Error, Reason: r.Reason, ReplacedBy: r.ReplacedBy,
		InputPreview: string(r.Input), OutputPreview: string(r.Output), Status: r.Status, Tags: r.Tags,
	}
	if _, i.Asking = r.Tags[askingName]; i.Asking {
		i.Tags = maps.Clone(r.Tags)
		delete(i.Tags, askingName)
	}
	i.setContinued()
	return i
}

// Group is a group of dead runs that failed in the same step of the same workflow with
// similar errors.
type Group struct {
	Error    string // error of the newest run
	Pattern  string // the common pattern of the errors, for Filter.ErrorLike
	Workflow string
	Step     string
	Count    int
	First    time.Time // Created of the oldest run
	Last     time.Time // Created of the newest run
}

// Groups are the groups of dead runs that [Engine.DeadGroups] returns.
type Groups struct {
	Groups []Group
	Silent []int // shards that did not answer: their runs are missing
}

// Stats has the numbers of runs by workflow and state, and of attempts, waits and queued
// steps.
type Stats struct {
	Workflows []WorkflowStats `json:"workflows"`
	Waiting   int             `json:"timers"`           // pending waits and deadlines
	Running   int             `json:"running"`          // running attempts
	Queued    int             `json:"queued"`           // upper bound of the steps that are due and wait for a free place; the queues of paused workflows are left out, with the steps of undoing runs
	Oldest    *time.Time      `json:"oldest,omitempty"` // when the first of the steps that Queued counts became due
	Stuck     int64           `json:"stuck"`            // handlers of stuck attempts that have not returned
	Missing   map[string]int  `json:"needs_handler"`    // number of steps that wait for a handler, by its name
	Behind    int             `json:"view_behind"`      // changed runs that are not in the view yet
	Next      *time.Time      `json:"next,omitempty"`   // when the next wait or deadline ends
	Troubles  []Trouble       `json:"troubles,omitempty"`
	Warnings  []Trouble       `json:"warnings,omitempty"` // see [Engine.Warnings]
	Silent    []int           `json:"silent,omitempty"`   // shards that did not answer: they are not counted
}

// Totals counts runs and attempts since the log began.
type Totals struct {
	Started, Succeeded, Dead, Canceled uint64 // runs
	Attempts, Failures, Lost           uint64 // attempts
}

// WorkflowStats counts the runs of a workflow.
type WorkflowStats struct {
	Name   string         `json:"name"`
	States map[string]int `json:"states"` // number of runs in each state; only unfinished and dead runs
	Totals Totals         `json:"totals"` // since the log began

	Paused *PausedWorkflow `json:"paused,omitempty"` // nil if the workflow is not paused
}
