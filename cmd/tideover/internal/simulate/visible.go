package simulate

import (
	"fmt"
	"strings"
	"unicode"
)

// visible makes visible what could change how a terminal shows other text. Names
// come from files that others may have written. A line
// break is one of them.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsGraphic(r) && r != unicode.ReplacementChar {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// asciiOnly writes what is not ASCII as escapes; our own signs are ASCII already.
func asciiOnly(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
