package dvm

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/tideover/tideover/internal/lazyregexp"
)

const (
	small   = "abcdefghijklmnopqrstuvwxyz"
	letters = small + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
	ends    = ":.!?" // punctuation that may follow a word
)

// ofNetwork returns a fixed phrase for the text of a network error, because such
// texts name the destination in many ways. It returns an empty string for any other
// text.
func ofNetwork(text string) string {
	text = strings.ToLower(text)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
	}
	switch {
	case has("i/o timeout", "tls handshake timeout"):
		return "timeout of the network"
	case has("no such host"):
		return "host not found"
	case has("connection refused"):
		return "connection refused"
	case has("tls handshake"):
		return "TLS handshake failed"
	case lookups.MatchString(text):
		return "host not found"
	case has("dial tcp", "dial udp", "dial unix"):
		return "no connection"
	}
	return ""
}

// lookups matches a failed DNS lookup in an error text, but not a text such as
// "lookup table:".
var lookups = lazyregexp.New(`lookup \S+ on \S+:|lookup \S*[.\d]\S*:`)

// publicWord hides a word that is a location or a key. The parts around "=" are
// examined separately.
func publicWord(word string) string {
	if scheme, ok := strings.CutSuffix(word, "://"+hidden); ok && strings.Trim(scheme, small+hidden) == "" {
		return word
	}
	parts := strings.Split(word, "=")
	for i, part := range parts {
		bare := strings.TrimRight(part, ends)
		if isPlace(bare) || isKey(bare) {
			parts[i] = hidden + part[len(bare):]
		}
	}
	return strings.Join(parts, "=")
}

// isPlace reports whether the word is a path, an address or a host.
func isPlace(word string) bool {
	switch {
	case strings.Contains(word, "\\"), addresses.MatchString(word), users.MatchString(word), homes.MatchString(word):
		return true
	case strings.Contains(word, "/"):
		return !isFraction(word)
	}
	host, _, _ := strings.Cut(word, "%")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return isHostPort(word) || isDomain(word)
}

var (
	addresses = lazyregexp.New(`(?:^|\D)\d{1,3}(?:\.\d{1,3}){3}(?:\D|$)`)
	users     = lazyregexp.New(`@[^@]`)
	homes     = lazyregexp.New(`(?:^|:)~[A-Za-z_]`)
)

// isFraction reports whether the slashes of the word separate numbers, short words or
// the parts of a media type, and not the parts of a path.
func isFraction(word string) bool {
	parts := strings.Split(word, "/")
	all := func(chars string, most int) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return p == "" || len(p) > most || strings.Trim(p, chars) != "" })
	}
	switch {
	case all(digits, 9), len(parts) == 2 && all(letters, 3), word == "read/write", word == "input/output":
		return true
	}
	return len(parts) == 2 && slices.Contains([]string{"application", "text", "image", "audio", "video"}, parts[0]) &&
		strings.Trim(parts[1], small+"-+") == ""
}

// isHostPort reports whether the word is a host with a port, and not an ordinary word
// with a number: the part before the colon has characters that ordinary words do not
// have, or the port is a common one.
func isHostPort(word string) bool {
	i := strings.LastIndexByte(word, ':')
	if i < 0 {
		return false
	}
	host, port := word[:i], word[i+1:]
	switch {
	case port == "" || len(port) > 5 || strings.Trim(port, digits) != "" || strings.Trim(host, digits+":") == "":
		return false
	case len(port) > 3, strings.ContainsAny(host, ".-"+digits):
		return true
	}
	return slices.Contains([]string{"22", "25", "53", "80", "443"}, port)
}

// isDomain reports whether the word has three labels or more and is not a
// version.
func isDomain(word string) bool {
	labels := strings.Split(word, ".")
	last := labels[len(labels)-1]
	return len(labels) > 2 && !slices.Contains(labels, "") && strings.Trim(last, letters) == "" &&
		strings.Trim(word, letters+digits+".-_") == ""
}

// isKey reports whether a word that is not long looks like a key.
func isKey(word string) bool {
	return len(word) >= 12 && strings.ContainsAny(word, digits) && prefixed.MatchString(word) ||
		len(word) >= 16 && strings.ContainsAny(word, digits) && strings.ContainsAny(word, letters) && strings.Trim(word, letters[len(small):]+digits) == ""
}

var prefixed = lazyregexp.New(`^[A-Za-z]{2,8}[-_][A-Za-z0-9_\-]+$`)

// isOrdinary reports whether a word after "token" is an ordinary word.
func isOrdinary(word string) bool { return strings.Trim(word, small+hidden+":=") == "" }

// isNoHost reports whether a word after "dial" is not a host.
func isNoHost(word string) bool {
	return strings.Contains(word, hidden) || slices.Contains([]string{
		"", "to", "a", "an", "the", "and", "or", "is", "was", "in", "on", "at", "by", "not", "with", "without", "from", "for", "after",
		"before", "again", "error", "errors", "failed", "fails", "failure", "timeout", "timed", "table", "tables", "refused",
	}, strings.ToLower(word))
}
