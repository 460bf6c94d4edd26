package dvm

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tideover/tideover/nostr"
)

const (
	watchWait   = 250 * time.Millisecond // for more changes
	watchEvery  = 30 * time.Second       // jobs that ended are not told
	watchedMost = 12_000                 // the newest

	// Relays limit all of it: the ids of a filter, the filters and the bytes of a
	// subscription, and the subscriptions of a link.
	idsInFilter  = 100
	filtersInSub = 8
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

// rewatch asks anew where there are other jobs than before.
func (p *Provider) rewatch() {
	active := p.cfg.Jobs.Active()
	slices.SortFunc(active, func(a, b ActiveJob) int { return b.Created.Compare(a.Created) })
	active = active[:min(len(active), watchedMost)]
	now := map[string]string{}
	for _, j := range active {
		now[j.ID] = j.Customer
	}
	p.mu.Lock()
	p.watched = now
	p.mu.Unlock()
	for _, i := range p.rounds.update(active) {
		name, jobs := subCancel+strconv.Itoa(i+1), p.rounds[i].jobs()
		if len(jobs) == 0 {
			p.cfg.Link.Unsubscribe(name)
			continue
		}
		p.cfg.Link.Subscribe(name, jobs[0].Created.Add(-time.Second), withdrawals(jobs)...)
	}
}

// unwatch ends all subscriptions of rewatch.
func (p *Provider) unwatch() {
	for i := range p.rounds {
		p.cfg.Link.Unsubscribe(subCancel + strconv.Itoa(i+1))
	}
}

// rounds are the active jobs by the subscription that asks for their withdrawals. A
// job stays in its round, so that a new one has relays asked for its round only.
type rounds []round

type round map[string]ActiveJob

// update takes the active jobs, and returns the rounds that have changed.
func (rs *rounds) update(active []ActiveJob) (changed []int) {
	fresh := map[string]ActiveJob{}
	for _, j := range active {
		fresh[j.ID] = j
	}
	other := map[int]bool{}
	for i, r := range *rs {
		for id := range r {
			if _, ok := fresh[id]; !ok {
				delete(r, id)
				other[i] = true
			}
			delete(fresh, id)
		}
	}
	for id, j := range fresh {
		i := rs.withRoom()
		(*rs)[i][id] = j
		other[i] = true
	}
	return slices.Sorted(maps.Keys(other))
}

// withRoom returns the first round with room for a job.
func (rs *rounds) withRoom() int {
	i := slices.IndexFunc(*rs, func(r round) bool { return len(r) < idsInFilter*filtersInSub })
	if i < 0 {
		i = len(*rs)
		*rs = append(*rs, round{})
	}
	return i
}

// jobs returns the jobs of the round, the oldest first.
func (r round) jobs() []ActiveJob {
	return slices.SortedFunc(maps.Values(r), func(a, b ActiveJob) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
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
