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

// Env has the settings of the process that senders need.
type Env struct {
	Secrets secret.Resolver // resolves references, at each attempt
	RootCAs *x509.CertPool  // nil means the certificates of the system
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

// senders has the function that sends a message, by the kind of the notifier.
var senders = map[string]func(*Sender, context.Context, Message, *mask) error{
	KindNtfy: (*Sender).ntfy, KindSlack: (*Sender).slack, KindWebhook: (*Sender).webhook, KindEmail: (*Sender).email,
	KindRun: (*Sender).command,
}

// New returns the sender of a notifier. It returns an error if the kind of the notifier is
// unknown or not supported on this system.
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

// Send makes one attempt to send the message, within the notifier's timeout. Its error is
// a [*SendError]: [retry.OutcomeOf] classifies it, its text contains neither secrets nor
// the path of a URL, and its Progress returns the message for the next attempt.
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

// SendError is the error of a message that was not sent. It does not unwrap to the
// original error, which may contain a secret.
type SendError struct {
	text    string
	outcome retry.Outcome
	cause   error   // error of the context if its end is the cause, else nil
	rest    Message // message for the next attempt

	shortage error // if the cause is a shortage of resources on this machine; else nil
}

// Error returns the text of the error, without secrets.
func (e *SendError) Error() string { return e.text }

// RetryOutcome implements [retry.Classified].
func (e *SendError) RetryOutcome() retry.Outcome { return e.outcome }

// Progress returns the message for the next attempt. Its Delivered has the recipients that
// already got it.
func (e *SendError) Progress() Message { return e.rest }

// Unwrap returns an error of package shortage if this machine lacks a resource, else nil.
func (e *SendError) Unwrap() error { return e.shortage }

// Is reports whether target is the error of the context that ended the attempt.
func (e *SendError) Is(target error) bool { return e.cause != nil && target == e.cause }

// mask hides secrets in the error of one attempt: the known secrets, and the parts of the
// notifier's URL.
type mask struct {
	known *secret.Redactor
	parts secret.Redactor
}

func (k *mask) text(s string) string { return k.parts.String(k.known.String(s)) }

// hideURL makes the mask hide all parts of a URL except its host. It skips parts of less
// than 6 bytes, which are likely to be words of the error.
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

// resolve returns the value of a text with references, "" if t is nil. It adds the secrets
// to the resolver's redactor.
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

// network marks an error of a connection as permanent if a retry can't help.
func network(err error) error {
	harmless := &http.Request{URL: &url.URL{Scheme: "https", Host: "host"}} // a valid request, so that only err counts
	return classified(harmless, err)
}

// classified marks the error of a request as permanent if a retry can't help.
func classified(req *http.Request, err error) error {
	if !mayPass(err) && retryhttp.Classify(req, err).Class == retry.ClassPermanent {
		return retry.Permanent(err)
	}
	return err
}

// mayPass reports whether the error is typical of a machine that wakes up or is behind a
// captive portal: an unknown host name or an invalid certificate. Package retryhttp treats
// such an error as permanent, but a message is retried for as long as its policy allows.
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
