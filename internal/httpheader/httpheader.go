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

// IsToken reports whether the text is a token of RFC 9110, as names of headers and
// methods are.
func IsToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}
