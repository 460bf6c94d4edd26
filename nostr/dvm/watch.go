package dvm

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tideover/tideover/nostr"
)

const (
	watchWait   = 250 * time.Millisecond // for more changes
	watchEvery  = 30 * time.Second       // jobs that ended are not told
	watchedMost = 1000                   // the newest
	idsInFilter = 100                    // relays limit it
)

// touch says that the active jobs have changed.
func (p *Provider) touch() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// watch keeps asking for withdrawals of the active jobs.
func (p *Provider) watch(ctx context.Context) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select { // a few changes are one
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		p.rewatch()
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		case <-ticker.C:
		}
		timer.Reset(watchWait)
	}
}

// rewatch asks anew if there are other jobs than before.
func (p *Provider) rewatch() {
	active := p.cfg.Jobs.Active()
	slices.SortFunc(active, func(a, b ActiveJob) int { return b.Created.Compare(a.Created) })
	active = active[:min(len(active), watchedMost)]
	now := map[string]string{}
	for _, j := range active {
		now[j.ID] = j.Customer
	}
	if p.rewatched(now) {
		return
	}
	if len(active) == 0 {
		p.cfg.Link.Unsubscribe(subCancel)
		return
	}
	oldest := active[len(active)-1].Created
	p.cfg.Link.Subscribe(subCancel, oldest.Add(-time.Second), withdrawals(active)...)
}

// rewatched sets the watched jobs, and reports whether they are the same.
func (p *Provider) rewatched(now map[string]string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	same := maps.Equal(now, p.watched)
	p.watched = now
	return same
}

func withdrawals(active []ActiveJob) (filters []nostr.Filter) {
	for part := range slices.Chunk(active, idsInFilter) {
		var ids, who []string
		for _, j := range part {
			ids, who = append(ids, j.ID), append(who, j.Customer)
		}
		slices.Sort(ids)
		slices.Sort(who)
		filters = append(filters, nostr.Filter{
			Kinds: []int{KindDelete}, Authors: slices.Compact(who), Tags: map[string][]string{"e": ids},
		})
	}
	return filters
}

// withdraw cancels the jobs that the event names, if it is by their customer.
func (p *Provider) withdraw(ctx context.Context, e *nostr.Event) Verdict {
	ids := p.withdrawn(e)
	switch {
	case len(ids) == 0:
		p.note(NotOurs)
		return NotOurs
	case e.CheckSignature() != nil:
		p.note(Forged)
		return Forged
	}
	for _, id := range ids {
		if err := p.cfg.Jobs.Cancel(ctx, id, e.PubKey); err != nil {
			p.cfg.Logger.Error("nostr job not cancelled", "id", id, "error", err)
		}
	}
	p.touch()
	p.note(Withdrawn)
	return Withdrawn
}

// withdrawn returns the active jobs of the author that the event names.
func (p *Provider) withdrawn(e *nostr.Event) (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range e.Tags.All("e") {
		if who, ok := p.watched[t.Value()]; ok && who == e.PubKey {
			ids = append(ids, t.Value())
		}
	}
	return ids
}
