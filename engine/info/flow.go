package info

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// OpError is the failure of an operation. It is stored, so a function that is called again
// gets the same error.
type OpError struct {
	Name string // name of the operation, with its key or index
	Code string // code of the failure: that of engine.Coded, or why the operation gave up
	Text string // the last error
}

func (e *OpError) Error() string { return fmt.Sprintf("operation %s: %s", e.Name, e.Text) }

// Is makes errors.Is match [ErrNoEvent].
func (e *OpError) Is(target error) bool { return target == ErrNoEvent && e.Code == NoEvent }

// MapError is the error of a engine.Map with failed operations.
type MapError struct {
	Name   string
	Errors map[int]*OpError // failures by index of the item
}

func (e *MapError) Error() string {
	first := -1
	for i := range e.Errors {
		if first < 0 || i < first {
			first = i
		}
	}
	if len(e.Errors) == 1 {
		return e.Errors[first].Error()
	}
	return fmt.Sprintf("%d operations of %s failed, the first: %v", len(e.Errors), e.Name, e.Errors[first])
}

// Unwrap returns the failures.
func (e *MapError) Unwrap() (errs []error) {
	for _, err := range e.Errors {
		errs = append(errs, err)
	}
	return errs
}

// ErrNoEvent says that no signal came in the time of engine.Within. The error of engine.Await matches it.
var ErrNoEvent = errors.New("no signal came in time")

// NoEvent is the code of the failure of an operation that has waited for a signal in vain.
const NoEvent = "no-event"

// Question is a question that a run asks by engine.Ask.
type Question struct {
	Text    string   `json:"text"`              // what is asked, in at most 4 KiB
	Choices []string `json:"choices,omitempty"` // possible answers, at most 20; none means approve and reject
	Who     []string `json:"who,omitempty"`     // names of those who may answer; none means everyone who may change runs
	Default string   `json:"default,omitempty"` // the answer if there is none in the time of engine.Within; "" means an error then
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
	By     string    `json:"by,omitempty"`    // who has answered; "" if the choice is the default because there was no answer
	Words  string    `json:"words,omitempty"` // what they have said, in at most 4 KiB
	At     time.Time `json:"at,omitzero"`
}

// Approved reports whether the choice is [Approve].
func (a Answer) Approved() bool { return a.Choice == Approve }
