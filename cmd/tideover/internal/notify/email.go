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
	"net/netip"
	"net/smtp"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// email sends a mail to those who do not have it yet. The server may accept some
// recipients and refuse others; the mail then goes to the former, and the error says
// who did not get it, and who did.
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
	// The connection is the only thing of package smtp that can be told to stop.
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

// login returns how to log in, nil for not at all.
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

// greet begins the session and makes it safe.
func (s *Sender) greet(conn net.Conn, e *Email) (*smtp.Client, error) {
	host, _, _ := net.SplitHostPort(e.Server) // dialed already
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

// remaining returns the recipients who are not among those that have the mail.
func remaining(all []*mail.Address, delivered []string) []*mail.Address {
	return slices.DeleteFunc(slices.Clone(all), func(a *mail.Address) bool { return slices.Contains(delivered, a.Address) })
}

// partialError is why only some have the mail.
type partialError struct {
	to  []string // who has it
	err error
}

func (e *partialError) Error() string { return e.err.Error() }
func (e *partialError) Unwrap() error { return e.err }

// deliver hands the mail over.
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
	w, err := c.Data() // which doubles the dots at the beginning of lines
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	return w.Close()
}

// joined returns one error for all recipients that were refused. If one of them
// may be accepted the next time, there should be one.
func joined(refused []error) error {
	for _, err := range refused {
		if retry.OutcomeOf(err).Class != retry.ClassPermanent {
			return fmt.Errorf("%w (%d of the recipients refused)", err, len(refused))
		}
	}
	return errors.Join(refused...)
}

// refusal marks an answer of the server with what it means: 4yz may pass, 5yz
// stays.
func refusal(err error) error {
	if e, ok := errors.AsType[*textproto.Error](err); ok {
		if e.Code >= 500 {
			return retry.Permanent(err)
		}
		return err
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the server closed the connection")
	}
	return network(err)
}

// login is PLAIN or LOGIN, whichever the server has. Both show the password to
// the other side, and so only work over TLS, or on the machine itself.
type login struct {
	name, password string
	asked          int // prompts of LOGIN that were answered
}

// Start implements [smtp.Auth].
func (l *login) Start(server *smtp.ServerInfo) (proto string, first []byte, err error) {
	if !server.TLS && !isLoopback(server.Name) {
		return "", nil, retry.Permanent(errors.New("the password would cross the network in the clear"))
	}
	has := func(name string) bool {
		for _, a := range server.Auth {
			if strings.EqualFold(a, name) {
				return true
			}
		}
		return false
	}
	switch {
	case has("PLAIN"):
		return "PLAIN", []byte("\x00" + l.name + "\x00" + l.password), nil
	case has("LOGIN"):
		return "LOGIN", nil, nil
	}
	return "", nil, retry.Permanent(errors.New("the server has neither AUTH PLAIN nor LOGIN"))
}

// Next implements [smtp.Auth]: LOGIN asks for the name, then for the password.
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

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

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
