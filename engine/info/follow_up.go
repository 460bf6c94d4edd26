package info

import (
	"encoding/json"
	"time"
)

// Ended is the input of a run that is started by engine.OnEnd.
type Ended struct {
	Run      string    `json:"run"`
	Workflow string    `json:"workflow"`
	Key      string    `json:"key,omitempty"`
	State    string    `json:"state"` // succeeded, dead or canceled
	At       time.Time `json:"at"`

	// Origin and OriginKey are the id and the key of the first run of a chain of
	// repetitions; "" if the run repeats no other.
	Origin    string `json:"origin,omitempty"`
	OriginKey string `json:"origin_key,omitempty"`
}

// GaveUp is the input of the follow-up run that engine.OnGiveUp starts.
type GaveUp struct {
	// ByReference is set in the stored input of the follow-up run if Input and Outputs
	// are too large to be stored again. A handler never sees it: the engine reads both
	// from the dead run before it calls the handler, or fails the attempt. The Outputs of a
	// flow are never stored by reference.
	ByReference *GaveUpReference `json:"by_reference,omitempty"` // first: see isReference

	Run      string                     `json:"run"`
	Workflow string                     `json:"workflow"`
	Key      string                     `json:"key,omitempty"`
	Created  time.Time                  `json:"created"`
	Attempts int                        `json:"attempts"` // of all steps
	Step     string                     `json:"step"`     // the step that failed; of a flow the operation, or function if the error is not that of an operation
	Reason   string                     `json:"reason"`
	Error    string                     `json:"error"`
	Input    json.RawMessage            `json:"input,omitempty"`
	Outputs  map[string]json.RawMessage `json:"outputs,omitempty"` // outputs of the steps that succeeded, by step; of a flow, the results of its operations by name: see Operations

	// Operations has the operations of a flow that are not in Outputs, by name. If the results
	// have more than about 150 KiB together, the largest are left out of Outputs. If the names
	// alone are too large, operations with long names and large results are in neither map.
	Operations map[string]GaveUpOperation `json:"operations,omitempty"`

	// StepAttempts is the number of attempts of Step; if that is the function of a flow, of all its
	// operations. It is 0 in a run that an earlier release has started.
	StepAttempts int `json:"step_attempts,omitempty"`

	// Origin and OriginKey are the id and the key of the first run of a chain of
	// repetitions; "" if the run repeats no other.
	Origin    string `json:"origin,omitempty"`
	OriginKey string `json:"origin_key,omitempty"`
}

// GaveUpOperation is an operation of a flow without a result in [GaveUp].
type GaveUpOperation struct {
	// Status is succeeded, failed, or unfinished for an operation that had not ended when the run
	// died.
	Status  string `json:"status"`
	Code    string `json:"code,omitempty"`          // of one that failed: as in [OpError]
	Items   int    `json:"items,omitempty"`         // of a engine.Map or engine.Children: the number of its items
	Omitted int    `json:"omitted_bytes,omitempty"` // size of a result that was left out
}

// GaveUpReference says which parts of a [GaveUp] are read from the dead run.
type GaveUpReference struct {
	Run     string   `json:"run"`
	Bytes   int      `json:"bytes"`             // size of the complete GaveUp
	Outputs []string `json:"outputs,omitempty"` // the steps that had succeeded
}
