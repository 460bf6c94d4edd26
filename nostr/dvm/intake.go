package dvm

import (
	"context"
	"errors"
	"time"

	"github.com/tideover/tideover/nostr"
)

// Handle receives an event of the provider's subscriptions; use it as Handle of the
// [nostr.ClientConfig]. It queues the event for the check. If the queue is full, it
// waits a moment and then drops the event: the client will request it again.
// Signatures are checked later, so the returned error is about an earlier event of
// the relay. With it, the client disconnects a relay that sends many forged events.
func (p *Provider) Handle(relay string, e *nostr.Event) error {
	err := p.relays.nextForged(relay)
	a := arrival{relay, e, p.relays.mayBeAnswered(relay, e)}
	select {
	case p.queue <- a:
		return err
	default:
	}
	select {
	case p.queue <- a:
	case <-p.done:
	case <-time.After(enqueueTimeout):
		p.countVerdict(Dropped)
	}
	return err
}

// Stored records that a relay has sent all stored events; use it as Stored of the
// [nostr.ClientConfig]. Without it, the provider asks the relays for every request
// whether it was already answered, which takes time.
func (p *Provider) Stored(relay, subscription string) {
	if subscription == subJobs {
		p.relays.markStored(relay)
	}
}

// check handles the events that have arrived.
func (p *Provider) check(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-p.queue:
			v := p.handleArrival(ctx, a)
			if v == Forged {
				p.relays.addForged(a.relay)
			}
			if v != 0 {
				p.reportVerdict(a.relay, a.event, v)
			}
		}
	}
}

// handleArrival handles an event and returns the verdict about it, or 0 if
// processBacklog will decide about it.
func (p *Provider) handleArrival(ctx context.Context, a arrival) Verdict {
	if a.event.Kind == KindDelete {
		return p.handleWithdrawal(ctx, a.event)
	}
	if v := p.gate.Check(a.event, time.Now()); v != Accepted {
		return v
	}
	r, err := Parse(a.event, p.cfg.Kinds[a.event.Kind])
	r.Relay = a.relay
	c := candidate{r, err}
	if !a.old {
		return p.admitAndStart(ctx, c)
	}
	select {
	case p.backlog <- c:
		return 0
	default:
		p.gate.Forget(r.ID)
		return p.countVerdict(Dropped)
	}
}

// admitAndStart starts the job, or refuses it.
func (p *Provider) admitAndStart(ctx context.Context, c candidate) Verdict {
	switch v := p.gate.Admit(c.r.Customer, time.Now()); {
	case v == Overloaded:
		return p.refuseOverloaded(c.r, v)
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

// refuseOverloaded answers a request for which there is no capacity, if the verdict
// requires an answer and no other process can run the job. Otherwise it makes the
// gate forget the request, so that it is accepted when a relay sends it again.
func (p *Provider) refuseOverloaded(r *Request, v Verdict) Verdict {
	if v == Overloaded && !p.cfg.Shared {
		return p.refuse(r, CodeOverload, noRoom, v)
	}
	p.gate.Forget(r.ID)
	return Limited
}

// start passes a request to the jobs, and answers it if they refuse it.
func (p *Provider) start(ctx context.Context, r *Request) Verdict {
	err := p.cfg.Jobs.Start(ctx, r)
	switch {
	case err == nil:
		p.signalChange()
		return Accepted
	case errors.Is(err, ErrOverloaded):
		v := p.gate.Refuse(r.Customer, time.Now())
		return p.refuseOverloaded(r, v)
	}
	if bad, ok := errors.AsType[*InvalidError](err); ok {
		return p.refuse(r, CodeInvalid, bad.Error(), Invalid)
	}
	p.gate.Forget(r.ID)
	p.cfg.Logger.Error("nostr job not recorded", "id", r.ID, "error", err)
	return p.countVerdict(Unrecorded)
}

// noRoom is the same text for every kind of overload, so that all servers of a
// cluster publish the same event.
const noRoom = "no room for another job; try again later"

// refuse answers a request that is not run, unless too many were refused
// recently: a client that makes thousands of keys must not make us publish all
// day. The answer has the date of the request, so that it is the same event
// from every server of a cluster.
func (p *Provider) refuse(r *Request, code, message string, v Verdict) Verdict {
	if _, ok := p.refusals.ReserveAt(time.Duration(time.Now().UnixNano())); !ok {
		p.gate.Forget(r.ID)
		return p.countVerdict(Silenced)
	}
	if v != Overloaded { // the gate has counted Overloaded already
		p.countVerdict(v)
	}
	if err := publish(p.cfg.Link, p.cfg.Key, nostr.Refusal, Refusal(r, code, message, r.Created)); err != nil {
		p.cfg.Logger.Warn("nostr refusal not published to all relays", "id", r.ID, "error", err)
	}
	return v
}
