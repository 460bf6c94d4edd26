package gateway

import (
	"strings"

	"github.com/tideover/tideover/internal/secret"
)

// credential reports whether the header looks like one that says who the caller is.
// It is called for every header of a request to a provider for which we have a key.
// What other providers are sent is in forward.go.
func credential(name string) bool { return !plain[name] && secret.IsHeader(name) }

// plain are headers that most requests have, and that need no second look.
var plain = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Connection": true, "Content-Length": true, "Content-Type": true,
	"User-Agent": true, "X-Forwarded-For": true, "Idempotency-Key": true, "Anthropic-Version": true, "Anthropic-Beta": true,
	"X-Tideover-Attempt": true, "X-Tideover-Layer": true, "X-Request-Timeout-Ms": true, "X-Stainless-Timeout": true,
	"X-Stainless-Lang": true, "X-Stainless-Arch": true, "X-Stainless-Os": true, "X-Stainless-Runtime": true,
	"X-Stainless-Runtime-Version": true, "X-Stainless-Package-Version": true, "X-Stainless-Retry-Count": true,
}

// session reports whether the header names the conversation that a caller has with
// the provider it asked for, by the rules of a protocol. There it may go.
func session(name string) bool { return name == "Mcp-Session-Id" }

// withoutKey returns the query without the parameters in which APIs take a key. All
// the rest stays as it was written.
func withoutKey(query string) string {
	if query == "" {
		return query
	}
	if lower := strings.ToLower(query); !strings.Contains(lower, "key") && !strings.Contains(lower, "token") && !strings.Contains(query, "%") {
		return query
	}
	var b strings.Builder
	cut := false
	for rest := query; len(rest) > 0; {
		part, sep := rest, ""
		if end := strings.IndexAny(rest, "&;"); end >= 0 { // to some servers the latter is the same
			part, sep = rest[:end], rest[end:end+1]
		}
		rest = rest[len(part)+len(sep):]
		if name, _, _ := strings.Cut(part, "="); secret.IsKeyQuery(unescaped(name)) {
			cut = true
			continue
		}
		b.WriteString(part + sep)
	}
	if !cut {
		return query
	}
	return strings.TrimRight(b.String(), "&;")
}
