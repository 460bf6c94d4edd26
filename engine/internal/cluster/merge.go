package cluster

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
)

// mergePages merges the pages of all shards, each of which is sorted, into one page with a
// cursor that has a part for each shard.
func mergePages(answers []*shard.Answer, silent []int, f *info.Filter) (page info.Page) {
	m := pageMerge{filter: f, answers: answers, taken: make([]int, len(answers))}
	limit := m.limit()
	far := passFar(answers)
	for len(page.Runs) < limit {
		n := m.next()
		if n < 0 {
			break
		}
		page.Runs = append(page.Runs, answers[n].Page.Runs[m.taken[n]])
		m.taken[n]++
	}
	more := len(silent) > 0
	cursors := make([]string, len(answers))
	for n, a := range answers {
		if cursors[n] = m.cursor(n); far[n] {
			cursors[n] = shard.Passed
		}
		if a != nil {
			page.Behind += a.Page.Behind
			more = more || m.taken[n] < len(a.Page.Runs) || a.Page.Next != ""
		}
	}
	page.Silent = silent
	if more && len(page.Runs) > 0 {
		page.Next = strings.Join(cursors, ".")
	}
	return page
}

// pageMerge merges the pages of shards.
type pageMerge struct {
	filter  *info.Filter
	answers []*shard.Answer // nil for a shard that has not answered
	taken   []int           // how many runs of each page are in the merged one
}

// limit returns how many runs the merged page can have. A shard without a view returns all its runs.
func (m *pageMerge) limit() (limit int) {
	for _, a := range m.answers {
		if a != nil && len(a.Cursors) == 0 {
			limit += len(a.Page.Runs)
		}
	}
	return cmp.Or(limit, m.filter.Limit)
}

// next returns the shard whose next run comes first; -1 if there is none, or if a shard has more runs that
// are not in its page: the merge must end there.
func (m *pageMerge) next() int {
	first := -1
	for n, a := range m.answers {
		switch {
		case a == nil:
		case m.taken[n] >= len(a.Page.Runs):
			if a.Page.Next != "" {
				return -1
			}
		case first < 0 || before(m.filter, &a.Page.Runs[m.taken[n]], &m.answers[first].Page.Runs[m.taken[first]]):
			first = n
		}
	}
	return first
}

// cursor returns the part of the cursor that belongs to a shard.
func (m *pageMerge) cursor(n int) string {
	switch a := m.answers[n]; {
	case a == nil, m.taken[n] == 0:
		return cursorOf(m.filter.After, n)
	case len(a.Cursors) >= m.taken[n]:
		return a.Cursors[m.taken[n]-1]
	}
	return ""
}

// passFar drops the results of shards whose search results match less closely than those of
// other shards, and returns which shards these are. A search in one view does the same: it
// returns only the closest kind of match.
func passFar(answers []*shard.Answer) (far []bool) {
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
			answers[n] = &shard.Answer{Page: &info.Page{Behind: a.Page.Behind}}
		}
	}
	return far
}

// before reports whether the run a comes before the run b in the order of the filter.
func before(f *info.Filter, a, b *info.Info) bool {
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

// mergeGroups merges the groups of all shards, and returns the largest ones first.
func mergeGroups(answers []*shard.Answer, limit int) (groups []info.Group) {
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
	slices.SortStableFunc(groups, func(a, b info.Group) int { return cmp.Compare(b.Count, a.Count) })
	return groups[:min(len(groups), max(limit, 0))]
}

func mergeStats(answers []*shard.Answer) (sum info.Stats) {
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
				sum.Workflows = append(sum.Workflows, info.WorkflowStats{Name: w.Name, States: map[string]int{}})
			}
			addStats(&sum.Workflows[i], &w)
		}
		sum.Waiting += s.Waiting
		sum.Running += s.Running
		sum.Queued += s.Queued
		sum.Oldest = shard.Earlier(sum.Oldest, s.Oldest)
		sum.Stuck += s.Stuck
		sum.Behind += s.Behind
		sum.Next = shard.Earlier(sum.Next, s.Next)
		for handler, count := range s.Missing {
			sum.Missing[handler] += count
		}
		sum.Warnings = append(sum.Warnings, s.Warnings...)
		sum.Troubles = append(sum.Troubles, shard.OfShard(n, s.Troubles)...)
	}
	for i := range sum.Workflows {
		if w := &sum.Workflows[i]; w.Paused != nil {
			w.Paused.Partly = paused[w.Name] < shards
		}
	}
	slices.SortFunc(sum.Workflows, func(a, b info.WorkflowStats) int { return cmp.Compare(a.Name, b.Name) })
	return sum
}

// addStats adds the numbers of another shard.
func addStats(w, other *info.WorkflowStats) {
	for state, n := range other.States {
		w.States[state] += n
	}
	sum := machine.Totals(w.Totals)
	sum.Add(machine.Totals(other.Totals))
	w.Totals = info.Totals(sum)
	if p := other.Paused; w.Paused == nil || p != nil && p.At.Before(w.Paused.At) {
		w.Paused = p
	}
}

// manyGroups is the least number of groups that each shard is asked for. A group that is
// large in the whole cluster may be small in each shard.
const manyGroups = 1000
