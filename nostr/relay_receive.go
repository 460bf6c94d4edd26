package nostr

import (
	"fmt"
	"slices"
	"time"
)

// relayReceiver handles the messages of a relay.
type relayReceiver struct{ *relay }

// receive handles a message of the relay. An error ends the link.
func (r relayReceiver) receive(m *Message, now time.Time) error {
	switch m.Type {
	case TypeEvent:
		return r.handleEvent(m, now)
	case TypeEOSE:
		r.handleEOSE(m.Sub)
		return nil
	case TypeNotice:
		r.log.Debug("notice", "text", printable(m.Text))
		return nil
	}
	defer r.wakeWriter()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m.Type {
	case TypeOK:
		return r.handleOK(m, now)
	case TypeClosed:
		return r.handleClosed(m, now)
	case TypeAuth:
		r.auth.setChallenge(m.Text)
	}
	return nil
}

// handleEvent checks an event and delivers it. The lock is not held during
// delivery, so that the handler may publish and subscribe.
func (r relayReceiver) handleEvent(m *Message, now time.Time) error {
	r.mu.Lock()
	s := r.findOpen(m.Sub)
	r.mu.Unlock()
	if s == nil {
		return r.countGarbage(&r.counts.unknown, now)
	}
	// An event beyond our limits is not the relay's fault: it must deliver what
	// any client publishes.
	if err := m.Event.CheckShape(); err != nil {
		r.count(&r.counts.unfit)
		r.log.Debug("event dropped", "subscription", s.name, "error", printable(err.Error()))
		return nil
	}
	if err := r.checkAndDeliver(s, m.Event); err != nil {
		return r.countBadEvent(s, m.Event, err, now)
	}
	return nil
}

// count increments a counter of r.counts.
func (r *relay) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

// countGarbage counts an invalid message, or an event without a subscription.
// An error ends the link.
func (r *relay) countGarbage(n *int, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
	if r.garbage.add(now) {
		return errGarbage
	}
	return nil
}

// findOpen returns the open subscription of the id; nil if there is none. The
// caller holds the lock.
func (r relayReceiver) findOpen(id string) *subscription {
	i := slices.IndexFunc(r.subs, func(s *subscription) bool { return s.id == id && s.phase == subOpen })
	if i < 0 {
		return nil
	}
	return r.subs[i]
}

// checkAndDeliver checks an event of valid shape, the cheapest checks first,
// and delivers it. It uses only fields of the subscription that never change.
func (r relayReceiver) checkAndDeliver(s *subscription, e *Event) error {
	if err := e.CheckID(); err != nil {
		return err
	}
	if !s.matches(e) {
		return fmt.Errorf("event %.8s does not match the subscription", e.ID)
	}
	if s.fetch != nil {
		return s.fetch.add(e)
	}
	return r.cfg.Handle(r.name, e)
}

// countBadEvent counts an event that the relay should not have sent. An error
// ends the link.
func (r relayReceiver) countBadEvent(s *subscription, e *Event, why error, now time.Time) error {
	r.log.Debug("bad event", "subscription", s.name, "event", printable(e.ID), "error", printable(why.Error()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.events++
	if r.bad.add(now) {
		return errFlood
	}
	return nil
}

// handleEOSE handles the end of stored events of a subscription.
func (r relayReceiver) handleEOSE(id string) {
	r.mu.Lock()
	s := r.findOpen(id)
	news := s != nil && s.markStored()
	if news && s.fetch != nil {
		s.phase = subClosing
		s.fetch.finish(r.name, nil)
	}
	r.mu.Unlock()
	r.wakeWriter()
	if news && s.fetch == nil && r.cfg.Stored != nil {
		r.cfg.Stored(r.name, s.name)
	}
}

// handleOK handles the relay's answer to an event or to our authentication. An error
// ends the link.
func (r relayReceiver) handleOK(m *Message, now time.Time) error {
	if ours, err := r.auth.handleOK(m, now); ours {
		return err
	}
	it, before := r.outbox.sentHead(m.ID), ""
	if it != nil {
		before = it.answer
	}
	if !r.outbox.handleOK(m, now) {
		switch {
		case it == nil:
		case it.state == Refused:
			r.log.Warn("event refused", "event", m.ID, "answer", it.answer)
		case it.state == Pending && it.answer != before:
			r.log.Warn("event not accepted", "event", m.ID, "answer", it.answer, "wait", r.outbox.at.Sub(now))
		}
		return nil
	}
	return r.requireAuth(m, r.outbox.queue[0].sent, now, r.outbox.release, r.refuseFirstEvent)
}

// handleClosed handles the end of a subscription by the relay. An error ends the link.
func (r relayReceiver) handleClosed(m *Message, now time.Time) error {
	s := r.findOpen(m.Sub)
	if s == nil {
		// A subscription that we are closing too needs no CLOSE.
		r.subs = slices.DeleteFunc(r.subs, func(s *subscription) bool { return s.id == m.Sub && s.phase == subClosing })
		return nil
	}
	if !s.handleClosed(m, now) {
		if s.fetch != nil {
			r.failFetch(s, fmt.Errorf("closed: %s", printable(m.Text)))
		}
		r.log.Warn("subscription closed", "subscription", s.name, "answer", printable(m.Text), "wait", s.at.Sub(now))
		return nil
	}
	return r.requireAuth(m, s.asked, now, s.release, func(text string) { r.refuseSubscription(s, text, now) })
}

// requireAuth handles the answer m that a message, sent at the time sent, requires
// authentication. It calls retry if the message can be sent again, and refuse if
// the relay rejects us. An error ends the link.
func (r relayReceiver) requireAuth(m *Message, sent, now time.Time, retry func(), refuse func(text string)) error {
	verdict, err := r.auth.require(sent, now)
	switch {
	case verdict == authRetry:
		retry()
	case verdict == authDenied && err == nil:
		refuse(r.denialText(m))
	}
	return err
}

// denialText returns the relay's text, and the reason why we are not
// authenticated if it is known.
func (r relayReceiver) denialText(m *Message) string {
	if r.auth.text != "" {
		return m.Text + " (" + r.auth.text + ")"
	}
	return m.Text
}
