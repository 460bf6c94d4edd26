package chart

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Letter returns the letter of series i: A, B, ..., Z, AA.
func Letter(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return Letter(i/26-1) + Letter(i%26)
}

// Escape escapes text for XML.
func Escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // writing to a strings.Builder can't fail
	return b.String()
}

// Wrap breaks lines that are longer than width characters and begins each line with indent.
// Empty lines stay empty.
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

// Colours has two colours for each series: one on a light background, one on a dark background.
var Colours = [...][2]string{
	{"#0969da", "#58a6ff"}, {"#d1501b", "#ff9a5c"}, {"#1a7f37", "#4ac26b"}, {"#8250df", "#bc8cff"},
	{"#b08800", "#e3b341"}, {"#0e7c86", "#39c5cf"}, {"#bf3989", "#ff80c8"}, {"#57606a", "#a8b3bf"},
}

// SeriesStyle returns the CSS classes of the colours of n series: .f0 fills with the first colour, .s0
// strokes with it, and so on. background is 0 for a light and 1 for a dark background.
func SeriesStyle(n, background int) string {
	var b strings.Builder
	for i, c := range Colours[:min(n, len(Colours))] {
		fmt.Fprintf(&b, ".f%d { fill: %s } .s%d { stroke: %s }\n", i, c[background], i, c[background])
	}
	return b.String()
}

// Paint adds colours to text for a terminal. The zero Paint adds none.
type Paint struct{ On bool }

// hues are the terminal codes of the colours of series. They are among the 16 colours that every
// terminal has, so that the colour scheme of the user applies.
var hues = [...]int{36, 33, 35, 32, 34, 31}

func (p Paint) wrap(code, s string) string {
	if !p.On || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func hue(i int) string { return strconv.Itoa(hues[i%len(hues)]) }

// Colour returns s in the colour of series i.
func (p Paint) Colour(i int, s string) string { return p.wrap(hue(i), s) }

// Strong returns s in bold, in the colour of series i.
func (p Paint) Strong(i int, s string) string { return p.wrap("1;"+hue(i), s) }

// Faint returns s dimmed, in the colour of series i.
func (p Paint) Faint(i int, s string) string { return p.wrap("2;"+hue(i), s) }

// Bold returns s in bold.
func (p Paint) Bold(s string) string { return p.wrap("1", s) }

// Dim returns s dimmed.
func (p Paint) Dim(s string) string { return p.wrap("2", s) }
