package gateway

import (
	"errors"
	"fmt"
	"strings"
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

// What a provider can be told.
const (
	Open  = "open"  // nobody passes until told otherwise
	Close = "close" // it counts as up whatever happens
	Drain = "drain" // requests under way are finished, new ones go elsewhere or are refused
	Reset = "reset" // back to its rules, and what was told of its keys is forgotten; if it is down, the next request looks whether it still is
)

// Actions are all of them.
var Actions = []string{Open, Close, Drain, Reset}

// mode is what somebody said of a provider.
type mode uint8

const (
	automatic mode = iota
	openedByHand
	heldByHand
	draining
)

var modes = map[string]mode{Open: openedByHand, Close: heldByHand, Drain: draining, Reset: automatic}

// hand is what somebody said of a provider, and when. It belongs to the provider's
// name, and so outlives every reload.
type hand struct {
	spoken atomic.Bool // somebody said something: nearly all callers need to know no more
	mu     sync.Mutex
	mode   mode
	since  time.Time
}

func (h *hand) get() mode {
	m, _ := h.said()
	return m
}

func (h *hand) said() (mode, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mode, h.since
}

func (h *hand) set(m mode, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mode != m {
		h.mode, h.since = m, now
		h.spoken.Store(m != automatic)
	}
}

// lets reports whether a request may go to the provider that came in at the time.
func (h *hand) lets(began time.Time) bool {
	if !h.spoken.Load() {
		return true
	}
	switch m, since := h.said(); m {
	case openedByHand:
		return false
	case draining:
		return began.Before(since)
	default:
		return true
	}
}

// apply makes a breaker do as the hand says.
func (h *hand) apply(b *breaker.Breaker) error {
	switch h.get() {
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

// Control tells a provider one of [Actions]. It holds across reloads, not across
// restarts.
func (g *Gateway) Control(name, action string) error {
	t := g.table.Load()
	p := t.providers[name]
	if p == nil {
		return fmt.Errorf("%w: %q; there are %s", ErrUnknownProvider, name, t.list())
	}
	m, ok := modes[action]
	if !ok {
		return fmt.Errorf("%w: %q; there are %s", ErrUnknownAction, action, strings.Join(Actions, ", "))
	}
	p.hand.set(m, time.Now())
	err := p.hand.apply(p.door.breaker)
	if m == heldByHand {
		p.door.gate.Open()
		p.recovered()
	}
	if m == heldByHand || m == automatic {
		p.keys.reset()
	}
	if m == automatic {
		p.door.probeNow()
		p.watchers.wake(reopened) // not those at its own gate, one of whom looks now
		return err
	}
	p.watchers.wake(byHand)
	return err
}
