package gateway

import (
	"slices"
	"sync"
	"time"
)

// kept is how many of the latest outages and failovers of a provider are known.
const kept = 20

// history is what happened to a provider of late.
type history struct {
	mu        sync.Mutex
	current   *Outage // nil unless it is down
	outages   []Outage
	failovers []Failover
}

// began notes that the provider is down. predicted is for how long, by what was
// learned.
func (h *history) began(now time.Time, cause string, predicted time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(now) // one that went down again while it was being let in
	h.current = &Outage{Began: now, Cause: cause, Predicted: predicted.Seconds()}
}

// probed notes a probe.
func (h *history) probed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil {
		h.current.Probes++
	}
}

// ended notes that the provider is back, and reports whether it was down.
func (h *history) ended(now time.Time) (Outage, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.end(now)
}

func (h *history) end(now time.Time) (Outage, bool) {
	if h.current == nil {
		return Outage{}, false
	}
	o := *h.current
	h.current = nil
	o.Ended, o.Seconds = now, now.Sub(o.Began).Seconds()
	h.outages = push(h.outages, o)
	return o, true
}

func (h *history) failedOver(f Failover) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failovers = push(h.failovers, f)
}

// lists returns both, newest first.
func (h *history) lists() ([]Outage, []Failover) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, f := slices.Clone(h.outages), slices.Clone(h.failovers)
	slices.Reverse(o)
	slices.Reverse(f)
	return o, f
}

// last returns the latest outage that is over.
func (h *history) last() (Outage, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.outages) == 0 {
		return Outage{}, false
	}
	return h.outages[len(h.outages)-1], true
}

func push[T any](list []T, v T) []T {
	if len(list) == kept {
		list = slices.Delete(list, 0, 1)
	}
	return append(list, v)
}
