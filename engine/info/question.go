package info

import (
	"strings"
	"time"
)

// Question is a question that a run asks by engine.Ask.
type Question struct {
	Text    string   `json:"text"`              // what is asked, in at most 4 KiB
	Choices []string `json:"choices,omitempty"` // possible answers, at most 20; none means approve and reject
	Who     []string `json:"who,omitempty"`     // names of those who may answer; none means everyone who may change runs
	Default string   `json:"default,omitempty"` // the answer if nobody answers in the time of engine.Within; "" means an error then
}

// String returns the question with its choices.
func (q *Question) String() string { return q.Text + " (" + strings.Join(q.Choices, ", ") + ")" }

// The choices of a [Question] that has none.
const (
	Approve = "approve"
	Reject  = "reject"
)

// Answer is the answer to a [Question].
type Answer struct {
	Choice string    `json:"choice"`
	By     string    `json:"by,omitempty"`    // who has answered; "" if nobody has, and the choice is the default
	Words  string    `json:"words,omitempty"` // what they have said, in at most 4 KiB
	At     time.Time `json:"at,omitzero"`
}

// Approved reports whether the choice is [Approve].
func (a Answer) Approved() bool { return a.Choice == Approve }
