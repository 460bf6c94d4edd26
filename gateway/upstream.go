package gateway

import (
	"context"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/internal/shortage"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// healthGate stands in front of one destination: a breaker that counts how attempts end,
// and a gate that the breaker closes. While it is closed, requests wait, and one at a
// time probes whether the destination is back.
type healthGate struct {
	gate        *health.Gate
	breaker     *breaker.Breaker
	recovery    *health.Recovery
	openFor     time.Duration
	history     *history
	subscribers *subscribers
	changed     func(breaker.Event, health.GateStats) // called for each change of the breaker

	askedUntil     atomic.Int64 // reading of the clock up to which the server asks for no requests
	isOpen         atomic.Bool  // the gate is open: all that nearly all requests need to know
	probeRequested atomic.Bool  // an operator wants the next probe at once
	mu             sync.Mutex   // held while the gate is closed, so that its events come in order
}

func newHealthGate(s *Spec, name string, u *upstreamState, changed func(breaker.Event, health.GateStats)) (*healthGate, error) {
	g := &healthGate{recovery: u.recovery, openFor: s.OpenFor, history: &u.history, subscribers: &u.subscribers, changed: changed}
	var err error
	// Only the breaker closes it.
	if g.gate, err = health.NewGate(health.GateConfig{Failures: math.MaxInt, Queue: s.Queue}, health.WithRecovery(u.recovery)); err != nil {
		return nil, err
	}
	g.breaker, err = breaker.New(s.Breaker, breaker.WithName(name), breaker.WithObserver(g.observe))
	return g, err
}

func (g *healthGate) observe(e breaker.Event) {
	if e.To == breaker.Open {
		g.shut(string(e.Cause))
	}
	g.changed(e, g.gate.Stats())
}

// askedFor records that the server asks for no requests for so long.
func (g *healthGate) askedFor(wait time.Duration) {
	if wait > 0 {
		g.askedUntil.Store(int64(clock.Later(clock.Now(), wait)))
	}
}

// shut closes the gate.
func (g *healthGate) shut(cause string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.gate.Stats()
	if before.State == health.GateClosed {
		return
	}
	g.isOpen.Store(false)
	g.probeRequested.Store(false)
	g.gate.Shut(max(g.openFor, time.Duration(g.askedUntil.Load())-clock.Now()))
	s := g.gate.Stats()
	g.history.began(time.Now(), cause, g.expected(&s), s.Next)
	g.subscribers.wake(closedAgain)
}

// expected returns the predicted time until recovery; 0 if no outage was seen before.
func (g *healthGate) expected(s *health.GateStats) time.Duration {
	if g.learned() == 0 {
		return 0
	}
	return s.Expected
}

// learned returns how many outages the prediction is based on.
func (g *healthGate) learned() float64 { return g.recovery.Predict(0).Outages }

// done reports how a call ended.
func (g *healthGate) done(pass health.Pass, o health.Outcome) {
	pass.Done(o)
	if !pass.Probe() || o == health.Succeeded {
		return
	}
	g.history.reported(time.Now(), o.Result == breaker.Failure, g.gate.Stats().Next)
}

// probeNow lets one request probe the destination at once: the most urgent of those that
// wait, or the next one.
func (g *healthGate) probeNow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.gate.Stats()
	if s.State != health.GateClosed || s.Probing {
		return
	}
	g.gate.AdvanceAt(clock.Later(clock.Now(), s.Next)) // to the gate it is as late as it has to be
	g.probeRequested.Store(!g.gate.Stats().Probing)
}

// reopened records that the destination is back.
func (g *healthGate) reopened() (Outage, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gate.Stats().State == health.GateClosed {
		return Outage{}, false
	}
	o, was := g.history.ended(time.Now())
	if was {
		g.subscribers.wake(reopened)
	}
	return o, was
}

// gateState is the gate as a new request finds it.
type gateState uint8

const (
	gateOpen gateState = iota
	gateClosed
	gateReleasing // requests that waited pass one after the other, new ones behind them
)

// state returns the gate as a new request would find it, and if it is closed, for how
// long: a probe that is due lets the request pass. 0 means that a probe is under way,
// which may end any moment.
func (g *healthGate) state() (gateState, time.Duration) {
	if g.isOpen.Load() {
		return gateOpen, 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.gate.Stats()
	g.isOpen.Store(s.State == health.GateOpen) // only we close it, with the lock held
	switch {
	case s.State == health.GateReleasing:
		return gateReleasing, 0
	case s.State == health.GateClosed && (s.Probing || s.Next > 0 && !g.probeRequested.Load()):
		return gateClosed, s.Next
	}
	return gateOpen, 0
}

// try passes if that needs no wait: the gate is open, or a probe is due, which is then
// this request.
func (g *healthGate) try(ctx context.Context) (pass health.Pass, found gateState, next time.Duration) {
	if g.isOpen.Load() {
		if pass, err := g.gate.Enter(noWait{}); err == nil {
			return pass, gateOpen, 0
		}
	}
	if found, next = g.state(); found != gateOpen {
		return pass, found, next
	}
	early := time.Duration(0)
	if g.probeRequested.CompareAndSwap(true, false) {
		early = g.gate.Stats().Next
	}
	now := clock.Later(clock.Now(), early)
	turn, err := g.gate.EnterAt(now, limit.PriorityFrom(ctx), 0)
	if err != nil { // a queue: it was closed since we looked
		return pass, gateClosed, 0
	}
	pass, over, _ := turn.Result()
	if !over {
		if g.gate.LeaveAt(clock.Now(), turn) {
			return pass, gateClosed, g.gate.Stats().Next
		}
		pass, _, _ = turn.Result() // let through at the same moment
	}
	if pass.Probe() {
		g.history.probed(time.Now())
	}
	return pass, gateOpen, 0
}

// noWait is the context of a request that does not wait.
type noWait struct{}

func (noWait) Deadline() (time.Time, bool) { return time.Time{}, false }
func (noWait) Done() <-chan struct{}       { return noTime }
func (noWait) Err() error                  { return nil }
func (noWait) Value(any) any               { return nil }

var noTime = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// wait passes when it is the request's turn.
func (g *healthGate) wait(ctx context.Context) (health.Pass, error) {
	pass, err := g.gate.Enter(ctx)
	if err == nil && pass.Probe() {
		g.history.probed(time.Now())
	}
	return pass, err
}

// upstream is the way to the server of a provider: its gate, its limits, and what is known
// of it.
type upstream struct {
	*upstreamState
	gate  *healthGate
	slots *limit.Concurrency // nil means no limit
	rate  *limit.RateQueue   // the same
	send  *health.SendRate   // the same
}

// upstreamState is what is known of a destination, however the provider is configured.
type upstreamState struct {
	recovery    *health.Recovery
	history     history
	rateLimits  rateLimits
	errors      health.ErrorRate
	subscribers subscribers
	pace        pace
	inFlight    atomic.Int64
	waiting     [limit.Classes]atomic.Int64 // for the adaptive rate, or for a key; gate, rate and slots count their own
}

// pace is how long responses take to begin.
type pace struct {
	mu    sync.Mutex
	score health.Score
}

func (p *pace) observe(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.score.ObserveAt(clock.Now(), d)
}

func (p *pace) mean() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.score.MeanAt(clock.Now())
}

// gateState returns the gate as a new request would find it, and if it is closed, for how
// long.
func (u *upstream) gateState() (gateState, time.Duration) { return u.gate.state() }

// tryPass passes the gate if that needs no wait.
func (u *upstream) tryPass(ctx context.Context) (pass health.Pass, found gateState, next time.Duration) {
	return u.gate.try(ctx)
}

// waitForPass passes the gate when it is the request's turn.
func (u *upstream) waitForPass(ctx context.Context) (health.Pass, error) { return u.gate.wait(ctx) }

// done reports the result of an attempt to the gate.
func (u *upstream) done(pass health.Pass, o health.Outcome) { u.gate.done(pass, o) }

// allow returns the breaker's permit for an attempt.
func (u *upstream) allow() (breaker.Permit, error) { return u.gate.breaker.Allow() }

// shut closes the gate.
func (u *upstream) shut(cause string) { u.gate.shut(cause) }

// wake wakes requests that wait for the change.
func (u *upstream) wake(e gateEvent) { u.subscribers.wake(e) }

// subscribe returns the function that removes the subscriber.
func (u *upstream) subscribe(s *subscriber) (remove func()) { return u.subscribers.add(s) }

// knowsOutages reports whether the gateway has seen outages, from which it predicts the
// next ones.
func (u *upstream) knowsOutages() bool { return u.gate.learned() > 0 }

// waitForLimits waits for the limits, and reports whether it had to. slot reports whether
// the caller holds a slot, even beside an error.
func (u *upstream) waitForLimits(ctx context.Context, r *request) (slot, waited bool, err error) {
	began := clock.Now()
	if u.slots != nil {
		if !u.slots.TryAcquire() {
			waited = true
			err = u.slots.Acquire(ctx)
			r.waited("slot", began)
		}
		if err != nil {
			return false, waited, err
		}
		slot = true
	}
	if u.rate == nil && u.send == nil {
		return slot, waited, nil
	}
	began = clock.Now()
	if u.rate != nil {
		err = u.rate.Wait(ctx)
	}
	if err == nil && u.send != nil {
		u.countWaiting(r.class, 1)
		err = u.send.Wait(ctx)
		u.countWaiting(r.class, -1)
	}
	if clock.Now()-began > time.Millisecond {
		waited = true
		r.waited("rate", began)
	}
	return slot, waited, err
}

// releaseSlot gives back a slot.
func (u *upstream) releaseSlot() { u.slots.Release() }

// countInFlight adds n to the number of attempts in flight.
func (u *upstream) countInFlight(n int64) { u.inFlight.Add(n) }

// countWaiting adds n to the number of requests of the class that wait.
func (u *upstream) countWaiting(class limit.Priority, n int64) { u.waiting[class.Class()].Add(n) }

// queued returns how many requests wait for a key or the adaptive rate.
func (u *upstream) queued() (n int) {
	for i := range u.waiting {
		n += int(u.waiting[i].Load())
	}
	return n
}

// reportRate reports to the adaptive rate whether an attempt was throttled.
func (u *upstream) reportRate(throttled bool) {
	if u.send != nil {
		u.send.Report(throttled)
	}
}

// succeeded records an attempt whose response began after so long.
func (u *upstream) succeeded(after time.Duration) {
	u.errors.Add(true)
	u.pace.observe(after)
}

// countError counts an attempt without success, which lengthens the policy's waits. wait is how long the server asks for no requests;
// 0 means that it does not.
func (u *upstream) countError(wait time.Duration) {
	u.errors.Add(false)
	u.gate.askedFor(wait)
}

// stretch returns the wait, longer the more of the requests fail.
func (u *upstream) stretch(wait time.Duration) time.Duration { return u.errors.Stretch(wait) }

// readRateLimits records what the headers of a response say of the key's rate limits.
func (u *upstream) readRateLimits(key string, h http.Header) { u.rateLimits.read(key, h, time.Now()) }

// recordFailover records that a request went from one provider to another.
func (u *upstream) recordFailover(f Failover) { u.history.failedOver(f) }

// transports make the attempts of requests for a provider.
type transports struct {
	spec   *Spec
	plain  *retryhttp.Transport // by the policy, without hedging
	noWait *retryhttp.Transport // one attempt at each target, without a wait, for callers that retry

	mu     sync.Mutex
	hedged map[string]*retryhttp.Transport // by route
}

// choose returns the transport for a request. A hedge depends on the latency of the
// route, so that each route has a transport of its own. Requests that cost money are not
// hedged.
func (t *transports) choose(method, route string) *retryhttp.Transport {
	hedge := t.spec.Policy.Hedge
	costs := t.spec.Preset != Generic && method != http.MethodGet && method != http.MethodHead
	if hedge == (retry.Hedge{}) || costs {
		return t.plain
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.hedged) >= maxRoutes && t.hedged[route] == nil {
		route = otherRoute
	}
	if own := t.hedged[route]; own != nil {
		return own
	}
	own, err := t.plain.WithHedge(hedge)
	if err != nil {
		return t.plain // makeTransports has checked it
	}
	if t.hedged == nil {
		t.hedged = map[string]*retryhttp.Transport{}
	}
	t.hedged[route] = own
	return own
}

// upstreamTransport sends attempts to providers, by the protocol that the provider
// speaks.
type upstreamTransport struct {
	base   http.RoundTripper
	h2c    *http.Transport // of providers with Spec.H2C
	hasH2C *atomic.Bool    // there are such providers
}

// RoundTrip implements [http.RoundTripper].
func (u upstreamTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	next := u.base
	if u.hasH2C.Load() {
		if r := requestFrom(req.Context()); r != nil && r.picker.usesH2C(req) {
			next = u.h2c
		}
	}
	resp, err := next.RoundTrip(req)
	if err == nil {
		return resp, nil
	}
	if err = redactError(err, req); shortage.Is(err) {
		err = &shortageError{err}
	}
	return nil, err
}

// shortageError is a failure of this machine, of which the provider knows nothing. It is
// not repeated: the caller is asked to try again when this machine has room.
type shortageError struct{ error }

// Unwrap returns the failure.
func (e *shortageError) Unwrap() error { return e.error }

// RetryOutcome implements [retry.Classified].
func (*shortageError) RetryOutcome() retry.Outcome { return retry.Outcome{Final: true} }

// CloseIdleConnections lets a transport above close them.
func (u upstreamTransport) CloseIdleConnections() {
	if c, ok := u.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
	u.h2c.CloseIdleConnections()
}
