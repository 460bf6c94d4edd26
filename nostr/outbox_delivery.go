package nostr

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// State says what became of an event at a relay.
type State uint8

// The states.
const (
	Pending      State = iota // the relay has not answered yet
	Acknowledged              // the relay has it
	Refused                   // the relay does not want it, for good
	Dropped                   // it was not kept for the relay; see Receipt.Err
)

// String returns the state's name.
func (s State) String() string {
	names := [...]string{"pending", "acknowledged", "refused", "dropped"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// RefusedError says that a relay refused an event for good.
type RefusedError struct {
	ID   string // of the event
	Text string // what the relay said, made printable
}

// Error says what the relay said.
func (e *RefusedError) Error() string { return fmt.Sprintf("event %.8s refused: %s", e.ID, e.Text) }

// letter is an event as it is written to relays.
type letter struct {
	id    string
	frame []byte
}

// newLetter checks what would make every relay refuse the event.
func newLetter(e *Event) (letter, error) {
	if e == nil {
		return letter{}, fmt.Errorf("publish: %w: nil", ErrShape)
	}
	if err := errors.Join(e.CheckShape(), e.CheckID()); err != nil {
		return letter{}, fmt.Errorf("publish event %.8s: %w", e.ID, err)
	}
	m := Message{Type: TypeEvent, Event: e}
	frame := m.Append(nil, true)
	if len(frame) > MaxFrame {
		return letter{}, fmt.Errorf("publish event %.8s: %w: %d bytes, at most %d", e.ID, ErrShape, len(frame), MaxFrame)
	}
	return letter{e.ID, frame}, nil
}

// item is an event on its way to one relay. The outbox owns it until done is
// closed; then state and err stay as they are.
type item struct {
	letter
	class   Class
	added   time.Time
	sent    time.Time // last; zero for never
	unclear int       // answers
	errors  int       // the same

	throttled int       // the same
	slowed    time.Time // by the first of them

	answer       string // the last that was not OK, made printable
	unchallenged int    // links that ended because the relay asked who we are and gave no challenge

	done  chan struct{}
	state State
	err   error
}

func newItem(l letter, class Class, now time.Time) *item {
	return &item{letter: l, class: class, added: now, done: make(chan struct{})}
}

func decided(l letter, s State, err error) *item {
	it := newItem(l, Result, time.Time{})
	it.decide(s, err)
	return it
}

func (it *item) decide(s State, err error) {
	it.state, it.err, it.frame = s, err, nil
	close(it.done)
}

// Delivery is what becomes of events that were published together.
type Delivery struct {
	parts []part
}

// part is a relay's.
type part struct {
	relay string
	from  *relay // owns the items
	items []*item
	err   error // why there are none
}

// Receipt is what became of the events of a Delivery at one relay.
type Receipt struct {
	Relay string
	State State // Acknowledged if the relay has all of them; Pending while one is
	Err   error // why one of them was refused or dropped

	// Reason says why one is Pending: what the relay answered when it did not take it,
	// such as "rate-limited: slow down", or why there is no link. It is empty while the
	// relay has not answered.
	Reason string
}

// Relays returns what has become of the events so far, a receipt a relay, in the
// order of the configuration.
func (d *Delivery) Relays() []Receipt {
	list := make([]Receipt, len(d.parts))
	for i := range d.parts {
		list[i] = d.parts[i].receipt()
	}
	return list
}

func (p *part) receipt() Receipt {
	r := Receipt{Relay: p.relay, State: Acknowledged}
	if p.err != nil {
		r.State, r.Err = Dropped, p.err
	}
	pending := false
	for _, it := range p.items {
		select {
		case <-it.done:
			if it.state != Acknowledged && r.Err == nil {
				r.State, r.Err = it.state, it.err
			}
		default:
			pending = true
		}
	}
	if pending {
		r.State, r.Reason = Pending, p.reason()
	}
	return r
}

// reason says why an event is pending.
func (p *part) reason() string {
	p.from.mu.Lock()
	defer p.from.mu.Unlock()
	if p.from.phase != linkUp {
		if p.from.lastErr == "" {
			return "" // the first dial
		}
		return "no link: " + p.from.lastErr
	}
	for _, it := range p.items {
		if it.state == Pending && it.answer != "" {
			return it.answer
		}
	}
	return ""
}

// Wait waits until every relay has acknowledged or refused every event, or will
// not get it. The error is nil only if all relays have acknowledged all; otherwise
// it names each that has not, and why. A caller to whom some relays are enough
// looks at Relays afterwards.
func (d *Delivery) Wait(ctx context.Context) error {
	for i := range d.parts {
		for _, it := range d.parts[i].items {
			select {
			case <-it.done:
			case <-ctx.Done():
				return d.err(context.Cause(ctx))
			}
		}
	}
	return d.err(nil)
}

func (d *Delivery) err(gaveUp error) error {
	var errs []error
	for _, r := range d.Relays() {
		switch {
		case r.State == Pending && gaveUp != nil:
			errs = append(errs, fmt.Errorf("publish to %s: not acknowledged: %w", r.Relay, gaveUp))
		case r.Err != nil:
			errs = append(errs, fmt.Errorf("publish to %s: %w", r.Relay, r.Err))
		}
	}
	return errors.Join(errs...)
}
