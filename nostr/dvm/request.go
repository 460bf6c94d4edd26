package dvm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/nostr"
)

// The kinds of NIP-90.
const (
	KindFeedback = 7000
	KindDelete   = 5 // of NIP-09: published by the customer of a job, it cancels the job

	// DefaultKind is the kind of request for the delegation of a task.
	DefaultKind = 5900

	minKind, maxKind = 5000, 5999
	toResult         = 1000 // kind of a result minus kind of its request
)

const (
	maxInputs   = 90       // so that the result, which repeats the inputs, does not have too many tags
	maxTagBytes = 64 << 10 // total size of all tags; the same as for the content
	maxRequest  = 16 << 10 // a longer request is neither repeated in its result nor stored
)

// Rules are the limits of one kind of request.
type Rules struct {
	DefaultTimeout time.Duration // for a request without a timeout; 0 means 30 seconds
	MaxTimeout     time.Duration // longer timeouts are reduced to it; 0 means 10 minutes

	// Price is the price of the result, in thousandths of a satoshi; 0 means
	// that it is free. A request that bids less is refused with the price.
	// Payments are neither made nor checked: a result only names its price.
	Price int64
}

func (r Rules) withDefaults() Rules {
	r.MaxTimeout = cmp.Or(r.MaxTimeout, 10*time.Minute)
	r.DefaultTimeout = min(cmp.Or(r.DefaultTimeout, 30*time.Second), r.MaxTimeout)
	return r
}

// Validate reports what is wrong with the rules.
func (r Rules) Validate() error {
	switch {
	case r.DefaultTimeout < 0:
		return fmt.Errorf("default-timeout: %v is negative", r.DefaultTimeout)
	case r.MaxTimeout < 0 || r.MaxTimeout%time.Second != 0:
		return fmt.Errorf("max-timeout: %v is not a number of seconds", r.MaxTimeout)
	case r.Price < 0:
		return fmt.Errorf("price: %d is negative", r.Price)
	case r.DefaultTimeout > r.withDefaults().MaxTimeout:
		return fmt.Errorf("default-timeout: %v is above the max-timeout of %v", r.DefaultTimeout, r.withDefaults().MaxTimeout)
	}
	return nil
}

// Request is a request for a job. Its JSON form is stored: fields are only
// added.
type Request struct {
	ID       string        `json:"id"`
	Customer string        `json:"customer"` // public key, in hex
	Kind     int           `json:"kind"`
	Created  time.Time     `json:"created"`            // by the customer's clock
	Relay    string        `json:"relay,omitempty"`    // where it was seen first
	Task     string        `json:"task,omitempty"`     // what to do, in words
	Inputs   []Input       `json:"inputs,omitempty"`   // the data to work on
	Params   []Param       `json:"params,omitempty"`   // how to do it
	Output   string        `json:"output,omitempty"`   // the requested type of the result
	Priority string        `json:"priority,omitempty"` // high, normal or low; ignored
	Relays   []string      `json:"relays,omitempty"`   // where the customer would like answers; not used
	Expires  time.Time     `json:"expires,omitzero"`   // the result is not wanted after that
	Timeout  time.Duration `json:"timeout_ns"`
	Clamped  bool          `json:"clamped,omitempty"`    // the customer requested a longer timeout
	Bid      *int64        `json:"bid_msat,omitempty"`   // the most that the customer pays; nil if there is none
	Price    int64         `json:"price_msat,omitempty"` // price of the result; 0 means free
	Event    *nostr.Event  `json:"event,omitempty"`      // the signed request; not stored if it is above 16 KiB
}

// Input is data that a job works on.
type Input struct {
	Data   string `json:"data"`
	Type   string `json:"type,omitempty"` // url, event, job or text
	Relay  string `json:"relay,omitempty"`
	Marker string `json:"marker,omitempty"`
}

func (i Input) tag() nostr.Tag {
	t := nostr.Tag{"i", i.Data, i.Type, i.Relay, i.Marker}
	for len(t) > 2 && t[len(t)-1] == "" {
		t = t[:len(t)-1]
	}
	return t
}

// Param is a parameter of a job.
type Param struct {
	Name   string   `json:"name"`
	Values []string `json:"values,omitempty"`
}

// Param returns the first value of the named parameter, empty if there is none.
func (r *Request) Param(name string) string {
	for _, p := range r.Params {
		if p.Name == name && len(p.Values) > 0 {
			return p.Values[0]
		}
	}
	return ""
}

// MarshalJSON returns the form that is stored.
func (r Request) MarshalJSON() ([]byte, error) {
	type plain Request
	if r.Event != nil && len(r.Event.AppendJSON(nil)) > maxRequest {
		r.Event = nil
	}
	return json.Marshal(plain(r))
}

// InvalidError is a problem of a request. Such a request is answered, and never
// run.
type InvalidError struct {
	Tag   string // the name of the tag, or the field
	Value string // its value
	Want  string // what is wanted instead
}

// Error returns one line. A long value is shortened.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s %q: %s", e.Tag, textfmt.Clip(e.Value, 40), e.Want)
}

// PriceError means that the customer bids less than the price. Such a request
// is answered with the price, and never run.
type PriceError struct {
	Price int64  // thousandths of a satoshi
	Bid   *int64 // thousandths of a satoshi; nil if the customer made no bid
}

// Error returns the price, the bid, and what to do.
func (e *PriceError) Error() string {
	bid := "there was no bid"
	if e.Bid != nil {
		bid = fmt.Sprintf("the bid was %d msat", *e.Bid)
	}
	return fmt.Sprintf("The price is %d msat, and %s; ask again with a bid of at least the price. Nothing is to be paid for this request", e.Price, bid)
}

// Parse parses a request. The event must have passed a [Gate], or be trusted
// for other reasons. With an [*InvalidError] or a [*PriceError] it also returns
// what could be parsed, so that the request can be answered. Lone surrogates,
// which JavaScript leaves where it cuts a text, become U+FFFD.
func Parse(e *nostr.Event, rules Rules) (*Request, error) {
	signed := e
	e = e.ToValidUTF8()
	r := &Request{
		ID: e.ID, Customer: e.PubKey, Kind: e.Kind, Created: unix(e.CreatedAt), Task: e.Content,
		Output: e.Tags.Find("output").Value(), Priority: e.Tags.Find("priority").Value(), Event: signed,
	}
	r.Expires, _ = expiration(e)
	for _, t := range e.Tags {
		r.read(t)
	}
	if err := r.check(e); err != nil {
		return r, err
	}
	if err := r.setTimeout(e.Tags.All("timeout"), rules.withDefaults()); err != nil {
		return r, err
	}
	r.Bid, r.Price = bid(e.Tags), rules.Price
	if r.Price > 0 && (r.Bid == nil || *r.Bid < r.Price) {
		return r, &PriceError{r.Price, r.Bid}
	}
	return r, nil
}

// bid returns the most that the customer pays; nil if there is no bid in whole
// thousandths of a satoshi. A number that is too large becomes the largest
// int64.
func bid(tags nostr.Tags) *int64 {
	text := tags.Find("bid").Value()
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		n = math.MaxInt64
	}
	return &n
}

// read stores a tag that may occur more than once.
func (r *Request) read(t nostr.Tag) {
	switch {
	case len(t) < 2:
	case t[0] == "i" && len(r.Inputs) < maxInputs:
		r.Inputs = append(r.Inputs, Input{t[1], t.At(2), t.At(3), t.At(4)})
	case t[0] == "param":
		r.Params = append(r.Params, Param{t[1], append([]string(nil), t[2:]...)})
	case t[0] == "relays":
		r.Relays = append(r.Relays, t[1:]...)
	}
}

// check returns what makes the request invalid, apart from its timeout.
func (r *Request) check(e *nostr.Event) error {
	size := 0
	for _, t := range e.Tags {
		for _, word := range t {
			size += len(word)
		}
	}
	switch n := len(e.Tags.All("i")); {
	case e.Kind < minKind || e.Kind > maxKind:
		return &InvalidError{"kind", strconv.Itoa(e.Kind), "want 5000 to 5999"}
	case n > maxInputs:
		return &InvalidError{"i", strconv.Itoa(n), fmt.Sprintf("want at most %d inputs", maxInputs)}
	case size > maxTagBytes:
		return &InvalidError{"tags", strconv.Itoa(size), fmt.Sprintf("want at most %d bytes", maxTagBytes)}
	case e.Tags.Find("encrypted") != nil:
		return &InvalidError{"encrypted", "", "want a request that is not encrypted"}
	}
	return nil
}

func (r *Request) setTimeout(tags nostr.Tags, rules Rules) error {
	most := int64(rules.MaxTimeout / time.Second)
	want := fmt.Sprintf("want whole seconds, 1 to %d", most)
	switch {
	case len(tags) == 0:
		r.Timeout = rules.DefaultTimeout
		return nil
	case len(tags) > 1:
		return &InvalidError{"timeout", tags[0].Value() + ", " + tags[1].Value(), "want it once"}
	}
	text := strings.Join(tags[0][1:], ", ")
	if text == "" || text[0] == '0' || strings.Trim(text, "0123456789") != "" {
		return &InvalidError{"timeout", text, want}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	r.Clamped = err != nil || n > most // digits that do not parse are a number that is too large
	if r.Clamped {
		n = most
	}
	r.Timeout = time.Duration(n) * time.Second
	return nil
}

// expiration returns the time after which the event is no longer wanted
// (NIP-40). A value that does not parse is ignored.
func expiration(e *nostr.Event) (at time.Time, ok bool) {
	n, err := strconv.ParseInt(e.Tags.Find("expiration").Value(), 10, 64)
	if err != nil || n <= 0 || n > maxUnix {
		return time.Time{}, false
	}
	return unix(n), true
}

// maxUnix is the last second of the year 9999, the last one in JSON's time
// format.
const maxUnix = 253402300799

func unix(seconds int64) time.Time { return time.Unix(min(seconds, maxUnix), 0).UTC() }
