package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/internal/logsample"
	"github.com/tideover/tideover/internal/secret"
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
	options    Options
	log        *slog.Logger
	sampler    logsample.Sampler[sampleKey] // of events that the log has
	secrets    secret.Redactor
	authorizer *authorizer
	recovery   *recoveryStore
	base       *http.Transport
	h2c        *http.Transport // to providers with Spec.H2C
	hasH2C     atomic.Bool     // there has been such a provider
	upstreams  upstreamTransport
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
		options: o, log: cmp.Or(o.Logger, slog.Default()), authorizer: &authorizer{o.Token.value, hosts.New(o.Hosts)},
		stats: map[string]*stats{}, overrides: map[string]*override{}, accounts: map[string]*sharedAccount{}, base: newTransport(), h2c: newH2CTransport(),
	}
	g.secrets.Add(o.Token.Reveal())
	g.recovery = loadRecoveryStore(o.RecoveryFile, g.log)
	g.upstreams = upstreamTransport{g.base, g.h2c, &g.hasH2C}
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
			err = fmt.Errorf("gateway: requests are still under way, %d of them: %w", n, context.Cause(ctx))
		}
	}
	g.upstreams.CloseIdleConnections()
	return errors.Join(err, g.recovery.save())
}
