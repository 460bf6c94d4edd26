package chaos

import (
	"net/http"
	"net/url"
	"strings"
)

// hidden stands for a credential.
const hidden = "***"

// secretive are parts of the names of headers and parameters with credentials.
var secretive = []string{"auth", "key", "token", "secret", "cookie", "password", "passwd", "signature", "credential", "session"}

// isSecret reports whether a value may be a credential, by its name.
func isSecret(name string) bool {
	name = strings.ToLower(name)
	if name == "idempotency-key" || name == "sig" {
		return name == "sig"
	}
	for _, part := range secretive {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// masked returns the headers without credentials.
func masked(h http.Header) map[string][]string {
	out := make(map[string][]string, len(h))
	for name, values := range h {
		if isSecret(name) {
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
		if isSecret(name) {
			values[name] = []string{hidden}
		}
	}
	return values.Encode()
}
