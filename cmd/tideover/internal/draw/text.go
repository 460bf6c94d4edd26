package draw

import (
	"encoding/xml"
	"strings"
	"unicode/utf8"
)

// Letter returns the name by which the parts of the output refer to a thing.
func Letter(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return Letter(i/26-1) + Letter(i%26)
}

// Escape makes text fit for XML.
func Escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // into memory
	return b.String()
}

// Wrap breaks each line at the width and indents all.
func Wrap(text string, width int, indent string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		col := 0
		for word := range strings.FieldsSeq(line) {
			switch {
			case col == 0:
				b.WriteString(indent)
				col = len(indent)
			case col+1+utf8.RuneCountInString(word) > width:
				b.WriteString("\n" + indent)
				col = len(indent)
			default:
				b.WriteString(" ")
				col++
			}
			b.WriteString(word)
			col += utf8.RuneCountInString(word)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Colours of things that stand beside each other, on a light ground and on a dark one.
var Colours = [...][2]string{
	{"#0969da", "#58a6ff"}, {"#d1501b", "#ff9a5c"}, {"#1a7f37", "#4ac26b"}, {"#8250df", "#bc8cff"},
	{"#b08800", "#e3b341"}, {"#0e7c86", "#39c5cf"}, {"#bf3989", "#ff80c8"}, {"#57606a", "#a8b3bf"},
}
