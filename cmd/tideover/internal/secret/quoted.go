package secret

import "regexp"

var quotation = regexp.MustCompile(`"(?:[^"\\]|\\.)*("|$)`)

// Unquoted returns the text with "…" for whatever it quotes, as Go does by %q. It is
// for errors that quote what somebody sent, where nobody knows whether that is a
// secret.
func Unquoted(text string) string { return quotation.ReplaceAllString(text, `"…"`) }
