package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/smtp"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/retry"
)

// email sends the message to the recipients that are not in m.Delivered. The server may
// accept some recipients and refuse others. Then the accepted ones get the mail, and the
// error is a [partialError].
func (s *Sender) email(ctx context.Context, m Message, _ *mask) error {
	e := s.notifier.Email
	to := remaining(e.To, m.Delivered)
	if len(to) == 0 {
		return nil
	}
	login, err := s.login()
	if err != nil {
		return err
	}
	conn, err := s.dial(ctx, e)
	if err != nil {
		return network(err)
	}
	// Package smtp has no contexts: closing the connection is the only way to stop it.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	c, err := s.greet(conn, e)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Server, refusal(err))
	}
	if login != nil {
		if err := c.Auth(login); err != nil {
			return fmt.Errorf("%s: log in: %w", e.Server, refusal(err))
		}
	}
	if err := deliver(c, e.From, to, mailText(e, m)); err != nil {
		return fmt.Errorf("%s: %w", e.Server, err)
	}
	_ = c.Quit() // the mail has been accepted
	return nil
}

// login returns the credentials for the mail server, nil for no login.
func (s *Sender) login() (*login, error) {
	e := s.notifier.Email
	if e.Username == nil {
		return nil, nil
	}
	name, err := s.resolve(e.Username)
	if err != nil {
		return nil, err
	}
	password, err := s.resolve(e.Password)
	return &login{name: name, password: password}, err
}

func (s *Sender) dial(ctx context.Context, e *Email) (net.Conn, error) {
	host, _, err := net.SplitHostPort(e.Server)
	if err != nil {
		return nil, err
	}
	if e.TLS == "implicit" {
		return (&tls.Dialer{Config: tlsConfig(s.env.RootCAs, host)}).DialContext(ctx, "tcp", e.Server)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", e.Server)
}

// greet begins the SMTP session, and upgrades it to TLS if the notifier uses STARTTLS.
func (s *Sender) greet(conn net.Conn, e *Email) (*smtp.Client, error) {
	host, _, _ := net.SplitHostPort(e.Server) // can't fail: dial has parsed it
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		return nil, err
	}
	if err := c.Hello("localhost"); err != nil {
		return nil, err
	}
	if e.TLS != "starttls" {
		return c, nil
	}
	if ok, _ := c.Extension("STARTTLS"); !ok {
		return nil, retry.Permanent(errors.New("the server does not offer STARTTLS"))
	}
	return c, c.StartTLS(tlsConfig(s.env.RootCAs, host))
}

// remaining returns the recipients that are not in delivered.
func remaining(all []*mail.Address, delivered []string) []*mail.Address {
	return slices.DeleteFunc(slices.Clone(all), func(a *mail.Address) bool { return slices.Contains(delivered, a.Address) })
}

// partialError is the error of a mail that only some recipients got.
type partialError struct {
	to  []string // recipients that got it
	err error    // why the others were refused
}

func (e *partialError) Error() string { return e.err.Error() }
func (e *partialError) Unwrap() error { return e.err }

// deliver passes the mail to the server. If the server refuses only some recipients, it
// returns a [partialError].
func deliver(c *smtp.Client, from *mail.Address, to []*mail.Address, text []byte) error {
	if err := c.Mail(from.Address); err != nil {
		return refusal(err)
	}
	var accepted []string
	var refused []error
	for _, a := range to {
		if err := c.Rcpt(a.Address); err != nil {
			refused = append(refused, fmt.Errorf("to %s: %w", a.Address, refusal(err)))
			continue
		}
		accepted = append(accepted, a.Address)
	}
	if len(accepted) == 0 {
		return joined(refused)
	}
	if err := data(c, text); err != nil {
		return refusal(err)
	}
	if len(refused) > 0 {
		return &partialError{accepted, joined(refused)}
	}
	return nil
}

func data(c *smtp.Client, text []byte) error {
	w, err := c.Data() // w escapes dots at the beginning of lines
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	return w.Close()
}

// joined returns one error for all refused recipients. If one of the errors is not
// permanent, neither is the result, so that the mail is tried again.
func joined(refused []error) error {
	for _, err := range refused {
		if retry.OutcomeOf(err).Class != retry.ClassPermanent {
			return fmt.Errorf("%w (%d of the recipients were refused)", err, len(refused))
		}
	}
	return errors.Join(refused...)
}

// refusal marks an error of the server as permanent if its code is 5yz. Codes 4yz are
// transient.
func refusal(err error) error {
	switch e, ok := errors.AsType[*textproto.Error](err); {
	case ok && e.Code >= 500:
		return retry.Permanent(err)
	case ok:
		return err
	case errors.Is(err, io.EOF):
		return errors.New("the server closed the connection")
	}
	return network(err)
}

// login implements AUTH PLAIN and LOGIN, whichever the server offers. Both send the
// password itself, so login requires TLS or a server on this machine.
type login struct {
	name, password string
	asked          int // number of LOGIN prompts that were answered
}

// Start implements [smtp.Auth].
func (l *login) Start(server *smtp.ServerInfo) (proto string, first []byte, err error) {
	if !server.TLS && !hosts.IsLoopback(server.Name) {
		return "", nil, retry.Permanent(errors.New("the password would be sent unencrypted"))
	}
	has := func(name string) bool {
		return slices.ContainsFunc(server.Auth, func(a string) bool { return strings.EqualFold(a, name) })
	}
	switch {
	case has("PLAIN"):
		return "PLAIN", []byte("\x00" + l.name + "\x00" + l.password), nil
	case has("LOGIN"):
		return "LOGIN", nil, nil
	}
	return "", nil, retry.Permanent(errors.New("the server offers neither AUTH PLAIN nor AUTH LOGIN"))
}

// Next implements [smtp.Auth]: it answers the prompts of LOGIN for the name and the
// password.
func (l *login) Next(_ []byte, more bool) ([]byte, error) {
	if !more {
		return nil, nil
	}
	l.asked++
	switch l.asked {
	case 1:
		return []byte(l.name), nil
	case 2:
		return []byte(l.password), nil
	}
	return nil, retry.Permanent(errors.New("the server asks for more than a name and a password"))
}

// mailText returns the message as a plain-text mail. It encodes the message so that it
// can't add a header. The Message-ID contains the id of the message, so that a mail that
// is sent twice is recognised.
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
	_, _ = w.Write([]byte(lines(m.Text, prefixed("run ", m.Run), m.URL, prefixed("from ", m.Host)) + "\n")) // can't fail: it writes to memory
	_ = w.Close()
	return b.Bytes()
}

// address returns an address with its encoded display name, without control characters.
func address(a *mail.Address) string {
	return (&mail.Address{Name: strings.Map(printable, a.Name), Address: a.Address}).String()
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return -1
	}
	return r
}

// folded breaks the value of the header Subject between words into lines of 76 bytes, the
// limit for lines with encoded words. The limit for other lines is 998.
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

// token removes the characters that a Message-ID can't have.
func token(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, s)
}
