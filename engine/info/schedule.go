package info

import (
	"encoding/json"
	"time"
)

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
