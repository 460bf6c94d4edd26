package machine

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/internal/textfmt"
)

// The history of a run is the encoded records of the run. A run that fails for months must not
// fill the memory. So when its history is longer than maxHistory, the middle is removed:
// headHistory is kept of the beginning, and tailHistory of the end.
const (
	maxHistory  = 256 << 10
	headHistory = 64 << 10
	tailHistory = 128 << 10
	maxText     = 16 << 10 // longest text of a record in a history

	historyOfOp = 64 // about the bytes of a call of a function that calls one operation
)

// appendHistory adds the record to the run's history.
func appendHistory(r *Run, rec *Record) {
	short := *rec
	short.Run, short.Data, short.Outputs, short.Hash = ID{}, nil, nil, Hash{}
	if rec.Kind == Called && strings.HasPrefix(rec.Text, AskKind+":") {
		short.Outputs = rec.Outputs // the question
	}
	if rec.Kind == Failed || rec.Kind == Undoing {
		short.Outputs = rec.Outputs // the code
	}
	if rec.Kind == Started {
		short.Text = "" // fields of the run have the source and the key
		if n := len(r.Steps); len(rec.Outputs) > n {
			short.Text = string(rec.Outputs[n]) // the origin or the trace context: see Start.outputs
		}
	}
	short.Text = textfmt.TruncateValid(short.Text, maxText, "")
	if rec.Kind == Begun && r.IsFunction(rec.Step) {
		r.History = slices.Grow(r.History, historyOfOp) // until it is suspended: see applySuspended
	}
	r.History = short.append(r.History, r.Created)
	if len(r.History) > maxHistory {
		shortenHistory(r)
	}
}

// shortenHistory removes the middle of the history. A record of kind Omitted replaces it.
func shortenHistory(r *Run) {
	head, left := 0, 0
	tail := len(r.History)
	in := codec.Reader{Data: r.History}
	for len(in.Data) > 0 {
		at := len(r.History) - len(in.Data)
		var rec Record
		rec.read(&in, r.Created)
		if in.Err != nil {
			return
		}
		next := len(r.History) - len(in.Data)
		switch {
		case next <= headHistory && rec.Kind != Omitted && left == 0:
			head = next
		case len(r.History)-next >= tailHistory:
			left++
			if rec.Kind == Omitted {
				left += rec.Attempt - 1
			}
		default:
			tail = min(tail, at)
		}
	}
	note := Record{Kind: Omitted, At: r.Created, Attempt: left}
	short := note.append(append([]byte(nil), r.History[:head]...), r.Created)
	r.History = append(short, r.History[tail:]...)
}

// lastTimes returns the time of the last record in the history, and the latest time of all: they
// differ if the clock was set back.
func (r *Run) lastTimes() (last, latest int64) {
	for in := (codec.Reader{Data: r.History}); len(in.Data) > 0; {
		if at := skipRecord(&in, r.Created); in.Err == nil {
			last, latest = at, max(latest, at)
		}
	}
	return last, latest
}

// Records yields the history of the run, oldest first. A record of kind Omitted says how many
// records were removed there. The call of an operation that began its first attempt becomes two
// records.
func (r *Run) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		in := codec.Reader{Data: r.History}
		for len(in.Data) > 0 {
			var rec Record
			rec.read(&in, r.Created)
			if in.Err != nil {
				return
			}
			if rec.Kind != Called || rec.Attempt == 0 {
				if !yield(rec) {
					return
				}
				continue
			}
			begun := Record{Kind: Begun, Step: rec.Step, At: rec.At, Attempt: rec.Attempt, Deadline: rec.Deadline}
			rec.Attempt, rec.Deadline = 0, 0
			if !yield(rec) || !yield(begun) {
				return
			}
		}
	}
}

// TakenBack is an operation that a retry of the run took back: its result was dropped, so that the
// function calls it again.
type TakenBack struct {
	Number int // of the operation
	Last   int // number of the last operation that the run had called before the retry
}

// ReadTakenBack returns the operations of a run with this history that retries took back. count is
// the number of operations that the run has called, and has reports which of them are stored or
// pending. If the history is not complete, the last retry may have taken back all that are missing.
func ReadTakenBack(history []byte, count int, has func(number int) bool) (list []TakenBack) {
	type call struct {
		number   int
		identity string
	}
	var missing []call // called, not there, and not called again as far as the history is read
	last := 0
	take := func(c call) {
		if last >= c.number {
			list = append(list, TakenBack{c.number, last})
		}
	}
	called := 0
	for in := (codec.Reader{Data: history}); len(in.Data) > 0; {
		var rec Record
		if rec.read(&in, 0); in.Err != nil {
			break
		}
		switch rec.Kind { //nolint:exhaustive // the others call no operation
		case Called:
			called = rec.Step
			missing = slices.DeleteFunc(missing, func(c call) bool {
				if c.identity == rec.Text {
					take(c)
				}
				return c.identity == rec.Text
			})
			if !has(rec.Step) && !isUndo(rec.Text) && !strings.HasPrefix(rec.Text, SkipKind+":") {
				missing = append(missing, call{rec.Step, rec.Text})
			}
		case Retry:
			last = called
		case Omitted:
			for n := 1; n <= count; n++ {
				if !has(n) {
					return []TakenBack{{n, count}}
				}
			}
		}
	}
	for _, c := range missing {
		take(c)
	}
	return list
}

// Situation returns what a list of runs shows for the run: the name of a step, the last error,
// and the time of the last record. The step is the one with the highest displayRank; it is "" for
// a run that succeeded.
func (r *Run) Situation() (step, text string, at time.Time) {
	if r.Outcome == Succeeded {
		_, latest := r.lastTimes()
		return "", "", time.Unix(0, latest)
	}
	var last int64
	best := -1
	for n, s := range r.Live() {
		// Of two, show the first step of a workflow, but the operation rather than the function.
		if best < 0 || s.Status.displayRank() > r.Step(best).Status.displayRank() || best == 0 && r.flow != nil && s.Status == r.Steps[0].Status {
			best = n
		}
	}
	cutOff := false // the run timed out while an attempt was running
	mismatch, undoneFor := "", ""
	for rec := range r.Records() {
		last = max(last, rec.At)
		if rec.Kind == Expired && rec.Text == "" {
			rec.Text = cutOffText(r, rec.At)
			cutOff = rec.Text != ""
		}
		if rec.Kind == Undone && rec.Text == "" {
			text = undoneFor // and not the error of an attempt to undo
		}
		if rec.Text == "" {
			continue
		}
		switch rec.Kind { //nolint:exhaustive // the others are no errors
		case Failed, Lost, Limited, Undone:
			text, cutOff = rec.Text, false
		case Undoing:
			if undoneFor = ""; Outcome(rec.Count) == Dead {
				text, undoneFor = rec.Text, rec.Text
			}
		case Parked:
			mismatch = ""
			if rec.Attempt > 0 { // the function of a flow did not call the same operations as before
				mismatch = rec.Text
			}
		case Late:
			if !cutOff { // after a timeout the late error only says that the attempt was canceled
				text = rec.Text
			}
		case Expired:
			if text != "" {
				rec.Text += "; the last error: " + text
			}
			text = rec.Text
		}
	}
	if best >= 0 {
		step = r.StepName(best)
	}
	if best == 0 && r.flow != nil && r.Outcome == Dead {
		if op, ok := r.FailedOp(); ok {
			step = OpName(op.Name)
		}
	}
	if r.flow != nil && r.Steps[0].Status == NoHandler && mismatch != "" { // also if an operation waits
		text = mismatch
	}
	return step, text, time.Unix(0, last)
}

// failureCode returns the code of the error that a run died of; "" if it has none.
func (r *Run) failureCode() (code string) {
	for rec := range r.Records() {
		gaveUp := rec.Reason != 0 && (r.flow == nil || rec.Step == 0)
		switch {
		case (rec.Kind == Failed && gaveUp || rec.Kind == Undoing) && len(rec.Outputs) > 0:
			code = string(rec.Outputs[0])
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
