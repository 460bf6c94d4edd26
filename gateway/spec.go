package gateway

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// Spec is the configuration of a provider. [New] and [Gateway.Reload] fill in the defaults
// of zero fields, like [Spec.Fill]. Name and preset have no default, nor has
// the base URL of the preset [Generic].
type Spec struct {
	Name    string   // requests to /p/<name>/ go to this provider; lower-case letters, digits, "-", "_" and "."
	Preset  string   // one of Presets: sets the defaults below
	Format  string   // wire format; a fallback must have the same. The default is the preset's name, or "" for Generic
	BaseURL *url.URL // the path of a request is appended to it

	H2C bool // use HTTP/2 without TLS and without negotiation; requires an http:// address

	Keys       []Key  // the gateway picks one for each attempt; none means that callers send their own, unless Keyless is set
	Keyless    bool   // send no credentials, neither ours nor those of callers
	AuthHeader string // header of the key; the default is that of the preset
	AuthScheme string // word before the key, such as "Bearer"; the default is that of the preset, none if AuthHeader is set

	Policy          retry.Policy // for all attempts of a request, at all providers
	RetryPosts      string       // PostsNever, PostsAnswered or PostsUnanswered; the default is that of the preset
	Repeatable      []Route      // requests that may be processed twice, in addition to those that HTTP allows
	IdempotencyKeys bool         // add an Idempotency-Key to requests that otherwise must not be processed twice
	Headers         []Header     // set on every request

	Rate       limit.Frequency // requests per time; the zero Frequency means no limit
	Burst      int             // requests that may follow each other without a delay; 0 means 1
	Adaptive   bool            // learn the rate from responses with the status 429
	Concurrent int             // concurrent requests; 0 means no limit
	Queue      int             // requests that may wait for a limit or for recovery; 0 means 1000
	Priority   limit.Priority  // priority of requests without the header X-Tideover-Priority

	Breaker breaker.Config // when the provider counts as down; the zero Config means breaker.Provider
	OpenFor time.Duration  // shortest time until the first probe of a provider that is down; 0 means that the health gate decides

	// Headers and query parameters of callers that this provider gets as a fallback,
	// in addition to those that are known to carry no credentials.
	ForwardHeaders []string
	ForwardQuery   []string

	Fallback      []string // names of providers that take over, in order
	FallbackAfter int      // failed attempts at one provider before the next takes over, unless it is down; 0 means 2

	StreamHold time.Duration // how long a stream is held back until its first content; 0 means 10s, -1 not at all
	StreamIdle time.Duration // longest silence within a response; 0 means 5m, -1 no limit
	MaxBody    int64         // greatest body, in bytes, of a request that names this provider; 0 means 64 MiB, -1 no limit
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

// Values of Spec.RetryPosts: when to repeat a POST that the provider may have
// processed.
const (
	PostsNever      = "never"      // do not repeat it
	PostsAnswered   = "answered"   // after a response with a temporary failure
	PostsUnanswered = "unanswered" // also without a response: the provider may process the request, and bill it, twice
)

// The presets.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
	Gemini    = "gemini"
	Generic   = "generic" // any HTTP API
)

// Presets lists all presets.
var Presets = []string{OpenAI, Anthropic, Gemini, Generic}

// Secret is a value that must not be shown: a key, a token, the value of a header. All
// verbs of fmt, all encoders and slog write "***"; only [Secret.Reveal] returns the value.
// The zero Secret is empty. Secrets can't be compared with ==.
type Secret struct{ value secret.String }

// NewSecret returns the text as a secret.
func NewSecret(text string) Secret { return Secret{secret.New(text)} }

// Reveal returns the value.
func (s Secret) Reveal() string { return s.value.Reveal() }

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.value.IsZero() }

// String returns "***".
func (s Secret) String() string { return s.value.String() }

// GoString returns "***".
func (s Secret) GoString() string { return s.value.GoString() }

// Format implements [fmt.Formatter]: every verb prints "***", with any flags and width.
func (s Secret) Format(f fmt.State, verb rune) { s.value.Format(f, verb) }

// MarshalText returns "***". There is no UnmarshalText: the value can't be read back.
func (s Secret) MarshalText() ([]byte, error) { return s.value.MarshalText() }

// MarshalJSON returns "***" as a JSON string.
func (s Secret) MarshalJSON() ([]byte, error) { return s.value.MarshalJSON() }

// MarshalYAML returns "***".
func (s Secret) MarshalYAML() (any, error) { return s.value.MarshalYAML() }

// LogValue implements [slog.LogValuer]: it is "***".
func (s Secret) LogValue() slog.Value { return s.value.LogValue() }

// preset has the settings of a known API.
type preset struct {
	base     string // base URL; "" means that the spec must have one
	header   string // header of a key
	scheme   string // word before the key in the header
	posts    string
	policy   string
	conflict bool   // status 409 is temporary
	deadline string // header that tells the provider how much time is left
}

// The policies of the presets. The attempt timeout ends with the headers of the
// answer. A model that does not stream sends them when it has finished, and
// the SDKs of the providers wait ten minutes for that. A shorter timeout would turn a slow
// answer that is paid for into a failure that must not be repeated.
const (
	providerPolicy = "http attempts=4 attempt-timeout=10m total-timeout=20m"
	genericPolicy  = "http attempts=4 attempt-timeout=2m total-timeout=10m"
)

var presets = map[string]preset{
	OpenAI: {
		base: "https://api.openai.com", header: "Authorization", scheme: "Bearer",
		posts: PostsAnswered, policy: providerPolicy, conflict: true, deadline: "X-Stainless-Timeout",
	},
	Anthropic: {
		base: "https://api.anthropic.com", header: "X-Api-Key",
		posts: PostsAnswered, policy: providerPolicy, conflict: true, deadline: "X-Stainless-Timeout",
	},
	Gemini: {
		base: "https://generativelanguage.googleapis.com", header: "X-Goog-Api-Key",
		posts: PostsAnswered, policy: providerPolicy, deadline: "X-Request-Timeout-Ms",
	},
	Generic: {
		header: "Authorization", scheme: "Bearer",
		posts: PostsNever, policy: genericPolicy, deadline: "X-Request-Timeout-Ms",
	},
}

// attemptTimeout returns the attempt timeout for policies that set none.
func (p *preset) attemptTimeout() time.Duration {
	policy, _ := retry.Parse(p.policy) // can't fail: a test parses it
	return policy.AttemptTimeout
}

// The defaults that all presets share.
const (
	defaultHold          = 10 * time.Second
	defaultIdle          = 5 * time.Minute
	defaultQueue         = 1000
	defaultFallbackAfter = 2
	defaultMaxBody       = 64 << 20
)

// Fill returns the spec with the defaults of its preset in zero fields. For StreamHold,
// StreamIdle and MaxBody, use -1 for none. A spec with an unknown preset stays as it is.
func (s Spec) Fill() Spec {
	p, ok := presets[s.Preset]
	if !ok {
		return s // Validate rejects it
	}
	if s.Preset != Generic {
		s.Format = cmp.Or(s.Format, s.Preset)
	}
	if s.BaseURL == nil && p.base != "" {
		s.BaseURL, _ = url.Parse(p.base)
	}
	if s.AuthHeader == "" {
		s.AuthHeader, s.AuthScheme = p.header, cmp.Or(s.AuthScheme, p.scheme)
	}
	if s.Policy == (retry.Policy{}) {
		s.Policy, _ = retry.Parse(p.policy) // can't fail: a test parses it
	}
	if s.Breaker == (breaker.Config{}) {
		s.Breaker = breaker.Provider()
	}
	s.RetryPosts = cmp.Or(s.RetryPosts, p.posts)
	s.Queue = cmp.Or(s.Queue, defaultQueue)
	s.FallbackAfter = cmp.Or(s.FallbackAfter, defaultFallbackAfter)
	s.StreamHold = cmp.Or(s.StreamHold, defaultHold)
	s.StreamIdle = cmp.Or(s.StreamIdle, defaultIdle)
	s.MaxBody = cmp.Or(s.MaxBody, defaultMaxBody)
	return s
}

// ours reports whether requests carry the gateway's credentials or none at all. Limits
// that the provider states then apply to the gateway as a whole, not to a single caller.
func (s *Spec) ours() bool { return len(s.Keys) > 0 || s.Keyless }
