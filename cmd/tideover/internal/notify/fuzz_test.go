package notify_test

import (
	"bytes"
	"mime"
	"net/mail"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
)

// FuzzMail makes mails from random texts. A mail must be valid and have no further headers
// and recipients, and its lines must end in CRLF.
func FuzzMail(f *testing.F) {
	f.Add("title", "text", "id", "name")
	f.Add("a\r\nBcc: evil@example.com\r\n\r\nbody", "\r\n.\r\n", "x>\r\nY: z", "\"\r\nZ: 1")
	f.Add("é\xff\x00 =?utf-8?q?x?=", "ünï\u2028", "", "Ö, <x@y>")
	f.Add(strings.Repeat("long ", 500), strings.Repeat("é", 500), "", "")
	f.Fuzz(func(t *testing.T, title, text, id, name string) {
		e := &notify.Email{From: &mail.Address{Name: name, Address: "a@example.com"}, To: []*mail.Address{{Name: name, Address: "b@example.com"}}}
		data := notify.MailText(e, notify.Message{ID: id, Event: notify.Event(id), Title: title, Text: text, Time: at})
		msg, err := mail.ReadMessage(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if len(msg.Header) != 10 {
			t.Fatalf("%d headers: %v", len(msg.Header), msg.Header)
		}
		for line := range bytes.Lines(data) {
			if !bytes.HasSuffix(line, []byte("\r\n")) || bytes.ContainsAny(line[:len(line)-2], "\r\n\x00") {
				t.Fatalf("a line ends in the middle: %q", line)
			}
		}
		if to, err := msg.Header.AddressList("To"); err != nil || len(to) != 1 || to[0].Address != "b@example.com" {
			t.Fatalf("To: %q: %v", msg.Header.Get("To"), err)
		}
	})
}

// FuzzHeaderText encodes random texts for a header. The result must be a valid value that
// decodes to the text.
func FuzzHeaderText(f *testing.F) {
	f.Add("nightly gave up")
	f.Add("nächtlich\r\nX: y")
	f.Add("=?utf-8?q?a?= \x7f")
	f.Add("=??B??=")
	f.Fuzz(func(t *testing.T, s string) {
		got := notify.HeaderText(s)
		if strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("HeaderText(%q) = %q", s, got)
		}
		back, err := new(mime.WordDecoder).DecodeHeader(got)
		if err != nil || strings.ContainsAny(back, "\r\n\x00") {
			t.Fatalf("%q is read as %q, %v", got, back, err)
		}
		want := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
		if want = strings.ReplaceAll(want, "=?", "= ?"); back != want {
			t.Fatalf("%q came back as %q, want %q", s, back, want)
		}
	})
}
