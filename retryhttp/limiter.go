package retryhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

// LimiterConfig says how many requests are served. At least one of Concurrency,
// Adaptive and Rate must be given, and not both of the first two.
type LimiterConfig struct {
	Concurrency limit.ConcurrencyConfig // requests at once, and how many may wait; the zero value means no such limit
	Adaptive    limit.AdaptiveConfig    // the same, where the maximum is found out; the zero value means no such limit
	Rate        limit.RateConfig        // requests per time; the zero value means no such limit

	// TrustPriority has X-Tideover-Priority (lowest, low, normal, high or highest)
	// decide who waits before whom. Anybody can send that header, so it is for
	// clients that are known. Without it the priority is that of the context; see
	// [limit.WithPriority].
	TrustPriority bool

	Status        int           // of a refusal: 429 or 503; 0 means 429 above the rate, and 503 when there is no room
	MaxRetryAfter time.Duration // the longest Retry-After because of requests that wait; 0 means 1 minute
}

const (
	priorityHeader = "X-Tideover-Priority"

	defaultMaxRetryAfter = time.Minute
)

// Validate reports everything that is wrong with the configuration, each
// problem with its field's name.
func (c LimiterConfig) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	within := func(field string, given bool, err error) {
		if given && err != nil {
			bad("%s: %w", field, err)
		}
	}
	within("concurrency", c.fixed(), c.Concurrency.Validate())
	within("adaptive", c.adapts(), c.Adaptive.Validate())
	within("rate", c.paced(), c.Rate.Validate())
	switch {
	case c.fixed() && c.adapts():
		bad("adaptive: not with concurrency")
	case !c.fixed() && !c.adapts() && !c.paced():
		bad("no limit: want concurrency, adaptive or rate")
	}
	switch c.Status {
	case 0, http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default:
		bad("status: %d is neither 429 nor 503", c.Status)
	}
	if c.MaxRetryAfter < 0 {
		bad("max-retry-after: %v is negative", c.MaxRetryAfter)
	}
	return errors.Join(errs...)
}

func (c LimiterConfig) fixed() bool  { return c.Concurrency != limit.ConcurrencyConfig{} }
func (c LimiterConfig) adapts() bool { return c.Adaptive != limit.AdaptiveConfig{} }
func (c LimiterConfig) paced() bool  { return c.Rate != limit.RateConfig{} }

// Limiter is an [http.Handler] that lets in as many requests as can be served,
// and tells the others when to come back.
//
// A request above the rate, and one that finds neither room nor a place in the
// queue, is refused at once. A request leaves the queue when its client goes away
// or its deadline passes, and may have to make room for one of a higher priority;
// behind a [Deadline], no request waits for longer than its client does. The
// rate comes first: a request that it let in and that then finds no room has used
// its slot.
//
// # Retry-After
//
// A refusal says when there is likely to be room: Retry-After in whole seconds,
// rounded up, for those who can't read Retry-After-Ms. Neither is ever 0. Above a
// rate the time is known. Otherwise it is the time in which all waiting requests are
// served, at the pace of the requests before: as many at once as are let in, each
// for as long as they took on average. It is longer if no request
// has ended for some time.
//
// Those who are refused must not come back together. Each of them is sent behind
// the one before, as far apart as places become free, and up to a fifth later at
// random.
//
// Refusals were not processed: a [Transport] sends a POST again after one.
type Limiter struct {
	next     http.Handler
	cfg      LimiterConfig
	fixed    *limit.Concurrency // or
	adaptive *limit.Adaptive    // or neither
	rate     *limit.Rate        // nil without one
	interval time.Duration      // between slots of the rate
	refused  atomic.Uint64

	mu    sync.Mutex
	pace  pace
	rooms promises // to those who found no room
	slots promises // to those above the rate
}

// NewLimiter returns a handler that calls next.
func NewLimiter(next http.Handler, cfg LimiterConfig) (*Limiter, error) {
	err := cfg.Validate()
	if next == nil {
		err = errors.Join(errors.New("next: nil"), err)
	}
	if err != nil {
		return nil, refusal("NewLimiter", err)
	}
	cfg.MaxRetryAfter = cmp.Or(cfg.MaxRetryAfter, defaultMaxRetryAfter)
	l := &Limiter{next: next, cfg: cfg}
	// What was validated is not refused.
	if cfg.fixed() {
		l.fixed, _ = limit.NewConcurrency(cfg.Concurrency)
	}
	if cfg.adapts() {
		l.adaptive, _ = limit.NewAdaptive(cfg.Adaptive)
	}
	if cfg.paced() {
		l.rate, _ = limit.NewRate(cfg.Rate)
		l.interval = cfg.Rate.Rate.Per / time.Duration(cfg.Rate.Rate.Events)
	}
	return l, nil
}

// LimiterStats is the state of a [Limiter] at one moment.
type LimiterStats struct {
	limit.ConcurrencyStats               // zero without a limit of requests at once
	Refused                uint64        // requests that were turned away
	Service                time.Duration // what recent requests took on average; 0 means that none has been served
}

// Stats returns the current state.
func (l *Limiter) Stats() LimiterStats {
	s := LimiterStats{Refused: l.refused.Load()}
	switch {
	case l.fixed != nil:
		s.ConcurrencyStats = l.fixed.Stats()
	case l.adaptive != nil:
		s.ConcurrencyStats = l.adaptive.Stats()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Service = l.pace.service
	return s
}

// ServeHTTP implements [http.Handler].
func (l *Limiter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l == nil || l.next == nil {
		notMade(w, "Limiter")
		return
	}
	ctx, changed := l.prioritised(r)
	a := admittedRequest{l: l, ctx: ctx, load: limit.Ignored} // what a panic leaves
	if err := a.enter(); err != nil {
		l.refuse(w, err)
		return
	}
	defer a.leave()
	if l.adaptive != nil {
		a.seen = &watched{ResponseWriter: w}
		w = a.seen
	}
	if changed {
		serve(ctx, l.next, w, r)
	} else {
		l.next.ServeHTTP(w, r)
	}
	a.load = a.result()
}

// prioritised returns the context of the request with the priority that its
// header has, if that is to be trusted. What is no priority says nothing.
func (l *Limiter) prioritised(r *http.Request) (ctx context.Context, changed bool) {
	ctx = r.Context()
	if !l.cfg.TrustPriority {
		return ctx, false
	}
	p, err := limit.ParsePriority(strings.ToLower(strings.TrimSpace(r.Header.Get(priorityHeader))))
	if err != nil {
		return ctx, false
	}
	return limit.WithPriority(ctx, p), true
}

// admittedRequest is a request that the limiter has admitted.
type admittedRequest struct {
	l     *Limiter
	ctx   context.Context
	token limit.Token
	start time.Duration
	seen  *watched // nil unless the limit adapts
	load  limit.Result
}

func (a *admittedRequest) enter() (err error) {
	l := a.l
	if l.rate != nil {
		if err := l.rate.Wait(a.ctx); err != nil {
			return err
		}
	}
	switch {
	case l.fixed != nil:
		err = l.fixed.Acquire(a.ctx)
	case l.adaptive != nil:
		a.token, err = l.adaptive.Acquire(a.ctx)
	}
	if err != nil {
		return err
	}
	a.start = clock.Now()
	l.mu.Lock()
	l.pace.started(a.start)
	l.mu.Unlock()
	return nil
}

func (a *admittedRequest) leave() {
	l := a.l
	now := clock.Now()
	l.mu.Lock()
	l.pace.ended(now, now-a.start)
	l.mu.Unlock()
	if l.fixed != nil {
		l.fixed.Release()
	}
	a.token.Done(a.load)
}

// result returns what the request shows about the load.
func (a *admittedRequest) result() limit.Result {
	if a.seen == nil {
		return limit.Ignored
	}
	switch err, status := a.ctx.Err(), a.seen.status(); {
	case overdue(a.ctx):
		return limit.Dropped
	case err != nil || status == hijacked || status == http.StatusSwitchingProtocols:
		return limit.Ignored
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable ||
		status == http.StatusGatewayTimeout || status == statusOverloaded:
		return limit.Dropped
	case status >= http.StatusInternalServerError:
		return limit.Ignored
	}
	return limit.Answered
}

// pace is how fast requests are served. It reads no clock.
type pace struct {
	service time.Duration // what a request takes, on average; 0 while unknown
	moved   time.Duration // when the last request came in or went out
}

const (
	serviceWeight  = 8           // of the average against one request
	unknownService = time.Second // while none has been served
)

func (p *pace) started(now time.Duration) { p.moved = max(p.moved, now) }

func (p *pace) ended(now, took time.Duration) {
	p.moved = max(p.moved, now)
	took = max(took, 1)
	if p.service == 0 {
		p.service = took
		return
	}
	p.service = max(p.service+(took-p.service)/serviceWeight, 1)
}

// room returns when there is likely to be room behind all who wait, and how far
// apart places become free, when so many are served at once. Throughput would be
// the wrong measure: it is low when few have come.
func (p *pace) room(now time.Duration, atOnce, waiting int) (first, gap time.Duration) {
	service := cmp.Or(p.service, unknownService)
	gap = max(service/time.Duration(max(atOnce, 1)), 1)
	// If no request has come or gone for a while, it will take about as long again.
	return clock.Later(max(gap, now-p.moved), times(gap, waiting)), gap
}

// times returns d×n, at most the longest duration.
func times(d time.Duration, n int) time.Duration {
	if n > 0 && d > longest/time.Duration(n) {
		return longest
	}
	return d * time.Duration(max(n, 0))
}

const longest = time.Duration(1<<63 - 1)

// promises sends those who are refused back one after the other. It reads no
// clock.
type promises struct {
	next time.Duration // the first moment that was promised to no client
}

// jitter is how much later than promised a client may be sent, as a share of the time.
const jitter = 0.2

// wait returns how long the next one has to wait: until first from now, or behind
// those who were refused before, but not longer than most on their account. u
// is a random number in [0, 1).
func (p *promises) wait(now, first, gap, most time.Duration, u float64) time.Duration {
	most = max(most, first)
	at := min(max(p.next, clock.Later(now, first)), clock.Later(now, most))
	p.next = clock.Later(at, gap)
	d := max(at-now, time.Millisecond)
	return clock.Later(d, time.Duration(float64(d)*jitter*u))
}

// refuse answers a request that was not let in.
func (l *Limiter) refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, context.Canceled) {
		// The client left the queue. This answer is for the log of a proxy in front
		// of us, where no answer would look like a success.
		http.Error(w, "the client has gone", http.StatusServiceUnavailable)
		return
	}
	l.refused.Add(1)
	status, after := l.comeBack(clock.Now(), err, rand.Float64())
	h := w.Header()
	h.Set("Retry-After", strconv.FormatInt(ceil(after, time.Second), 10))
	h.Set("Retry-After-Ms", strconv.FormatInt(ceil(after, time.Millisecond), 10))
	http.Error(w, "no room: come back in "+roundUp(after).String(), status)
}

// comeBack returns the status of a refusal, and when to come back.
func (l *Limiter) comeBack(now time.Duration, err error, u float64) (status int, after time.Duration) {
	// The longest of all times includes the jitter.
	most := time.Duration(float64(l.cfg.MaxRetryAfter) / (1 + jitter))
	status = http.StatusServiceUnavailable
	stats := l.Stats()
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := errors.AsType[*limit.RateError](err); ok {
		status = http.StatusTooManyRequests
		after = l.slots.wait(now, e.Wait, l.interval, most, u)
	} else {
		first, gap := l.pace.room(now, stats.Max, stats.Waiting)
		after = l.rooms.wait(now, min(first, most), gap, most, u)
	}
	return cmp.Or(l.cfg.Status, status), after
}

// ceil returns how many units d is, rounded up.
func ceil(d, unit time.Duration) int64 { return int64((d-1)/unit) + 1 }

// roundUp returns d as a person would say it.
func roundUp(d time.Duration) time.Duration { return time.Duration(ceil(d, time.Second)) * time.Second }
