package gateway

import (
	"slices"
	"sync"
	"time"
)

// kept is how many recent outages and failovers of a provider the history keeps.
const kept = 20

// history holds the recent outages and failovers of a provider.
type history struct {
	mu        sync.Mutex
	current   *current   // the current outage; nil if there is none
	outages   []Outage   // newest first
	failovers []Failover // newest first
}

// current is an outage that has not ended.
type current struct {
	Outage
	failed time.Time     // when the provider last failed
	looked time.Time     // when the last probe began or ended
	step   time.Duration // time from looked to the next probe
	busy   bool          // a probe is in progress
	silent bool          // there was no probe for long before the last one
}

// silence is how many times the planned time between two probes may pass without a probe.
// If more passes, there were no requests, and it is not known when the provider came back.
const silence = 3

// began records that the provider is down. predicted is the predicted duration; 0 means
// unknown. step is the time until the first probe.
func (h *history) began(now time.Time, cause string, predicted, step time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(now) // an outage that has not ended, if the provider fails again while it recovers
	h.current = &current{
		Outage: Outage{Began: now, Cause: cause, Predicted: predicted.Seconds()},
		failed: now, looked: now, step: step,
	}
}

// probed records the start of a probe.
func (h *history) probed(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.current; c != nil {
		c.Probes++
		c.silent = !c.busy && now.Sub(c.looked) > silence*c.step
		c.looked, c.busy = now, true
	}
}

// reported records the end of a probe that failed or was canceled. step is the time
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

// ended records the end of the current outage and returns it. It returns false if there is
// none.
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

// now returns the current outage, if there is one.
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

// lists returns the outages and the failovers, newest first.
func (h *history) lists() ([]Outage, []Failover) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.outages), slices.Clone(h.failovers)
}

// last returns the latest outage that has ended.
func (h *history) last() (Outage, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.outages) == 0 {
		return Outage{}, false
	}
	return h.outages[0], true
}

// push adds a value at the front, and drops the last one if there are more than kept.
func push[T any](list []T, v T) []T {
	return slices.Insert(list, 0, v)[:min(len(list)+1, kept)]
}
