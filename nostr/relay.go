package nostr

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/retry"
)

var (
	errFlood    = errors.New("too many events that the relay should not have sent")
	errGarbage  = errors.New("too many invalid messages, or events without a subscription")
	errTooLarge = errors.New("a message is too large")
	errNoLink   = errors.New("no link to the relay")
)

// relay is the state of one relay. State machines that use neither sockets nor clocks
// decide what to send, under one lock. A [relayLink] carries their messages to the
// socket, and a [relayReceiver] handles the messages of the relay.
type relay struct {
	name string // its address without the query, which may contain a token
	url  string
	cfg  *ClientConfig
	log  *slog.Logger
	wake chan struct{} // capacity 1: there may be something to send

	mu      sync.Mutex
	phase   linkPhase
	since   time.Time // when the link went up or down
	contact time.Time // when the last message or pong arrived
	lastErr string
	pace    pace
	auth    auth
	subs    []*subscription
	outbox  outbox
	bad     offences // events that it should not have sent
	garbage offences // invalid messages, and events without a subscription
	counts  relayCounts
}

// relayCounts are the counters of a [RelayStatus].
type relayCounts struct{ links, frames, oversized, unfit, events, unknown int }

func newRelay(a address, cfg *ClientConfig, random func() uint64) *relay {
	newPace := func(p retry.Policy) pace { return pace{policy: p, random: random} }
	return &relay{
		name: a.name, url: a.url, cfg: cfg,
		log:    cfg.Logger.With("relay", a.name),
		wake:   make(chan struct{}, 1),
		since:  time.Now(),
		pace:   newPace(cfg.Reconnect),
		auth:   auth{key: cfg.Key, relay: a.url, timeout: cfg.OKTimeout},
		outbox: newOutbox(cfg.Outbox, cfg.OKTimeout, newPace(cfg.Resend)),
		bad:    newOffences(maxOffences), garbage: newOffences(maxGarbage),
	}
}

// wakeWriter wakes the goroutine that writes to the socket.
func (r *relay) wakeWriter() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// subscribe adds a subscription, and replaces the one of the same name.
func (r *relay) subscribe(s *subscriptionSpec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endSubscriptions(func(old *subscription) bool { return old.fetch == nil && old.name == s.name })
	r.addSubscription(s, nil)
}

// startFetch requests stored events, unless there is no link.
func (r *relay) startFetch(s *subscriptionSpec, a *fetchResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase == linkDown || r.phase == linkStopped {
		a.finish(r.name, fmt.Errorf("%w: %s", errNoLink, r.lastErr))
		return
	}
	r.addSubscription(s, a)
}

// addSubscription adds a subscription or, if a is not nil, a fetch.
func (r *relay) addSubscription(s *subscriptionSpec, a *fetchResult) {
	r.subs = append(r.subs, &subscription{
		subscriptionSpec: s, fetch: a, overlap: r.cfg.Overlap, every: r.cfg.Sweep,
		pace: pace{policy: r.cfg.Reconnect, random: r.pace.random},
	})
	r.wakeWriter()
}

// unsubscribe ends the subscription of the name.
func (r *relay) unsubscribe(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endSubscriptions(func(s *subscription) bool { return s.fetch == nil && s.name == name })
}

// subscriptionRefusal returns the text with which the relay refused the
// subscription.
func (r *relay) subscriptionRefusal(name string) (text string, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.subs {
		if s.fetch == nil && s.name == name && s.refused {
			return s.trouble, true
		}
	}
	return "", false
}

// cancelFetch ends a fetch whose caller no longer waits.
func (r *relay) cancelFetch(a *fetchResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endSubscriptions(func(s *subscription) bool { return s.fetch == a })
}

// endSubscriptions ends subscriptions: those that were not sent yet at once,
// the others with a CLOSE.
func (r *relay) endSubscriptions(which func(*subscription) bool) {
	r.subs = slices.DeleteFunc(r.subs, func(s *subscription) bool {
		if !which(s) {
			return false
		}
		known := s.phase == subOpen || s.phase == subClosing
		s.phase = subClosing
		return !known
	})
	r.wakeWriter()
}

// publish puts events into the outbox.
func (r *relay) publish(class Class, encoded []encodedEvent, now time.Time) relayDelivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase == linkStopped {
		return relayDelivery{relay: r.name, err: ErrStopped}
	}
	items, err := r.outbox.add(class, encoded, now)
	if err != nil {
		r.log.Warn("the outbox is full", "events", len(encoded))
	}
	r.wakeWriter()
	return relayDelivery{relay: r.name, from: r, items: items, err: err}
}

// due returns the frame to write now, or else when to call it again; a zero
// time means after the next wake. An error ends the link.
func (r *relay) due(now time.Time) (frame []byte, next time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, next, err := r.auth.due(now)
	if m != nil {
		return m.Append(nil, true), time.Time{}, nil
	}
	if err != nil || r.auth.inProgress() {
		return nil, next, err
	}
	r.releaseHeld(now)
	if m, next = r.nextSubscriptionMessage(now); m != nil {
		return m.Append(nil, true), time.Time{}, nil
	}
	frame, at, err := r.outbox.due(now)
	return frame, earlier(next, at), err
}

// nextSubscriptionMessage returns the next message of a subscription, like
// [relay.due].
func (r *relay) nextSubscriptionMessage(now time.Time) (*Message, time.Time) {
	var next time.Time
	for i, s := range r.subs {
		m, at := s.due(now)
		if m == nil {
			next = earlier(next, at)
			continue
		}
		if m.Type == TypeClose {
			r.subs = slices.Delete(r.subs, i, i+1)
		}
		return m, time.Time{}
	}
	return nil, next
}

// releaseHeld releases the subscriptions and the event that waited for
// authentication, or refuses them if the relay has rejected the authentication.
func (r *relay) releaseHeld(now time.Time) {
	denied := r.auth.phase == authRefused
	if denied && r.outbox.held {
		r.refuseFirstEvent(r.auth.text)
	}
	r.outbox.release()
	for _, s := range slices.Clone(r.subs) {
		if denied && s.phase == subHeld {
			r.refuseSubscription(s, r.auth.text, now)
		}
		s.release()
	}
}

// refuseFirstEvent marks the first event of the outbox as refused.
func (r *relay) refuseFirstEvent(text string) {
	it := r.outbox.queue[0]
	r.outbox.refuse(it, text)
	r.log.Warn("event refused", "event", it.id, "answer", printable(text))
}

// refuseSubscription postpones a subscription; a fetch fails.
func (r *relay) refuseSubscription(s *subscription, text string, now time.Time) {
	if s.fetch != nil {
		r.failFetch(s, fmt.Errorf("closed: %s", printable(text)))
		return
	}
	s.refuse(text, now)
	r.log.Warn("subscription refused", "subscription", s.name, "answer", printable(text))
}

// failFetch ends a fetch that the relay does not have open.
func (r *relay) failFetch(s *subscription, err error) {
	s.fetch.finish(r.name, err)
	r.subs = slices.DeleteFunc(r.subs, func(other *subscription) bool { return other == s })
}

// flush waits until the outbox is empty.
func (r *relay) flush(ctx context.Context) error {
	for {
		r.mu.Lock()
		last, n := r.outbox.last(), len(r.outbox.queue)
		r.mu.Unlock()
		if last == nil {
			return nil
		}
		select {
		case <-last.done:
		case <-ctx.Done():
			return fmt.Errorf("flush %s: %d events left: %w", r.name, n, context.Cause(ctx))
		}
	}
}
