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
