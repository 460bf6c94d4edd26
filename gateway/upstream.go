package gateway

import (
	"cmp"
	"context"
	"math"
	"net"
	"net/http"
	"strings"
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
	*upstreamState
	gate    *health.Gate
	breaker *breaker.Breaker
	openFor time.Duration
	changed func(breaker.Event, health.GateStats) // called for each change of the breaker

	askedUntil     atomic.Int64 // reading of the clock up to which the server asks for no requests
	isOpen         atomic.Bool  // the gate is open: all that nearly all requests need to know
	probeRequested atomic.Bool  // an operator wants the next probe at once
	mu             sync.Mutex   // held while the gate is closed, so that its events come in order
}

func newHealthGate(s *Spec, name string, u *upstreamState, changed func(breaker.Event, health.GateStats)) (*healthGate, error) {
	g := &healthGate{upstreamState: u, openFor: s.OpenFor, changed: changed}
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
	put(&t.hedged, route, own)
	return own
}

// upstreamTransport sends attempts to providers, by the protocol that the provider
// speaks.
type upstreamTransport struct{ g *Gateway }

// RoundTrip implements [http.RoundTripper].
func (u upstreamTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	next := u.g.base
	if u.g.hasH2C.Load() {
		if r := requestFrom(req.Context()); r != nil && r.picker.usesH2C(req) {
			next = u.g.h2c
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
	u.g.base.CloseIdleConnections()
	u.g.h2c.CloseIdleConnections()
}

// makeTransports makes the transports of the provider, and shows that its policy can be
// honoured. It needs the fallbacks.
func (p *provider) makeTransports() (err error) {
	p.transports.spec = &p.spec
	policy := p.spec.Policy
	hedge := policy.Hedge
	policy.Hedge = retry.Hedge{}
	if p.transports.plain, err = p.newTransport(policy); err != nil {
		return err
	}
	keys := 0 // for its requests, at all providers
	for _, o := range p.order {
		keys += len(o.keys.keys)
	}
	p.transports.noWait = p.transports.plain.WithAttempts(keys)
	if hedge != (retry.Hedge{}) {
		_, err = p.transports.plain.WithHedge(hedge)
	}
	return err
}

// newTransport returns a transport that follows the policy.
func (p *provider) newTransport(policy retry.Policy) (*retryhttp.Transport, error) {
	// A retry at the same provider costs what its budget says, and one elsewhere
	// nothing: the targetPicker keeps count.
	policy.Budget = limit.BudgetSpec{}
	known := presets[p.spec.Preset]
	policy.AttemptTimeout = cmp.Or(policy.AttemptTimeout, known.attemptTimeout())
	opts := []retryhttp.Option{
		retryhttp.WithRouter(router{}),
		retryhttp.WithRetry(retry.WithName(p.title()), retry.WithTroubleObserver(p.observe)),
		retryhttp.WithStreams(p.streams(policy.AttemptTimeout)),
		retryhttp.WithAttemptHeaders("gateway"),
		retryhttp.WithDeadlineHeaders(known.deadline),
		retryhttp.WithIdempotent(p.repeatable),
	}
	for encoding, decode := range p.gateway.options.Decoders {
		opts = append(opts, retryhttp.WithDecoder(encoding, decode))
	}
	if p.spec.RetryPosts != PostsNever {
		opts = append(opts, retryhttp.WithAnswered())
	}
	if known.conflict {
		opts = append(opts, retryhttp.WithConflict())
	}
	if p.spec.IdempotencyKeys {
		opts = append(opts, retryhttp.WithIdempotencyKeys())
	}
	return retryhttp.New(policy, upstreamTransport{p.gateway}, opts...)
}

// streams returns how answers are read. An answer whose length is known is no stream, and
// is silent no longer than an attempt may take.
func (p *provider) streams(attempt time.Duration) retryhttp.Streams {
	s := retryhttp.Streams{Hold: max(p.spec.StreamHold, 0), Idle: max(p.spec.StreamIdle, 0), Sized: attempt}
	if s.Idle > 0 {
		s.Sized = min(s.Sized, s.Idle)
	}
	return s
}

// repeatable reports whether the configuration says that a request may be sent
// twice.
func (p *provider) repeatable(req *http.Request) bool {
	if p.spec.RetryPosts == PostsUnanswered && req.Method == http.MethodPost {
		return true
	}
	r := requestFrom(req.Context())
	if r == nil {
		return false
	}
	for _, allowed := range p.spec.Repeatable {
		if allowed.Method == req.Method && (allowed.Path == r.path || strings.HasSuffix(allowed.Path, "/") && strings.HasPrefix(r.path, allowed.Path)) {
			return true
		}
	}
	return false
}

// callerMayRepeat reports whether the caller may send the request again after it was
// answered. An Idempotency-Key that the gateway adds is another one then, and protects
// nothing.
func (p *provider) callerMayRepeat(req *http.Request) bool {
	switch req.Method {
	case http.MethodPost, http.MethodPatch:
	default:
		return true
	}
	return len(req.Header["Idempotency-Key"]) > 0 || len(req.Header["X-Idempotency-Key"]) > 0 || p.repeatable(req)
}

// newTransport returns the transport to all providers.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		Protocols:             protocols,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // what the caller did not ask for is not undone
	}
}

// newH2CTransport returns the transport to providers that speak HTTP/2 without TLS.
func newH2CTransport() *http.Transport {
	t := newTransport()
	t.Protocols = new(http.Protocols)
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}
