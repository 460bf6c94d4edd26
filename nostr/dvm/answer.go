package dvm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/nostr"
)

// The statuses of NIP-90 that are used here.
const (
	StatusProcessing = "processing"
	StatusSuccess    = "success"
	StatusPartial    = "partial"
	StatusError      = "error"
	StatusPayment    = "payment-required"
)

// Relays limit how much somebody may say.
const (
	progressEvery = 5    // seconds that progress is told later than any other feedback
	firstRetries  = 40   // that are all told; of those after them only the 64th, the 128th and so on
	mostRetries   = 50   // that are told at all
	mostAhead     = 60   // seconds that feedback is dated after what it tells
	mostWaits     = 1000 // that a result names, the last ones
)

// Answers returns all events of a job, not signed, in the order in which they are
// published. It is pure, and a longer history only appends: whoever has published n
// events of a job publishes those after the n-th when it has gone on. That holds
// after a crash too, and an event that was published twice is the same event.
//
// The times of feedback rise strictly, because customers sort by it, and none lies
// before the request. Feedback that comes faster than one in a second is therefore
// dated a little ahead, and left out where that would be more than a minute. Of many
// retries some are left out too; at most 50 are told. The end always is.
func Answers(r *Request, h *History) []nostr.Event {
	f := fold{r: r, h: h, clock: r.Created.Unix() - 1}
	for i := range h.Attempts {
		f.attempt(&h.Attempts[i], i == 0)
	}
	if h.Outcome != nil {
		f.outcome(*h.Outcome)
	}
	return f.events
}

// Refusal returns the events of a job that is not run. The code is [CodeInvalid],
// [CodeOverload] or [CodePayment], for which the feedback has the request's price. They don't repeat the request, which anybody can make long, and
// don't say where it was seen: whoever refuses it at the same time says the same.
func Refusal(r *Request, code, message string, at time.Time) []nostr.Event {
	return Answers(r, &History{Outcome: &Outcome{State: Refused, At: at, Code: code, Message: message}})
}

// fold makes events of a history.
type fold struct {
	r       *Request
	h       *History
	events  []nostr.Event
	clock   int64 // of the last feedback
	retries int   // the number of the last retry
	told    int   // how many were
}

func (f *fold) attempt(a *Attempt, first bool) {
	if first {
		f.feedback(a.Started, StatusProcessing, f.opening())
	}
	for _, p := range a.Progress {
		f.progress(p)
	}
	if a.Retry && !a.Lost {
		f.retry(a)
	}
}

func (f *fold) opening() string {
	text := "Started"
	if f.r.Clamped {
		text += fmt.Sprintf("; timeout reduced to the maximum of %ds", f.r.Timeout/time.Second)
	}
	if f.r.Bid != nil && f.r.Price == 0 {
		text += "; it is free, whatever the bid"
	}
	return text
}

func (f *fold) retry(a *Attempt) {
	f.retries = cmp.Or(max(a.Number, 0), f.retries+1)
	if !isTold(f.retries) || f.told >= mostRetries {
		return
	}
	f.told++
	n, most := strconv.Itoa(f.retries), "unlimited"
	if f.h.MaxRetries >= 0 {
		most = strconv.Itoa(f.h.MaxRetries)
	}
	text := fmt.Sprintf("Retry %s/%s after error: %s", n, most, cmp.Or(a.text(f.r), "unknown error"))
	f.feedback(a.Ended, StatusProcessing, text, nostr.Tag{"retry", n, most, millis(a.Wait)})
}

// isTold reports whether customers are told of the n-th retry. It depends on nothing
// else, so that it stays so when the history goes on.
func isTold(n int) bool { return n <= firstRetries || n&(n-1) == 0 }

// progress is told if there was nothing else to tell for a while, which depends only
// on what came before.
func (f *fold) progress(p Progress) {
	if p.At.Unix() < f.clock+progressEvery {
		return
	}
	tags := nostr.Tags{{"progress", strconv.Itoa(min(max(p.Percent, 0), 100))}}
	if p.ETA > 0 {
		tags = append(tags, nostr.Tag{"eta", strconv.FormatInt(int64((p.ETA+time.Second-1)/time.Second), 10)})
	}
	f.feedback(p.At, StatusProcessing, Sanitise(p.Text), tags...)
}

func (f *fold) outcome(o Outcome) {
	if problem := f.unfit(o); problem != "" {
		// It can't be published; but there is always an end.
		o = Outcome{State: Failed, At: o.At, Code: CodePermanent, Message: problem}
		f.h = &History{MaxRetries: f.h.MaxRetries, Attempts: f.h.Attempts, Outcome: &o}
	}
	switch o.State {
	case Succeeded:
		status := StatusSuccess
		if o.Partial {
			status = StatusPartial
		}
		f.result(o.At, status, o.Content)
	case Cancelled:
		text := Sanitise(o.Message)
		if text == "" {
			text = "cancelled"
		}
		f.feedback(o.At, StatusError, text)
	default:
		code, message := f.h.code(), f.h.message(f.r)
		if code == CodePayment {
			f.feedback(o.At, StatusPayment, message, f.amount())
		} else {
			f.feedback(o.At, StatusError, code+": "+message)
		}
		f.result(o.At, StatusError, f.failure(code, message))
	}
}

// unfit says why a result can't be published.
func (f *fold) unfit(o Outcome) string {
	switch {
	case o.State != Succeeded:
		return ""
	case len(o.Content) > nostr.MaxContent:
		return fmt.Sprintf("The result has %d bytes, at most %d can be published", len(o.Content), nostr.MaxContent)
	case !utf8.ValidString(o.Content):
		return "The result is not UTF-8"
	}
	// Characters that JSON must escape take up to six times their room.
	e := nostr.Event{Tags: f.resultTags(o.At, StatusPartial), Content: o.Content}
	if n := len(e.AppendJSON(nil)); n > nostr.MaxFrame-frameRest {
		return fmt.Sprintf("The result takes %d bytes on the wire, too many to be published", n)
	}
	return ""
}

// frameRest is what a message needs beside the tags and the content of its event.
const frameRest = 1 << 10

// failure is the content of a result that is an error.
func (f *fold) failure(code, message string) string {
	meta := f.h.Metadata(f.r)
	meta.BackoffHistory = meta.BackoffHistory[max(0, len(meta.BackoffHistory)-mostWaits):]
	if meta.LastError == "" && f.h.Outcome.State == Failed {
		meta.LastError = message
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(struct { // strings and numbers
		Error   bool     `json:"error"`
		Code    string   `json:"code"`
		Message string   `json:"message"`
		Retry   Metadata `json:"retry"`
	}{true, code, message, meta})
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

func (f *fold) feedback(at time.Time, status, text string, more ...nostr.Tag) {
	happened := max(at.Unix(), f.r.Created.Unix())
	if status != StatusError && f.clock+1 > happened+mostAhead {
		return
	}
	f.clock = max(happened, f.clock+1)
	tags := nostr.Tags{{"status", status}, f.about(), {"p", f.r.Customer}}
	if text != "" {
		tags[0] = append(tags[0], text)
	}
	f.events = append(f.events, nostr.Event{
		Kind: KindFeedback, CreatedAt: f.clock, Tags: append(tags, more...), Content: text,
	})
}

func (f *fold) result(at time.Time, status, content string) {
	f.events = append(f.events, nostr.Event{
		Kind: f.r.Kind + toResult, CreatedAt: max(at.Unix(), f.clock, f.r.Created.Unix()),
		Tags: f.resultTags(at, status), Content: content,
	})
}

func (f *fold) resultTags(at time.Time, status string) (tags nostr.Tags) {
	if f.r.Event != nil && !f.refused() {
		if text := f.r.Event.AppendJSON(nil); len(text) <= maxRequest {
			tags = append(tags, nostr.Tag{"request", string(text)})
		}
	}
	tags = append(tags, f.about())
	for _, in := range f.r.Inputs {
		if !f.refused() {
			tags = append(tags, in.tag())
		}
	}
	tags = append(tags, nostr.Tag{"p", f.r.Customer}, nostr.Tag{"status", status}, nostr.Tag{"runtime", millis(f.runtime(at))})
	if f.r.Price > 0 && status != StatusError {
		tags = append(tags, f.amount())
	}
	return tags
}

// amount names the price.
func (f *fold) amount() nostr.Tag { return nostr.Tag{"amount", strconv.FormatInt(f.r.Price, 10)} }

func (f *fold) refused() bool {
	return len(f.h.Attempts) == 0 && f.h.Outcome != nil && f.h.Outcome.State == Refused
}

// about names the request, and where to find it.
func (f *fold) about() nostr.Tag {
	if f.r.Relay == "" || f.refused() {
		return nostr.Tag{"e", f.r.ID}
	}
	return nostr.Tag{"e", f.r.ID, f.r.Relay}
}

// runtime is the time from the first attempt to the end, waits included.
func (f *fold) runtime(end time.Time) time.Duration {
	if len(f.h.Attempts) == 0 {
		return 0
	}
	return max(end.Sub(f.h.Attempts[0].Started), 0)
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
