package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
)

// Get returns a run with its whole history.
func (e *Engine) Get(ctx context.Context, id string) (*Info, error) {
	a, err := e.of(ctx, id, &call{Op: opGet})
	return a.Info, err
}

// Wait waits until a run has ended. It returns no error for a run that is dead: see
// [Info.Err]. If the run was continued by [Again], Wait waits for the last run of the chain.
//
// A handler that waits for a run counts for [Config.Concurrency] meanwhile. If all running
// handlers wait for runs that can't begin, that is a deadlock. [Engine.Troubles] reports it
// if the handlers call Wait with their own context. It is better to let the handler return,
// and to start the rest of the work by [OnEnd].
func (e *Engine) Wait(ctx context.Context, id string) (*Info, error) {
	if t, ok := TaskOf(ctx); ok && t.attempt != nil && t.attempt.sh.process == &e.process {
		if run, err := machine.ParseID(id); err == nil {
			defer e.deadlocks.begin(t.attempt, run)()
		}
	}
	for {
		a, err := e.of(ctx, id, &call{Op: opWait})
		if err != nil {
			return nil, fmt.Errorf("wait for %s: %w", id, err)
		}
		if !a.Over {
			continue // an owner in another process answers after some time, even if the run has not ended
		}
		i, err := e.Get(ctx, id)
		switch {
		case err != nil:
			return nil, err
		case i.ContinuedBy != "":
			id = i.ContinuedBy
		case i.Finished():
			return i, nil
		}
		// The run was continued by another one, or was retried after it had ended: wait again.
	}
}

// Find returns the ids of the runs whose id begins with the text or whose key is the text, at
// most limit of them. If the text is a complete id, it returns that id and does not check that
// the run exists.
func (e *Engine) Find(ctx context.Context, text string, limit int) (ids []string, err error) {
	if _, err := machine.ParseID(text); err == nil {
		return []string{text}, nil
	}
	answers, silent, err := e.gather(ctx, &call{Op: opFind, Text: text, Limit: limit})
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		if a != nil {
			ids = append(ids, a.IDs...)
		}
	}
	if len(ids) == 0 && len(silent) > 0 {
		return nil, fmt.Errorf("find %q: %w", text, away(silent))
	}
	slices.Sort(ids)
	return ids[:min(len(ids), max(limit, 0))], nil
}

// List returns a page of the runs that match the filter. It reads the view, which is
// slightly behind the log: see [Filter.Fresh].
func (e *Engine) List(ctx context.Context, f Filter) (Page, error) {
	f.Limit = min(cmp.Or(max(f.Limit, 0), view.DefaultLimit), view.MaxLimit)
	answers, silent, err := e.gather(ctx, &call{Op: opList, Filter: &f})
	if err != nil {
		return Page{}, err
	}
	if e.alone != nil {
		return *answers[0].Page, nil
	}
	return mergePages(answers, silent, &f), nil
}

// mergePages merges the pages of all shards, each of which is sorted, into one page with a
// cursor that has a part for each shard.
func mergePages(answers []*answer, silent []int, f *Filter) (page Page) {
	limit := 0
	for _, a := range answers {
		if a != nil && len(a.Cursors) == 0 {
			limit += len(a.Page.Runs) // a shard without a view returns all its runs
		}
	}
	limit = cmp.Or(limit, f.Limit)
	far := passFar(answers)
	taken := make([]int, len(answers))
	more := len(silent) > 0
	for len(page.Runs) < limit {
		first := -1
		ended := false // a shard has more runs, which are not in its page: the merge must end here
		for n, a := range answers {
			if a == nil || taken[n] >= len(a.Page.Runs) {
				ended = ended || a != nil && a.Page.Next != ""
				continue
			}
			if first < 0 || f.before(&a.Page.Runs[taken[n]], &answers[first].Page.Runs[taken[first]]) {
				first = n
			}
		}
		if first < 0 || ended {
			break
		}
		page.Runs = append(page.Runs, answers[first].Page.Runs[taken[first]])
		taken[first]++
	}
	cursors := make([]string, len(answers))
	for n, a := range answers {
		switch {
		case far[n]:
			cursors[n] = passed
		case a == nil, taken[n] == 0:
			cursors[n] = cursorOf(f.After, n)
		case len(a.Cursors) >= taken[n]:
			cursors[n] = a.Cursors[taken[n]-1]
		}
		if a != nil {
			page.Behind += a.Page.Behind
			more = more || taken[n] < len(a.Page.Runs) || a.Page.Next != ""
		}
	}
	page.Silent = silent
	if more && len(page.Runs) > 0 {
		page.Next = strings.Join(cursors, ".")
	}
	return page
}

// passFar drops the results of shards whose search results match less closely than those of
// other shards, and returns which shards these are. A search in one view does the same: it
// returns only the closest kind of match.
func passFar(answers []*answer) (far []bool) {
	closest := math.MaxInt
	for _, a := range answers {
		if a != nil && len(a.Page.Runs) > 0 {
			closest = min(closest, a.Distance)
		}
	}
	far = make([]bool, len(answers))
	for n, a := range answers {
		if a != nil && a.Distance > closest {
			far[n] = true
			answers[n] = &answer{Page: &Page{Behind: a.Page.Behind}}
		}
	}
	return far
}

// before reports whether the run a comes before the run b in the order of the filter.
func (f *Filter) before(a, b *Info) bool {
	switch {
	case f.Order == "oldest":
		return a.Created.Before(b.Created)
	case f.Order == "next" && a.Next != nil && b.Next != nil:
		return a.Next.Before(*b.Next)
	default:
		return b.Created.Before(a.Created)
	}
}

// cursorOf returns the part of a cursor that belongs to a shard. A cursor without parts is
// returned as it is: the shard rejects it if it is not valid.
func cursorOf(after string, shard int) string {
	parts := strings.Split(after, ".")
	if shard < len(parts) && len(parts) > 1 {
		return parts[shard]
	}
	return after
}

// DeadGroups returns at most limit groups of dead runs that failed alike, the largest first.
// It leaves out the workflows that match exclude, as [Filter.Exclude] does.
func (e *Engine) DeadGroups(ctx context.Context, limit int, exclude ...string) (Groups, error) {
	return e.deadGroups(ctx, limit, &call{Exclude: exclude})
}

// FreshDeadGroups is [Engine.DeadGroups] that waits, for at most a second, until the groups
// include everything that was acknowledged before the call.
func (e *Engine) FreshDeadGroups(ctx context.Context, limit int, exclude ...string) (Groups, error) {
	return e.deadGroups(ctx, limit, &call{Exclude: exclude, Fresh: true})
}

func (e *Engine) deadGroups(ctx context.Context, limit int, c *call) (Groups, error) {
	c.Op, c.Limit = opGroups, limit
	if e.alone == nil {
		c.Limit = max(limit, manyGroups)
	}
	answers, silent, err := e.gather(ctx, c)
	if err != nil {
		return Groups{}, err
	}
	if e.alone != nil {
		return Groups{Groups: answers[0].Groups}, nil
	}
	return Groups{mergeGroups(answers, limit), silent}, nil
}

// manyGroups is the least number of groups that each shard is asked for. A group that is
// large in the whole cluster may be small in each shard.
const manyGroups = 1000

// mergeGroups merges the groups of all shards, and returns the largest ones first.
func mergeGroups(answers []*answer, limit int) (groups []Group) {
	type alike struct{ pattern, workflow, step string }
	at := map[alike]int{}
	for _, a := range answers {
		if a == nil {
			continue
		}
		for _, g := range a.Groups {
			i, known := at[alike{g.Pattern, g.Workflow, g.Step}]
			if !known {
				at[alike{g.Pattern, g.Workflow, g.Step}] = len(groups)
				groups = append(groups, g)
				continue
			}
			sum := &groups[i]
			sum.Count += g.Count
			if g.Last.After(sum.Last) {
				sum.Last, sum.Error = g.Last, g.Error
			}
			if g.First.Before(sum.First) {
				sum.First = g.First
			}
		}
	}
	slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(b.Count, a.Count) })
	return groups[:min(len(groups), max(limit, 0))]
}

// Stats returns counts of runs, attempts and timers. Its cost does not depend on the number
// of runs.
func (e *Engine) Stats(ctx context.Context) (Stats, error) {
	answers, silent, err := e.gather(ctx, &call{Op: opStats})
	if err != nil {
		return Stats{}, err
	}
	if e.alone != nil {
		return *answers[0].Stats, nil
	}
	s := mergeStats(answers)
	s.Silent = silent
	s.Troubles = append(s.Troubles, e.cluster.troubles()...)
	return s, nil
}

// OwnStats is [Engine.Stats] of the shards that this process owns, and their number. Without
// a cluster it returns the same as Stats, and 1. It is cheap, because it sends no requests
// to other processes.
func (e *Engine) OwnStats(ctx context.Context) (s Stats, shards int, err error) {
	if e.alone != nil {
		s, err = e.Stats(ctx)
		return s, 1, err
	}
	answers := make([]*answer, e.count())
	for _, sh := range e.cluster.own() {
		// A shard that is being handed over is counted by its next owner.
		if one, err := sh.queries.stats(ctx); err == nil {
			answers[sh.number] = &answer{Stats: one}
			shards++
		}
	}
	s = mergeStats(answers)
	s.Troubles = append(s.Troubles, e.cluster.troubles()...)
	return s, shards, ctx.Err()
}

func mergeStats(answers []*answer) (sum Stats) {
	at, shards, paused := map[string]int{}, 0, map[string]int{}
	sum.Missing = map[string]int{}
	for n, a := range answers {
		if a == nil {
			continue
		}
		s := a.Stats
		shards++
		for _, w := range s.Workflows {
			if w.Paused != nil {
				paused[w.Name]++
			}
			i, known := at[w.Name]
			if !known {
				i = len(sum.Workflows)
				at[w.Name] = i
				sum.Workflows = append(sum.Workflows, WorkflowStats{Name: w.Name, States: map[string]int{}})
			}
			sum.Workflows[i].add(w)
		}
		sum.Waiting += s.Waiting
		sum.Running += s.Running
		sum.Queued += s.Queued
		sum.Oldest = earlier(sum.Oldest, s.Oldest)
		sum.Stuck += s.Stuck
		sum.Behind += s.Behind
		sum.Next = earlier(sum.Next, s.Next)
		for handler, count := range s.Missing {
			sum.Missing[handler] += count
		}
		sum.Warnings = append(sum.Warnings, s.Warnings...)
		sum.Troubles = append(sum.Troubles, ofShard(n, s.Troubles)...)
	}
	for i := range sum.Workflows {
		if w := &sum.Workflows[i]; w.Paused != nil {
			w.Paused.Partly = paused[w.Name] < shards
		}
	}
	slices.SortFunc(sum.Workflows, func(a, b WorkflowStats) int { return cmp.Compare(a.Name, b.Name) })
	return sum
}

func (w *WorkflowStats) add(other WorkflowStats) {
	for state, n := range other.States {
		w.States[state] += n
	}
	sum := machine.Totals(w.Totals)
	sum.Add(machine.Totals(other.Totals))
	w.Totals = Totals(sum)
	w.Paused = mergePause(w.Paused, other.Paused)
}

func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}

// Troubles returns the current problems that keep this process from working, and the runs that wait
// for other code, counted by reason: see [Trouble.Runs].
func (e *Engine) Troubles() []Trouble {
	if e.alone != nil {
		return e.alone.health.list()
	}
	list := e.cluster.troubles()
	for _, sh := range e.cluster.own() {
		list = append(list, ofShard(sh.number, sh.health.list())...)
	}
	return list
}

// Warnings returns problems that an operator should look at, although this process works: entries
// that the log has lost in the last 30 days, schedules whose last start was refused, and functions of
// flows that have neither called an operation nor returned for a minute.
func (e *Engine) Warnings() (list []Trouble) {
	for _, sh := range e.shards() {
		list = append(list, sh.health.listWarnings()...)
	}
	return list
}
