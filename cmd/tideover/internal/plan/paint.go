package plan

import "strconv"

// paint colours text for a terminal. The zero paint leaves it as it is.
type paint struct{ on bool }

// hues are the colours of policies that stand beside each other, of the 16 that
// every terminal has and its owner may have chosen.
var hues = [...]int{36, 33, 35, 32, 34, 31}

func (p paint) wrap(code, s string) string {
	if !p.on || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func hue(i int) string { return strconv.Itoa(hues[i%len(hues)]) }

func (p paint) colour(i int, s string) string { return p.wrap(hue(i), s) }
func (p paint) strong(i int, s string) string { return p.wrap("1;"+hue(i), s) }
func (p paint) faint(i int, s string) string  { return p.wrap("2;"+hue(i), s) }
func (p paint) bold(s string) string          { return p.wrap("1", s) }
func (p paint) dim(s string) string           { return p.wrap("2", s) }
