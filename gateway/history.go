package gateway

import (
	"slices"
	"sync"
	"time"
)

// kept is how many of the latest outages and failovers of a provider are known.
const kept = 20

// history holds the recent outages and failovers of a provider.
type history struct {
	mu        sync.Mutex
	current   *current   // nil unless it is down
	outages   []Outage   // newest first
	failovers []Failover // the same
}

// current is an outage that goes on.
type current struct {
	Outage
	failed time.Time     // when it was last seen to be down
	looked time.Time     // when the last probe was
	step   time.Duration // from then to the next probe
	busy   bool          // a probe is under way
	silent bool          // before it, there was no probe for long
}

// silence is how many steps without a probe are more than chance: without requests it is
// not known when in this time the provider came back.
const silence = 3

// began notes that the provider is down. predicted is for how long, by what was
// learned; step is how long it will be until the first probe.
func (h *history) began(now time.Time, cause string, predicted, step time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(now) // one that went down again while it was being let in
	h.current = &current{
		Outage: Outage{Began: now, Cause: cause, Predicted: predicted.Seconds()},
		failed: now, looked: now, step: step,
	}
}

// probed notes a probe.
func (h *history) probed(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.current; c != nil {
		c.Probes++
		c.silent = !c.busy && now.Sub(c.looked) > silence*c.step
		c.looked, c.busy = now, true
	}
}

// reported notes that a probe failed, or was given up. step is how long it will be
// until the next one.
func (h *history) reported(now time.Time, failed bool, step time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.current; c != nil {
		if failed {
			c.failed = now
		}
		c.looked, c.step, c.busy, c.silent = now, step, false, false
	}
}

// ended notes that the provider is back, and reports whether it was down.
func (h *history) ended(now time.Time) (Outage, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.end(now)
}

func (h *history) end(now time.Time) (Outage, bool) {
	c := h.current
	if c == nil {
		return Outage{}, false
	}
	h.current = nil
	o := c.Outage
	o.Ended, o.Seconds = now, now.Sub(o.Began).Seconds()
	if c.silent || !c.busy && now.Sub(c.looked) > silence*c.step {
		o.AtLeast, o.Seconds = true, c.failed.Sub(o.Began).Seconds()
	}
	h.outages = push(h.outages, o)
	return o, true
}

// now returns the outage that goes on.
func (h *history) now() (Outage, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil {
		return Outage{}, false
	}
	return h.current.Outage, true
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
	return slices.Clone(h.outages), slices.Clone(h.failovers)
}

// last returns the latest outage that is over.
func (h *history) last() (Outage, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.outages) == 0 {
		return Outage{}, false
	}
	return h.outages[0], true
}

// push adds a value at the front, and drops the last one if there are too many.
func push[T any](list []T, v T) []T {
	return slices.Insert(list, 0, v)[:min(len(list)+1, kept)]
}
