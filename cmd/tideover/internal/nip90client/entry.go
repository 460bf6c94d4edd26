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

// What an entry can be.
const (
	TypeRequest  = "request"
	TypeFeedback = "feedback"
	TypeResult   = "result"
	TypeCancel   = "cancel"
	TypeOffer    = "offer"
)

// maxWord bounds what is kept of a word that a provider chose.
const maxWord = 64

// Entry is an event of NIP-90 as people and programs read it. Its JSON form only
// gets additions.
type Entry struct {
	Type     string    `json:"type"`
	At       time.Time `json:"at"`                 // when, as its author says
	Request  string    `json:"request,omitempty"`  // id of the request that it is about; none for an offer
	ID       string    `json:"id"`                 // its own
	Kind     int       `json:"kind"`               //
	Author   string    `json:"author"`             // npub1…
	Provider string    `json:"provider,omitempty"` // request: the provider that is addressed, if any
	Customer string    `json:"customer,omitempty"` // feedback, result: who sent the request
	Status   string    `json:"status,omitempty"`   // feedback, result
	Message  string    `json:"message,omitempty"`  // feedback, cancel: the sentence for people
	Content  string    `json:"content,omitempty"`  // request: the task; feedback, if it is more than the message; result
	Timeout  string    `json:"timeout,omitempty"`  // request: seconds, as it says them
	Retry    *Retry    `json:"retry,omitempty"`    // feedback: which retry this is about
	Progress *float64  `json:"progress,omitempty"` // feedback: percent
	ETA      *float64  `json:"eta_s,omitempty"`    // feedback: seconds that are left
	Bid      string    `json:"bid,omitempty"`      // request: the most that is paid, in thousandths of a satoshi, as it says it
	Amount   string    `json:"amount,omitempty"`   // feedback, result: what it costs, in thousandths of a satoshi
	Runtime  *int64    `json:"runtime_ms,omitempty"`
	Failure  *Failure  `json:"error,omitempty"` // result: why there is none
	Name     string    `json:"name,omitempty"`  // offer: of the provider
	About    string    `json:"about,omitempty"` // offer: what it does
	Kinds    []int     `json:"kinds,omitempty"` // offer: of the requests that it serves
}

// Retry says which retry comes next, of how many, and after which wait.
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

// Read reads a verified event; ok is false if it is none of NIP-90.
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

// offer reads what a provider announces. Kinds that are none of requests are left out.
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

// maxETA is the longest time that a provider can mean, in seconds.
const maxETA = 365 * 24 * 3600

func (x *Entry) result(e *nostr.Event) {
	x.Type, x.Content, x.Customer = TypeResult, e.Content, person(e)
	// NIP-90 itself has no status in results.
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

// person returns whom an event is addressed to.
func person(e *nostr.Event) string {
	if key := e.Tags.Find("p").Value(); isID(key) {
		return nostr.Npub(key)
	}
	return ""
}

// readRetry reads the tag retry: number, of how many, wait in milliseconds.
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
		wait = 0 // it is not said
	}
	return &Retry{int(n), int(of), int64(wait)}
}

// number reads the number of a tag, between 0 and the limit; nil if it is none.
func number(t nostr.Tag, limit float64) *float64 {
	n, err := strconv.ParseFloat(t.Value(), 64)
	if err != nil || !(n >= 0 && n <= limit) { // which NaN is not
		return nil
	}
	return &n
}

// readFailure reads the content of a result that is none. One that has another form
// is a message as a whole.
func readFailure(content string) *Failure {
	// Each is read for itself: that one has an odd form must not cost the others.
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

// word reads a JSON string; what is none is empty.
func word(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// size returns about how much memory an entry takes.
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

// Cancelled reports whether the provider says that it has stopped because it was
// told to.
func (x *Entry) Cancelled() bool {
	word, _, _ := strings.Cut(strings.ToLower(x.Message), ":")
	return x.Type == TypeFeedback && x.Status == dvm.StatusError && (word == "cancelled" || word == "canceled")
}
