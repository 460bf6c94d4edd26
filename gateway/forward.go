package gateway

import (
	"cmp"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
)

// As a fallback, a provider gets only those headers and query
// parameters of a caller that are known to carry no credential. A list of names that
// carry credentials would never be complete.

// forwardedHeaders are the headers of a caller that every fallback gets, in
// canonical form.
var forwardedHeaders = set(
	// The body, and what the caller accepts.
	"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Cache-Control", "Content-Digest", "Content-Disposition",
	"Content-Encoding", "Content-Language", "Content-Length", "Content-Md5", "Content-Range", "Content-Type", "Date", "Digest", "Expect",
	"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Pragma", "Prefer", "Priority", "Range",
	"Repr-Digest", "Soapaction", "Te", "Transfer-Encoding", "User-Agent",
	// Without these headers the request would have another meaning.
	"X-Http-Method", "X-Http-Method-Override", "X-Method-Override",
	// These identify a request and its trace. Baggage and tracestate are not here, because
	// they may carry anything.
	"Idempotency-Key", "X-Idempotency-Key", "Traceparent", "X-Client-Request-Id", "X-Correlation-Id", "X-Request-Id",
	// Upgrades. Sec-Websocket-Protocol is limited to forwardedProtocols.
	"Connection", "Upgrade", "Sec-Websocket-Extensions", "Sec-Websocket-Key", "Sec-Websocket-Version",
	// Wire formats.
	"Anthropic-Beta", "Anthropic-Dangerous-Direct-Browser-Access", "Anthropic-Version", "Openai-Beta", "X-Goog-Api-Client", "X-Goog-Fieldmask",
	"X-Goog-Request-Params", "X-Goog-Upload-Command", "X-Goog-Upload-File-Name", "X-Goog-Upload-Header-Content-Length",
	"X-Goog-Upload-Header-Content-Type", "X-Goog-Upload-Offset", "X-Goog-Upload-Protocol", "Mcp-Protocol-Version",
	"Connect-Accept-Encoding", "Connect-Content-Encoding", "Connect-Protocol-Version", "Grpc-Accept-Encoding", "Grpc-Encoding",
	"X-Grpc-Web", "X-User-Agent", "X-Stainless-Arch", "X-Stainless-Async", "X-Stainless-Helper-Method", "X-Stainless-Lang", "X-Stainless-Os",
	"X-Stainless-Package-Version", "X-Stainless-Poll-Helper", "X-Stainless-Read-Timeout", "X-Stainless-Retry-Count", "X-Stainless-Runtime",
	"X-Stainless-Runtime-Version", "X-Stainless-Stream-Helper",
	// The gateway sets these for each attempt.
	"Connect-Timeout-Ms", "Grpc-Timeout", "X-Envoy-Upstream-Rq-Timeout-Ms", "X-Request-Timeout-Ms", "X-Server-Timeout", "X-Stainless-Timeout",
	"X-Tideover-Attempt", "X-Tideover-Layer",
)

// forwardedQuery are the query parameters that every fallback gets, in lower case,
// without hyphens, underscores and dots.
var forwardedQuery = set(
	"after", "afterid", "alt", "apiversion", "before", "beforeid", "beta", "count", "cursor", "end", "endtime", "fields", "filter", "format",
	"from", "groupby", "id", "ids", "include", "include[]", "includeobfuscation", "intent", "interval", "lang", "language", "limit", "locale", "metadata", "model",
	"name", "nexttoken", "offset", "order", "orderby", "page", "pagesize", "pagetoken", "continuationtoken", "perpage", "prettyprint", "purpose", "q",
	"query", "search", "since", "size", "sort", "start", "startingafter", "starttime", "status", "stream", "to", "type", "until",
	"updatemask", "uploadprotocol", "uploadtype", "v", "version", "view", "$alt", "$fields", "$prettyprint", "$httpheaders[]",
)

// forwardedProtocols are the WebSocket subprotocols that every fallback gets. Any other
// subprotocol may carry a key, because a browser can set no other header of a WebSocket.
var forwardedProtocols = set("realtime", "graphql-ws", "graphql-transport-ws", "mqtt", "v10.stomp", "v11.stomp", "v12.stomp", "wamp.2.json", "openai-beta.realtime-v1")

const protocolHeader = "Sec-Websocket-Protocol"

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, name := range names {
		m[name] = true
	}
	return m
}

// parameterName returns the name of a query parameter in the form of forwardedQuery.
func parameterName(escaped string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(unescaped(escaped)))
}

// forwarding has the headers and query parameters that a provider gets as a fallback, in
// addition to those that every fallback gets.
type forwarding struct{ headers, query map[string]bool }

func newForwarding(s *Spec) *forwarding {
	f := &forwarding{headers: map[string]bool{}, query: map[string]bool{}}
	for _, name := range s.ForwardHeaders {
		f.headers[http.CanonicalHeaderKey(name)] = true
	}
	for _, name := range s.ForwardQuery {
		f.query[parameterName(name)] = true
	}
	return f
}

// queryFor returns the query that the provider gets, which is the request's query without
// credentials. If a parameter is neither known to be harmless nor a credential, it returns
// that parameter as unknown. Without it the request might have another meaning, so the
// provider must not get the request.
func (f *forwarding) queryFor(query string) (kept, unknown string) {
	if query == "" {
		return "", ""
	}
	var b strings.Builder
	for rest := query; rest != ""; {
		part, sep := rest, ""
		if end := strings.IndexAny(rest, "&;"); end >= 0 { // some servers separate parameters with semicolons
			part, sep = rest[:end], rest[end:end+1]
		}
		rest = rest[len(part)+len(sep):]
		written, _, _ := strings.Cut(part, "=")
		switch name := parameterName(written); {
		case part == "":
		case f.query[name] || forwardedQuery[name]:
			b.WriteString(part + sep)
		case !secret.IsQuery(name): // omit credentials: the provider has a key of its own
			return "", part
		}
	}
	return strings.TrimRight(b.String(), "&;"), ""
}

// unknownParameter returns the name of a query parameter for a message. A parameter without a
// value has no name, because it may be a credential itself.
func unknownParameter(part string, redact func(string) string) string {
	name, value, _ := strings.Cut(part, "=")
	if strings.Trim(value, "=") == "" { // a token in base64 may end with "="
		return "(without a value)"
	}
	return cmp.Or(textfmt.TruncateValid(textfmt.Printable(redact(unescaped(name))), 40, "…"), "(without a name)")
}

// limit removes everything from the request that the provider must not get as a fallback.
func (f *forwarding) limit(req *http.Request) {
	protocols := req.Header[protocolHeader]
	for name := range req.Header {
		if !forwardedHeaders[name] && !f.headers[name] {
			delete(req.Header, name)
		}
	}
	if kept := keepProtocols(protocols, func(name string) bool { return forwardedProtocols[name] }); kept != "" {
		req.Header[protocolHeader] = []string{kept}
	}
	keepTrailers(req, func(name string) bool { return forwardedHeaders[name] || f.headers[name] })
}

// keepTrailers removes the trailers from the request that may does not allow. The values are
// known only at the end of the body, when the server sets them in a map of its own.
func keepTrailers(req *http.Request, may func(name string) bool) {
	if len(req.Trailer) == 0 {
		return
	}
	all, kept := req.Trailer, http.Header{}
	for name := range all {
		if may(name) {
			kept[name] = nil
		}
	}
	switch len(kept) {
	case len(all):
		return
	case 0:
		req.Trailer = nil
		return
	}
	req.Trailer = kept
	wrap := func(body io.ReadCloser, err error) (io.ReadCloser, error) {
		if err != nil {
			return nil, err
		}
		return &trailedBody{body, all, kept}, nil
	}
	req.Body, _ = wrap(req.Body, nil)
	if get := req.GetBody; get != nil {
		req.GetBody = func() (io.ReadCloser, error) { return wrap(get()) }
	}
}

// trailedBody is the body of a request that gets only some of the caller's trailers. At its
// end it copies their values.
type trailedBody struct {
	io.ReadCloser
	all, kept http.Header
}

// Read implements [io.Reader].
func (b *trailedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { //nolint:errorlint // the end of a body is never wrapped
		for name := range b.kept {
			b.kept[name] = b.all[name]
		}
	}
	return n, err
}

// keepProtocols returns the list of subprotocols that may be sent, "" if there are none. may
// gets them in lower case.
func keepProtocols(values []string, may func(string) bool) string {
	var kept []string
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			if name = strings.TrimSpace(name); name != "" && may(strings.ToLower(name)) {
				kept = append(kept, name)
			}
		}
	}
	return strings.Join(kept, ", ")
}

// isSecretProtocol reports whether a subprotocol looks like a credential.
func isSecretProtocol(name string) bool {
	return strings.Contains(name, "api-key") || strings.Contains(name, "bearer") || isCredential(name)
}

// withoutSecretProtocols removes credentials from the subprotocols of a request to a
// provider for which we have a key.
func withoutSecretProtocols(h http.Header) {
	values := h[protocolHeader]
	if !slices.ContainsFunc(values, func(v string) bool { return isSecretProtocol(strings.ToLower(v)) }) {
		return
	}
	delete(h, protocolHeader)
	if kept := keepProtocols(values, func(name string) bool { return !isSecretProtocol(name) }); kept != "" {
		h[protocolHeader] = []string{kept}
	}
}
