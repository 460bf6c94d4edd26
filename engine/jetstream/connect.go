package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/retry"
)

const (
	// requestTime is how long an answer of a server may take. It is short because
	// answers get lost while leaders change, and then only a repeated request helps.
	requestTime = 2500 * time.Millisecond

	// A server that hangs keeps its connections open. After two pings without an
	// answer the client connects to another server.
	pingInterval = 2 * time.Second
	pingsOut     = 2
)

// conn is the connection to NATS. The client reconnects whenever it is lost.
type conn struct {
	nc          *nats.Conn
	log         *slog.Logger
	redact      func(string) string
	requestTime time.Duration

	mu        sync.Mutex
	session   context.Context //nolint:containedctx // ends when the present connection is lost
	cut       context.CancelFunc
	lastError string    // text of the last error
	lastAt    time.Time // when that was
	watchers  []func()  // called when the connection is lost or back
	gone      map[string]absence
}

// absence says when a stream was first and last found to be gone.
type absence struct{ first, last time.Time }

// dial connects to NATS, and tries again until the context ends. It gives up at once
// if a server rejects the credentials or the TLS connection.
func dial(ctx context.Context, cfg Config, who nats.Option) (*conn, error) {
	c := &conn{log: cfg.Logger, redact: cfg.redact, requestTime: cmp.Or(cfg.requestTime, requestTime), gone: map[string]absence{}}
	c.session, c.cut = context.WithCancel(context.Background())
	dialer := &dialer{ctx: ctx, failed: map[string]string{}}
	opts := []nats.Option{
		nats.Name("tideover " + cfg.MemberName),
		nats.Timeout(dialTimeout),
		nats.SetCustomDialer(dialer),
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(pingsOut),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // keep trying: the credentials may be renewed
		nats.CustomReconnectDelay(func(n int) time.Duration { return reconnects.Delay(n, 0, rand.Uint64()) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.lost(err) }),
		nats.ReconnectHandler(func(*nats.Conn) { c.back() }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { c.recordError(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.recordError(err) }),
		who,
	}
	if cfg.TLS != nil {
		opts = append(opts, nats.Secure(cfg.TLS))
	}
	var err error
	for range opens.Attempts(ctx, &err) {
		c.nc, err = nats.Connect(cfg.URL, opts...)
		err = c.refusal(err)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w%s", strings.Join(hosts(cfg.URL), ", "), plain(err), dialer.failures())
	}
	dialer.detach()
	return c, nil
}

// refusal makes an error of the first connection permanent if a retry does not help; nil stays nil.
func (c *conn) refusal(err error) error {
	err = c.clean(err)
	if isRefusal(err) {
		return retry.Permanent(fmt.Errorf("%w; %s", err, remedy(err, "check the credentials")))
	}
	return err
}

// remedy returns the advice for a rejected connection. It is about TLS if TLS is the
// cause, else it is the given text about credentials.
func remedy(err error, credentials string) string {
	switch {
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "the server has no TLS: use nats:// and leave out the files for TLS, or give the server a certificate"
	case errors.Is(err, nats.ErrSecureConnRequired):
		return "the server wants TLS: use tls://"
	default:
		return credentials
	}
}

func isRefusal(err error) bool {
	return isAny(err, nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrNkeysNotSupported)
}

func (c *conn) lost(err error) {
	c.mu.Lock()
	c.cut()
	watchers := c.watchers
	c.mu.Unlock()
	c.recordError(err)
	for _, w := range watchers {
		w()
	}
}

func (c *conn) back() {
	c.mu.Lock()
	c.cut()
	c.session, c.cut = context.WithCancel(context.Background())
	watchers := c.watchers
	c.mu.Unlock()
	c.log.Info("connected to NATS again", "server", c.nc.ConnectedServerName())
	for _, w := range watchers {
		w()
	}
}

// watch calls the function whenever the connection is lost or back.
func (c *conn) watch(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers = append(c.watchers, f)
}

// whenCut returns a context that ends when the present connection is lost.
func (c *conn) whenCut() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// roundTrip sends a request and waits for the answer. It fails at once when the
// connection is lost, because then the answer can't arrive.
func (c *conn) roundTrip(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	if err := c.connected(); err != nil {
		return nil, err
	}
	ctx, cancel := c.whileConnected(ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, c.requestTime)
	defer stop()
	answer, err := c.nc.RequestMsgWithContext(ctx, m)
	return answer, c.wasCut(ctx, err)
}

// whileConnected returns a context that also ends when the connection is lost, with
// errNotConnected as its cause.
func (c *conn) whileConnected(ctx context.Context) (context.Context, context.CancelFunc) {
	return endingWith(ctx, c.whenCut(), func() error { return errNotConnected })
}

// endingWith returns a context that also ends when the other one does. Then its cause
// is the result of why.
func endingWith(ctx, other context.Context, why func() error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(why()) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// wasCut returns an error which says that the connection was lost, if that is why ctx, a
// context of whileConnected, has ended. Otherwise it returns err.
func (c *conn) wasCut(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errNotConnected) {
		return fmt.Errorf("%w: the connection was lost before the answer came%s", cause, c.recentError())
	}
	return err
}

// recordError logs an error of the connection and records it for recentError.
func (c *conn) recordError(err error) {
	if err == nil {
		return
	}
	text := c.redact(err.Error())
	if isRefusal(err) {
		text += "; " + remedy(err, "the credentials are wrong or have expired: renew them")
	}
	c.mu.Lock()
	repeated := text == c.lastError
	c.lastError, c.lastAt = text, time.Now()
	c.mu.Unlock()
	if !repeated {
		c.log.Warn("error of the connection to NATS", "error", text)
	}
}

// recentError returns the connection's error of the last seconds, as the end of
// another error's text; "" if there was none.
func (c *conn) recentError() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastError == "" || time.Since(c.lastAt) > 10*time.Second {
		return ""
	}
	return "; last error of the connection: " + c.lastError
}

// connected returns an error if there is no connection.
func (c *conn) connected() error {
	switch c.nc.Status() {
	case nats.CONNECTED:
		return nil
	case nats.CLOSED, nats.DRAINING_PUBS, nats.DRAINING_SUBS:
		return fmt.Errorf("%w: %w", errNotConnected, errClosed)
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		return fmt.Errorf("%w: %s", errNotConnected, c.lastError)
	}
}

// clean returns the error without secrets.
func (c *conn) clean(err error) error {
	if err == nil {
		return nil
	}
	text := c.redact(err.Error())
	if text == err.Error() {
		return err
	}
	return &cleanError{text, err}
}

// cleanError is an error without the secrets of its original text. It does not unwrap,
// because the original text would then be visible.
type cleanError struct {
	text string
	err  error
}

func (e *cleanError) Error() string        { return e.text }
func (e *cleanError) Is(target error) bool { return errors.Is(e.err, target) }

// request sends a request that is answered with several messages.
func (c *conn) request(subject string, request any) (*nats.Subscription, error) {
	if err := c.connected(); err != nil {
		return nil, err
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	if err := c.nc.PublishRequest(subject, inbox, body); err != nil {
		return nil, errors.Join(err, sub.Unsubscribe())
	}
	return sub, nil
}

// transportError is serverError for an error of the connection.
func (c *conn) transportError(ctx context.Context, stream string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, errNotConnected) {
		return err
	}
	if down := c.connected(); down != nil {
		return down
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: stream %s has no leader; do most of its servers run?%s", errNoQuorum, stream, c.recentError())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("%w: stream %s did not answer in time: %w%s", errNoQuorum, stream, err, c.recentError())
	default:
		return fmt.Errorf("stream %s: %w", stream, c.clean(err))
	}
}

// missing records that the stream does not exist now, and returns since when it has been
// missing. If the last such record is old, the stream has existed since then, and missing
// returns the present time.
func (c *conn) missing(stream string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	seen, ok := c.gone[stream]
	if !ok || now.Sub(seen.last) > 10*startTime {
		seen.first = now
	}
	seen.last = now
	c.gone[stream] = seen
	return seen.first
}

// send publishes a message without waiting for an acknowledgement. Without a
// connection the NATS client buffers it until there is one.
func (c *conn) send(m *nats.Msg) {
	if err := c.nc.PublishMsg(m); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		c.recordError(err)
	}
}
