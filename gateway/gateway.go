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

// Options says how a gateway is reached, and whom it tells.
type Options struct {
	// Token is what callers must bring. Without one only this machine may ask.
	Token Secret

	// Hosts are names under which the gateway may be asked, with or without port, in
	// addition to those of the loopback interface.
	Hosts []string

	// Observer is shown the events of all requests, apart from those that go right
	// at once. It is called by several goroutines at a time, and holds up requests
	// while it works. nil means nobody.
	Observer func(retry.Event)

	// Logger gets a line for each outage, and one in a while for retries and failovers
	// that are alike; the others are there for debugging. nil means slog.Default.
	Logger *slog.Logger

	// Redact takes out secrets of what others wrote. The gateway knows its own: keys,
	// headers and the token. nil means that there are no more.
	Redact func(string) string

	// Decoders read the bodies of failures in an encoding, such as br, to find out what
	// they say. gzip and deflate need none.
	Decoders map[string]retryhttp.Decoder

	// Accounts is told what is learned of the accounts that keys name; what is known
	// of them is said with [Gateway.SetAccountLimit]. nil means that keys share nothing.
	Accounts Accounts

	// Memory is the file in which is kept what was learned of outages. Empty means
	// that it is forgotten at the end.
	Memory string
}

// Gateway is an [http.Handler] for /p/<provider>/<path>. All its methods may be
// called by any number of goroutines.
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

// New returns a gateway for the providers, or everything that is wrong with them.
func New(specs []Spec, o Options) (*Gateway, error) {
	g := &Gateway{
		options: o, log: cmp.Or(o.Logger, slog.Default()), authorizer: &authorizer{o.Token.value, hosts.New(o.Hosts)},
		stats: map[string]*stats{}, overrides: map[string]*override{}, accounts: map[string]*sharedAccount{}, base: newTransport(), h2c: newH2CTransport(),
	}
	g.secrets.Add(o.Token.Reveal())
	g.recovery = loadRecoveryStore(o.Memory, g.log)
	g.upstreams = upstreamTransport{g.base, g.h2c, &g.hasH2C}
	g.proxy = g.newProxy()
	g.table.Store(&table{})
	if err := g.Reload(specs); err != nil {
		return nil, err
	}
	return g, nil
}

// saveEvery is how often what was learned is written down.
const saveEvery = 5 * time.Minute

// Run keeps what was learned of outages, until the context ends. A gateway works
// without it, and forgets.
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

// Drain refuses new requests and waits until none is under way, or the context
// ends. Then it keeps what was learned.
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
