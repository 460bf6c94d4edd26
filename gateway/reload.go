package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/limit"
)

// Reload replaces all providers, or none if a spec is invalid. It fills in the defaults as
// [New] does. Requests in progress finish with the old providers. A provider keeps the state
// of each part whose settings did not change: address, keys, limits. Its totals, and the
// state that [Gateway.Control] has set, belong to its name.
func (g *Gateway) Reload(specs []Spec) error {
	apply, err := g.PrepareReload(specs)
	if err != nil {
		return err
	}
	return apply()
}

// PrepareReload validates the specs and makes the new providers, but does not use them
// yet. apply does that. It is for programs that reload several parts, all
// of them or none.
func (g *Gateway) PrepareReload(specs []Spec) (apply func() error, err error) {
	specs = slices.Clone(specs)
	for i := range specs {
		specs[i] = specs[i].Fill()
	}
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
	return func() error { return g.applyReload(next) }, nil
}

// applyReload makes new requests use the providers of the table.
func (g *Gateway) applyReload(next *table) error {
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

// learnSecrets makes the gateway redact the secrets of the spec.
func (g *Gateway) learnSecrets(s *Spec) {
	for _, k := range s.Keys {
		g.secrets.Add(k.Value.Reveal())
	}
	for _, h := range s.Headers {
		g.secrets.Add(h.Value.Reveal())
	}
}

// clone returns a copy of the spec that shares no lists with it.
func clone(s Spec) Spec {
	s.Keys, s.Headers = slices.Clone(s.Keys), slices.Clone(s.Headers)
	s.Repeatable, s.Fallback = slices.Clone(s.Repeatable), slices.Clone(s.Fallback)
	s.ForwardHeaders, s.ForwardQuery = slices.Clone(s.ForwardHeaders), slices.Clone(s.ForwardQuery)
	s.BaseURL = new(*s.BaseURL)
	return s
}

// newProvider returns a provider that shares with the old one all parts whose settings are
// the same. It does not change the old one, which may be nil.
func (g *Gateway) newProvider(s Spec, old *provider) (*provider, error) {
	p := &provider{spec: s, gateway: g, named: []string{s.Name}, stats: g.stats[s.Name], override: g.overrides[s.Name]}
	p.stats, p.override = cmp.Or(p.stats, new(stats)), cmp.Or(p.override, new(override))
	p.forward = newForwarding(&s)
	if old != nil && shown(old.spec.BaseURL) != shown(s.BaseURL) {
		old = nil // the old state belongs to another server
	}
	if old != nil {
		p.upstream.upstreamState = old.upstream.upstreamState
	} else {
		p.upstream.upstreamState = &upstreamState{recovery: g.recovery.recovery(s.Name, shown(s.BaseURL))}
	}
	var err error
	if p.keys, err = newKeyPool(&s, p.stats, g.account); err != nil {
		return nil, err
	}
	if old != nil && p.keys.same(old.keys) {
		p.keys = old.keys
	} else if old != nil {
		p.keys.inherit(old.keys)
	}
	r := renewal{p, old}
	if err := r.gate(); err != nil {
		return nil, err
	}
	return p, r.limits()
}

// renewal makes the parts of a provider. A part whose settings are the same is that of the old provider,
// which is nil if there is none.
type renewal struct{ p, old *provider }

func (r renewal) gate() (err error) {
	p, old, s := r.p, r.old, &r.p.spec
	if old != nil && old.spec.Breaker == s.Breaker && old.spec.OpenFor == s.OpenFor && old.spec.Queue == s.Queue {
		p.upstream.gate = old.upstream.gate
		return nil
	}
	p.upstream.gate, err = newHealthGate(s, p.title(), p.upstream.upstreamState, p.breakerChanged)
	if err == nil {
		err = p.override.apply(p.upstream.gate.breaker)
	}
	return err
}

func (r renewal) limits() error {
	for _, part := range []func() error{r.rate, r.sendRate, r.slots} {
		if err := part(); err != nil {
			return err
		}
	}
	p, old := r.p, r.old
	spec := p.spec.Policy.Budget
	if spec == (limit.BudgetSpec{}) {
		spec = limit.ProviderBudget()
	}
	if p.budgets = (&budgets{spec: spec, redact: p.gateway.redact}); old != nil && old.budgets.spec == spec {
		p.budgets = old.budgets
	}
	return nil
}

func (r renewal) rate() (err error) {
	p, old, s := r.p, r.old, &r.p.spec
	switch {
	case s.Rate == (limit.Frequency{}):
		return nil
	case old != nil && old.upstream.rate != nil && old.spec.Rate == s.Rate && old.spec.Burst == s.Burst && old.spec.Queue == s.Queue && old.patience() == p.patience():
		p.upstream.rate = old.upstream.rate
		return nil
	}
	p.upstream.rate, err = limit.NewRateQueue(limit.RateQueueConfig{Rate: s.Rate, Burst: s.Burst, MaxWait: p.patience(), Queue: s.Queue})
	return err
}

func (r renewal) sendRate() (err error) {
	p, old := r.p, r.old
	switch {
	case !p.spec.Adaptive:
		return nil
	case old != nil && old.upstream.send != nil && old.patience() == p.patience():
		p.upstream.send = old.upstream.send
		return nil
	}
	p.upstream.send, err = health.NewSendRate(health.SendRateConfig{MaxWait: p.patience()})
	return err
}

func (r renewal) slots() (err error) {
	p, old, s := r.p, r.old, &r.p.spec
	switch {
	case s.Concurrent <= 0:
		return nil
	case old != nil && old.upstream.slots != nil && old.spec.Queue == s.Queue:
		p.upstream.slots = old.upstream.slots // takeOver sets their number
		return nil
	}
	p.upstream.slots, err = limit.NewConcurrency(limit.ConcurrencyConfig{Max: s.Concurrent, Queue: s.Queue})
	return err
}

// takeOver applies changes that must wait until the whole configuration is valid.
func (p *provider) takeOver() error {
	p.gateway.stats[p.spec.Name], p.gateway.overrides[p.spec.Name] = p.stats, p.override
	if p.upstream.gate.gate.Stats().State == health.GateOpen {
		p.upstream.history.ended(time.Now()) // ends an outage that a replaced gate had begun
	}
	if slots := p.upstream.slots; slots != nil {
		return slots.SetMax(p.spec.Concurrent)
	}
	return nil
}

// table has the providers of one configuration. It is never changed.
type table struct {
	names     []string // in the order of the configuration
	providers map[string]*provider

	// gone are providers that a reload has removed, the latest first. Only
	// [Gateway.RoundTripper] still uses them, for work that began before.
	gone []*provider
}

// maxGone is the greatest number of removed providers to keep. An older one is unlikely
// to be needed.
const maxGone = 100

// known returns the provider with the name, even if a reload has removed it, or nil.
func (t *table) known(name string) *provider {
	if p := t.providers[name]; p != nil {
		return p
	}
	if i := slices.IndexFunc(t.gone, func(p *provider) bool { return p.spec.Name == name }); i >= 0 {
		return t.gone[i]
	}
	return nil
}

// remember sets gone: first the providers of the old table that this table lacks, then
// those that were gone before.
func (t *table) remember(old *table) {
	for _, name := range old.names {
		t.gone = append(t.gone, old.providers[name])
	}
	t.gone = append(t.gone, old.gone...)
	t.gone = slices.DeleteFunc(t.gone, func(p *provider) bool { return t.providers[p.spec.Name] != nil })
	t.gone = slices.Clip(t.gone[:min(len(t.gone), maxGone)])
}

// list returns the names for a message.
func (t *table) list() string {
	if len(t.names) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(slices.Values(t.names)), ", ")
}

// pair is a failover from one provider to another.
type pair struct{ from, to string }

// failovers returns how often requests moved from one provider to another. It also lists
// configured fallbacks with a count of 0, so that metrics show the first failover as
// an increase.
func (t *table) failovers() []FailoverCount {
	sums := map[pair]uint64{}
	for name, p := range t.providers {
		for _, to := range p.spec.Fallback {
			sums[pair{name, to}] += 0
		}
		p.stats.mu.Lock()
		for moved, n := range p.stats.moves {
			sums[moved] += n
		}
		p.stats.mu.Unlock()
	}
	counts := make([]FailoverCount, 0, len(sums))
	for p, n := range sums {
		counts = append(counts, FailoverCount{p.from, p.to, n})
	}
	return counts
}
