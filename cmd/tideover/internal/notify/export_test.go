package notify

import "github.com/tideover/tideover/internal/secret"

// Remembered returns the number of entries that the gate keeps.
func (g *Gate) Remembered() int { return len(g.seen) + len(g.ends) }

// MailText is mailText.
func MailText(e *Email, m Message) []byte { return mailText(e, m) }

// HeaderText is headerText.
func HeaderText(s string) string { return headerText(s) }

// Network is network.
func Network(err error) error { return network(err) }

// Without is without.
func (m Message) Without(r *secret.Redactor) Message { return m.without(r) }
