package machine

import (
	"cmp"
	"fmt"
	"time"
)

// Situation returns what a list of runs shows for the run: the name of a step, the last error,
// and the time of the last record. The step is the one with the highest displayRank; it is "" for
// a run that succeeded, and for the function of a flow that declares its operations.
func Situation(r *Run) (step, text string, at time.Time) {
	if r.Outcome == Succeeded {
		_, latest := lastTimes(r)
		return "", "", time.Unix(0, latest)
	}
	var last int64
	e := lastError{r: r}
	for rec := range r.Records() {
		last = max(last, rec.At)
		e.add(&rec)
	}
	text = e.text
	if r.flow != nil && r.Steps[0].Status == NoHandler && e.mismatch != "" { // also if an operation waits
		text = e.mismatch
	}
	return shownStep(r), text, time.Unix(0, last)
}

// shownStep returns the name of the step that a list of runs shows for the run.
func shownStep(r *Run) string {
	best := -1
	for n, s := range r.Live() {
		// Of two, show the first step of a workflow, but the operation rather than the function.
		if best < 0 || s.Status.displayRank() > r.Step(best).Status.displayRank() || best == 0 && r.flow != nil && s.Status == r.Steps[0].Status {
			best = n
		}
	}
	if best == 0 && r.flow != nil && r.Outcome == Dead {
		if op, ok := r.flow.FailedOp(); ok {
			return OpName(op.Name)
		}
	}
	if best < 0 || r.IsFunction(best) && len(r.Def.Ops) > 0 { // its steps are the operations that it declares
		return ""
	}
	return r.StepName(best)
}

// lastError finds the last error in the history of a run.
type lastError struct {
	r         *Run
	text      string
	mismatch  string // why the function of a flow waits for other code
	undoneFor string // the error for which the run undoes its operations
	cutOff    bool   // the run timed out while an attempt was running
}

// add reads the next record.
func (e *lastError) add(rec *Record) {
	switch rec.Kind { //nolint:exhaustive // the others are no errors
	case Failed, Lost, Limited:
		if rec.Text != "" {
			e.text, e.cutOff = rec.Text, false
		}
	case Undone:
		e.cutOff = e.cutOff && rec.Text == ""
		e.text = cmp.Or(rec.Text, e.undoneFor) // and not the error of an attempt to undo
	case Undoing:
		e.addUndoing(rec)
	case Parked:
		if e.mismatch = ""; rec.Attempt > 0 {
			e.mismatch = rec.Text
		}
	case Late:
		if !e.cutOff && rec.Text != "" { // after a timeout the late error only says that the attempt was canceled
			e.text = rec.Text
		}
	case Expired:
		e.addExpired(rec)
	}
}

func (e *lastError) addUndoing(rec *Record) {
	if rec.Text == "" {
		return
	}
	if e.undoneFor = ""; Outcome(rec.count) == Dead {
		e.text, e.undoneFor = rec.Text, rec.Text
	}
}

func (e *lastError) addExpired(rec *Record) {
	text := rec.Text
	if text == "" {
		text = cutOffText(e.r, rec.At)
		e.cutOff = text != ""
	}
	switch {
	case text == "":
	case e.text == "":
		e.text = text
	default:
		e.text = text + "; the last error: " + e.text
	}
}

// failureCode returns the code of the error that a run died of; "" if it has none.
func failureCode(r *Run) (code string) {
	for rec := range r.Records() {
		gaveUp := rec.Reason != 0 && (r.flow == nil || rec.Step == 0)
		failed, hasCode := codeOf(&rec)
		switch {
		case (rec.Kind == Failed && gaveUp || rec.Kind == Undoing) && hasCode:
			code = failed
		case gaveUp && rec.Kind != Undoing, rec.Kind == Retry, rec.Kind == Expired:
			code = ""
		}
	}
	return code
}

// cutOffText returns the error text of a run that timed out at this time while an attempt was
// running. If none was, it is "" for a run with steps, whose last error is shown. The call of a
// function is no attempt: it may only wait, for example in a sleep.
func cutOffText(r *Run, at int64) string {
	running := map[int]bool{} // by step
	var limit time.Duration
	for rec := range r.Records() {
		if rec.Kind == Expired && rec.At == at {
			break
		}
		switch rec.Kind { //nolint:exhaustive // the others neither begin nor end an attempt
		case Started:
			limit = time.Duration(rec.Deadline - max(rec.Due, rec.At))
		case Retry:
			limit = time.Duration(rec.Deadline - rec.At)
		case Begun:
			if !r.IsFunction(rec.Step) {
				running[rec.Step] = true
			}
		case Done, Failed, Snoozed, Limited, Lost, Released, Late:
			delete(running, rec.Step)
		}
	}
	switch {
	case limit <= 0:
		return ""
	case len(running) > 0:
		return fmt.Sprintf("timed out after %v while an attempt ran", limit)
	case r.flow != nil:
		return fmt.Sprintf("timed out after %v", limit)
	}
	return ""
}

// displayRank returns the rank of a step with this status: a list of runs shows the step with the
// highest rank.
func (s Status) displayRank() int {
	return [...]int{Blocked: 1, Waiting: 3, Running: 4, Complete: 0, Exhausted: 5, NoHandler: 2}[s]
}

// Origin returns the first run of the chain of repetitions, and its key. It returns the run
// itself and its key if the run repeats no other. For a run that was stored by an earlier
// version the origin is not known: then Origin returns the previous run, and known is false.
// The run must not be cold.
func Origin(r *Run) (id ID, key string, known bool) {
	if r.Previous().IsZero() {
		return r.ID, r.Key, true
	}
	id, key, _, known = chainOf(r)
	if !known {
		return r.Previous(), "", false
	}
	return id, key, true
}

// chainOf returns what the run knows about the chain of repetitions that it is part of.
func chainOf(r *Run) (origin ID, key string, undos int, known bool) {
	return decodeOrigin(startOf(r).Text)
}

// startOf returns the first record of the history if it is that of the start of the run, else a zero
// one. Its Text is the chain of repetitions, see encodeOrigin, or the trace context of the starter.
func startOf(r *Run) Record {
	for rec := range r.Records() {
		if rec.Kind == Started {
			return rec
		}
		break
	}
	return Record{}
}

// Trace returns the trace context of the starter; "" if there is none. The run must not be cold.
func Trace(r *Run) string {
	if r.Previous().IsZero() {
		return startOf(r).Text
	}
	return ""
}

// timeout returns the timeout that the run was started with; 0 if it has none.
func timeout(r *Run) time.Duration {
	if rec := startOf(r); rec.Deadline != 0 {
		return time.Duration(rec.Deadline - max(rec.Due, rec.At))
	}
	return 0
}

// OwnTimeout returns the timeout that the run was started with, if it is not that of its
// definition; else 0. The run must not be cold.
func OwnTimeout(r *Run) time.Duration {
	if own := timeout(r); own != r.Def.Timeout {
		return own
	}
	return 0
}

// Undos returns how often the operations of the run were undone and called again, with those of
// the runs that it repeats. The run must not be cold.
func Undos(r *Run) int {
	if r.flow == nil {
		return 0
	}
	undos := 0
	if !r.Previous().IsZero() {
		_, _, undos, _ = chainOf(r)
	}
	return undos + int(r.flow.undos)
}

// AllUndos is Undos for a run that repeats this one: operations that were undone last count, too.
func AllUndos(r *Run) int {
	n := Undos(r)
	if r.flow != nil && r.flow.undo != nil && r.flow.undo.done {
		n++
	}
	return n
}

// AwaitsOp reports whether the function, which is called, waits for an operation: so the function
// can't have ended the process. That is known if an operation runs, or if an operation that has
// not ended was called or had an attempt since the call of the function began.
func AwaitsOp(r *Run) bool {
	if r.running > 1 {
		return true
	}
	awaits := false
	for rec := range r.Records() {
		switch {
		case rec.Kind == Omitted, rec.Kind == Begun && rec.Step == 0:
			awaits = false
		case rec.Kind == Called, rec.Kind == Begun:
			awaits = awaits || r.flow.index(rec.Step) >= 0
		}
	}
	return awaits
}
