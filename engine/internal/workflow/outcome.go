package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/internal/textfmt"
)

// Snooze is an error that asks for another attempt later. It does not count as a failure.
type Snooze struct {
	Wait    time.Duration
	Until   int64 // Unix nanoseconds; if not 0, it replaces Wait
	Limited bool  // it uses one of the windows of the step
	Now     bool  // the next attempt begins at once; only with Limited
	Note    string
}

func (s *Snooze) Error() string {
	when := fmt.Sprintf("for %v", s.Wait)
	if s.Until != 0 {
		when = "until " + time.Unix(0, s.Until).Format(time.RFC3339)
	}
	if s.Note == "" {
		return "snoozed " + when
	}
	return fmt.Sprintf("snoozed %s: %s", when, s.Note)
}

// LatestTime is the last time that can be stored, with room for waits after it.
var LatestTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// StoredTime returns the time in Unix nanoseconds, at least 1 and at most LatestTime: 0 would
// mean no time.
func StoredTime(t time.Time) int64 {
	if t.After(LatestTime) {
		t = LatestTime
	}
	return max(t.UnixNano(), 1)
}

// Kept is an error with a memo for the next attempt.
type Kept struct {
	error
	Memo any
}

// Keep returns the error with a memo.
func Keep(err error, memo any) error { return &Kept{err, memo} }

func (k *Kept) Unwrap() error { return k.error }

// coded is an error with a code.
type coded struct {
	error
	code string
}

func (c *coded) Unwrap() error { return c.error }

// Coded returns the error with a code.
func Coded(code string, err error) error { return &coded{err, code} }

// CodeOf returns the code of an error: that of Coded, or of the operation that failed; "" if it has
// none.
func CodeOf(err error) string {
	if c, ok := errors.AsType[*coded](err); ok {
		return textfmt.TruncateValid(c.code, MaxKey, "")
	}
	if e, ok := errors.AsType[*info.OpError](err); ok {
		return e.Code
	}
	return ""
}

// Again is an error with which a function ends its run, and begins another one with this input.
type Again struct {
	Input    json.RawMessage
	KeepDone bool // the operations of the run are not undone any more
}

func (*Again) Error() string { return "the run continues with another input" }
