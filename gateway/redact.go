package gateway

import (
	"net/http"
	"strings"

	"github.com/tideover/tideover/internal/secret"
)

// redactedError is an error of net/http without credentials. net/http quotes what it
// can't parse of a response, and a server may repeat credentials there. The gateway
// removes its own keys from all texts. It knows the credentials of a caller only during
// the request, and a quotation may have those of another caller.
type redactedError struct {
	err  error
	text string
}

// Error returns the text without credentials.
func (e *redactedError) Error() string { return e.text }

// Unwrap returns the original error.
func (e *redactedError) Unwrap() error { return e.err }

// minSecret is the length from which a value with an unknown name counts as a secret.
// Shorter values are numbers and flags.
const minSecret = 4

// redactError returns the error without quotations, and without the values of the
// request's headers and query parameters that are not known to be harmless.
func redactError(err error, req *http.Request) error {
	var secrets secret.Redactor
	add := func(known bool, values ...string) {
		for _, v := range values {
			if known || len(v) >= minSecret {
				secrets.Add(v)
			}
		}
	}
	for name, values := range req.Header {
		if forwardedHeaders[name] {
			continue
		}
		for _, v := range values {
			_, behind, _ := strings.Cut(v, " ") // a scheme
			add(isCredential(name), v, behind)
		}
	}
	for _, c := range req.Cookies() {
		secrets.Add(c.Value)
	}
	for pair := range strings.FieldsFuncSeq(req.URL.RawQuery, func(r rune) bool { return r == '&' || r == ';' }) {
		written, v, _ := strings.Cut(pair, "=")
		if name := parameterName(written); !forwardedQuery[name] {
			add(secret.IsQuery(name), v, unescaped(v))
		}
	}
	said := err.Error()
	text := secret.Unquoted(secrets.String(said))
	if text == said {
		return err
	}
	return &redactedError{err, text}
}

// isCredential reports whether the header is likely to have a credential. It is called for
// every header of a request to a provider for which the gateway has a key. forward.go
// decides which headers a fallback gets.
func isCredential(name string) bool { return !commonHeaders[name] && secret.IsHeader(name) }

// commonHeaders are headers of most requests that are no credentials.
var commonHeaders = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Connection": true, "Content-Length": true, "Content-Type": true,
	"User-Agent": true, "X-Forwarded-For": true, "Idempotency-Key": true, "Anthropic-Version": true, "Anthropic-Beta": true,
	"X-Tideover-Attempt": true, "X-Tideover-Layer": true, "X-Request-Timeout-Ms": true, "X-Stainless-Timeout": true,
	"X-Stainless-Lang": true, "X-Stainless-Arch": true, "X-Stainless-Os": true, "X-Stainless-Runtime": true,
	"X-Stainless-Runtime-Version": true, "X-Stainless-Package-Version": true, "X-Stainless-Retry-Count": true,
}

// isSession reports whether the header names the session of a caller with the provider
// it asked for. That provider may get it.
func isSession(name string) bool { return name == "Mcp-Session-Id" }

// withoutKey returns the query without the parameters in which APIs take a key. The
// other parameters stay byte for byte as they were.
func withoutKey(query string) string {
	if query == "" {
		return query
	}
	if lower := strings.ToLower(query); !strings.Contains(lower, "key") && !strings.Contains(lower, "token") && !strings.Contains(query, "%") {
		return query
	}
	var b strings.Builder
	cut := false
	for rest := query; len(rest) > 0; {
		part, sep := rest, ""
		if end := strings.IndexAny(rest, "&;"); end >= 0 { // some servers treat ; as &
			part, sep = rest[:end], rest[end:end+1]
		}
		rest = rest[len(part)+len(sep):]
		if name, _, _ := strings.Cut(part, "="); secret.IsKeyQuery(unescaped(name)) {
			cut = true
			continue
		}
		b.WriteString(part + sep)
	}
	if !cut {
		return query
	}
	return strings.TrimRight(b.String(), "&;")
}
