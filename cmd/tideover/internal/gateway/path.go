package gateway

import (
	"net/url"
	"strings"
)

// prefix is where the gateway stands.
const prefix = "/p/"

// cutPath returns the provider that the path asks for, and what is below it: ""
// or a path that starts with a slash, as it was written.
func cutPath(escaped string) (name, rest string, ok bool) {
	tail, ok := strings.CutPrefix(escaped, prefix)
	if !ok {
		return "", "", false
	}
	name, below, more := strings.Cut(tail, "/")
	if more {
		rest = "/" + below
	}
	return name, rest, name != ""
}

// hasDots reports whether the path has a segment that leads upwards, or nowhere,
// in any spelling: nobody may climb out of a base URL.
func hasDots(escaped string) bool {
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return true
	}
	// What is a slash in disguise to us may be one to a server.
	for segment := range strings.FieldsFuncSeq(plain, func(r rune) bool { return r == '/' || r == '\\' }) {
		segment, _, _ = strings.Cut(segment, ";") // parameters, which servers take off
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// below returns the address of what is below the base URL. rest is escaped, and
// is passed on as it was written.
func below(base *url.URL, rest, query string) *url.URL {
	u := &url.URL{Scheme: base.Scheme, Host: base.Host, RawQuery: query}
	escaped := strings.TrimSuffix(base.EscapedPath(), "/") + rest
	if rest == "" {
		escaped = base.EscapedPath()
	}
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		plain = escaped // has been refused before
	}
	u.Path, u.RawPath = plain, escaped
	return u
}

// unescaped returns the name of a query's parameter, or its value.
func unescaped(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil {
		return plain
	}
	return s
}
