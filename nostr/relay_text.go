package nostr

import (
	"strings"
	"unicode"

	"github.com/tideover/tideover/internal/textfmt"
)

// maxText is how much of what a relay says is kept.
const maxText = 200

// printable makes a relay's text fit for a log and a terminal: one line of
// printable characters, not too long.
func printable(text string) string {
	if len(text) > 4*maxText {
		text = text[:4*maxText]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	return textfmt.TruncateValid(strings.Join(strings.Fields(text), " "), maxText, "...")
}
