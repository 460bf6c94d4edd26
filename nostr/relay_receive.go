package nostr

import (
	"fmt"
	"slices"
	"time"
)

// receive takes a message of the relay. An error ends the link.
func (r *relay) receive(m *Message, now time.Time) error {
	switch m.Type {
	case TypeEvent:
		return r.event(m, now)
	case TypeEOSE:
		r.eose(m.Sub)
		return nil
	case TypeNotice:
		r.log.Debug("notice", "text", printable(m.Text))
		return nil
	}
	defer r.poke()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m.Type {
	case TypeOK:
		return r.ok(m, now)
	case TypeClosed:
		return r.closed(m, now)
	case TypeAuth:
		r.auth.challenged(m.Text)
	}
	return nil
}

// event checks an event and hands it on. The lock is not held meanwhile: whoever
// gets it may publish and subscribe.
func (r *relay) event(m *Message, now time.Time) error {
	r.mu.Lock()
	s := r.find(m.Sub)
	r.mu.Unlock()
	if s == nil {
		return r.litter(&r.counts.unknown, now)
	}
	// What is beyond our limits is not the relay's fault: anybody may give it such
	// an event, and it has to deliver it.
	if err := m.Event.CheckShape(); err != nil {
		r.count(&r.counts.unfit)
		r.log.Debug("event dropped", "subscription", s.name, "error", printable(err.Error()))
		return nil
	}
	if err := r.judge(s, m.Event); err != nil {
		return r.offence(s, m.Event, err, now)
	}
	return nil
}

func (r *relay) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

// litter counts what is no message, or for nobody.
func (r *relay) litter(n *int, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
	if r.garbage.add(now) {
		return errGarbage
	}
	return nil
}

// find returns the subscription of the id, if it is one whose events are wanted.
func (r *relay) find(id string) *subscription {
	i := slices.IndexFunc(r.subs, func(s *subscription) bool { return s.id == id && s.phase == subOpen })
	if i < 0 {
		return nil
	}
	return r.subs[i]
}

// judge says what is wrong with an event of the right shape; what costs most comes
// last. What it uses of the subscription never changes.
func (r *relay) judge(s *subscription, e *Event) error {
	if err := e.CheckID(); err != nil {
		return err
	}
	if !s.matches(e) {
		return fmt.Errorf("event %.8s was not asked for", e.ID)
	}
	if s.answer != nil {
		return s.answer.add(e)
	}
	return r.cfg.Handle(r.name, e)
}

// offence counts an event that the relay should not have sent.
func (r *relay) offence(s *subscription, e *Event, why error, now time.Time) error {
	r.log.Debug("bad event", "subscription", s.name, "event", printable(e.ID), "error", printable(why.Error()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.events++
	if r.bad.add(now) {
		return errFlood
	}
	return nil
}

func (r *relay) eose(id string) {
	r.mu.Lock()
	s := r.find(id)
	news := s != nil && s.eose()
	if news && s.answer != nil {
		s.phase = subClosing
		s.answer.finish(r.name, nil)
	}
	r.mu.Unlock()
	r.poke()
	if news && s.answer == nil && r.cfg.Stored != nil {
		r.cfg.Stored(r.name, s.name)
	}
}

func (r *relay) ok(m *Message, now time.Time) error {
	if ours, err := r.auth.answered(m, now); ours {
		return err
	}
	it, before := r.outbox.head(m.ID), ""
	if it != nil {
		before = it.answer
	}
	if !r.outbox.answered(m, now) {
		switch {
		case it == nil:
		case it.state == Refused:
			r.log.Warn("event refused", "event", m.ID, "answer", it.answer)
		case it.state == Pending && it.answer != before:
			r.log.Warn("event not taken", "event", m.ID, "answer", it.answer, "wait", r.outbox.at.Sub(now))
		}
		return nil
	}
	verdict, err := r.auth.need(r.outbox.queue[0].sent, now)
	switch verdict {
	case authAgain:
		r.outbox.release()
	case authDenied:
		if err == nil {
			r.refuseFirst(r.denial(m))
		}
	case authHold:
	}
	return err
}

func (r *relay) closed(m *Message, now time.Time) error {
	s := r.find(m.Sub)
	if s == nil {
		// One that we are ending too needs no CLOSE.
		r.subs = slices.DeleteFunc(r.subs, func(s *subscription) bool { return s.id == m.Sub && s.phase == subClosing })
		return nil
	}
	if !s.closed(m, now) {
		if s.answer != nil {
			r.giveUp(s, fmt.Errorf("closed: %s", printable(m.Text)))
		}
		r.log.Warn("subscription closed", "subscription", s.name, "answer", printable(m.Text), "wait", s.at.Sub(now))
		return nil
	}
	verdict, err := r.auth.need(s.asked, now)
	switch verdict {
	case authAgain:
		s.release()
	case authDenied:
		if err == nil {
			r.refuseSub(s, r.denial(m), now)
		}
	case authHold:
	}
	return err
}

// denial returns why a relay that asks who we are does not serve us.
func (r *relay) denial(m *Message) string {
	if r.auth.text != "" {
		return m.Text + " (" + r.auth.text + ")"
	}
	return m.Text
}
