package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"slices"
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
	options   Options
	log       *slog.Logger
	sampler   logsample.Sampler[sampleKey] // of events that the log has
	secrets   secret.Redactor
	admission *admission
	recovery  *recoveryStore
	base      *http.Transport
	h2c       *http.Transport // to providers with Spec.H2C
	hasH2C    atomic.Bool     // there has been such a provider
	upstreams upstreamTransport
	proxy     *httputil.ReverseProxy
	table     atomic.Pointer[table]

	mu        sync.Mutex // held by reloads
	stats     map[string]*stats
	overrides map[string]*override

	accounts map[string]*sharedAccount // by name

	traffic traffic
}

// New returns a gateway for the providers, or everything that is wrong with them.
func New(specs []Spec, o Options) (*Gateway, error) {
	g := &Gateway{
		options: o, log: cmp.Or(o.Logger, slog.Default()), admission: &admission{o.Token.value, hosts.New(o.Hosts)},
		stats: map[string]*stats{}, overrides: map[string]*override{}, accounts: map[string]*sharedAccount{}, base: newTransport(), h2c: newH2CTransport(),
	}
	g.secrets.Add(o.Token.Reveal())
	g.recovery = loadRecoveryStore(o.Memory, g.log)
	g.upstreams = upstreamTransport{g.base, g.h2c, &g.hasH2C}
	g.proxy = g.newProxy()
	g.table.Store(&table{})
	if err := g.Become(specs); err != nil {
		return nil, err
	}
	return g, nil
}

// redact returns the text without secrets.
func (g *Gateway) redact(text string) string {
	text = g.secrets.String(text)
	if g.options.Redact != nil {
		text = g.options.Redact(text)
	}
	return text
}

// Become takes over the providers of a new configuration, whole or not at all.
// Requests under way finish by the old one. A provider keeps its state as far as
// it is still about the same thing: its address, its keys, its limits. Totals, and
// what somebody said by hand, belong to its name.
func (g *Gateway) Become(specs []Spec) error {
	take, err := g.Prepare(specs)
	if err != nil {
		return err
	}
	return take()
}

// Prepare is all of [Gateway.Become] that can fail for what is wrong with the
// providers. take does the rest: for a configuration of which others have to
// approve, too.
func (g *Gateway) Prepare(specs []Spec) (take func() error, err error) {
	if err := ValidateAll(specs); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.table.Load()
	next := &table{providers: make(map[string]*provider, len(specs))}
	var errs []error
	for _, s := range specs {
		g.learnSecrets(&s)
		p, err := g.newProvider(clone(s), old.providers[s.Name])
		if err != nil {
			errs = append(errs, &FieldError{Provider: s.Name, Err: err})
			continue
		}
		next.names = append(next.names, s.Name)
		next.providers[s.Name] = p
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	for _, p := range next.providers {
		p.order = append(p.order, p)
		for _, name := range p.spec.Fallback {
			p.order = append(p.order, next.providers[name])
		}
		if err := p.makeTransports(); err != nil {
			errs = append(errs, &FieldError{Provider: p.spec.Name, Err: err})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return func() error { return g.take(next) }, nil
}

// take makes the providers those that are asked from now on.
func (g *Gateway) take(next *table) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	old := g.table.Load()
	for _, p := range next.providers {
		errs = append(errs, p.takeOver())
		if before := old.providers[p.spec.Name]; before == nil || before.keys != p.keys {
			p.applyAccounts()
		}
		if p.spec.H2C {
			g.hasH2C.Store(true)
		}
	}
	next.remember(old)
	g.table.Store(next)
	return errors.Join(errs...)
}

// learnSecrets makes the spec's secrets known, so that they are in nothing that is
// told.
func (g *Gateway) learnSecrets(s *Spec) {
	for _, k := range s.Keys {
		g.secrets.Add(k.Value.Reveal())
	}
	for _, h := range s.Headers {
		g.secrets.Add(h.Value.Reveal())
	}
}

// clone returns the spec with lists of its own.
func clone(s Spec) Spec {
	s.Keys, s.Headers = slices.Clone(s.Keys), slices.Clone(s.Headers)
	s.Repeats, s.Fallback = slices.Clone(s.Repeats), slices.Clone(s.Fallback)
	s.ForwardHeaders, s.ForwardQuery = slices.Clone(s.ForwardHeaders), slices.Clone(s.ForwardQuery)
	base := *s.BaseURL
	s.BaseURL = &base
	return s
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
