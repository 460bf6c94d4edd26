package journal

import (
	"fmt"
	"time"
)

// A log never ends before what was acknowledged. If it does, acknowledged entries are lost: a backend
// refuses to open it, with a [LossError], unless its caller accepts the loss.

// WhyAccepted is the reason of a loss that was accepted.
const WhyAccepted = "the loss was accepted with --accept-loss"

// Loss says which acknowledged entries of a log are lost.
type Loss struct {
	Log   string    `json:"log"`  // the file or the stream
	From  uint64    `json:"from"` // first and last lost entry; 0 if the log is another one, so that all is lost
	To    uint64    `json:"to"`
	Shown string    `json:"shown"` // what shows that they existed
	Until time.Time `json:"until"` // when the last of them was stored; zero if it is not known
	At    time.Time `json:"at"`    // when the loss was recorded in the log; zero if it is not recorded
	Why   string    `json:"why"`   // why the log was opened in spite of the loss
}

// String describes the loss.
func (l Loss) String() string {
	if l.To == 0 {
		return fmt.Sprintf("%s is another log than %s names", l.Log, l.Shown)
	}
	until := ""
	if !l.Until.IsZero() {
		until = ", the last of them stored at " + l.Until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s ends at entry %d, but %s shows entry %d: %d acknowledged entries (%d to %d%s) are lost",
		l.Log, l.From-1, l.Shown, l.To, l.To-l.From+1, l.From, l.To, until)
}

// LossError is the error of opening a log that ends before what was acknowledged. It is an
// [ErrDamaged].
type LossError struct {
	Loss
	Restore    string // how to restore the log
	Acceptable bool   // the log can be opened without the lost entries
}

// Error implements error.
func (e *LossError) Error() string {
	return fmt.Sprintf("%v: %v; nothing was changed: %s", ErrDamaged, e.Loss, e.Remedy())
}

// Remedy says what to do.
func (e *LossError) Remedy() string {
	if !e.Acceptable {
		return e.Restore
	}
	return e.Restore + ", or accept the loss with --accept-loss: the runs of these entries are then missing or in an earlier state"
}

// Unwrap returns [ErrDamaged].
func (e *LossError) Unwrap() error { return ErrDamaged }

// Witnessed is implemented by a [Lease] whose backend knows the last acknowledged entry exactly, so that
// it refuses every log that ends before it.
type Witnessed interface {
	// Identity returns a number that no other log has. It changes when the log loses entries, so
	// that data with the old number does not belong to the log any more.
	Identity() uint64
}

// LossReporter is implemented by a [Lease] whose backend records losses.
type LossReporter interface {
	// Losses returns the recorded losses, the oldest first.
	Losses() []Loss
}
