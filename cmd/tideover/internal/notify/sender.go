package notify

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/shortage"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// Env is the part of the process that senders need.
type Env struct {
	Secrets secret.Resolver // looks references up, at each attempt
	RootCAs *x509.CertPool  // nil means the system's
	Hidden  []string        // names of variables that commands never get
	Inherit guard.Inherit   // variables of this process that commands get, in addition to those that the notifier names
}

// Sender sends messages by one notifier. It is safe for use by several
// goroutines.
type Sender struct {
	notifier *Spec
	env      Env
	client   *http.Client
	via      func(s *Sender, ctx context.Context, m Message, mask *mask) error
}

// senders are how messages are sent, by the kind of the notifier.
var senders = map[string]func(*Sender, context.Context, Message, *mask) error{
	KindNtfy: (*Sender).ntfy, KindSlack: (*Sender).slack, KindWebhook: (*Sender).webhook, KindEmail: (*Sender).email,
	KindRun: (*Sender).command,
}

// New returns the sender of a notifier. It is an error if this system can't do
// what the notifier is for.
func New(n *Spec, env Env) (*Sender, error) {
	env.Secrets.Redactor = cmp.Or(env.Secrets.Redactor, new(secret.Redactor))
	env.Inherit = slices.Concat(guard.BaseVariables, env.Inherit, n.Inherit)
	via, ok := senders[n.Kind]
	switch {
	case !ok:
		return nil, fmt.Errorf("notify %q: unknown kind %q", n.Name, n.Kind)
	case n.Kind == KindRun && errNoCommands != nil:
		return nil, fmt.Errorf("notify %q: %w", n.Name, errNoCommands)
	}
	return &Sender{notifier: n, env: env, client: newClient(env.RootCAs), via: via}, nil
}

// Send makes one attempt to send the message, within the notifier's timeout. Its
// error says what it means for the next attempt, see [retry.OutcomeOf], and has no
// secrets in it, nor the path of a URL. It is a [*SendError], whose Progress is the
// message for the next attempt.
func (s *Sender) Send(ctx context.Context, m Message) error {
	limit := &retry.TimeoutError{Limit: s.notifier.Timeout}
	ctx, cancel := context.WithTimeoutCause(ctx, s.notifier.Timeout, limit)
	defer cancel()
	mask := &mask{known: s.env.Secrets.Redactor}
	err := s.via(s, ctx, m.without(s.env.Secrets.Redactor), mask)
	if err == nil {
		return nil
	}
	e := &SendError{outcome: retry.OutcomeOf(err), rest: m}
	short := shortage.Is(err)
	if p, ok := errors.AsType[*partialError](err); ok {
		e.rest.Delivered = slices.Concat(m.Delivered, p.to)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
		e.outcome, e.cause = retry.OutcomeOf(cause), ctx.Err()
	}
	e.text = fmt.Sprintf("notify %q: %s", s.notifier.Name, plainly(mask.text(err.Error())))
	if short {
		e.shortage = &shortage.Error{Text: e.text}
	}
	return e
}

// SendError is why a message was not sent. It does not unwrap to what the network
// said, which may quote a secret.
type SendError struct {
	text    string
	outcome retry.Outcome
	cause   error // of the context; nil if it was not its end
	rest    Message

	shortage error // that this machine had not enough of something; nil if it had
}

// Error says what went wrong, without secrets.
func (e *SendError) Error() string { return e.text }

// RetryOutcome implements [retry.Classified].
func (e *SendError) RetryOutcome() retry.Outcome { return e.outcome }

// Progress returns the message for the next attempt: the same, which knows who has
// it already.
func (e *SendError) Progress() Message { return e.rest }

// Unwrap returns a shortage of this machine, or nil.
func (e *SendError) Unwrap() error { return e.shortage }

// Is finds the end of the context.
func (e *SendError) Is(target error) bool { return e.cause != nil && target == e.cause }

// mask hides the parts of an error of one attempt that must not be shown: the secrets
// that are known, and the parts of a URL, which only this error must not show.
type mask struct {
	known *secret.Redactor
	parts secret.Redactor
}

func (k *mask) text(s string) string { return k.parts.String(k.known.String(s)) }

// hideURL hides all parts of a URL but its host. Short parts, which are likely to be
// words of the error, are not hidden.
func (k *mask) hideURL(u *url.URL) {
	const least = 6
	parts := append(strings.Split(u.Path, "/"), u.EscapedPath(), u.RequestURI(), u.RawQuery)
	for _, values := range u.Query() {
		parts = append(parts, values...)
	}
	if password, ok := u.User.Password(); ok {
		parts = append(parts, password)
	}
	for _, part := range parts {
		if len(part) >= least {
			k.parts.Add(part)
		}
	}
}

// resolve returns the value of a text with references, "" for none. The resolver's
// redactor then knows what they stand for.
func (s *Sender) resolve(t *template.SecretText) (string, error) {
	if t == nil {
		return "", nil
	}
	v, err := t.Resolve(s.env.Secrets)
	if err != nil {
		return "", template.Classify(err)
	}
	return v.Reveal(), nil
}

// plainly returns the text on one line.
func plainly(s string) string { return strings.Join(strings.Fields(s), " ") }

// network marks an error of a connection with what it means.
func network(err error) error {
	harmless := &http.Request{URL: &url.URL{Scheme: "https", Host: "host"}} // nothing is wrong with it
	return classified(harmless, err)
}

// classified marks the error of a request with what it means.
func classified(req *http.Request, err error) error {
	if !mayPass(err) && retryhttp.Classify(req, err).Class == retry.ClassPermanent {
		return retry.Permanent(err)
	}
	return err
}

// mayPass reports whether the error is one that a machine has when it wakes up, or in a
// network with a captive portal: names are unknown, and certificates are wrong. It is
// permanent for a request of a program, but a message is tried for as long as its policy
// allows.
func mayPass(err error) bool {
	return is[*net.DNSError](err) || is[*tls.CertificateVerificationError](err) || is[x509.UnknownAuthorityError](err) ||
		is[x509.HostnameError](err) || is[x509.CertificateInvalidError](err) || is[tls.RecordHeaderError](err) ||
		errors.Is(err, http.ErrSchemeMismatch)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func tlsConfig(roots *x509.CertPool, host string) *tls.Config {
	return &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}
}
