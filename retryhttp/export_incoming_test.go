package retryhttp

import (
	"context"
	"net/http"
	"time"
)

// FormatBudget is for tests of what is sent.
func FormatBudget(name string, d time.Duration) (string, bool) {
	return formatBudget(http.CanonicalHeaderKey(name), d)
}

// InboundRetries is what a transport reads.
func InboundRetries(ctx context.Context) int { return inboundRetries(ctx) }

// Refusals tells when those who are refused should come back, in virtual time.
type Refusals struct {
	pace  pace
	rooms promises
}

// Serve notes a request that started and ended.
func (r *Refusals) Serve(start, end time.Duration) {
	r.pace.started(start)
	r.pace.ended(end, end-start)
}

// Wait returns when a client should come back that is refused now.
func (r *Refusals) Wait(now time.Duration, atOnce, waiting int, most time.Duration, u float64) time.Duration {
	first, gap := r.pace.room(now, atOnce, waiting)
	return r.rooms.wait(now, min(first, most), gap, most, u)
}

// Hosts returns how many hosts are remembered.
func (p *PerHost) Hosts() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.hosts)
}
