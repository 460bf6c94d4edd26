// Package httpheader reads and checks headers of HTTP messages.
package httpheader

import (
	"net/http"
	"strings"
)

// First is [http.Header.Get] for a name in its canonical form. It is for code that runs for
// every request, where Get would convert the same name each time.
func First(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// RateLimit has the names of the response headers that state a rate limit.
type RateLimit struct {
	Name                    string // what the limit counts, such as "requests"
	Limit, Remaining, Reset string // in canonical form
}

// RateLimits has the headers with which Anthropic, OpenAI, GitHub and the IETF draft state their
// rate limits.
var RateLimits = []RateLimit{
	{"requests", "Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
	{"tokens", "Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
	{"input-tokens", "Anthropic-Ratelimit-Input-Tokens-Limit", "Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset"},
	{"output-tokens", "Anthropic-Ratelimit-Output-Tokens-Limit", "Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset"},
	{"requests", "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
	{"tokens", "X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	{"requests", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
	{"requests", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"},
}

// IsToken reports whether the text is a token of RFC 9110, as names of headers and
// methods are.
func IsToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}
