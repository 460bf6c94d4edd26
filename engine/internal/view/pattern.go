package view

import (
	"hash/fnv"
	"strings"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/textfmt"
)

// maxPattern is the largest length of a pattern, in bytes. Errors that differ only after it have
// the same pattern.
const maxPattern = 400

// Pattern returns the first line of an error's text without the parts that differ from one
// failure to the next. Numbers, durations, addresses, ids and hexadecimal numbers become "#", and
// quoted text becomes "…" in quotes. Exit codes stay, because they say what went wrong. The
// pattern of a pattern is the pattern itself.
func Pattern(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	var b strings.Builder
	for i := 0; i < len(text) && b.Len() < maxPattern; {
		n, shown := part(text, i)
		b.WriteString(shown)
		i += n
	}
	return strings.TrimSpace(textfmt.Truncate(b.String(), maxPattern))
}

const spaces = " \t\n\r"

// quotes has what a pattern shows for quoted text, by the character at both ends of it.
var quotes = [256]string{'"': `"…"`, '`': "`…`", '\'': "'…'"}

// part returns the length of the part of s that begins at i, and what a pattern shows for it.
func part(s string, i int) (n int, shown string) {
	c := s[i]
	switch {
	case strings.IndexByte(spaces, c) >= 0:
		return len(s[i:]) - len(strings.TrimLeft(s[i:], spaces)), " "
	case quotes[c] != "" && (c != '\'' || i == 0 || !isWord(s[i-1]) && s[i-1] != '#'):
		if end := strings.IndexByte(s[i+1:], c); end >= 0 {
			return end + 2, quotes[c]
		}
		n = 1
	case isVolatile(s, i) > 0:
		if n = volatile(s, i); !isExitCode(s[:i], s[i:i+n]) {
			return n, "#"
		}
	case isWord(c):
		n = wordLen(s, i)
	default:
		_, n = utf8.DecodeRuneInString(s[i:])
	}
	return n, s[i : i+n]
}

// isExitCode reports whether a word is an exit code: the text before it ends with "exit code " or
// "exit status ".
func isExitCode(before, word string) bool {
	return len(word) <= 3 && strings.Trim(word, "0123456789") == "" &&
		(strings.HasSuffix(before, "exit code ") || strings.HasSuffix(before, "exit status "))
}

// volatile returns the length of the sequence of volatile words (see isVolatile) that begins
// at i, with the separators between them. It is an address, a time, a duration or a version,
// for example.
func volatile(s string, i int) int {
	end := i + isVolatile(s, i)
	for end+1 < len(s) && strings.IndexByte(".:-,/+", s[end]) >= 0 {
		n := isVolatile(s, end+1)
		if n == 0 {
			break
		}
		end += 1 + n
	}
	return end - i
}

// isVolatile returns the length of the word at i if the word is likely to differ in the next
// error, and otherwise 0.
func isVolatile(s string, i int) int {
	if s[i] == '#' {
		return 1
	}
	if n := uuidLen(s, i); n > 0 {
		return n
	}
	n := wordLen(s, i)
	word := s[i : i+n]
	switch {
	case n == 0:
		return 0
	case strings.ContainsAny(word, "0123456789"):
		// Short names with a digit, such as s3, h2, ipv6 and utf8, stay.
		if n <= 4 && !isDigit(word[0]) {
			return 0
		}
		return n
	case n >= 8 && strings.Trim(word, "abcdefABCDEF") == "":
		return n
	}
	return 0
}

// uuidLen returns the length of the UUID at i, or 0 if there is none. Without it, parts of a UUID
// could be taken for words.
func uuidLen(s string, i int) int {
	const size = 36
	if i+size > len(s) || i+size < len(s) && isWord(s[i+size]) {
		return 0
	}
	for k := range size {
		dash := k == 8 || k == 13 || k == 18 || k == 23
		if c := s[i+k]; dash != (c == '-') || !dash && !isHex(c) {
			return 0
		}
	}
	return size
}

func wordLen(s string, i int) int {
	n := 0
	for i+n < len(s) && isWord(s[i+n]) {
		n++
	}
	return n
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isHex(c byte) bool   { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }
func isWord(c byte) bool  { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_' }

// errorKey returns the value of the column error: 47 bits of the pattern's hash, so that the
// errors of one pattern are in one range of the index, and 16 bits of the step's hash.
func errorKey(pattern, step string) int64 {
	first, _ := errorRange(pattern)
	return first | int64(hash(step)&0xffff)
}

// errorRange returns the first and the last errorKey of a pattern.
func errorRange(pattern string) (first, last int64) {
	first = int64(hash(pattern) >> 17 << 16)
	return first, first | 0xffff
}

func hash(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}
