package gateway

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/breaker"
)

// The errors of [Gateway.Control], for errors.Is.
var (
	ErrUnknownProvider = errors.New("no such provider")
	ErrUnknownAction   = errors.New("no such action")
)

// The actions of [Gateway.Control]. They are named after what happens to the circuit breaker
// of the provider.
const (
	Open  = "open"  // send no request to the provider, until another action
	Close = "close" // treat it as up even if it fails
	Drain = "drain" // finish requests in progress; new ones go to a fallback or are rejected
	Reset = "reset" // back to automatic: forget what is known of its keys; if it is down, the next request is a probe
)

// Actions are all actions.
var Actions = []string{Open, Close, Drain, Reset}

// mode is what an operator has set for a provider.
type mode uint8

const (
	automatic mode = iota
	openedByHand
	heldByHand
	draining
)

var modes = map[string]mode{Open: openedByHand, Close: heldByHand, Drain: draining, Reset: automatic}

// override is what an operator has set for a provider, and when. It belongs to the
// provider's name, and so outlives every reload.
type override struct {
	isSet atomic.Bool // the mode is not automatic: nearly all requests need to know no more
	mu    sync.Mutex
	mode  mode
	since time.Time
}

func (o *override) get() mode {
	m, _ := o.current()
	return m
}

func (o *override) current() (mode, time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mode, o.since
}

func (o *override) set(m mode, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mode != m {
		o.mode, o.since = m, now
		o.isSet.Store(m != automatic)
	}
}

// isOpenTo reports whether a request that came in at the time may go to the provider.
func (o *override) isOpenTo(began time.Time) bool {
	if !o.isSet.Load() {
		return true
	}
	switch m, since := o.current(); m {
	case openedByHand:
		return false
	case draining:
		return began.Before(since)
	default:
		return true
	}
}

// apply forces the breaker to do as the operator has set.
func (o *override) apply(b *breaker.Breaker) error {
	switch o.get() {
	case openedByHand:
		return b.Force(breaker.ForcedOpen)
	case heldByHand:
		return b.Force(breaker.ForcedClosed)
	default:
		if s := b.State(); s == breaker.ForcedOpen || s == breaker.ForcedClosed {
			b.Reset()
		}
		return nil
	}
}
