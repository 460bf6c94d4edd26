package retryhttp

import (
	"context"
	"net/http"
	"time"
)

// FormatBudget exports formatBudget for tests.
func FormatBudget(name string, d time.Duration) (string, bool) {
	return formatBudget(http.CanonicalHeaderKey(name), d)
}

// InboundRetries exports inboundRetries for tests.
func InboundRetries(ctx context.Context) int { return inboundRetries(ctx) }

// Refusals computes the Retry-After of rejected requests, in virtual time.
type Refusals struct {
	pace  pace
	rooms promises
}

// Serve records a request that was served from start to end.
func (r *Refusals) Serve(start, end time.Duration) {
	r.pace.started(start)
	r.pace.ended(end, end-start)
}

// Wait returns the Retry-After of a client that is rejected now.
func (r *Refusals) Wait(now time.Duration, atOnce, waiting int, most time.Duration, u float64) time.Duration {
	first, gap := r.pace.room(now, atOnce, waiting)
	return r.rooms.wait(now, min(first, most), gap, most, u)
}

// Hosts returns how many hosts are known.
func (p *PerHost) Hosts() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.hosts)
}
