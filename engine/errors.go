package engine

import (
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// Errors that callers can test for with errors.Is.
var (
	ErrNotFound = machine.ErrUnknown   // no run has this id
	ErrState    = machine.ErrState     // the command is not possible in the current state of the run
	ErrConflict = machine.ErrConflict  // the key belongs to a run of another workflow
	ErrTooLarge = workflow.ErrTooLarge // an input, a result or a request is larger than its limit
)

// ErrTooManySignals says that a run has too many signals that its function has not waited for.
var ErrTooManySignals = machine.ErrSignals

// ErrInput says that an input is not JSON, can't be prepared, or can't be decoded as the
// input type of the workflow's steps.
var ErrInput = workflow.ErrInput
