package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/secret"
)

// discreetError is an error of net/http, which quotes what it does not understand of
// an answer: a server may have put there what a request said of who asks. The gateway
// knows its own keys, and takes them out of all texts; a caller's it knows only as
// long as the request lasts, and what is quoted may be another's.
type discreetError struct {
	err  error
	text string
}

// Error returns the text without credentials.
func (e *discreetError) Error() string { return e.text }

// Unwrap returns the error, by which others tell what it means.
func (e *discreetError) Unwrap() error { return e.err }

// discreet returns the error without the credentials of the request, and without
// quotations where callers bring their own.
func discreet(err error, req *http.Request, own bool) error {
	var secrets secret.Redactor
	for name, values := range req.Header {
		if !credential(name) {
			continue
		}
		for _, v := range values {
			_, behind, _ := strings.Cut(v, " ") // a scheme
			secrets.Add(v, behind)
		}
	}
	for _, c := range req.Cookies() {
		secrets.Add(c.Value)
	}
	for pair := range strings.FieldsFuncSeq(req.URL.RawQuery, func(r rune) bool { return r == '&' || r == ';' }) {
		if name, v, _ := strings.Cut(pair, "="); slices.Contains(keyParameters, strings.ToLower(unescaped(name))) {
			secrets.Add(v, unescaped(v))
		}
	}
	said := err.Error()
	text := secrets.String(said)
	if !own {
		text = secret.Unquoted(text)
	}
	if text == said {
		return err
	}
	return &discreetError{err, text}
}
