package nostr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/internal/enum"
)

// State is the state of an event at a relay.
type State uint8

// The states.
const (
	Pending      State = iota // the relay has not answered yet
	Acknowledged              // the relay has it
	Refused                   // the relay rejected it for good
	Dropped                   // it was dropped from the outbox; see Receipt.Err
)

// String returns the state's name.
func (s State) String() string {
	return enum.Name([]string{"pending", "acknowledged", "refused", "dropped"}, s, "State")
}

// RefusedError is the error of an event that a relay refused for good.
type RefusedError struct {
	ID   string // id of the event
	Text string // the relay's text, made printable
}

// Error returns the event and the relay's text.
func (e *RefusedError) Error() string { return fmt.Sprintf("event %.8s refused: %s", e.ID, e.Text) }

// encodedEvent is an event as it is written to relays.
type encodedEvent struct {
	id    string
	frame []byte
}

// encodeEvent encodes an event, after checks that every relay would make too.
func encodeEvent(e *Event) (encodedEvent, error) {
	if e == nil {
		return encodedEvent{}, fmt.Errorf("publish: %w: nil", ErrShape)
	}
	if err := errors.Join(e.CheckShape(), e.CheckID()); err != nil {
		return encodedEvent{}, fmt.Errorf("publish event %.8s: %w", e.ID, err)
	}
	m := Message{Type: TypeEvent, Event: e}
	frame := m.Append(nil, true)
	if len(frame) > MaxFrame {
		return encodedEvent{}, fmt.Errorf("publish event %.8s: %w: %d bytes, at most %d", e.ID, ErrShape, len(frame), MaxFrame)
	}
	return encodedEvent{e.ID, frame}, nil
}

// item is an event in the outbox of one relay. The outbox owns it until done is
// closed; then state and err no longer change.
type item struct {
	encodedEvent
	class   Class
	added   time.Time
	sent    time.Time // last; zero means never
	unclear int       // number of unclear answers
	errors  int       // number of "error" answers

	throttled int       // number of "rate-limited" answers
	slowed    time.Time // when the first of them came

	answer       string // the last negative answer, made printable
	unchallenged int    // links that ended because the relay required authentication without a challenge

	done  chan struct{}
	state State
	err   error
}

func newItem(l encodedEvent, class Class, now time.Time) *item {
	return &item{encodedEvent: l, class: class, added: now, done: make(chan struct{})}
}

func (it *item) decide(s State, err error) {
	it.state, it.err, it.frame = s, err, nil
	close(it.done)
}

// Delivery tracks events that were published together.
type Delivery struct {
	parts []relayDelivery
}

// relayDelivery is the part of a [Delivery] at one relay.
type relayDelivery struct {
	relay string
	from  *relay // owns the items
	items []*item
	err   error // why there are no items
}

// Receipt is the state of the events of a Delivery at one relay.
type Receipt struct {
	Relay string
	State State // Acknowledged if the relay has all events; Pending while one of them is pending
	Err   error // why an event was refused or dropped

	// Reason says why an event is Pending: the relay's last negative answer,
	// such as "rate-limited: slow down", or why there is no link. It is empty
	// while the relay has not answered.
	Reason string
}

// Relays returns the present state of the events: one receipt for each relay,
// in the order of the configuration.
func (d *Delivery) Relays() []Receipt {
	list := make([]Receipt, len(d.parts))
	for i := range d.parts {
		list[i] = d.parts[i].receipt()
	}
	return list
}

func (p *relayDelivery) receipt() Receipt {
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

// reason returns why an event is pending.
func (p *relayDelivery) reason() string {
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

// Wait waits until every event is acknowledged, refused or dropped at every relay.
// The error is nil only if all relays have acknowledged all events; otherwise
// it names each relay that has not, and why. A caller for whom some relays are
// enough can call Relays afterwards.
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
