package machine

import "time"

// Outcome says how a run ended.
type Outcome uint8

// The outcomes. A dead run can be retried, and is Undecided again then.
const (
	Undecided Outcome = iota
	Succeeded
	Dead
	Canceled
)

var outcomeNames = [...]string{"undecided", "succeeded", "dead", "canceled"}

// String returns the name of the outcome, which is also the name of the run's state.
func (o Outcome) String() string { return outcomeNames[o] }

// State is the state of a run as users see it.
type State uint8

// The states of a run.
const (
	StateScheduled    State = iota // waits for its start time
	StateQueued                    // is due, and waits until a limit allows an attempt to begin
	StateRunning                   // at least one attempt is running
	StateWaiting                   // waits for the time of the next attempt
	StateNeedsHandler              // waits until the handler of a step is registered
	StateSucceeded
	StateDead
	StateCanceled
	StateReplaced // was dead, and was replaced by another run
	StatePaused   // paused by a user
	StateUndoing  // undoes its operations, and ends then
	States        // number of states
)

var stateNames = [...]string{"scheduled", "queued", "running", "waiting", "needs-handler", "succeeded", "dead", "canceled", "replaced", "paused", "undoing"}

// String returns the state's name.
func (s State) String() string { return stateNames[s] }

// Status is the status of a step.
type Status uint8

// The statuses of a step. The numbers are stored.
const (
	Blocked   Status = iota // waits for steps that it depends on
	Waiting                 // waits until StepState.At, or is queued
	Running                 // an attempt has been running since StepState.At
	Complete                // succeeded, and has an output
	Exhausted               // gave up
	NoHandler               // parked: waits for its handler
)

var statusNames = [...]string{"blocked", "waiting", "running", "succeeded", "failed", "needs-handler"}

// String returns the status's name.
func (s Status) String() string { return statusNames[s] }

// StepState is the state of a step of a run.
type StepState struct {
	At      int64         // end of the wait, or begin of the attempt
	First   int64         // when the first attempt that counts for the policy began; 0 for none
	Prev    time.Duration // the last delay that the policy computed
	Attempt int32         // number of attempts that have begun
	Spent   int32         // number of attempts that count for the policy
	timer   int32         // index of the step's timer; noTimer if it is not set
	Lost    uint16        // number of attempts that were lost in a row
	Windows uint16        // number of attempts that returned Limited
	Status  Status
	queued  bool // the step is due, and in its queue
	clock   bool // At is a point of the wall clock, which stays the same when the clock is set
}

// uncount is called after an attempt that does not count for the policy. If no attempt counts
// yet, the total timeout of the step begins with the next attempt.
func (s *StepState) uncount() {
	if s.Spent == 0 {
		s.First = 0
	}
}

// recount makes the policy count attempts from zero again.
func (s *StepState) recount() { s.Spent, s.Lost, s.First, s.Prev = 0, 0, 0, 0 }

// forgive resets all counters of the step. The total timeout then begins with the attempt that
// is running, if there is one.
func (s *StepState) forgive() {
	s.recount()
	s.Windows = 0
	if s.Status == Running {
		s.First = s.At
	}
}
