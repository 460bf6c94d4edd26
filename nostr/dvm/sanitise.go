package dvm

import (
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
	"strings"
	"unicode"
)

const (
	maxPublic = 300     // longest text that is published, in bytes
	maxLooked = 4 << 10 // longest text that is examined, in bytes
	maxScheme = 12      // longest scheme, in bytes
	hidden    = "…"
)

var (
	// Terminal escapes: of ECMA-48 with parameters, those that carry a string, and
	// the short ones.
	escapes = lazyregexp.New(`(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]?|(?:\x1b[\]P_^X]|[\x{9d}\x{90}\x{9f}\x{9e}\x{98}])[^\x07\x1b\x{9c}]*(?:\x07|\x1b\\|\x{9c})?|\x1b[ -/]*[0-~]?`)

	links = lazyregexp.New(`[A-Za-z0-9+.\-]*://\S*`)

	// A name that suggests a secret, and its value; a header may have several
	// words.
	headers  = lazyregexp.New(`(?i)(authorization["']?\s*[:=]\s*)("[^"]*"?|'[^']*'?|[^,;"']+)`)
	settings = lazyregexp.New(`(?i)([\w.\-]*(?:token|key|passw|passphrase|pwd|secret|credential|auth|cookie|session|signature|nsec)[\w.\-]*["']?\s*[:=]\s*)("[^"]*"?|'[^']*'?|[^\s,;&"']+)`)
	bearers  = lazyregexp.New(`(?i)\b(bearer|basic)\s+[^\s,;"']+`)
	called   = lazyregexp.New(`(?i)([\w\-]*(?:token|key|password|passwd|passphrase|secret)\s+)([^\s,;"']+)`)

	// The word after "dial" or "lookup" is a host, even if it looks like a
	// common word.
	dialled = lazyregexp.New(`(?i)\b((?:lookup|dial|connect)\s+(?:to\s+)?(?:(?:tcp|udp|unix)[46]?\s+)?)([^\s,;"']+)`)

	words   = lazyregexp.New("[^\\s\"'`,;()\\[\\]{}<>|]+")
	longish = lazyregexp.New(`[A-Za-z0-9+/_=\-]{20,}`)
)

// Sanitise makes a text fit for publication: relays store events for all
// readers. The result is one line of at most 300 bytes without control
// characters and terminal escapes. Of links only the scheme remains. Paths,
// addresses, host names, values of things called key, token or password, and
// words that look like a key or a hash are replaced by an ellipsis, and network
// errors by a phrase. It hides too much rather than too little, but cannot
// recognise every secret. Write the full text only to the local log.
func Sanitise(text string) string {
	text = textfmt.Printable(escapes.ReplaceAllString(strings.ToValidUTF8(cutText(text), ""), ""))
	if phrase := ofNetwork(text); phrase != "" {
		return phrase
	}
	text = links.ReplaceAllStringFunc(text, linkScheme)
	text = headers.ReplaceAllString(text, "${1}"+hidden)
	text = words.ReplaceAllStringFunc(text, publicWord)
	text = settings.ReplaceAllString(text, "${1}"+hidden)
	text = bearers.ReplaceAllString(text, "$1 "+hidden)
	text = hideSecond(called, text, isOrdinary)
	text = hideSecond(dialled, text, isNoHost)
	text = longish.ReplaceAllStringFunc(text, longWord)
	return textfmt.TruncateWithin(strings.TrimSpace(text), maxPublic, hidden)
}

// hideSecond hides the second group of each match of the pattern, unless keep returns
// true for it.
func hideSecond(pattern *lazyregexp.Regexp, text string, keep func(string) bool) string {
	return pattern.ReplaceAllStringFunc(text, func(found string) string {
		parts := pattern.FindStringSubmatch(found)
		word := strings.TrimRight(parts[2], ends)
		if keep(word) {
			return found
		}
		return parts[1] + hidden + parts[2][len(word):]
	})
}

// cutText returns the beginning of a text. It does not end within a word: part
// of a secret would no longer look like one.
func cutText(text string) string {
	if len(text) <= maxLooked {
		return text
	}
	text = text[:maxLooked]
	if i := strings.LastIndexFunc(text, unicode.IsSpace); i >= 0 {
		return text[:i] + " " + hidden
	}
	return hidden
}

// linkScheme reduces the links in a word that begins with a link to their
// schemes. A link ends at a quote, unless the quote is part of a password.
func linkScheme(word string) string {
	scheme, rest, _ := strings.Cut(word, "://")
	rest = rest[strings.LastIndexByte(upTo(rest, `/?#\`), '@')+1:]
	link := upTo(rest, `"'<>`)
	if len(scheme) > maxScheme || strings.Trim(scheme, small) != "" {
		scheme = hidden
	}
	return scheme + "://" + hidden + links.ReplaceAllStringFunc(rest[len(link):], linkScheme)
}

// upTo returns the text before the first of the characters.
func upTo(text, chars string) string {
	if i := strings.IndexAny(text, chars); i >= 0 {
		return text[:i]
	}
	return text
}

// longWord hides a long word, unless it consists of lower-case words.
func longWord(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyz-_") != "" || strings.Trim(word, "abcdef") == "" {
		return hidden
	}
	return word
}
