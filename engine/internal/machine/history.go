package machine

import (
	"slices"

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
	short := shortRecord(rec, len(r.Steps))
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
				left += rec.Omitted() - 1
			}
		default:
			tail = min(tail, at)
		}
	}
	note := Record{Kind: Omitted, At: r.Created, Attempt: left}
	short := note.append(append([]byte(nil), r.History[:head]...), r.Created)
	r.History = append(short, r.History[tail:]...)
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
			if !has(rec.Step) && !OpKindOf(rec.Text).IsOptional {
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

// lastTimes returns the time of the last record in the history, and the latest time of all: they
// differ if the clock was set back.
func lastTimes(r *Run) (last, latest int64) {
	for in := (codec.Reader{Data: r.History}); len(in.Data) > 0; {
		if at := skipRecord(&in, r.Created); in.Err == nil {
			last, latest = at, max(latest, at)
		}
	}
	return last, latest
}
