package nostr

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/retry"
)

// linkPhase is the phase of the link to a relay.
type linkPhase uint8

const (
	linkDialling linkPhase = iota
	linkUp
	linkDown    // waiting for the next dial
	linkStopped // no further dial
)

// setPhase changes the phase of the link.
func (r *relay) setPhase(p linkPhase, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p == linkUp {
		r.since, r.contact = now, now
		r.counts.links++
	}
	r.phase = p
}

// linkLost resets the state after a link, or the attempt to make one, has
// ended, and returns how long to wait before the next.
func (r *relay) linkLost(err error, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var well time.Duration
	if r.phase == linkUp {
		well, r.since = now.Sub(r.since), now
	}
	r.phase, r.lastErr = linkDown, printable(err.Error())
	if isCut(err) {
		// Do not ask the relay again for what it sent before: the same stored events
		// would end every later link. Other relays must deliver the rest.
		for _, s := range r.subs {
			s.skipTo(r.contact)
		}
	}
	if errors.Is(err, errNoChallenge) && r.outbox.held {
		r.unchallenged()
	}
	r.auth.linkLost()
	r.outbox.linkLost()
	r.resetSubscriptions()
	wait := r.pace.wait(well, retry.ClassTransient)
	if errors.Is(err, errFlood) || errors.Is(err, errGarbage) {
		wait = quarantine
	}
	r.log.Warn("link down", "error", r.lastErr, "wait", wait)
	return wait
}

// unchallenged counts a link that ended because the relay required authentication
// without sending a challenge. After maxUnchallenged of them it refuses the first
// event of the outbox.
func (r *relay) unchallenged() {
	it := r.outbox.queue[0]
	if it.unchallenged++; it.unchallenged >= maxUnchallenged {
		r.refuseFirstEvent(it.answer + " (the relay sends no challenge)")
	}
}

// isCut reports whether we ended the link because of the messages that the relay
// sent.
func isCut(err error) bool {
	return errors.Is(err, errFlood) || errors.Is(err, errGarbage) || errors.Is(err, errTooLarge)
}

// resetSubscriptions prepares subscriptions for the next link; fetches fail.
func (r *relay) resetSubscriptions() {
	for _, s := range slices.Clone(r.subs) {
		switch {
		case s.fetch != nil:
			r.failFetch(s, fmt.Errorf("%w: %s", errNoLink, r.lastErr))
		case s.phase == subClosing:
			r.subs = slices.DeleteFunc(r.subs, func(other *subscription) bool { return other == s })
		default:
			s.linkLost(r.contact)
		}
	}
}

// stop ends everything that waits for this relay.
func (r *relay) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase == linkUp {
		r.since = time.Now()
	}
	r.phase, r.lastErr = linkStopped, ErrStopped.Error()
	r.outbox.stop()
	r.resetSubscriptions()
}
