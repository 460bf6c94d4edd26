package dvm

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxPublic = 300     // bytes of a text that is published
	maxLooked = 4 << 10 // bytes of a text that are looked at
	hidden    = "…"
)

var (
	// Terminal escapes: of ECMA-48 with parameters, those that carry a string, and
	// the short ones.
	escapes = regexp.MustCompile(`(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]?|(?:\x1b[\]P_^X]|[\x{9d}\x{90}\x{9f}\x{9e}\x{98}])[^\x07\x1b\x{9c}]*(?:\x07|\x1b\\|\x{9c})?|\x1b[ -/]*[0-~]?`)

	links = regexp.MustCompile(`[A-Za-z0-9+.\-]*://\S*`)

	// A name that promises a secret, and what it is set to.
	settings = regexp.MustCompile(`(?i)([\w.\-]*(?:token|key|passw|passphrase|pwd|secret|credential|auth|cookie|session|signature|nsec)[\w.\-]*["']?\s*[:=]\s*)(?:(?:bearer|basic)\s+)?("[^"]*"?|'[^']*'?|[^\s,;&"']+)`)
	bearers  = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[^\s,;"']+`)

	paths   = regexp.MustCompile(`(^|[^\w/\\…~.\-])(?:~?/[^/\s"'\x60:;,()\[\]{}<>|]|[A-Za-z]:[\\/]|\\\\[^\\\s]|~\\)[^\s"'\x60:;,()\[\]{}<>|]*`)
	longish = regexp.MustCompile(`[A-Za-z0-9+/_=\-]{20,}`)
)

// Sanitise makes a text fit for the public: relays keep what they are given, for
// everybody. It is one line of at most 300 bytes without control characters and
// terminal escapes. Of links the scheme and the host remain; absolute paths, values
// of things called key, token or password, and long words that look like a key or
// a hash are replaced by an ellipsis. It hides rather too much than too little. It
// can't know every secret: the full text belongs into the local log.
func Sanitise(text string) string {
	text = printable(head(text))
	text = links.ReplaceAllStringFunc(text, linkHost)
	text = paths.ReplaceAllString(text, "${1}"+hidden)
	text = settings.ReplaceAllString(text, "${1}"+hidden)
	text = bearers.ReplaceAllString(text, "$1 "+hidden)
	text = longish.ReplaceAllStringFunc(text, longWord)
	return shorten(strings.TrimSpace(text), maxPublic)
}

// head returns the beginning of a text, which does not end in a part of a word: that
// of a secret would no longer look like one.
func head(text string) string {
	if len(text) <= maxLooked {
		return text
	}
	text = text[:maxLooked]
	if i := strings.LastIndexFunc(text, unicode.IsSpace); i >= 0 {
		return text[:i] + " " + hidden
	}
	return hidden
}

// printable returns the text as one line of characters that can be seen.
func printable(text string) string {
	text = escapes.ReplaceAllString(strings.ToValidUTF8(text, ""), "")
	text = strings.Map(func(c rune) rune {
		switch {
		case unicode.IsSpace(c):
			return ' '
		case !unicode.IsPrint(c):
			return -1
		}
		return c
	}, text)
	return strings.Join(strings.Fields(text), " ")
}

// linkHost reduces the links of a word, which begins with one, to their schemes and
// hosts. What follows a quote is no part of a link, unless it is a password.
func linkHost(word string) string {
	scheme, rest, _ := strings.Cut(word, "://")
	rest = rest[strings.LastIndexByte(upTo(rest, `/?#\`), '@')+1:]
	link := upTo(rest, `"'<>`)
	host := upTo(link, `/?#\`)
	if i := strings.IndexFunc(host, func(c rune) bool { return !strings.ContainsRune(hostChars, c) }); i >= 0 {
		host = host[:i]
	}
	if host == "" {
		host = hidden
	}
	return scheme + "://" + host + links.ReplaceAllStringFunc(rest[len(link):], linkHost)
}

// upTo returns the text before the first of the characters.
func upTo(text, chars string) string {
	if i := strings.IndexAny(text, chars); i >= 0 {
		return text[:i]
	}
	return text
}

const hostChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]_"

// longWord hides a long word, unless it is words of small letters.
func longWord(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyz-_") != "" || strings.Trim(word, "abcdef") == "" {
		return hidden
	}
	return word
}

// shorten cuts a text to so many bytes, at the beginning of a character.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	cut := most - len(hidden)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + hidden
}
