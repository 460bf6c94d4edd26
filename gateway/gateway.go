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

// Options are the settings of a gateway beside its providers. The zero Options work: the
// gateway serves this machine only, logs with slog.Default and keeps its state in memory.
type Options struct {
	// Token is the token that callers must send. If it is empty, only requests from a
	// loopback address or over a Unix socket are served.
	Token Secret

	// Hosts are values of the Host header that are accepted, with or without a port, in
	// addition to the names and addresses of the loopback interface.
	Hosts []string

	// Observer gets the events of all requests, except for those that succeed at the
	// first attempt: failures, waits, failovers and ends. A retry with another key has no
	// event of its own, because it needs no wait. Several goroutines call it at a time, and a request waits while it
	// runs. nil means none.
	Observer func(retry.Event)

	// Logger gets a line for each outage, and a sample of the lines about retries and
	// failovers; the others have the level debug. nil means slog.Default.
	Logger *slog.Logger

	// Redact removes further secrets from texts of others, such as error messages. The
	// gateway itself removes keys, values of headers and the token. nil means that there
	// are no more.
	Redact func(string) string

	// Decoders decode the bodies of failures, by content encoding such as "br", so that
	// their messages can be read. gzip and deflate need none.
	Decoders map[string]retryhttp.Decoder

	// Accounts gets what is learned about the accounts of keys, and
	// [Gateway.SetAccountLimit] sets it. nil means that keys share nothing.
	Accounts Accounts

	// RecoveryFile is the file in which the durations of outages are kept, from which
	// the gateway estimates the next ones; see [Gateway.Run]. "" means none.
	RecoveryFile string
}

// Gateway is an [http.Handler] for /p/<provider>/<path>. All methods may be called by
// several goroutines at a time.
type Gateway struct {
	reporter
	options    Options
	authorizer *authorizer
	recovery   *recoveryStore
	base       *http.Transport
	h2c        *http.Transport // to providers with Spec.H2C
	hasH2C     atomic.Bool     // there has been such a provider
	proxy      *httputil.ReverseProxy
	table      atomic.Pointer[table]

	mu        sync.Mutex // held by reloads
	stats     map[string]*stats
	overrides map[string]*override

	accounts map[string]*sharedAccount // by name

	traffic traffic
}

// New returns a gateway for the providers. It fills in the defaults of each spec; see
// [Spec.Fill]. The error joins all problems, each a [*FieldError].
func New(specs []Spec, o Options) (*Gateway, error) {
	g := &Gateway{
		reporter: reporter{log: cmp.Or(o.Logger, slog.Default()), more: o.Redact, observer: o.Observer}, options: o, authorizer: &authorizer{o.Token.value, hosts.New(o.Hosts)},
		stats: map[string]*stats{}, overrides: map[string]*override{}, accounts: map[string]*sharedAccount{}, base: newTransport(), h2c: newH2CTransport(),
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

// Run writes the recovery file from time to time and when the context ends, and then
// returns. Without a recovery file a gateway does not need it.
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

// Drain rejects new requests, waits until none is in progress or the context ends, closes
// idle connections and writes the recovery file.
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

// RoundTripper returns a transport to the provider for use inside of this process, for
// callers that retry: the same gates, keys and limits, and the same fallbacks, but only
// the attempts that need no wait between them. After a key that is not accepted another
// key is tried, and after a provider that fails the next one that is ready, each at most
// once; waiting is up to the caller.
//
// Its errors are those of the last attempt, and state when to try again (see
// [retry.OutcomeOf]). So do its responses, if they are read as [retryhttp.Check] does:
// Retry-After is the soonest time of any key, and a rejection of keys is permanent only
// if no key is left.
//
// The URL of a request is the provider's: one below its base URL, or one without a
// host, whose path is then below the base URL. The name is looked up with each
// request, so that a reload holds for it too. A provider that a reload took away is
// still there for this, as it was: work that names it goes on to its end.
func (g *Gateway) RoundTripper(name string) http.RoundTripper { return &inProcessTransport{g, name} }

// Control applies one of [Actions] to the provider. It lasts across reloads, but not across
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

// account returns the account of the name, nil if that is empty. It needs the lock.
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

// SetAccountLimit makes the keys of the account wait until the limit ends; nil means no
// limit. A limit that is already known changes nothing, so that a reset by
// [Gateway.Control] stays.
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
