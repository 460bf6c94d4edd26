package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// Options are the settings of a gateway other than its providers. The zero Options work:
// the gateway serves this machine only, logs with slog.Default and keeps its state in memory.
type Options struct {
	// Token is the token that callers must send. If it is empty, only requests from a
	// loopback address or over a Unix socket are served.
	Token Secret

	// Hosts are values of the Host header that are accepted, with or without a port, in
	// addition to the names and addresses of the loopback interface.
	Hosts []string

	// Observer gets the events of all requests, except for those that succeed at the
	// first attempt: failures, waits, failovers and ends. A retry with another key has no
	// event of its own, because it needs no wait. Several goroutines call it
	// concurrently, and a request waits while it runs. nil means none.
	Observer func(retry.Event)

	// Refused gets each request of a caller that may not use the gateway, with the status and
	// the reason of the response. It must not block. nil means none.
	Refused func(r *http.Request, status int, reason string)

	// Logger gets a line for each outage, and a sample of the lines about retries and
	// failovers; the other lines have the level debug. nil means slog.Default.
	Logger *slog.Logger

	// Redact removes further secrets from texts that come from outside, such as error
	// messages. The gateway itself removes keys, values of headers and the token. nil
	// means that there are no further secrets.
	Redact func(string) string

	// Decoders decode the bodies of failures, by content encoding such as "br", so that
	// the gateway can read them. gzip and deflate are built in.
	Decoders map[string]retryhttp.Decoder

	// Accounts gets the limits that the gateway learns for the accounts of keys;
	// [Gateway.SetAccountLimit] sets such a limit. nil means that keys share no limits.
	Accounts Accounts

	// RecoveryFile is the file with the durations of past outages, from which
	// the gateway estimates the next ones; see [Gateway.Run]. "" means none.
	RecoveryFile string

	// KeepRequests is how many recent requests the gateway keeps for [Gateway.Requests], in
	// memory: at most that many, and at most 2 KiB for each of them on average. 0 means 2000;
	// -1 keeps none.
	KeepRequests int
}

// Gateway is an [http.Handler] for /p/<provider>/<path>. All methods are safe for
// concurrent use.
type Gateway struct {
	reporter
	options    Options
	authorizer *authorizer
	recovery   *recoveryStore
	base       *http.Transport
	h2c        *http.Transport // to providers with Spec.H2C
	hasH2C     atomic.Bool     // a provider with Spec.H2C has been configured
	proxy      *httputil.ReverseProxy
	table      atomic.Pointer[table]

	mu        sync.Mutex // held during a reload; protects stats, overrides and accounts
	stats     map[string]*stats
	overrides map[string]*override

	accounts map[string]*sharedAccount // by name

	traffic traffic
	callIDs *callIDs
	records *recordStore
	started time.Time
}

// New returns a gateway for the providers. It fills in the defaults of each spec; see
// [Spec.Fill]. The error joins all problems, each a [*FieldError].
func New(specs []Spec, o Options) (*Gateway, error) {
	g := &Gateway{
		reporter: reporter{log: cmp.Or(o.Logger, slog.Default()), more: o.Redact, observer: o.Observer}, options: o, authorizer: &authorizer{o.Token.value, hosts.New(o.Hosts)},
		stats: map[string]*stats{}, overrides: map[string]*override{}, accounts: map[string]*sharedAccount{}, base: newTransport(), h2c: newH2CTransport(),
		callIDs: newCallIDs(), records: newRecordStore(o.KeepRequests), started: time.Now(),
	}
	g.secrets.Add(o.Token.Reveal())
	g.recovery = loadRecoveryStore(o.RecoveryFile, g.log)
	g.proxy = g.newProxy()
	g.table.Store(&table{})
	if err := g.Reload(specs); err != nil {
		return nil, err
	}
	return g, nil
}

// saveEvery is the time between two writes of the recovery file.
const saveEvery = 5 * time.Minute

// Run writes the recovery file every five minutes, and once more when the context ends;
// then it returns. A gateway without a recovery file does not need it.
func (g *Gateway) Run(ctx context.Context) error {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := g.recovery.save(); err != nil {
				g.log.Warn(err.Error())
			}
		case <-ctx.Done():
			return g.recovery.save()
		}
	}
}

// Drain rejects new requests and waits until no request is in progress or the context
// ends. Then it closes idle connections and writes the recovery file.
func (g *Gateway) Drain(ctx context.Context) error {
	idle := g.traffic.stop()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		if n := g.traffic.count(); n > 0 {
			err = fmt.Errorf("gateway: %d requests are still in progress: %w", n, context.Cause(ctx))
		}
	}
	upstreamTransport{g}.CloseIdleConnections()
	return errors.Join(err, g.recovery.save())
}

// RoundTripper returns a transport to the provider for callers in this process that retry
// by themselves. It uses the same gates, keys, limits and fallbacks as the handler, but
// makes only attempts that need no wait. If a key is not accepted, it tries another key.
// If a provider fails, it tries the next provider that is ready. It tries each at most
// once. The caller does the waiting.
//
// An error is the error of the last attempt, and says when to try again (see
// [retry.OutcomeOf]). A response says it too, through [retryhttp.Check]: Retry-After is
// the earliest time of any key, and a rejection of keys is permanent only if no key is
// left.
//
// The URL of a request is below the provider's base URL, or has no host and a path that is
// relative to the base URL. The provider is looked up by name for each request, so reloads
// take effect. A provider that a reload has removed still works with its last
// configuration, so that work that uses it can finish.
func (g *Gateway) RoundTripper(name string) http.RoundTripper { return &inProcessTransport{g, name} }

// Control applies one of [Actions] to the provider. The effect survives reloads, but not
// restarts.
func (g *Gateway) Control(name, action string) error {
	t := g.table.Load()
	p := t.providers[name]
	if p == nil {
		return fmt.Errorf("%w: %q; configured: %s", ErrUnknownProvider, name, t.list())
	}
	m, ok := modes[action]
	if !ok {
		return fmt.Errorf("%w: %q; want one of %s", ErrUnknownAction, action, strings.Join(Actions, ", "))
	}
	return p.control(m)
}

// account returns the account with the name, and adds it if it is new. It returns nil if
// the name is empty or accounts are not configured. The caller holds g.mu.
func (g *Gateway) account(name string) *sharedAccount {
	if name == "" || g.options.Accounts == nil {
		return nil
	}
	a := g.accounts[name]
	if a == nil {
		a = &sharedAccount{name: name}
		g.accounts[name] = a
	}
	return a
}

// SetAccountLimit makes the keys of the account wait until the limit ends; nil removes the
// limit. Setting the same limit again has no effect, so that a reset by
// [Gateway.Control] is not undone.
func (g *Gateway) SetAccountLimit(name string, l *AccountLimit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.account(name)
	if a == nil || !a.set(l) {
		return
	}
	t := g.table.Load()
	for _, p := range slices.AppendSeq(slices.Clone(t.gone), maps.Values(t.providers)) {
		p.applyAccount(a)
	}
}
