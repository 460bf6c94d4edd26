package gateway

import (
	"slices"
	"strings"
)

// credentials are the headers in which callers are known to bring theirs, and of
// which no part of the name tells. All names here are in lower case.
var credentials = []string{"authentication", "x-auth", "x-auth-key", "ocp-apim-subscription-key", "x-functions-key", "x-access-key"}

// telling are the parts of a header's name that make it one with a credential in it.
var telling = []string{
	"authorization", "api-key", "apikey", "api_key", "cookie", "secret", "password", "passwd", "credential", "session", "private-key", "jwt",
}

// harmless are the words before "token" which say that it is none of the secret
// ones: places in a list, and names of requests.
var harmless = []string{"page", "continuation", "idempotency"}

// credential reports whether the header looks like one that says who the caller is.
// One too many that is taken out is a request that fails where it can be seen; one
// too few is a secret that somebody else has. It is called for every header of a
// request to a provider for which we have a key, and allocates nothing. What other
// providers are sent is in forward.go.
func credential(name string) bool {
	if plain[name] {
		return false
	}
	var room [64]byte
	lower := appendLower(room[:0], name)
	for _, known := range credentials { //nolint:modernize // slices.Contains would need a string of its own
		if string(lower) == known {
			return true
		}
	}
	for _, part := range telling {
		if contains(lower, part) {
			return true
		}
	}
	return hasToken(lower)
}

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

func appendLower(b []byte, s string) []byte {
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

// contains reports whether the part is in the text.
func contains(text []byte, part string) bool {
	for i := 0; i+len(part) <= len(text); i++ {
		if string(text[i:i+len(part)]) == part {
			return true
		}
	}
	return false
}

// hasToken reports whether a word of the name ends in "token", as in x-auth-token
// and x-accesstoken. Tokens, of which there are many, are what models count.
func hasToken(lower []byte) bool {
	const token = "token"
	start, before := 0, ""
	for i := 0; i <= len(lower); i++ {
		if i < len(lower) && lower[i] != '-' && lower[i] != '_' {
			continue
		}
		word := lower[start:i]
		if len(word) >= len(token) && string(word[len(word)-len(token):]) == token && !slices.Contains(harmless, before) {
			return true
		}
		before, start = wordOf(word), i+1
	}
	return false
}

// wordOf returns the word if it is one of the harmless.
func wordOf(word []byte) string {
	for _, w := range harmless {
		if string(word) == w {
			return w
		}
	}
	return ""
}

// keyParameters are the parameters of a query in which APIs take a key.
var keyParameters = []string{"key", "api_key", "api-key", "apikey", "access_token", "auth_token", "subscription-key"}

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
		if name, _, _ := strings.Cut(part, "="); slices.Contains(keyParameters, strings.ToLower(unescaped(name))) {
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
