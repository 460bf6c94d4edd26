package nip90client

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// The values of Entry.Type.
const (
	TypeRequest  = "request"
	TypeFeedback = "feedback"
	TypeResult   = "result"
	TypeCancel   = "cancel"
	TypeOffer    = "offer"
)

// maxWord is the most bytes of a tag value, such as a status, that an entry keeps.
const maxWord = 64

// Entry is an event of NIP-90 in a form for people and programs. Its JSON is read by
// programs, so fields may be added but not changed.
type Entry struct {
	Type     string    `json:"type"`
	At       time.Time `json:"at"`                 // time of the event, as its author states it
	Request  string    `json:"request,omitempty"`  // id of the request that it is about; "" for an offer
	ID       string    `json:"id"`                 // id of the event
	Kind     int       `json:"kind"`               //
	Author   string    `json:"author"`             // npub1…
	Provider string    `json:"provider,omitempty"` // request: the provider that is addressed, if any
	Customer string    `json:"customer,omitempty"` // feedback, result: the sender of the request
	Status   string    `json:"status,omitempty"`   // feedback, result
	Message  string    `json:"message,omitempty"`  // feedback, cancel: the sentence for people
	Content  string    `json:"content,omitempty"`  // request: the task; feedback: only if it differs from the message; result
	Timeout  string    `json:"timeout,omitempty"`  // request: seconds, as the request has them
	Retry    *Retry    `json:"retry,omitempty"`    // feedback: the next retry
	Progress *float64  `json:"progress,omitempty"` // feedback: percent
	ETA      *float64  `json:"eta_s,omitempty"`    // feedback: seconds until the result
	Bid      string    `json:"bid,omitempty"`      // request: the most that the customer pays, in thousandths of a satoshi, as the request has it
	Amount   string    `json:"amount,omitempty"`   // feedback, result: the price, in thousandths of a satoshi
	Runtime  *int64    `json:"runtime_ms,omitempty"`
	Failure  *Failure  `json:"error,omitempty"` // result: why the job failed
	Name     string    `json:"name,omitempty"`  // offer: name of the provider
	About    string    `json:"about,omitempty"` // offer: description of the provider
	Kinds    []int     `json:"kinds,omitempty"` // offer: kinds of requests that the provider accepts
}

// Retry is the number of the next retry, the number of allowed retries, and the wait
// before it.
type Retry struct {
	Number int   `json:"number"`
	Of     int   `json:"of"` // -1 for no limit
	Wait   int64 `json:"wait_ms"`
}

// Failure is why a job has no result.
type Failure struct {
	Code    string        `json:"code,omitempty"`
	Message string        `json:"message"`
	Retry   *dvm.Metadata `json:"retry,omitempty"`
}

// Read converts a verified event to an entry; ok is false if it is not an event of NIP-90.
func Read(e *nostr.Event) (entry Entry, ok bool) {
	e = e.ToValidUTF8()
	x := Entry{At: time.Unix(e.CreatedAt, 0).UTC(), ID: e.ID, Kind: e.Kind, Author: nostr.Npub(e.PubKey), Request: e.Tags.Find("e").Value()}
	switch {
	case e.Kind >= MinKind && e.Kind <= MaxKind:
		x.request(e)
	case e.Kind >= ResultKind(MinKind) && e.Kind <= ResultKind(MaxKind):
		x.result(e)
	case e.Kind == dvm.KindFeedback:
		x.feedback(e)
	case e.Kind == dvm.KindDelete:
		x.Type, x.Message = TypeCancel, e.Content
	case e.Kind == dvm.KindAnnouncement:
		x.offer(e)
		return x, len(x.Kinds) > 0
	default:
		return Entry{}, false
	}
	return x, isID(x.Request)
}

// offer reads the announcement of a provider. It omits kinds that are not kinds of
// requests.
func (x *Entry) offer(e *nostr.Event) {
	x.Type, x.Request = TypeOffer, ""
	for _, t := range e.Tags.All("k") {
		if k, err := strconv.Atoi(t.Value()); err == nil && CheckKind(k) == nil {
			x.Kinds = append(x.Kinds, k)
		}
	}
	var raw struct{ Name, About json.RawMessage }
	if json.Unmarshal([]byte(e.Content), &raw) == nil {
		x.Name, x.About = word(raw.Name), word(raw.About)
	}
}

func (x *Entry) request(e *nostr.Event) {
	x.Type, x.Request, x.Content = TypeRequest, e.ID, e.Content
	x.Timeout = textfmt.TruncateMark(e.Tags.Find("timeout").Value(), maxWord, "…")
	x.Bid = textfmt.TruncateMark(e.Tags.Find("bid").Value(), maxWord, "…")
	x.Provider = person(e)
}

func (x *Entry) feedback(e *nostr.Event) {
	status := e.Tags.Find("status")
	x.Type, x.Status, x.Message = TypeFeedback, textfmt.TruncateMark(status.Value(), maxWord, "…"), status.At(2)
	x.Customer = person(e)
	if x.Message == "" {
		x.Message = e.Content
	} else if e.Content != x.Message {
		x.Content = e.Content
	}
	x.Retry = readRetry(e.Tags.Find("retry"))
	x.Progress, x.ETA = number(e.Tags.Find("progress"), 100), number(e.Tags.Find("eta"), maxETA)
	x.Amount = textfmt.TruncateMark(e.Tags.Find("amount").Value(), maxWord, "…")
}

// maxETA is the largest plausible value of the tag eta, in seconds. A larger value is ignored.
const maxETA = 365 * 24 * 3600

func (x *Entry) result(e *nostr.Event) {
	x.Type, x.Content, x.Customer = TypeResult, e.Content, person(e)
	// NIP-90 does not define a status in results, so a result without one is a success.
	x.Status = dvm.StatusSuccess
	if s := e.Tags.Find("status").Value(); s != "" {
		x.Status = textfmt.TruncateMark(s, maxWord, "…")
	}
	x.Amount = textfmt.TruncateMark(e.Tags.Find("amount").Value(), maxWord, "…")
	if n, err := strconv.ParseInt(e.Tags.Find("runtime").Value(), 10, 64); err == nil && n >= 0 {
		x.Runtime = &n
	}
	if x.Status == dvm.StatusError {
		x.Failure = readFailure(e.Content)
	}
}

// person returns the npub that an event is addressed to by a p tag; "" for none.
func person(e *nostr.Event) string {
	if key := e.Tags.Find("p").Value(); isID(key) {
		return nostr.Npub(key)
	}
	return ""
}

// readRetry reads the tag retry: number of the retry, number of allowed retries, wait in
// milliseconds. It returns nil if the tag is absent or invalid.
func readRetry(t nostr.Tag) *Retry {
	n, err := strconv.ParseUint(t.At(1), 10, 31)
	if err != nil {
		return nil
	}
	of, err := strconv.ParseInt(t.At(2), 10, 32)
	switch {
	case t.At(2) == "unlimited":
		of = -1
	case err != nil || of < 0:
		return nil
	}
	wait, err := strconv.ParseUint(t.At(3), 10, 62)
	if err != nil {
		wait = 0 // the tag does not state it
	}
	return &Retry{int(n), int(of), int64(wait)}
}

// number returns the value of a tag as a number from 0 to limit; nil if it is not one.
func number(t nostr.Tag, limit float64) *float64 {
	n, err := strconv.ParseFloat(t.Value(), 64)
	if err != nil || !(n >= 0 && n <= limit) { // negated, so that NaN is refused too
		return nil
	}
	return &n
}

// readFailure reads the content of a result with the status error. If the content does
// not have the form of a failure, all of it is the message.
func readFailure(content string) *Failure {
	// Decode each field alone, so that a field of the wrong type does not affect the others.
	var raw struct{ Code, Message, Retry json.RawMessage }
	var f Failure
	if json.Unmarshal([]byte(content), &raw) == nil {
		f.Code, f.Message = word(raw.Code), word(raw.Message)
	}
	if f.Code == "" && f.Message == "" {
		return &Failure{Message: content}
	}
	var retry *dvm.Metadata
	if json.Unmarshal(raw.Retry, &retry) == nil {
		f.Retry = retry
	}
	return &f
}

// word decodes a JSON string; any other value is "".
func word(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// size returns the approximate memory of an entry, in bytes.
func (x *Entry) size() int {
	const fixed = 1 << 10
	n := fixed + len(x.Content) + len(x.Message) + len(x.Name) + len(x.About) + 8*cap(x.Kinds)
	if f := x.Failure; f != nil {
		n += len(f.Code) + len(f.Message)
		if f.Retry != nil {
			n += len(f.Retry.LastError) + 8*cap(f.Retry.BackoffHistory)
		}
	}
	return n
}

// Cancelled reports whether the entry is feedback that the provider has canceled the job.
func (x *Entry) Cancelled() bool {
	word, _, _ := strings.Cut(strings.ToLower(x.Message), ":")
	return x.Type == TypeFeedback && x.Status == dvm.StatusError && (word == "cancelled" || word == "canceled")
}
