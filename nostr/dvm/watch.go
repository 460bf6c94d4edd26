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
	watchWait  = 250 * time.Millisecond // pause in which further changes are combined into one update
	watchEvery = 30 * time.Second       // jobs end without a signal, so the list is also refreshed regularly
	maxWatched = 12_000                 // how many jobs are watched, the newest first

	// Relays limit all of these: the ids of a filter, the filters and the bytes
	// of a subscription, and the subscriptions of a link.
	idsInFilter  = 100
	filtersInSub = 8
)

// signalChange signals that the active jobs have changed.
func (p *Provider) signalChange() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// watchWithdrawals subscribes to withdrawals of the active jobs.
func (p *Provider) watchWithdrawals(ctx context.Context) {
	tick := time.Tick(watchEvery)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select { // combine changes
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		p.updateWithdrawalSubscriptions()
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		case <-tick:
		}
		timer.Reset(watchWait)
	}
}

// updateWithdrawalSubscriptions renews the subscriptions whose jobs have
// changed.
func (p *Provider) updateWithdrawalSubscriptions() {
	active := p.cfg.Jobs.Active()
	slices.SortFunc(active, func(a, b ActiveJob) int { return b.Created.Compare(a.Created) })
	active = active[:min(len(active), maxWatched)]
	now := map[string]string{}
	for _, j := range active {
		now[j.ID] = j.Customer
	}
	p.mu.Lock()
	p.watched = now
	p.mu.Unlock()
	for _, i := range p.withdrawalGroups.update(active) {
		name, jobs := subCancel+strconv.Itoa(i+1), p.withdrawalGroups[i].jobs()
		if len(jobs) == 0 {
			p.cfg.Link.Unsubscribe(name)
			continue
		}
		p.cfg.Link.Subscribe(name, jobs[0].Created.Add(-time.Second), withdrawals(jobs)...)
	}
}

// endWithdrawalSubscriptions ends the subscriptions to withdrawals.
func (p *Provider) endWithdrawalSubscriptions() {
	for i := range p.withdrawalGroups {
		p.cfg.Link.Unsubscribe(subCancel + strconv.Itoa(i+1))
	}
}

// withdrawalGroups are the active jobs, grouped by the subscription for their
// withdrawals. A job stays in its group, so that a new job changes only one
// subscription.
type withdrawalGroups []withdrawalGroup

type withdrawalGroup map[string]ActiveJob

// update sets the active jobs, and returns the groups that have changed.
func (rs *withdrawalGroups) update(active []ActiveJob) (changed []int) {
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

// withRoom returns the first group with room for a job.
func (rs *withdrawalGroups) withRoom() int {
	i := slices.IndexFunc(*rs, func(r withdrawalGroup) bool { return len(r) < idsInFilter*filtersInSub })
	if i < 0 {
		i = len(*rs)
		*rs = append(*rs, withdrawalGroup{})
	}
	return i
}

// jobs returns the jobs of the group, the oldest first.
func (r withdrawalGroup) jobs() []ActiveJob {
	return slices.SortedFunc(maps.Values(r), func(a, b ActiveJob) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
}

// withdrawals returns the filters for withdrawals of the jobs.
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

// handleWithdrawal cancels the jobs that the event names, if it is by their
// customer.
func (p *Provider) handleWithdrawal(ctx context.Context, e *nostr.Event) Verdict {
	ids := p.withdrawnJobs(e)
	switch {
	case len(ids) == 0:
		return p.countVerdict(NotOurs)
	case e.CheckSignature() != nil:
		return p.countVerdict(Forged)
	}
	for _, id := range ids {
		if err := p.cfg.Jobs.Cancel(ctx, id, e.PubKey); err != nil {
			p.cfg.Logger.Error("nostr job not cancelled", "id", id, "error", err)
		}
	}
	p.signalChange()
	return p.countVerdict(Withdrawn)
}

// withdrawnJobs returns the active jobs of the author that the event names.
func (p *Provider) withdrawnJobs(e *nostr.Event) (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range e.Tags.All("e") {
		if who, ok := p.watched[t.Value()]; ok && who == e.PubKey {
			ids = append(ids, t.Value())
		}
	}
	return ids
}
