package secret

import "regexp"

var quotation = regexp.MustCompile(`"(?:[^"\\]|\\.)*("|$)`)

// Unquoted returns the text with "…" in place of everything that it quotes as Go does
// by %q. It is for errors that quote what a client sent, which may be a secret.
func Unquoted(text string) string { return quotation.ReplaceAllString(text, `"…"`) }
