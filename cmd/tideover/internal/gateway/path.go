package gateway

import (
	"net/http"
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

// relocate makes a Location that leads to the provider lead through the gateway, as a path.
// One that is relative to the path of the request does so already; one of another host,
// or beside the provider's base URL, stays as it is.
func (p *provider) relocate(h http.Header) {
	location := h["Location"]
	if len(location) != 1 {
		return
	}
	u, err := url.Parse(location[0])
	if err != nil || !strings.HasPrefix(u.EscapedPath(), "/") && u.Host == "" {
		return
	}
	base := p.spec.BaseURL
	if u.Host != "" && (u.Host != base.Host || u.Scheme != "" && u.Scheme != base.Scheme) {
		return
	}
	rest, ok := strings.CutPrefix(u.EscapedPath(), strings.TrimSuffix(base.EscapedPath(), "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return
	}
	through := url.URL{RawQuery: u.RawQuery, ForceQuery: u.ForceQuery, Fragment: u.Fragment, RawFragment: u.RawFragment}
	h["Location"] = []string{prefix + p.spec.Name + rest + through.String()}
}
