package dvm

import (
	"context"
	"errors"
	"time"

	"github.com/tideover/tideover/nostr"
)

var errForged = errors.New("an earlier event of this relay had a wrong signature")

// Handle takes an event of the provider's subscriptions; it is the Handle of a
// [nostr.ClientConfig]. It hands the event on to be checked. If the check is behind,
// it waits a moment and then drops the event: the client asks relays again for what
// they have. An error is about an event that the relay sent earlier, so that a relay
// that sends many forged ones is left alone.
func (p *Provider) Handle(relay string, e *nostr.Event) error {
	err := p.complaint(relay)
	a := arrival{relay, e, p.isOld(relay, e)}
	select {
	case p.queue <- a:
		return err
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case p.queue <- a:
	case <-p.done:
	case <-timer.C:
		p.note(Dropped)
	}
	return err
}

// Stored notes that a relay has sent all that it had; it is the Stored of a
// [nostr.ClientConfig]. Whoever does not tell the provider has it ask about every
// request whether it was answered already, which takes a moment.
func (p *Provider) Stored(relay, subscription string) {
	if subscription == subJobs {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stored[relay] = true
	}
}

// isOld reports whether an earlier process may have answered the request. What comes
// when a relay has sent all that it had is new, unless it says otherwise.
func (p *Provider) isOld(relay string, e *nostr.Event) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.isStored(relay) || time.Since(unix(e.CreatedAt)) > liveFor
}

// isStored reports whether the relay has sent all that it had. Some never say so.
func (p *Provider) isStored(relay string) bool {
	if !p.stored[relay] {
		first, ok := p.heard[relay]
		if !ok {
			first = time.Now()
			p.heard[relay] = first
		}
		p.stored[relay] = time.Since(first) >= storedAfter
	}
	return p.stored[relay]
}

// complaint returns an error for each forged event of the relay, once.
func (p *Provider) complaint(relay string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.blame[relay] == 0 {
		return nil
	}
	p.blame[relay]--
	return errForged
}

func (p *Provider) forged(relay string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blame[relay]++
}

// check looks at what has arrived.
func (p *Provider) check(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-p.queue:
			v := p.arrived(ctx, a)
			if v == Forged {
				p.forged(a.relay)
			}
			if v != 0 {
				p.show(a.relay, a.event, v)
			}
		}
	}
}

// arrived returns the verdict, zero if there is none yet.
func (p *Provider) arrived(ctx context.Context, a arrival) Verdict {
	if a.event.Kind == KindDelete {
		return p.withdraw(ctx, a.event)
	}
	if v := p.gate.Check(a.event, time.Now()); v != Accepted {
		return v
	}
	r, err := Parse(a.event, p.cfg.Kinds[a.event.Kind])
	r.Relay = a.relay
	c := candidate{r, err}
	if !a.old {
		return p.take(ctx, c)
	}
	select {
	case p.backlog <- c:
		return 0
	default:
		p.gate.Forget(r.ID)
		p.note(Dropped)
		return Dropped
	}
}

// take starts the job, or refuses it.
func (p *Provider) take(ctx context.Context, c candidate) Verdict {
	switch v := p.gate.Admit(c.r.Customer, time.Now()); {
	case v == Overloaded:
		return p.overloaded(c.r, v)
	case v != Accepted:
		p.gate.Forget(c.r.ID)
		return v
	case c.err != nil:
		if _, ok := errors.AsType[*PriceError](c.err); ok {
			return p.refuse(c.r, CodePayment, c.err.Error(), Underpaid)
		}
		return p.refuse(c.r, CodeInvalid, c.err.Error(), Invalid)
	}
	return p.start(ctx, c.r)
}

// overloaded answers a request for which there is no room, if the verdict says so and
// nobody else may do it. Otherwise relays bring it again.
func (p *Provider) overloaded(r *Request, v Verdict) Verdict {
	if v == Overloaded && !p.cfg.Shared {
		return p.refuse(r, CodeOverload, noRoom, v)
	}
	p.gate.Forget(r.ID)
	return Limited
}

func (p *Provider) start(ctx context.Context, r *Request) Verdict {
	err := p.cfg.Jobs.Start(ctx, r)
	switch {
	case err == nil:
		p.touch()
		return Accepted
	case errors.Is(err, ErrOverloaded):
		v := p.gate.Refuse(r.Customer, time.Now())
		return p.overloaded(r, v)
	}
	if bad, ok := errors.AsType[*InvalidError](err); ok {
		return p.refuse(r, CodeInvalid, bad.Error(), Invalid)
	}
	p.gate.Forget(r.ID)
	p.note(Unrecorded)
	p.cfg.Logger.Error("nostr job not recorded", "id", r.ID, "error", err)
	return Unrecorded
}

// noRoom is the same whatever there is no room for: the servers of a cluster, which
// may find different things, say the same.
const noRoom = "no room for another job; try again later"

// refuse answers a request that is not run, unless too many were lately: whoever
// makes keys by the thousand should not have us write to relays all day. Its date is
// that of the request, so that it is the same event whoever of a cluster writes it.
func (p *Provider) refuse(r *Request, code, message string, v Verdict) Verdict {
	if _, ok := p.refusals.ReserveAt(time.Duration(time.Now().UnixNano())); !ok {
		p.gate.Forget(r.ID)
		p.note(Silenced)
		return Silenced
	}
	if v != Overloaded { // which is the gate's
		p.note(v)
	}
	if err := publishRefusal(p.cfg.Link, p.cfg.Key, Refusal(r, code, message, r.Created)); err != nil {
		p.cfg.Logger.Warn("nostr refusal", "id", r.ID, "error", err)
	}
	return v
}
