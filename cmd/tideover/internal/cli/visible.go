package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// visible escapes characters that could change how a terminal shows other text: control characters,
// which begin escape sequences, and invisible characters that reorder or hide text. All text from
// other parties, such as a server's answer or the error of a step, must be passed through visible.
// It escapes line breaks, too, so that such text can't imitate the output of tideover.
func visible(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !shown(r) }) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case shown(r):
			b.WriteRune(r)
		case strings.ContainsRune("\n\t\r", r):
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// shown reports whether visible leaves the character unchanged.
func shown(r rune) bool { return r != utf8.RuneError && unicode.IsGraphic(r) }

// firstLine returns the first line of a text, with an ellipsis if there are more.
func firstLine(text string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if line = strings.TrimRight(line, " \t\r"); rest != "" {
		line += " …"
	}
	return line
}

// optional returns text between before and after; empty if text is empty.
func optional(before, text, after string) string {
	if text == "" {
		return ""
	}
	return before + text + after
}

// visibleLines is visible for text with several lines: it keeps the line breaks.
func visibleLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = visible(line)
	}
	return strings.Join(lines, "\n")
}

// visibleJSON is visible for valid JSON. The result has the same value: the characters that it
// escapes occur only in strings, where JSON allows escapes. Line breaks and tabs occur only between
// values, and stay.
func visibleJSON(text []byte) []byte {
	var out []byte
	for _, r := range string(text) {
		switch {
		case r == '\n' || r == '\t' || r == '\r' || unicode.IsGraphic(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}
