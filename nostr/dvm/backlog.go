package dvm

import (
	"context"
	"slices"
	"time"

	"github.com/tideover/tideover/nostr"
)

const (
	sifted   = 16                     // requests that relays are asked about at once
	siftWait = 250 * time.Millisecond // for more of them
	askGrace = 2 * time.Second        // for other relays, after the first has answered
)

// sift takes the requests that an earlier process may have answered, after it has
// asked the relays whether it did.
func (p *Provider) sift(ctx context.Context) {
	for {
		batch := p.gather(ctx)
		over := p.answered(ctx, batch)
		if ctx.Err() != nil {
			return // the next process will take them
		}
		for _, c := range batch {
			v := Answered
			if over[c.r.ID] {
				p.note(v)
			} else {
				v = p.take(ctx, c)
			}
			p.show(c.r.Relay, c.r.Event, v)
		}
	}
}

// gather waits for requests, and then a little for more. The oldest is the first:
// relays send the newest first.
func (p *Provider) gather(ctx context.Context) (batch []candidate) {
	select {
	case <-ctx.Done():
		return nil
	case c := <-p.backlog:
		batch = append(batch, c)
	}
	timer := time.NewTimer(siftWait)
	defer timer.Stop()
	for len(batch) < sifted {
		select {
		case <-ctx.Done():
			return nil
		case c := <-p.backlog:
			batch = append(batch, c)
			continue
		case <-timer.C:
		}
		break
	}
	slices.SortStableFunc(batch, func(a, b candidate) int { return a.r.Created.Compare(b.r.Created) })
	return batch
}

// answered returns the requests that are over. A relay that does not answer is
// waited for a little: every answer was sent to all of them.
func (p *Provider) answered(ctx context.Context, batch []candidate) map[string]bool {
	over := map[string]bool{}
	if len(batch) == 0 {
		return over
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.AskTimeout)
	defer cancel()
	events, err := p.cfg.Link.FetchSoon(ctx, askGrace, p.questions(batch)...)
	if err != nil {
		p.cfg.Logger.Warn("nostr backlog", "error", err)
	}
	who := map[string]string{}
	for _, c := range batch {
		who[c.r.ID] = c.r.Customer
	}
	for _, e := range events {
		for _, t := range e.Tags.All("e") {
			id := t.Value()
			if e.PubKey == p.cfg.Gate.Key && isTerminal(e) || e.Kind == KindDelete && e.PubKey == who[id] {
				over[id] = true
			}
		}
	}
	return over
}

// questions ask for our answers, and for withdrawals.
func (p *Provider) questions(batch []candidate) []nostr.Filter {
	var ids, customers []string
	for _, c := range batch {
		ids, customers = append(ids, c.r.ID), append(customers, c.r.Customer)
	}
	kinds := []int{KindFeedback}
	for _, k := range p.cfg.Gate.Kinds {
		kinds = append(kinds, k+toResult)
	}
	about := map[string][]string{"e": ids}
	slices.Sort(customers)
	return []nostr.Filter{
		{Authors: []string{p.cfg.Gate.Key}, Kinds: kinds, Tags: about},
		{Authors: slices.Compact(customers), Kinds: []int{KindDelete}, Tags: about},
	}
}
