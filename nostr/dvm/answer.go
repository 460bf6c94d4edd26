package dvm

import (
	"cmp"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/plainjson"
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

// Limits of what is published, because relays limit their clients.
const (
	progressInterval    = 5    // seconds between progress and any feedback before it
	allRetries          = 40   // the first retries, which are all published; after them only the 64th, the 128th and so on
	maxRetriesPublished = 50   // retries that are published in all
	maxAhead            = 60   // seconds by which feedback may be dated into the future
	maxWaits            = 1000 // waits in a result, the last ones
)

// Answers returns all events of a job, not signed, in the order in which they are
// published. It is a pure function, and a longer history only appends events. So a
// program that has published n events of a job continues after the n-th, also after a
// crash. Publishing an event twice publishes the same event.
//
// The times of feedback rise strictly, because customers sort by them, and none is
// before the request. Feedback that comes faster than once a second is therefore
// dated a little ahead, and omitted if that would be more than a minute. At most 50
// retries are published; if there are more, some are omitted. The end of the job is
// always published.
func Answers(r *Request, h *History) []nostr.Event {
	f := answerBuilder{r: r, h: h, clock: r.Created.Unix() - 1}
	for i := range h.Attempts {
		f.attempt(&h.Attempts[i], i == 0)
	}
	if h.Outcome != nil {
		f.outcome(*h.Outcome)
	}
	return f.events
}

// Refusal returns the events of a job that is not run. The code is [CodeInvalid],
// [CodeOverload] or [CodePayment]; with CodePayment, the feedback has the request's
// price. The events neither repeat the request, which can be long, nor name the relay
// where it was seen. So all processes that refuse a request publish the same events.
func Refusal(r *Request, code, message string, at time.Time) []nostr.Event {
	return Answers(r, &History{Outcome: &Outcome{State: Refused, At: at, Code: code, Message: message}})
}

// answerBuilder computes the events of a history.
type answerBuilder struct {
	r         *Request
	h         *History
	events    []nostr.Event
	clock     int64 // time of the last feedback
	retries   int   // number of the last retry
	published int   // number of published retries
}

func (f *answerBuilder) attempt(a *Attempt, first bool) {
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

func (f *answerBuilder) opening() string {
	text := "Started"
	if f.r.Clamped {
		text += fmt.Sprintf("; timeout reduced to the maximum of %ds", f.r.Timeout/time.Second)
	}
	if f.r.Bid != nil && f.r.Price == 0 {
		text += "; the job is free, the bid is not used"
	}
	return text
}

func (f *answerBuilder) retry(a *Attempt) {
	f.retries = cmp.Or(max(a.Number, 0), f.retries+1)
	if !isPublished(f.retries) || f.published >= maxRetriesPublished {
		return
	}
	f.published++
	n, most := strconv.Itoa(f.retries), "unlimited"
	if f.h.MaxRetries >= 0 {
		most = strconv.Itoa(f.h.MaxRetries)
	}
	text := fmt.Sprintf("Retry %s/%s after error: %s", n, most, cmp.Or(a.text(f.r), "unknown error"))
	f.feedback(a.Ended, StatusProcessing, text, nostr.Tag{"retry", n, most, millis(a.Wait)})
}

// isPublished reports whether the n-th retry is published. It depends on n
// only, so that it does not change when the history grows.
func isPublished(n int) bool { return n <= allRetries || n&(n-1) == 0 }

// progress publishes a progress report if there was no other feedback for a while.
// Whether it does depends only on earlier events, so the decision does not change
// when the history grows.
func (f *answerBuilder) progress(p Progress) {
	if p.At.Unix() < f.clock+progressInterval {
		return
	}
	tags := nostr.Tags{{"progress", strconv.Itoa(min(max(p.Percent, 0), 100))}}
	if p.ETA > 0 {
		tags = append(tags, nostr.Tag{"eta", strconv.FormatInt(int64((p.ETA+time.Second-1)/time.Second), 10)})
	}
	f.feedback(p.At, StatusProcessing, Sanitise(p.Text), tags...)
}

func (f *answerBuilder) outcome(o Outcome) {
	if problem := f.unfit(o); problem != "" {
		// The result cannot be published, but a job always has a published end.
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
		f.feedback(o.At, StatusError, cmp.Or(Sanitise(o.Message), "cancelled"))
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

// unfit returns why a result cannot be published; empty if it can.
func (f *answerBuilder) unfit(o Outcome) string {
	switch {
	case o.State != Succeeded:
		return ""
	case len(o.Content) > nostr.MaxContent:
		return fmt.Sprintf("The result has %d bytes, at most %d can be published", len(o.Content), nostr.MaxContent)
	case !utf8.ValidString(o.Content):
		return "The result is not UTF-8"
	}
	// Characters that JSON must escape take up to six bytes each.
	e := nostr.Event{Tags: f.resultTags(o.At, StatusPartial), Content: o.Content}
	if n := len(e.AppendJSON(nil)); n > nostr.MaxFrame-frameRest {
		return fmt.Sprintf("The result takes %d bytes on the wire, too many to be published", n)
	}
	return ""
}

// frameRest is an upper bound of the size of a message without the tags and the
// content of its event.
const frameRest = 1 << 10

// failure returns the content of the result of a failed job.
func (f *answerBuilder) failure(code, message string) string {
	meta := f.h.Metadata(f.r)
	meta.BackoffHistory = meta.BackoffHistory[max(0, len(meta.BackoffHistory)-maxWaits):]
	if meta.LastError == "" && f.h.Outcome.State == Failed {
		meta.LastError = message
	}
	return plainJSON(struct {
		Error   bool     `json:"error"`
		Code    string   `json:"code"`
		Message string   `json:"message"`
		Retry   Metadata `json:"retry"`
	}{true, code, message, meta})
}

// plainJSON returns the JSON of strings and numbers, without the escapes for HTML.
func plainJSON(v any) string {
	text, _ := plainjson.Marshal(v) // strings and numbers
	return string(text)
}

func (f *answerBuilder) feedback(at time.Time, status, text string, more ...nostr.Tag) {
	happened := max(at.Unix(), f.r.Created.Unix())
	if status != StatusError && f.clock+1 > happened+maxAhead {
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

func (f *answerBuilder) result(at time.Time, status, content string) {
	f.events = append(f.events, nostr.Event{
		Kind: f.r.Kind + toResult, CreatedAt: max(at.Unix(), f.clock, f.r.Created.Unix()),
		Tags: f.resultTags(at, status), Content: content,
	})
}

func (f *answerBuilder) resultTags(at time.Time, status string) (tags nostr.Tags) {
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

// amount returns the tag with the price.
func (f *answerBuilder) amount() nostr.Tag {
	return nostr.Tag{"amount", strconv.FormatInt(f.r.Price, 10)}
}

func (f *answerBuilder) refused() bool {
	return len(f.h.Attempts) == 0 && f.h.Outcome != nil && f.h.Outcome.State == Refused
}

// about returns the tag with the request's id and relay.
func (f *answerBuilder) about() nostr.Tag {
	if f.r.Relay == "" || f.refused() {
		return nostr.Tag{"e", f.r.ID}
	}
	return nostr.Tag{"e", f.r.ID, f.r.Relay}
}

// runtime returns the time from the first attempt to the end, waits included.
func (f *answerBuilder) runtime(end time.Time) time.Duration {
	if len(f.h.Attempts) == 0 {
		return 0
	}
	return max(end.Sub(f.h.Attempts[0].Started), 0)
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
