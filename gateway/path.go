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
// in any spelling: no request may climb out of a base URL.
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

// pathThrough returns the path by which the gateway leads to a URL of the provider, which may be
// relative to its host. It reports false for a URL that is not below the base URL.
func (p *provider) pathThrough(u *url.URL) (string, bool) {
	base, path := p.spec.BaseURL, u.EscapedPath()
	if u.Host != "" && !strings.EqualFold(u.Host, base.Host) || u.Scheme != "" && u.Scheme != base.Scheme || hasDots(path) {
		return "", false
	}
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(base.EscapedPath(), "/"))
	if !ok || u.Host == "" && !strings.HasPrefix(path, "/") || rest != "" && rest[0] != '/' {
		return "", false
	}
	suffix := url.URL{RawQuery: u.RawQuery, ForceQuery: u.ForceQuery, Fragment: u.Fragment, RawFragment: u.RawFragment}
	return prefix + p.spec.Name + rest + suffix.String(), true
}

// urlHeaders are the headers of an answer with a URL of the provider. Those of Google are for the
// content of an upload.
var urlHeaders = []string{"Location", "X-Goog-Upload-Url", "X-Goog-Upload-Control-Url"}

// rewriteURLs makes URLs of the provider in an answer lead through the gateway. A Location becomes a
// path. The SDKs of Google take the path of the URL for an upload, and want one with a host.
func (r *request) rewriteURLs(h http.Header, p *provider) {
	for _, name := range urlHeaders {
		v := h[name]
		if len(v) != 1 {
			continue
		}
		u, err := url.Parse(v[0])
		if err != nil {
			continue
		}
		path, ok := p.pathThrough(u)
		switch {
		case !ok:
		case name == "Location":
			h[name] = []string{path}
		default:
			h[name] = []string{r.origin() + path}
		}
	}
}

// origin returns the address at which the caller reached the gateway.
func (r *request) origin() string {
	if r.secure {
		return "https://" + r.host
	}
	return "http://" + r.host
}
