package info

import (
	"encoding/json"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// Filter says which runs engine.Engine.List returns, and in which order. A field with its zero
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

// Groups are the groups of dead runs that engine.Engine.DeadGroups returns.
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
	Warnings  []Trouble       `json:"warnings,omitempty"` // see engine.Engine.Warnings
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

// Trouble is a problem that keeps the engine from working, unless Works is true. Warnings have the
// same form.
type Trouble struct {
	What  string    `json:"what"` // what the engine can't do
	Since time.Time `json:"since"`
	Error string    `json:"error"`
	Works bool      `json:"works,omitempty"` // the engine works, although a promise may be broken
	Do    string    `json:"do,omitempty"`    // what to do about it; empty if the error says it
	Runs  int       `json:"runs,omitempty"`  // number of runs that wait for other code for this reason; 0 for other problems
}

// PausedWorkflow describes the pause of a workflow: see engine.Engine.PauseWorkflow.
type PausedWorkflow struct {
	At time.Time `json:"at"`
	By string    `json:"by,omitempty"`

	// Partly says that some shards of the cluster did not store the pause, or its end: a call
	// has failed half way. Call PauseWorkflow or ResumeWorkflow again.
	Partly bool `json:"partly,omitempty"`
}

// ClusterInfo has the members of a cluster and its shards.
type ClusterInfo struct {
	Self    string           `json:"self"` // id of the member that was asked
	Members []journal.Member `json:"members"`
	Shards  []ShardInfo      `json:"shards"`
	Silent  []int            `json:"silent,omitempty"` // shards whose owners did not answer
}

// ShardInfo is a shard of a cluster, with its owner and its load.
type ShardInfo struct {
	journal.Shard
	Name     string    `json:"name,omitempty"` // name of the owner
	Running  int       `json:"running"`        // running attempts
	Waiting  int       `json:"timers"`         // pending waits and deadlines
	Behind   int       `json:"view_behind"`    // changed runs that are not in the view yet
	Troubles []Trouble `json:"troubles,omitempty"`
}

// MemberReply is the answer of a member to engine.Operator.AskMembers.
type MemberReply struct {
	Member journal.Member
	Reply  json.RawMessage // what its engine.Config.AnswerMember has returned
	Err    error           // the error of that function, or why the member did not answer
}

// Schedule starts runs of a workflow at the times of a cron expression.
type Schedule struct {
	Name     string          `json:"name"`
	Workflow string          `json:"workflow"`
	Cron     string          `json:"cron"` // five fields, or @daily and the like, optionally after TZ=Europe/Berlin
	Input    json.RawMessage `json:"input,omitempty"`
	Skip     bool            `json:"skip,omitempty"` // skip starts that were missed by a minute or more; otherwise all missed starts are made up for by one
	Next     time.Time       `json:"next,omitzero"`  // time of the next start; zero if it is paused; SetSchedules ignores it

	// Refused describes the last start if it was refused; nil if it was not.
	// SetSchedules ignores it.
	Refused *RefusedStart `json:"refused,omitempty"`

	// Paused says who has paused the schedule, and when; nil if it is not paused.
	// SetSchedules ignores it: a schedule that is paused stays paused, even if it has changed.
	Paused *PausedSchedule `json:"paused,omitempty"`
}

// PausedSchedule describes the pause of a schedule: see engine.Engine.PauseSchedule.
type PausedSchedule struct {
	At time.Time `json:"at"`
	By string    `json:"by,omitempty"`
}

// RefusedStart describes a scheduled start that was due and refused: its input could not be
// prepared, or its workflow is not registered. It stays with the schedule until a start
// succeeds, or until engine.Engine.SetSchedules finds that the next start can succeed.
type RefusedStart struct {
	At    time.Time `json:"at"`    // when the last start was due
	Since time.Time `json:"since"` // when the first of the starts that were refused in a row was due
	Count int       `json:"count"` // number of starts that were refused in a row
	Error string    `json:"error"`
}
