package gateway

import (
	"net/url"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// Spec is the configuration of a provider. [New] and [Gateway.Reload] fill in the defaults
// of fields that are zero, as [Spec.Fill] does; name, preset and, for the preset [Generic],
// the base URL have none.
type Spec struct {
	Name    string   // requests to /p/<name>/ go to this provider; lower-case letters, digits, "-", "_" and "."
	Preset  string   // one of Presets: sets the defaults below
	Format  string   // wire format; a fallback must have the same. The default is the preset, none for Generic
	BaseURL *url.URL // the path of a request is appended to it

	H2C bool // speak HTTP/2 without TLS and without negotiation to an http:// address

	Keys       []Key  // the gateway picks one per attempt; none means that callers send their own, unless Keyless
	Keyless    bool   // send no credentials, neither ours nor those of callers
	AuthHeader string // header of the key; the default is that of the preset
	AuthScheme string // word before the key, such as "Bearer"; the default is that of the preset, none if AuthHeader is set

	Policy          retry.Policy // of all attempts of a request, at all providers
	RetryPosts      string       // PostsNever, PostsAnswered or PostsUnanswered
	Repeatable      []Route      // requests that may be sent twice beside those that HTTP allows
	IdempotencyKeys bool         // add an Idempotency-Key to requests that may not be sent twice, so that they may
	Headers         []Header     // set on every request

	Rate       limit.Frequency // requests per time; the zero Frequency means no limit
	Burst      int             // requests that may follow each other at once; 0 means 1
	Adaptive   bool            // learn the rate from responses with the status 429
	Concurrent int             // requests at once; 0 means no limit
	Queue      int             // requests that may wait for a limit or for recovery; 0 means 1000
	Priority   limit.Priority  // of requests without the header X-Tideover-Priority

	Breaker breaker.Config // when the provider counts as down; the zero Config means breaker.Provider
	OpenFor time.Duration  // the least time until the first probe of a provider that is down; 0 means that the health gate decides

	// Headers and query parameters of callers that this provider gets as a fallback,
	// beside those that are known to be no credentials.
	ForwardHeaders []string
	ForwardQuery   []string

	Fallback      []string // names of providers that take over, in order
	FallbackAfter int      // attempts at one provider before the next takes over, unless it is down; 0 means 2

	StreamHold time.Duration // how long a stream is held back for its first content; 0 means 10s, -1 none
	StreamIdle time.Duration // the longest silence within a response; 0 means 5m, -1 no limit
	MaxBody    int64         // bytes of a request; 0 means 64 MiB, -1 no limit
}

// Key is a credential of a provider.
type Key struct {
	Name    string // name in the status and in metrics; never the key itself
	Value   Secret
	Account string // account whose limit the key shares with others, see Options.Accounts; "" means none
}

// Header is a header that is set on every request.
type Header struct {
	Name  string
	Value Secret
}

// Route is a method and a path below the base URL. A path that ends in / matches all paths
// below it.
type Route struct{ Method, Path string }

// Values of Spec.RetryPosts: when a POST is repeated that the provider did not reject
// before working on it.
const (
	PostsNever      = "never"      // never
	PostsAnswered   = "answered"   // after a response that says that the failure is temporary
	PostsUnanswered = "unanswered" // also after none: the request may be done, and billed, twice
)

// The presets.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
	Gemini    = "gemini"
	Generic   = "generic" // any HTTP API
)

// Presets are all presets.
var Presets = []string{OpenAI, Anthropic, Gemini, Generic}
