package nip90client

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// The range of the kinds of requests. The kind of a result is 1000 above that of its
// request.
const (
	MinKind = 5000
	MaxKind = 5999

	toResult = 1000
)

// maxTimeout is the longest timeout of a request. Providers allow no more than this.
const maxTimeout = 24 * time.Hour

// ResultKind returns the kind of the results for requests of the given kind.
func ResultKind(kind int) int { return kind + toResult }

// CheckKind returns an error if the kind is not a kind of requests.
func CheckKind(kind int) error {
	if kind < MinKind || kind > MaxKind {
		return fmt.Errorf("%d is not in the range %d to %d", kind, MinKind, MaxKind)
	}
	return nil
}

// Param is a parameter of a job.
type Param struct{ Name, Value string }

// Ask has the content of a request.
type Ask struct {
	Kind     int
	Provider string        // public key of the provider, in hex
	Task     string        // description of the work
	Timeout  time.Duration // in whole seconds; 0 means the provider's default
	Bid      int64         // the most that the customer pays, in thousandths of a satoshi; 0 means no bid
	Inputs   []Input
	Params   []Param
	Relays   []string // relays on which the customer waits for answers
}

// Event returns the signed request. It returns an error for everything that would make a relay
// or a provider reject it.
func (a *Ask) Event(key nostr.SecretKey, now time.Time) (*nostr.Event, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	e := &nostr.Event{CreatedAt: now.Unix(), Kind: a.Kind, Tags: a.tags(), Content: a.Task}
	if len(e.Tags) > nostr.MaxTags {
		return nil, fmt.Errorf("the request has %d inputs, parameters and other tags; at most %d", len(e.Tags), nostr.MaxTags)
	}
	// Check the request as a provider does, whose limits are stricter than those of relays.
	if _, err := dvm.Parse(e, dvm.Rules{MaxTimeout: maxTimeout}); err != nil {
		return nil, fmt.Errorf("the request: %w", err)
	}
	if err := e.Sign(key); err != nil {
		return nil, fmt.Errorf("the request: %w", err)
	}
	return e, nil
}

func (a *Ask) check() error {
	var errs []error
	if err := CheckKind(a.Kind); err != nil {
		errs = append(errs, fmt.Errorf("the kind: %w", err))
	}
	switch {
	case a.Task == "" && len(a.Inputs) == 0:
		errs = append(errs, errors.New("the task is empty and no input is given"))
	case len(a.Task) > nostr.MaxContent:
		errs = append(errs, fmt.Errorf("the task has %d bytes; at most %d", len(a.Task), nostr.MaxContent))
	case !utf8.ValidString(a.Task):
		errs = append(errs, errors.New("the task is not UTF-8"))
	}
	if err := CheckTimeout(a.Timeout); err != nil {
		errs = append(errs, fmt.Errorf("the timeout: %w", err))
	}
	return errors.Join(errs...)
}

// CheckTimeout returns an error if d can't be the timeout of a request: it must be 0, or
// whole seconds from 1s to 24h.
func CheckTimeout(d time.Duration) error {
	switch {
	case d == 0:
		return nil
	case d < time.Second || d > maxTimeout:
		return fmt.Errorf("%v is not in the range 1s to %v", d, maxTimeout)
	case d%time.Second != 0:
		return fmt.Errorf("%v is not a number of whole seconds", d)
	}
	return nil
}

func (a *Ask) tags() nostr.Tags {
	tags := nostr.Tags{{"p", a.Provider}}
	for _, in := range a.Inputs {
		tags = append(tags, nostr.Tag{"i", in.Data, in.Type})
	}
	for _, p := range a.Params {
		tags = append(tags, nostr.Tag{"param", p.Name, p.Value})
	}
	if a.Timeout > 0 {
		tags = append(tags, nostr.Tag{"timeout", strconv.FormatInt(int64(a.Timeout/time.Second), 10)})
	}
	if a.Bid > 0 {
		tags = append(tags, nostr.Tag{"bid", strconv.FormatInt(a.Bid, 10)})
	}
	if len(a.Relays) > 0 {
		tags = append(tags, append(nostr.Tag{"relays"}, a.Relays...))
	}
	return tags
}

// Cancel returns the signed event that cancels a request.
func Cancel(request *nostr.Event, key nostr.SecretKey, now time.Time) (*nostr.Event, error) {
	e := &nostr.Event{
		CreatedAt: max(now.Unix(), request.CreatedAt), Kind: dvm.KindDelete, Content: "cancelled by the customer",
		Tags: nostr.Tags{{"e", request.ID}, {"k", strconv.Itoa(request.Kind)}, {"p", request.Tags.Find("p").Value()}},
	}
	if err := e.Sign(key); err != nil {
		return nil, fmt.Errorf("the cancellation: %w", err)
	}
	return e, nil
}

// Answers returns the filter for the answers to the request.
func Answers(request *nostr.Event) nostr.Filter {
	return nostr.Filter{
		Authors: []string{request.Tags.Find("p").Value()},
		Kinds:   []int{dvm.KindFeedback, ResultKind(request.Kind)},
		Tags:    map[string][]string{"e": {request.ID}},
	}
}

// Input is an input of a job.
type Input struct {
	Data string
	Type string // one of InputTypes
}

// InputTypes returns the types of inputs: a text, a URL, the id of an event, or the id of
// another job whose result is the input.
func InputTypes() []string { return []string{"text", "url", "event", "job"} }

// ParseInput parses DATA or DATA,type. DATA may have commas: the text after the last comma
// counts as the type only if it is one of InputTypes. The default type is text.
func ParseInput(text string) (Input, error) {
	in := Input{Data: text, Type: "text"}
	if i := strings.LastIndexByte(text, ','); i >= 0 && slices.Contains(InputTypes(), text[i+1:]) {
		in = Input{text[:i], text[i+1:]}
	}
	return in, in.check()
}

func (in Input) check() error {
	switch {
	case in.Data == "":
		return errors.New("it is empty")
	case !utf8.ValidString(in.Data):
		return errors.New("it is not UTF-8")
	case in.Type == "url":
		if u, err := url.Parse(in.Data); err != nil || u.Scheme == "" {
			return fmt.Errorf("%q is not an address such as https://example.com/a", textfmt.TruncateMark(in.Data, maxQuoted, "…"))
		}
	case in.Type == "event" || in.Type == "job":
		if !isID(in.Data) {
			return fmt.Errorf("%q is not the id of an event, 64 hex digits in lower case", textfmt.TruncateMark(in.Data, maxQuoted, "…"))
		}
	}
	return nil
}

// ParseParam parses a parameter of the form name=value.
func ParseParam(text string) (Param, error) {
	name, value, ok := strings.Cut(text, "=")
	switch {
	case !ok || name == "":
		return Param{}, fmt.Errorf("%q does not have the form name=value", textfmt.TruncateMark(text, maxQuoted, "…"))
	case !utf8.ValidString(text):
		return Param{}, errors.New("it is not UTF-8")
	}
	return Param{name, value}, nil
}

// isID reports whether the text is the id of an event or a public key: 64 lower-case hex
// digits.
func isID(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// maxQuoted is the most bytes of a text that an error quotes.
const maxQuoted = 60
