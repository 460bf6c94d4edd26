package gateway

import (
	"net/url"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// Spec is a provider as it is configured, with all defaults filled in by [Spec.Fill].
type Spec struct {
	Name    string
	Preset  string   // one of Presets
	Format  string   // the wire format, which fallbacks must share; the preset's own unless it is generic
	BaseURL *url.URL // requests go below it

	H2C bool // HTTP/2 is spoken to an http:// address, without negotiation

	Keys       []Key  // tried in turn; none means that callers bring their own, unless Keyless
	Keyless    bool   // no credentials are sent at all, neither ours nor those of callers
	AuthHeader string // where a key goes; the preset's own unless said
	AuthScheme string // what stands before the key, such as "Bearer"; the preset's own unless AuthHeader is said

	Policy  retry.Policy
	Posts   string   // PostsNever, PostsAnswered or PostsUnanswered
	Repeats []Route  // other requests that may be sent twice
	Keyed   bool     // requests that may not be sent twice get an Idempotency-Key, and may
	Headers []Header // set on every request

	Rate       limit.Frequency // zero means none
	Burst      int             // requests that may follow each other at once; 0 means 1
	Adaptive   bool            // finds out from "too many requests" how often it may ask
	Concurrent int             // requests at once; 0 means no limit
	Queue      int             // requests that may wait for their turn, or for recovery
	Priority   limit.Priority  // of requests that say nothing

	Breaker breaker.Config // when the provider counts as down
	OpenFor time.Duration  // how long to leave it alone at least before looking again; 0 means that the gate decides

	// What this provider is sent, beside what all are, of a request whose caller
	// addressed another one.
	ForwardHeaders []string
	ForwardQuery   []string

	Fallback      []string // providers that take over, in order
	FallbackAfter int      // attempts at one provider before the next takes over, while it is not known to be down

	Hold    time.Duration // how long a stream is held back for its first content
	Idle    time.Duration // the longest silence within an answer; 0 means any
	MaxBody int64         // bytes of a request; 0 means any
}

// Key is one of the credentials of a provider.
type Key struct {
	Name    string // how it is called on pages and in metrics; never the key itself
	Value   Secret
	Account string // whose limit it shares with others, see Options.Accounts; "" means none
}

// Header is a header that is set on every request.
type Header struct {
	Name  string
	Value Secret
}

// Route is a method and a path below the provider. A path that ends in / stands for everything below it.
type Route struct{ Method, Path string }

// When a POST is sent again that was not refused at the door.
const (
	PostsNever      = "never"      // never
	PostsAnswered   = "answered"   // when it was answered with a failure that may pass
	PostsUnanswered = "unanswered" // also when it was sent and not answered: it may be done, and billed, twice
)

// The presets.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
	Gemini    = "gemini"
	Generic   = "generic"
)

// Presets are the APIs of which something is known.
var Presets = []string{OpenAI, Anthropic, Gemini, Generic}
