package notify

import (
	"bytes"
	"fmt"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"time"
)

// mailText returns the message as a mail, in plain text. Nothing of the message
// can add a header, and its id is the mail's, so that one that was sent twice is
// recognised.
func mailText(e *Email, m Message) []byte {
	var b bytes.Buffer
	_, domain, _ := strings.Cut(e.From.Address, "@")
	to := make([]string, len(e.To))
	for i, a := range e.To {
		to[i] = address(a)
	}
	for _, h := range []struct{ name, value string }{
		{"From", address(e.From)}, {"To", strings.Join(to, ",\r\n ")}, {"Subject", folded(headerText(m.Title))},
		{"Date", m.Time.Format(time.RFC1123Z)}, {"Message-ID", fmt.Sprintf("<%s@%s>", token(m.ID), domain)},
		{"Auto-Submitted", "auto-generated"}, {"X-Tideover-Event", token(string(m.Event))}, {"MIME-Version", "1.0"},
		{"Content-Type", "text/plain; charset=utf-8"}, {"Content-Transfer-Encoding", "quoted-printable"},
	} {
		fmt.Fprintf(&b, "%s: %s\r\n", h.name, h.value)
	}
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	_, _ = w.Write([]byte(lines(m.Text, prefixed("run ", m.Run), m.URL, prefixed("from ", m.Host)) + "\n")) // to memory
	_ = w.Close()
	return b.Bytes()
}

// address writes an address with its name, encoded.
func address(a *mail.Address) string {
	return (&mail.Address{Name: strings.Map(printable, a.Name), Address: a.Address}).String()
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return -1
	}
	return r
}

// folded breaks a header between words: a line of a mail has at most 998 bytes,
// and encoded words are to stand on lines of 76.
func folded(s string) string {
	var b strings.Builder
	length := len("Subject: ")
	for i, word := range strings.Split(s, " ") {
		switch {
		case i == 0:
		case length+1+len(word) > 76:
			b.WriteString("\r\n ")
			length = 0
		default:
			b.WriteByte(' ')
		}
		b.WriteString(word)
		length += 1 + len(word)
	}
	return b.String()
}

// token leaves of a text what can stand in a Message-ID.
func token(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, s)
}
