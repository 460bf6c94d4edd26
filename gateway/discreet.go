package gateway

import (
	"net/http"
	"strings"

	"github.com/tideover/tideover/internal/secret"
)

// discreetError is an error of net/http, which quotes what it does not understand of
// an answer: a server may have put there what a request said of who asks. The gateway
// knows its own keys, and takes them out of all texts; a caller's it knows only as
// long as the request lasts, and what is quoted may be another caller's.
type discreetError struct {
	err  error
	text string
}

// Error returns the text without credentials.
func (e *discreetError) Error() string { return e.text }

// Unwrap returns the error, by which others tell what it means.
func (e *discreetError) Unwrap() error { return e.err }

// minSecret is how long a value is at least that is taken for a secret because
// its name is not known. Shorter ones are numbers and flags.
const minSecret = 4

// discreet returns the error without quotations, and without what the request has in
// headers and query parameters that are not known to be harmless.
func discreet(err error, req *http.Request) error {
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
			add(credential(name), v, behind)
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
	return &discreetError{err, text}
}
