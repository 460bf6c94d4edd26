package draw

import "strconv"

// Paint colours text for a terminal. The zero Paint leaves it as it is.
type Paint struct{ On bool }

// hues are the colours of things that stand beside each other, of the 16 that
// every terminal has and its owner may have chosen.
var hues = [...]int{36, 33, 35, 32, 34, 31}

func (p Paint) wrap(code, s string) string {
	if !p.On || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func hue(i int) string { return strconv.Itoa(hues[i%len(hues)]) }

// Colour is in the colour of the i-th thing.
func (p Paint) Colour(i int, s string) string { return p.wrap(hue(i), s) }

// Strong is bold and in the colour of the i-th thing.
func (p Paint) Strong(i int, s string) string { return p.wrap("1;"+hue(i), s) }

// Faint is dim and in the colour of the i-th thing.
func (p Paint) Faint(i int, s string) string { return p.wrap("2;"+hue(i), s) }

// Bold is bold.
func (p Paint) Bold(s string) string { return p.wrap("1", s) }

// Dim is dim.
func (p Paint) Dim(s string) string { return p.wrap("2", s) }
