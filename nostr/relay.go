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
	errFlood   = errors.New("too many events that the relay should not have sent")
	errGarbage = errors.New("too much that is not a message, or that nobody asked for")
	errEndless = errors.New("a message does not end")
	errDown    = errors.New("the link is down")
)

type linkPhase uint8

const (
	linkDialling linkPhase = iota
	linkUp
	linkDown    // until the next dial
	linkStopped // for good
)

// relay is all that is known about one relay. What it should be told is decided
// by state machines that know neither sockets nor clocks, under one lock; the
// goroutines of a link (relay_link.go) carry messages between them and the socket.
type relay struct {
	name string // its address as it is shown
	url  string
	cfg  *ClientConfig
	log  *slog.Logger
	wake chan struct{} // holds one: there may be something to send

	mu      sync.Mutex
	phase   linkPhase
	since   time.Time // of the phase being up or not
	contact time.Time // when something was heard last
	lastErr string
	pace    pace
	auth    auth
	subs    []*subscription
	outbox  outbox
	bad     offences // events that it should not have sent
	garbage offences // what is no message, or for nobody
	counts  relayCounts
}

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

// poke wakes the writer.
func (r *relay) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// subscribe adds a standing subscription, in place of the one of that name.
func (r *relay) subscribe(s *standing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(func(old *subscription) bool { return old.answer == nil && old.name == s.name })
	r.open(s, nil)
}

// ask asks a question, unless the relay is away.
func (r *relay) ask(s *standing, a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase == linkDown || r.phase == linkStopped {
		a.finish(r.name, fmt.Errorf("%w: %s", errDown, r.lastErr))
		return
	}
	r.open(s, a)
}

func (r *relay) open(s *standing, a *answer) {
	r.subs = append(r.subs, &subscription{
		standing: s, answer: a, overlap: r.cfg.Overlap, every: r.cfg.Sweep,
		pace: pace{policy: r.cfg.Reconnect, random: r.pace.random},
	})
	r.poke()
}

// unsubscribe ends the standing subscription of the name.
func (r *relay) unsubscribe(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(func(s *subscription) bool { return s.answer == nil && s.name == name })
}

// refusal returns what the relay said when it refused the standing subscription.
func (r *relay) refusal(name string) (text string, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.subs {
		if s.answer == nil && s.name == name && s.refused {
			return s.trouble, true
		}
	}
	return "", false
}

// forget ends a question that nobody waits for any more.
func (r *relay) forget(a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(func(s *subscription) bool { return s.answer == a })
}

// end ends subscriptions: at once those that the relay does not know.
func (r *relay) end(which func(*subscription) bool) {
	r.subs = slices.DeleteFunc(r.subs, func(s *subscription) bool {
		if !which(s) {
			return false
		}
		known := s.phase == subOpen || s.phase == subClosing
		s.phase = subClosing
		return !known
	})
	r.poke()
}

// publish puts events into the outbox.
func (r *relay) publish(class Class, letters []letter, now time.Time) part {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase == linkStopped {
		return part{relay: r.name, err: ErrStopped}
	}
	items, err := r.outbox.add(class, letters, now)
	if err != nil {
		r.log.Warn("the outbox is full", "events", len(letters))
	}
	r.poke()
	return part{relay: r.name, from: r, items: items, err: err}
}

// due returns the frame to write now, or else when to ask again; zero means when
// something has happened. An error ends the link.
func (r *relay) due(now time.Time) (frame []byte, next time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, next, err := r.auth.due(now)
	if m != nil {
		return m.Append(nil, true), time.Time{}, nil
	}
	if err != nil || r.auth.busy() {
		return nil, next, err
	}
	r.settleHeld(now)
	if m, next = r.subDue(now); m != nil {
		return m.Append(nil, true), time.Time{}, nil
	}
	frame, at, err := r.outbox.due(now)
	return frame, sooner(next, at), err
}

func (r *relay) subDue(now time.Time) (*Message, time.Time) {
	var next time.Time
	for i, s := range r.subs {
		m, at := s.due(now)
		if m == nil {
			next = sooner(next, at)
			continue
		}
		if m.Type == TypeClose {
			r.subs = slices.Delete(r.subs, i, i+1)
		}
		return m, time.Time{}
	}
	return nil, next
}

// settleHeld lets go what waited for the relay to know who we are.
func (r *relay) settleHeld(now time.Time) {
	denied := r.auth.phase == authRefused
	if denied && r.outbox.held {
		r.refuseFirst(r.auth.text)
	}
	r.outbox.release()
	for _, s := range slices.Clone(r.subs) {
		if denied && s.phase == subHeld {
			r.refuseSub(s, r.auth.text, now)
		}
		s.release()
	}
}

func (r *relay) refuseFirst(text string) {
	it := r.outbox.queue[0]
	r.outbox.refuse(it, text)
	r.log.Warn("event refused", "event", it.id, "answer", printable(text))
}

// refuseSub leaves a subscription alone for a while; a question is not asked again.
func (r *relay) refuseSub(s *subscription, text string, now time.Time) {
	if s.answer != nil {
		r.giveUp(s, fmt.Errorf("closed: %s", printable(text)))
		return
	}
	s.refuse(text, now)
	r.log.Warn("subscription refused", "subscription", s.name, "answer", printable(text))
}

// giveUp ends a question that the relay knows nothing of.
func (r *relay) giveUp(s *subscription, err error) {
	s.answer.finish(r.name, err)
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
