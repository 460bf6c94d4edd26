package retryhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	if cfg.MaxRetryAfter == 0 {
		cfg.MaxRetryAfter = defaultMaxRetryAfter
	}
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
