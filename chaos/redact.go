package chaos

import (
	"net/http"
	"net/url"

	"github.com/tideover/tideover/internal/secret"
)

// redacted replaces a credential.
const redacted = "***"

// redactHeaders returns the headers without credentials.
func redactHeaders(h http.Header) map[string][]string {
	out := make(map[string][]string, len(h))
	for name, values := range h {
		if secret.MaybeName(name) {
			values = []string{redacted}
		}
		out[name] = values
	}
	return out
}

// redactQuery returns the parameters without credentials. What can't be read is
// left out as a whole.
func redactQuery(query string) string {
	if query == "" {
		return ""
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return redacted
	}
	for name := range values {
		if secret.MaybeName(name) {
			values[name] = []string{redacted}
		}
	}
	return values.Encode()
}
