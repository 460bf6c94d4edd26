package retryhttp

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

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
	service := p.service
	if service == 0 {
		service = unknownService
	}
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
	if l.cfg.Status != 0 {
		status = l.cfg.Status
	}
	return status, after
}

// ceil returns how many units d is, rounded up.
func ceil(d, unit time.Duration) int64 { return int64((d-1)/unit) + 1 }

// roundUp returns d as a person would say it.
func roundUp(d time.Duration) time.Duration { return time.Duration(ceil(d, time.Second)) * time.Second }
