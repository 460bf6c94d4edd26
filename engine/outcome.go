package engine

import (
	"encoding/json"
	"errors"
	"fmt"
)

// The states of a run, as [Info.State] has them.
const (
	StateScheduled    = "scheduled"     // its start is yet to come
	StateQueued       = "queued"        // due, and waits for a free place
	StateRunning      = "running"       // an attempt is being made
	StateWaiting      = "waiting"       // for the next attempt
	StateNeedsHandler = "needs-handler" // no process that runs knows the handler
	StatePaused       = "paused"        // by hand
	StateSucceeded    = "succeeded"
	StateDead         = "dead" // it gave up; Retry puts it back to work
	StateCanceled     = "canceled"
	StateReplaced     = "replaced" // it was dead, and another run does its work
)

// What [Info.Err] is, by errors.Is.
var (
	ErrDead     = errors.New("the run is dead")
	ErrCanceled = errors.New("the run was canceled")
	ErrReplaced = errors.New("the run is dead, and was replaced")
)

// Err returns why the run came to nothing: [ErrDead], [ErrCanceled] or
// [ErrReplaced], with the step, the reason and the last error. It is nil for a run
// that succeeded, and for one that is not over.
func (i *Info) Err() error {
	var kind error
	switch i.State {
	case StateDead:
		kind = ErrDead
	case StateCanceled:
		kind = ErrCanceled
	case StateReplaced:
		return fmt.Errorf("run %s: %w by %s", i.ID, ErrReplaced, i.ReplacedBy)
	default:
		return nil
	}
	text := ""
	if i.Step != "" && i.State == StateDead {
		text += ", in step " + i.Step
	}
	if i.Reason != "" {
		text += " (" + i.Reason + ")"
	}
	if i.Error != "" {
		text += ": " + i.Error
	}
	return fmt.Errorf("run %s: %w%s", i.ID, kind, text)
}

// Output returns what a run returned that has succeeded: of one with several last
// steps, an object of what they did. Otherwise the error says why there is none.
func Output[T any](i *Info) (v T, err error) {
	if err := i.Err(); err != nil {
		return v, err
	}
	if i.State != StateSucceeded {
		return v, fmt.Errorf("run %s: no output yet: it is %s", i.ID, i.State)
	}
	if len(i.Output) == 0 {
		return v, nil
	}
	if err := json.Unmarshal(i.Output, &v); err != nil {
		return v, fmt.Errorf("run %s: output: %w", i.ID, err)
	}
	return v, nil
}
