package gateway

import (
	"cmp"
	"net/url"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/retry"
)

// preset is what is known of an API.
type preset struct {
	base     string // its address; "" means that it must be said
	header   string // where a key goes
	scheme   string // what stands before it
	posts    string
	policy   string
	conflict bool   // 409 may pass
	deadline string // the header that tells the provider how much time is left
}

// The policies of the presets. An attempt's time ends with the headers of its
// answer. For a model that does not stream these come when it is done, for which
// the clients of the providers allow ten minutes; less would turn what is slow,
// and paid for, into a failure that must not be repeated.
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

// attemptTimeout returns how long an attempt may take where a policy sets no limit.
func (p *preset) attemptTimeout() time.Duration {
	policy, _ := retry.Parse(p.policy) // which a test reads
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

// Fill returns the spec with the defaults of its preset for fields that are zero. -1 means
// none for StreamHold, StreamIdle and MaxBody. A spec with an unknown preset stays as it is.
func (s Spec) Fill() Spec {
	p, ok := presets[s.Preset]
	if !ok {
		return s // which Validate refuses
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
		s.Policy, _ = retry.Parse(p.policy) // which a test reads
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

// ours reports whether requests carry credentials of ours, or none at all, so that
// what the provider says of them is about us and not about a caller.
func (s *Spec) ours() bool { return len(s.Keys) > 0 || s.Keyless }
