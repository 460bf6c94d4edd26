package chaos

import (
	"net/http"
	"net/url"

	"github.com/tideover/tideover/internal/secret"
)

// hidden stands for a credential.
const hidden = "***"

// masked returns the headers without credentials.
func masked(h http.Header) map[string][]string {
	out := make(map[string][]string, len(h))
	for name, values := range h {
		if secret.MaybeName(name) {
			values = []string{hidden}
		}
		out[name] = values
	}
	return out
}

// maskedQuery returns the parameters without credentials. What can't be read is
// left out as a whole.
func maskedQuery(query string) string {
	if query == "" {
		return ""
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return hidden
	}
	for name := range values {
		if secret.MaybeName(name) {
			values[name] = []string{hidden}
		}
	}
	return values.Encode()
}
