package dvm

import (
	"context"
	"slices"
	"time"

	"github.com/tideover/tideover/nostr"
)

const (
	batchSize  = 16                     // requests that relays are asked about at once
	batchWait  = 250 * time.Millisecond // how long to wait for more of them
	fetchGrace = 2 * time.Second        // how long to wait for other relays after the first has answered
)

// processBacklog handles the requests that an earlier process may have
// answered, after it has asked the relays about them.
func (p *Provider) processBacklog(ctx context.Context) {
	for {
		batch := p.collectBatch(ctx)
		over := p.alreadyAnswered(ctx, batch)
		if ctx.Err() != nil {
			return // the next process will handle them
		}
		for _, c := range batch {
			v := Answered
			if over[c.r.ID] {
				p.countVerdict(v)
			} else {
				v = p.admitAndStart(ctx, c)
			}
			p.reportVerdict(c.r.Relay, c.r.Event, v)
		}
	}
}

// collectBatch waits for a request, and then a little longer for more. It returns
// them oldest first, although relays send the newest first.
func (p *Provider) collectBatch(ctx context.Context) (batch []candidate) {
	select {
	case <-ctx.Done():
		return nil
	case c := <-p.backlog:
		batch = append(batch, c)
	}
	over := time.After(batchWait)
	for len(batch) < batchSize {
		select {
		case <-ctx.Done():
			return nil
		case c := <-p.backlog:
			batch = append(batch, c)
			continue
		case <-over:
		}
		break
	}
	slices.SortStableFunc(batch, func(a, b candidate) int { return a.r.Created.Compare(b.r.Created) })
	return batch
}

// alreadyAnswered returns the requests that are answered or withdrawn. It waits only
// briefly for slow relays, because each answer was sent to all relays.
func (p *Provider) alreadyAnswered(ctx context.Context, batch []candidate) map[string]bool {
	over := map[string]bool{}
	if len(batch) == 0 {
		return over
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.AskTimeout)
	defer cancel()
	events, err := p.cfg.Link.FetchSoon(ctx, fetchGrace, p.answerFilters(batch)...)
	if err != nil {
		p.cfg.Logger.Warn("nostr: a relay did not say whether old requests were answered", "error", err)
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

// answerFilters returns the filters for our answers and for withdrawals.
func (p *Provider) answerFilters(batch []candidate) []nostr.Filter {
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
