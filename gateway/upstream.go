package gateway

import (
	"cmp"
	"context"
	"fmt"
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

// healthGate protects one provider: a breaker counts the results of attempts, and closes a
// gate. While the gate is closed, requests wait, and one at a time
// probes whether the provider is back.
type healthGate struct {
	*upstreamState
	gate    *health.Gate
	breaker *breaker.Breaker
	openFor time.Duration                         // shortest time that the gate stays closed
	changed func(breaker.Event, health.GateStats) // called for each change of the breaker

	askedUntil     atomic.Int64 // reading of the clock until which the server asks for no requests
	isOpen         atomic.Bool  // the gate is open; a fast check for most requests
	probeRequested atomic.Bool  // an operator wants the next probe at once
	mu             sync.Mutex   // held while the state of the gate is read or changed, so that events come in order
}

func newHealthGate(s *Spec, name string, u *upstreamState, changed func(breaker.Event, health.GateStats)) (*healthGate, error) {
	g := &healthGate{upstreamState: u, openFor: s.OpenFor, changed: changed}
	var err error
	// Only the breaker closes the gate.
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

// askedFor records that the server has asked to get no requests for this time.
func (g *healthGate) askedFor(wait time.Duration) {
	if wait > 0 {
		g.askedUntil.Store(int64(clock.Later(clock.Now(), wait)))
	}
}

// shut closes the gate. cause is for the history of outages.
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

// expected returns the predicted time until recovery; 0 if no outage is known.
func (g *healthGate) expected(s *health.GateStats) time.Duration {
	if g.learned() == 0 {
		return 0
	}
	return s.Expected
}

// learned returns the number of outages that the prediction is based on.
func (g *healthGate) learned() float64 { return g.recovery.Predict(0).Outages }

// done reports the result of a call to the gate.
func (g *healthGate) done(pass health.Pass, o health.Outcome) {
	pass.Done(o)
	if !pass.Probe() || o == health.Succeeded {
		return
	}
	g.history.reported(time.Now(), o.Result == breaker.Failure, g.gate.Stats().Next)
}

// probeNow lets one request probe the provider at once: the waiting request with the
// highest priority, or else the next request.
func (g *healthGate) probeNow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.gate.Stats()
	if s.State != health.GateClosed || s.Probing {
		return
	}
	g.gate.AdvanceAt(clock.Later(clock.Now(), s.Next)) // tells the gate a time at which the probe is due
	g.probeRequested.Store(!g.gate.Stats().Probing)
}

// reopened records that the provider is back. It returns the outage that has ended, and
// false if there was none.
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

// gateState is the state of the gate for a new request.
type gateState uint8

const (
	gateOpen gateState = iota
	gateClosed
	gateReleasing // waiting requests pass one after the other; new ones wait behind them
)

// state returns the state of the gate for a new request, and, if it is closed, for how
// long. A closed gate whose probe is due counts as open. A time of 0 means that a probe is
// in progress, which may end at any moment.
func (g *healthGate) state() (gateState, time.Duration) {
	if g.isOpen.Load() {
		return gateOpen, 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.gate.Stats()
	g.isOpen.Store(s.State == health.GateOpen) // only shut closes it, and holds the lock
	switch {
	case s.State == health.GateReleasing:
		return gateReleasing, 0
	case s.State == health.GateClosed && (s.Probing || s.Next > 0 && !g.probeRequested.Load()):
		return gateClosed, s.Next
	}
	return gateOpen, 0
}

// try passes the gate if that needs no wait: the gate is open, or a probe is due and this
// request becomes the probe. Otherwise it returns the state and the time until the next
// probe.
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
	if err != nil { // the gate was closed since the check, and its queue is full
		return pass, gateClosed, 0
	}
	pass, over, _ := turn.Result()
	if !over {
		if g.gate.LeaveAt(clock.Now(), turn) {
			return pass, gateClosed, g.gate.Stats().Next
		}
		pass, _, _ = turn.Result() // the gate has let it pass at the same moment
	}
	if pass.Probe() {
		g.history.probed(time.Now())
	}
	return pass, gateOpen, 0
}

// noWait is a context whose Done channel is closed, so that the gate does not let the
// request wait. Its Err is nil all the same, because the gate rejects a context with an error
// before it looks at anything else.
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

// wait waits until the gate lets the request pass.
func (g *healthGate) wait(ctx context.Context) (health.Pass, error) {
	pass, err := g.gate.Enter(ctx)
	if err == nil && pass.Probe() {
		g.history.probed(time.Now())
	}
	return pass, err
}

// upstream is what the requests to a provider share: the gate, the limits and the state of
// its server.
type upstream struct {
	*upstreamState
	gate  *healthGate
	slots *limit.Concurrency // limit of concurrent attempts; nil means none
	rate  *limit.RateQueue   // limit of the rate; nil means none
	send  *health.SendRate   // adaptive rate; nil means none
}

// upstreamState is the known state of a provider's server. It does not depend on the
// configuration.
type upstreamState struct {
	recovery    *health.Recovery
	history     history
	rateLimits  rateLimits
	errors      health.ErrorRate
	subscribers subscribers
	pace        pace
	inFlight    atomic.Int64
	waiting     [limit.Classes]atomic.Int64 // requests that wait for the adaptive rate or a key; gate, rate and slots count their own
}

// pace measures how long responses take to begin.
type pace struct {
	mu    sync.Mutex
	score health.Score
	last  time.Duration // time of the last observation
}

func (p *pace) observe(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = clock.Now()
	p.score.ObserveAt(p.last, d)
}

// mean returns the mean at the last observation, in seconds; 0 before the first. It is for people, so
// it does not fall while there are no requests, as the score for selecting a target does.
func (p *pace) mean() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.score.MeanAt(p.last)
}

// waitForLimits waits for the limits. waited reports whether it had to wait, and slot
// whether it acquired a slot, also if it returns an error.
func (p *provider) waitForLimits(ctx context.Context, r *request) (slot, waited bool, err error) {
	u := &p.upstream
	began := clock.Now()
	if u.slots != nil {
		if !u.slots.TryAcquire() {
			waited = true
			step := r.startWait(WaitSlot, p)
			err = u.slots.Acquire(ctx)
			r.endWait(WaitSlot, step, began)
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
	step := 0
	if u.rate != nil && !u.rate.Allow() {
		step = r.startWait(WaitRate, p)
		err = u.rate.Wait(ctx)
	}
	if err == nil && u.send != nil {
		u.countWaiting(r.class, 1)
		err = u.send.Wait(ctx)
		u.countWaiting(r.class, -1)
	}
	if clock.Now()-began > time.Millisecond {
		waited = true
	}
	if step > 0 {
		r.endWait(WaitRate, step, began)
	} else {
		r.waitedFor(WaitRate, p, began)
	}
	return slot, waited, err
}

// countInFlight adds n to the number of attempts in flight.
func (u *upstream) countInFlight(n int64) { u.inFlight.Add(n) }

// countWaiting adds n to the number of waiting requests of the class.
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

// succeeded records an attempt whose response began after this time.
func (u *upstream) succeeded(after time.Duration) {
	u.errors.Add(true)
	u.pace.observe(after)
}

// countError counts a failed attempt; failures lengthen the policy's waits. wait is how
// long the server has asked to get no requests; 0 means that it has not asked.
func (u *upstream) countError(wait time.Duration) {
	u.errors.Add(false)
	u.gate.askedFor(wait)
}

// transports has the transports that make the attempts of requests for a provider.
type transports struct {
	spec   *Spec
	plain  *retryhttp.Transport // with the policy, without hedging
	noWait *retryhttp.Transport // without waits between attempts, for callers that retry

	mu     sync.Mutex
	hedged map[string]*retryhttp.Transport // by route
}

// choose returns the transport for a request. A hedge depends on the latency of the
// route, so each route has its own transport. Requests that may cost money are not
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
		return t.plain // can't happen: makeTransports has checked the hedge
	}
	put(&t.hedged, route, own)
	return own
}

// upstreamTransport sends attempts to providers, with the protocol that the provider
// uses.
type upstreamTransport struct{ g *Gateway }

// RoundTrip implements [http.RoundTripper].
func (u upstreamTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	next := u.g.base
	if u.g.hasH2C.Load() {
		if r := requestFrom(req.Context()); r != nil && r.picker.usesH2C(req) {
			next = u.g.h2c
		}
	}
	resp, err := retryhttp.OneTry(next).RoundTrip(req)
	if err == nil {
		return resp, nil
	}
	if isLongHead(err) {
		return nil, retry.Permanent(errLongHead)
	}
	if err = redactError(err, req); shortage.Is(err) {
		err = &shortageError{err}
	}
	return nil, err
}

// maxHead is the limit for the head of a response: its status and headers. It is larger than
// what clients accept; it protects the memory of the gateway.
const maxHead = 1 << 20

var errLongHead = fmt.Errorf("the headers of the response have more than %d KiB", maxHead>>10)

// isLongHead reports whether the head of a response was too long. The errors of net/http have
// no types: the first text is that of HTTP/1, the second that of HTTP/2. If a head is far too
// long, HTTP/2 ends the connection with PROTOCOL_ERROR instead.
func isLongHead(err error) bool {
	text := err.Error()
	return strings.Contains(text, "server response headers exceeded") || strings.Contains(text, "response header list larger than advertised limit")
}

// shortageError is a shortage on this machine, such as of file descriptors, and not a
// failure of the provider. The gateway does not retry it: it asks the caller to try later.
type shortageError struct{ error }

// Unwrap returns the failure that the shortage caused.
func (e *shortageError) Unwrap() error { return e.error }

// RetryOutcome implements [retry.Classified].
func (*shortageError) RetryOutcome() retry.Outcome { return retry.Outcome{Final: true} }

// CloseIdleConnections closes the idle connections to all providers.
func (u upstreamTransport) CloseIdleConnections() {
	u.g.base.CloseIdleConnections()
	u.g.h2c.CloseIdleConnections()
}

// makeTransports makes the transports of the provider, and returns an error if its policy
// is not supported. The caller has set p.order.
func (p *provider) makeTransports() (err error) {
	p.transports.spec = &p.spec
	policy := p.spec.Policy
	hedge := policy.Hedge
	policy.Hedge = retry.Hedge{}
	if p.transports.plain, err = p.newTransport(policy); err != nil {
		return err
	}
	keys := 0 // number of keys that its requests can use, at all providers
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
	// The targetPicker charges the retry budget, because only a retry at the same provider
	// costs a part of it.
	policy.Budget = limit.BudgetSpec{}
	known := presets[p.spec.Preset]
	policy.AttemptTimeout = cmp.Or(policy.AttemptTimeout, known.attemptTimeout())
	opts := []retryhttp.Option{
		retryhttp.WithRouter(router{}),
		retryhttp.WithRetry(retry.WithName(p.title()), retry.WithTroubleObserver(p.observe), retry.WithCallID(callOf)),
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

// streams returns the limits on silence in answers. An answer of known length is not a
// stream, and may be silent no longer than an attempt may take.
func (p *provider) streams(attempt time.Duration) retryhttp.Streams {
	s := retryhttp.Streams{Hold: max(p.spec.StreamHold, 0), Idle: max(p.spec.StreamIdle, 0), Sized: attempt}
	if s.Idle > 0 {
		s.Sized = min(s.Sized, s.Idle)
	}
	return s
}

// repeatable reports whether the configuration allows the provider to process the request
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
// answered. An Idempotency-Key that the gateway has added does not count: a request that
// the caller repeats would get another one.
func (p *provider) callerMayRepeat(req *http.Request) bool {
	if req.Method != http.MethodPost && req.Method != http.MethodPatch {
		return true
	}
	return len(req.Header["Idempotency-Key"]) > 0 || len(req.Header["X-Idempotency-Key"]) > 0 || p.repeatable(req)
}

// newTransport returns the transport to all providers.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true, // net/http would not try it because of DialContext
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConnsPerHost:    256,
		MaxResponseHeaderBytes: maxHead,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		DisableCompression:     true, // the gateway does not ask for compression that the caller did not ask for
	}
}

// newH2CTransport returns the transport to providers that speak HTTP/2 without TLS.
func newH2CTransport() *http.Transport {
	t := newTransport()
	t.Protocols = new(http.Protocols)
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}
