package cli

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// visible makes visible what could change how a terminal shows other text: the
// control characters, which begin its escape sequences, and the invisible ones
// that reorder or hide what stands around them. What others wrote, a server's
// answer or the error of a step, is printed through it. A line break is one of
// them, so that nobody can write lines of ours.
func visible(text string) string {
	clean := true
	for _, r := range text {
		clean = clean && shown(r)
	}
	if clean {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case shown(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
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

// shown reports whether a terminal shows the character, and nothing else happens.
func shown(r rune) bool { return r != utf8.RuneError && unicode.IsGraphic(r) }

// firstLine returns the first line of a text, for a place that has no room for
// more, such as the stack of a panic.
func firstLine(text string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if line = strings.TrimRight(line, " \t\r"); rest != "" {
		line += " …"
	}
	return line
}

// visibleLines is visible for text that has lines of its own.
func visibleLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = visible(line)
	}
	return strings.Join(lines, "\n")
}

// visibleJSON is visible for JSON, which stays the same JSON: such characters are
// only in strings, where they can be written as escapes. Those below the space
// are not there, except for white space between the values.
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
