package chaos

import (
	"time"

	"github.com/tideover/tideover/limit"
)

// Spec says what a server does with its requests. It is plain data with one text form,
// which [Parse] reads and [Spec.String] writes.
type Spec struct {
	Seed  uint64 // seed of all random choices
	Rules []Rule // the first that matches counts; a request without a matching rule gets 404
}

// Rule says what happens to the requests that it matches. The answer comes from the first of
// these that applies: an outage, a limit, a random answer, the next step of the script.
type Rule struct {
	Match Match

	Script []Step // nil means 200
	Cycle  bool   // start again after the last step; otherwise the last step is repeated
	Per    string // name of a header: each of its values has its own script position and random draws

	Delay  Delay    // before answers of Script and Random that have no delay of their own
	Body   Body     // body of a success without one of its own
	Random []Chance // answers at random; the script does not advance then

	Concurrent int             // concurrent requests; 0 means no limit
	Rate       limit.Frequency // requests in any period of this length; zero means no limit
	Service    Service         // how long the work of a request takes
	Over       Answer          // answer to requests above the limits; zero means 503(retry-after=due)

	Down []Outage // outages
}

// Match selects the requests of a rule. The zero value matches all.
type Match struct {
	Method string
	Path   string // beginning of the path
	Header string // name of a header that the request must have
	Value  string // value of Header; "" means any
}

// Step is an answer of a script, one or more times.
type Step struct {
	Answer
	Times int // how often the answer is given before the next step; at least 1
}

// Chance is an answer that comes at random.
type Chance struct {
	Answer
	Percent float64
}

// Service is how long the work of a request takes: the more requests are in progress, the
// longer. The work goes on, and counts as in progress, even if the client has
// disconnected: that is what makes a retry storm hurt.
type Service struct {
	Base time.Duration // if no other request is in progress
	More time.Duration // in addition, for each other request in progress when it begins
}

// Outage is a period in which a rule gives another answer.
type Outage struct {
	From  time.Duration // when it begins, after the start of the server
	For   time.Duration
	Every time.Duration // period from one beginning to the next; 0 means that it happens once
	As    Answer
}

// Answer says what to do with one request: send a response with a status, or do
// one of the acts, which have no status.
type Answer struct {
	Status int
	Act    string // one of the acts below, if Status is 0

	Delay   Delay    // before the headers; zero means the delay of the rule
	Headers []Header // in this order
	Error   string   // error code in the body of a failure

	RetryInfo time.Duration // wait that the body states, as Google does; 0 means none

	Body    Body
	Stream  Stream
	Chunked bool  // send no Content-Length
	Dribble Pace  // pace of the response's body
	Padding int64 // bytes of additional headers
	End     End   // ends the body early

	Read  Pace // pace of reading the request's body
	Early bool // send the response before reading the request's body
}

// The acts: values of [Answer].Act.
const (
	Hang      = "hang"      // never answer
	Reset     = "reset"     // send a TCP RST
	Close     = "close"     // close the connection without an answer
	Malformed = "malformed" // send bytes that are not HTTP
	Fail      = "fail"      // answer 500, 502, 503 or 504 at random
	Refuse    = "refuse"    // close the port; only for an outage of the whole server
)

// acts lists all acts.
var acts = []string{Hang, Reset, Close, Malformed, Fail, Refuse}

// Header is a header of a response.
type Header struct {
	Name  string // in lower case
	Value string // as in the spec; the server may compute a wait from it
}

// Body is the content of a response. The zero value depends on the path: the format of
// the API that has this path, or else an echo of the request.
type Body struct {
	Kind string // one of the kinds below; "" means auto
	Text string // for the kind Text
	Size int64  // for the kind Filler, in bytes
}

// The kinds of bodies: values of [Body].Kind.
const (
	Echo      = "echo"      // description of the request, as JSON
	Empty     = "none"      // no body
	OpenAI    = "openai"    // chat completion of OpenAI
	Responses = "responses" // response of OpenAI's responses API
	Anthropic = "anthropic" // message of Anthropic
	Text      = "text"      // the text in Body.Text
	Filler    = "filler"    // Body.Size bytes
)

// Stream is a body of server-sent events.
type Stream struct {
	Form   string // auto, openai, responses, anthropic or plain; "" means no stream
	Events int    // number of events with content; 0 means 10
	Every  time.Duration
	Error  string // where an error replaces the rest: first, start, or after this number of events; "" means nowhere
	NoDone bool   // leave out the events that mark the end
}

// Pace is a number of bytes per time. The zero value means as fast as possible.
type Pace struct {
	Bytes int64
	Every time.Duration
}

// End makes a body end too early.
type End struct {
	Kind string // cut, stall or reset; "" means that the body is sent in full
	At   Position
}

// The kinds of ends: values of [End].Kind.
const (
	Cut   = "cut"   // close the connection
	Stall = "stall" // keep the connection open and send nothing more
	// Reset, as for acts: send a TCP RST.
)

// Position is a position in a body.
type Position struct {
	N    int64
	Unit string // "" for bytes, "%" for a part of the body, "event" for events of a stream
}

// zero reports whether the answer is not set.
func (a *Answer) zero() bool { return a.Status == 0 && a.Act == "" }
