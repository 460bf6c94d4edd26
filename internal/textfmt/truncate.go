package textfmt

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Truncate returns at most size bytes of the text, and cuts between two characters.
func Truncate(s string, size int) string {
	if len(s) <= size {
		return s
	}
	for size > 0 && !utf8.RuneStart(s[size]) {
		size--
	}
	return s[:max(size, 0)]
}

// TruncateMark is Truncate with a mark behind a text that was cut.
func TruncateMark(s string, size int, mark string) string {
	if len(s) <= size {
		return s
	}
	return Truncate(s, size) + mark
}

// TruncateWithin is TruncateMark for at most size bytes together with the mark.
func TruncateWithin(s string, size int, mark string) string {
	if len(s) <= size {
		return s
	}
	return Truncate(s, size-len(mark)) + mark
}

// TruncateValid is TruncateMark for a text that may not be UTF-8: it also removes
// all invalid bytes of a text that it cuts.
func TruncateValid(s string, size int, mark string) string {
	if len(s) <= size {
		return s
	}
	return strings.ToValidUTF8(s[:size], "") + mark
}

// Clip returns at most count characters of the text, and adds an ellipsis if there are
// more.
func Clip(s string, count int) string {
	if r := []rune(s); len(r) > count {
		return string(r[:count]) + "…"
	}
	return s
}

// ClipWithin returns a text of at most width characters, including the mark at
// the end of a text that was cut. A mark that is longer than the width is
// returned alone.
func ClipWithin(s string, width int, mark string) string {
	switch {
	case utf8.RuneCountInString(s) <= width:
		return s
	case width <= 0:
		return ""
	}
	return string([]rune(s)[:max(width-utf8.RuneCountInString(mark), 0)]) + mark
}

// ClipASCII returns an ASCII text of at most width characters, which ends in dots if
// it was cut and there is room for them.
func ClipASCII(s string, width int) string {
	switch {
	case len(s) <= width:
		return s
	case width < 4:
		return s[:max(width, 0)]
	}
	return s[:width-3] + "..."
}

// Printable returns the text without characters that can't be printed, and with single
// spaces between its words.
func Printable(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return strings.Join(strings.Fields(s), " ")
}
