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

// LimiterConfig sets the limits of a [Limiter]. Set at least one of Concurrency,
// Adaptive and Rate, but not both Concurrency and Adaptive.
type LimiterConfig struct {
	Concurrency limit.ConcurrencyConfig // concurrent requests, and how many may wait; the zero value means no such limit
	Adaptive    limit.AdaptiveConfig    // the same with a maximum that adapts to the load; the zero value means no such limit
	Rate        limit.RateConfig        // requests per time; the zero value means no such limit

	// TrustPriority makes X-Tideover-Priority (lowest, low, normal, high or highest)
	// decide the order of waiting requests. Any client can send that header, so use it
	// only with known clients. Without it the priority is that of the context; see
	// [limit.WithPriority].
	TrustPriority bool

	Status        int           // status of a rejection, 429 or 503; 0 means 429 above the rate, and 503 if there is no room
	MaxRetryAfter time.Duration // longest Retry-After that results from waiting requests; 0 means 1 minute
}

const (
	priorityHeader = "X-Tideover-Priority"

	defaultMaxRetryAfter = time.Minute
)

// Validate returns all problems of the configuration, each with its field's name.
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
		bad("adaptive: can't be combined with concurrency")
	case !c.fixed() && !c.adapts() && !c.paced():
		bad("no limit is set: want concurrency, adaptive or rate")
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

// Limiter is an [http.Handler] that admits as many requests as can be served, and
// tells the other clients when to come back.
//
// A request is rejected at once if it exceeds the rate, or if there is neither room nor a
// place in the queue. A request leaves the queue if its client disconnects or its
// deadline passes, or if a request of a higher priority takes its place. Behind a
// [Deadline], no request waits longer than its client does. The rate is checked
// first: a request that then finds no room has used a slot of the rate.
//
// # Retry-After
//
// A rejection says when there is likely to be room, in Retry-After-Ms, and in
// Retry-After rounded up to whole seconds. Neither is ever 0. Above a
// rate the time is known. Otherwise it is an estimate: the number of waiting requests,
// times the average time that recent requests took, divided by the number that
// may run at once. It is longer if no request has started or ended for some time.
//
// Rejected clients must not all come back at once. The response asks each client to come
// back later than the one before, by the time in which a place becomes free, plus a
// random part of up to a fifth.
//
// Rejected requests were not processed: a [Transport] repeats a rejected POST.
type Limiter struct {
	next     http.Handler
	cfg      LimiterConfig
	fixed    *limit.Concurrency // nil without Concurrency
	adaptive *limit.Adaptive    // nil without Adaptive
	rate     *limit.Rate        // nil without Rate
	interval time.Duration      // time between two slots of the rate
	refused  atomic.Uint64

	mu    sync.Mutex
	pace  pace
	rooms promises // times given to clients that found no room
	slots promises // times given to clients above the rate
}

// NewLimiter returns a [Limiter] in front of next. It returns an error if next is nil or
// cfg is not valid.
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
	// The constructors return no error, because the configuration is valid.
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
	limit.ConcurrencyStats               // zero if the limiter has only a rate
	Refused                uint64        // requests that were rejected
	Service                time.Duration // average time of recent requests; 0 until one has been served
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
	a := admittedRequest{l: l, ctx: ctx, load: limit.Ignored} // used if the handler panics
	if err := a.enter(); err != nil {
		l.refuse(w, err)
		return
	}
	defer a.release()
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

// prioritised returns the context of the request with the priority from its
// header, if TrustPriority is set. A value that is no priority is ignored.
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

// admittedRequest is a request on its way through the limits; enter admits it.
type admittedRequest struct {
	l     *Limiter
	ctx   context.Context
	token limit.Token
	start time.Duration
	seen  *watched // records the status; nil without an adaptive limit
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

func (a *admittedRequest) release() {
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

// result returns what the request tells the adaptive limit about the load.
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

// pace measures how fast requests are served. It reads no clock.
type pace struct {
	service time.Duration // average time of a request; 0 while unknown
	moved   time.Duration // when the last request started or ended
}

const (
	serviceWeight  = 8           // weight of the average against one request
	unknownService = time.Second // assumed until a request has been served
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

// room estimates the time until there is room after all waiting requests, and the
// time between two places that become free, if atOnce requests run at the same time. It
// does not use the throughput, which is low if few requests arrive.
func (p *pace) room(now time.Duration, atOnce, waiting int) (first, gap time.Duration) {
	service := cmp.Or(p.service, unknownService)
	gap = max(service/time.Duration(max(atOnce, 1)), 1)
	// If no request has started or ended for a while, expect the same time again.
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

// promises gives rejected clients times to come back, one after the other. It reads no
// clock.
type promises struct {
	next time.Duration // the first time that no client has been given
}

// jitter is the greatest random part of a wait, as a share of the wait.
const jitter = 0.2

// wait returns how long the next client has to wait: at least first, and longer if other
// clients were rejected before it, up to most. gap is the time between two clients. u is a
// random number in [0, 1).
func (p *promises) wait(now, first, gap, most time.Duration, u float64) time.Duration {
	most = max(most, first)
	at := min(max(p.next, clock.Later(now, first)), clock.Later(now, most))
	p.next = clock.Later(at, gap)
	d := max(at-now, time.Millisecond)
	return clock.Later(d, time.Duration(float64(d)*jitter*u))
}

// refuse answers a request that was not admitted.
func (l *Limiter) refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, context.Canceled) {
		// The client has disconnected. This answer is for the log of a proxy in front
		// of us, where a missing answer would look like a success.
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

// comeBack returns the status of a rejection, and the time after which to come back.
func (l *Limiter) comeBack(now time.Duration, err error, u float64) (status int, after time.Duration) {
	// MaxRetryAfter includes the jitter.
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

// roundUp rounds up to whole seconds, for a message.
func roundUp(d time.Duration) time.Duration { return time.Duration(ceil(d, time.Second)) * time.Second }
