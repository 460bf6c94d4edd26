package info

import (
	"encoding/json"
	"time"
)

// Task describes the attempt that a handler is called for.
//
// Origin and Step together are the same in all attempts of a step, also after
// Engine.Retry, Engine.RetryLatest, Engine.Replay and Engine.Rerun, of the run or of
// its parents: use them as the idempotency key of calls that must not be made twice. Do not use Run or Key: a
// repetition is a run with an id of its own and without a key. Add Undos if it is not 0: an
// operation that was undone must be executed again.
type Task struct {
	Run       string // id of the run
	Workflow  string // name of the run's workflow
	Key       string // the key that the run was started with; "" for none
	Origin    string // id of the first run of the chain of replays and reruns, or of the first child of the operation; the same as Run if the run repeats no other
	OriginKey string // the key that the run Origin was started with

	Step     string          // name of the step; of the undo of an operation: "undo:" and the name of the operation
	Attempt  int             // number of the attempt for the policy, from 1: Spent + 1. An attempt that was lost, released or snoozed is made again with the same number
	Attempts int             // limit of the policy; retry.Unlimited means no limit
	Total    int             // number of the attempt among all attempts of the step, from 1, as in AttemptInfo. It begins with 1 again if a retry of a flow calls an operation again
	Created  time.Time       // when the run was accepted
	Source   string          // who started the run
	Args     json.RawMessage // arguments of a step made by Call
	Input    json.RawMessage // input of the run
	Progress json.RawMessage // what the step last stored by Progress, SaveProgress or Keep
	Spent    int             // earlier attempts that count for the policy
	Windows  int             // number of times an attempt returned Limited

	// Operation is the number of the operation in the run of a flow, from 1. If a retry of the run
	// calls the operation again, it has another number. It is 0 for a step.
	Operation int

	// Undos is how often the operations of the run, and of the runs that it repeats, were undone
	// before. It is 0 for operations that have no undo: see engine.DoUndo.
	Undos int

	// Steps has the outputs of other steps. The engine sets it for the handlers of steps; a test that
	// calls a handler itself may set its own.
	Steps Steps
}

// Steps has the outputs of the steps of a run that a step depends on, directly or through others.
type Steps interface {
	Output(step string) (json.RawMessage, error)
	Before() []string // the names of the steps, in the order of the workflow
}

// Output returns the output of another step of the run. This step must depend on that
// step, directly or through others.
func (t *Task) Output(step string) (json.RawMessage, error) { return t.Steps.Output(step) }

// Before returns the names of the steps that this step depends on, directly or through
// others, in the order of the workflow.
func (t *Task) Before() []string { return t.Steps.Before() }
