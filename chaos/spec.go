package chaos

import (
	"time"

	"github.com/tideover/tideover/limit"
)

// Spec says what a server does with its requests. It is plain data with one text form,
// which [Parse] reads and [Spec.String] writes.
type Spec struct {
	Seed  uint64 // of everything that is drawn
	Rules []Rule // the first that matches counts; a request that none matches is answered with 404
}

// Rule is what happens to the requests that it matches. The first of these decides: an
// outage, a limit, a chance, the next answer of the script.
type Rule struct {
	Match Match

	Script []Step // none means 200
	Cycle  bool   // the script begins again after its last step, which is repeated otherwise
	Per    string // a header: each of its values has a script and chances of its own

	Delay  Delay    // before the answer, also one by chance
	Body   Body     // of answers that say nothing else
	Random []Chance // instead of the script's next step, which stays next

	Concurrent int             // requests at once; 0 means any number
	Rate       limit.Frequency // requests in any such span; zero means any number
	Service    Service         // how long the work of one takes
	Over       Answer          // of requests above those limits; zero means 503(retry-after=due)

	Down []Outage // when nothing works
}

// Match tells which requests a rule is for. The zero value matches all.
type Match struct {
	Method string
	Path   string // the beginning of it
	Header string // the name of a header that is there
	Value  string // and its value; "" means any
}

// Step is an answer of a script.
type Step struct {
	Answer
	Times int // how often it comes before the next; at least 1
}

// Chance is an answer that comes at random.
type Chance struct {
	Answer
	Percent float64
}

// Service is how long the work of a request takes: the more are in progress, the
// longer. It goes on to its end, and counts as in progress, also when the client has
// gone: that is what makes a retry storm hurt.
type Service struct {
	Base time.Duration // of a request alone
	More time.Duration // for each other that is in progress when it begins
}

// Outage is a time during which a rule answers in another way.
type Outage struct {
	From  time.Duration // after the start
	For   time.Duration
	Every time.Duration // from one beginning to the next; 0 means that it happens once
	As    Answer
}

// Answer is what is done with one request: a status with all that belongs to it,
// or one of the acts, which have no status.
type Answer struct {
	Status int
	Act    string // one of the acts below, if there is no status

	Delay   Delay    // before the headers; zero means that of the rule
	Headers []Header // in this order
	Error   string   // the code in the body of an error

	RetryInfo time.Duration // stated in the body, as Google does; 0 means not

	Body    Body
	Stream  Stream
	Chunked bool  // no Content-Length
	Dribble Pace  // of the body
	Padding int64 // bytes of headers
	End     End   // of the body, if that is not its end

	Read  Pace // of the request's body
	Early bool // answers before it has read that
}

// The acts.
const (
	Hang      = "hang"      // no answer, ever
	Reset     = "reset"     // a RST
	Close     = "close"     // the connection ends without an answer
	Malformed = "malformed" // what is not HTTP
	Fail      = "fail"      // 500, 502, 503 or 504, drawn
	Refuse    = "refuse"    // the port is closed; only for an outage of the whole server
)

// acts are all of them.
var acts = []string{Hang, Reset, Close, Malformed, Fail, Refuse}

// Header is a header of an answer.
type Header struct {
	Name  string // in lower case
	Value string // as it stands in the spec: a wait may be computed from it
}

// Body is what an answer contains. The zero value fits the request: what the API
// at its path would answer, if it is one that is known, and an echo otherwise.
type Body struct {
	Kind string // one of those below; "" means auto
	Text string // of a text
	Size int64  // of a filler
}

// The bodies.
const (
	Echo      = "echo"      // what was asked, as JSON
	Empty     = "none"      // nothing
	OpenAI    = "openai"    // of a chat completion
	Responses = "responses" // of OpenAI's other API
	Anthropic = "anthropic" // of a message
	Text      = "text"      // as given
	Filler    = "filler"    // so many bytes
)

// Stream is a body of events.
type Stream struct {
	Form   string // auto, openai, responses, anthropic or plain; "" means that it is none
	Events int    // with content; 0 means 10
	Every  time.Duration
	Error  string // where an error takes the place of the rest: first, start, or after so many events; "" means nowhere
	NoDone bool   // it ends without the words that say so
}

// Pace is so many bytes in so much time. The zero value is as fast as possible.
type Pace struct {
	Bytes int64
	Every time.Duration
}

// End is how a body ends before its end.
type End struct {
	Kind string // cut, stall or reset; "" means that it does not
	At   Position
}

// The ends.
const (
	Cut   = "cut"   // the connection is closed
	Stall = "stall" // nothing more comes
	// Reset, as the act, is a RST.
)

// Position is a place in a body.
type Position struct {
	N    int64
	Unit string // "" for bytes, "%" for a part of the whole, "event" for events of a stream
}

// zero reports whether there is no answer.
func (a *Answer) zero() bool { return a.Status == 0 && a.Act == "" }
