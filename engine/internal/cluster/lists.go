package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/journal"
)

// Find returns the ids of the runs whose id begins with the text, or whose key is the text.
func (r *Router) Find(ctx context.Context, text string, limit int) (ids []string, err error) {
	if _, err := machine.ParseID(text); err == nil {
		return []string{text}, nil
	}
	answers, silent, err := r.gather(ctx, &shard.Call{Op: shard.OpFind, Text: text, Limit: limit})
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		ids = append(ids, a.IDs...)
	}
	if len(ids) == 0 && len(silent) > 0 {
		return nil, fmt.Errorf("find %q: %w", text, Away(silent))
	}
	slices.Sort(ids)
	return ids[:min(len(ids), max(limit, 0))], nil
}

// List returns a page of the runs that match the filter.
func (r *Router) List(ctx context.Context, f info.Filter) (info.Page, error) {
	f.Limit = min(cmp.Or(max(f.Limit, 0), view.DefaultLimit), view.MaxLimit)
	answers, silent, err := r.gather(ctx, &shard.Call{Op: shard.OpList, Filter: &f})
	if err != nil {
		return info.Page{}, err
	}
	if r.alone != nil {
		return *answers[0].Page, nil
	}
	return mergePages(answers, silent, &f), nil
}

// DeadGroups sends a call for groups, and returns the largest ones.
func (r *Router) DeadGroups(ctx context.Context, limit int, c *shard.Call) (info.Groups, error) {
	c.Op, c.Limit = shard.OpGroups, limit
	if r.alone == nil {
		c.Limit = max(limit, manyGroups)
	}
	answers, silent, err := r.gather(ctx, c)
	if err != nil {
		return info.Groups{}, err
	}
	if r.alone != nil {
		return info.Groups{Groups: answers[0].Groups}, nil
	}
	return info.Groups{Groups: mergeGroups(answers, limit), Silent: silent}, nil
}

// Stats returns the statistics of all shards.
func (r *Router) Stats(ctx context.Context) (info.Stats, error) {
	answers, silent, err := r.gather(ctx, &shard.Call{Op: shard.OpStats})
	if err != nil {
		return info.Stats{}, err
	}
	if r.alone != nil {
		return *answers[0].Stats, nil
	}
	s := mergeStats(answers)
	s.Silent = silent
	s.Troubles = append(s.Troubles, r.cluster.troubles()...)
	return s, nil
}

// Troubles returns the troubles of this process.
func (r *Router) Troubles() []info.Trouble {
	if r.alone != nil {
		return r.alone.Troubles()
	}
	list := r.cluster.troubles()
	for _, sh := range r.cluster.own() {
		list = append(list, shard.OfShard(sh.Number, sh.Troubles())...)
	}
	return list
}

// Warnings returns the warnings of the shards of this process.
func (r *Router) Warnings() (list []info.Trouble) {
	for _, sh := range r.Shards() {
		list = append(list, sh.Warnings()...)
	}
	return list
}

// History returns the history of a run as JSON.
func (r *Router) History(ctx context.Context, id string) (json.RawMessage, error) {
	a, err := r.Of(ctx, id, &shard.Call{Op: shard.OpHistory})
	return a.History, oldMemberError(err)
}

// AskMembers sends a request to all other members of the cluster at once.
func (r *Router) AskMembers(ctx context.Context, request json.RawMessage) ([]info.MemberReply, error) {
	if r.cluster == nil {
		return nil, nil
	}
	log := r.cluster.log
	status, err := log.Status(ctx)
	if err != nil {
		return nil, err
	}
	var list []info.MemberReply
	for _, m := range status.Members {
		if m.ID != log.Member() {
			list = append(list, info.MemberReply{Member: m})
		}
	}
	var asked sync.WaitGroup
	for i := range list {
		asked.Go(func() {
			r := &list[i]
			a, err := askMember(ctx, log, r.Member.ID, &shard.Call{Op: shard.OpMember, Input: request})
			r.Reply, r.Err = a.Reply, err
		})
	}
	asked.Wait()
	return list, nil
}

// OwnStats returns the statistics of the shards of this process, and their number.
func (r *Router) OwnStats(ctx context.Context) (s info.Stats, shards int, err error) {
	if r.alone != nil {
		s, err = r.Stats(ctx)
		return s, 1, err
	}
	answers := make([]*shard.Answer, r.Count())
	for _, sh := range r.cluster.own() {
		// A shard that is being handed over is counted by its next owner.
		if a, err := sh.Perform(ctx, &shard.Call{Op: shard.OpStats}); err == nil {
			answers[sh.Number] = &a
			shards++
		}
	}
	s = mergeStats(answers)
	s.Troubles = append(s.Troubles, r.cluster.troubles()...)
	return s, shards, ctx.Err()
}

// ClusterInfo returns the members and shards of the cluster.
func (r *Router) ClusterInfo(ctx context.Context) (c info.ClusterInfo, ok bool, err error) {
	if r.cluster == nil {
		return c, false, nil
	}
	status, err := r.cluster.log.Status(ctx)
	if err != nil {
		return c, true, err
	}
	c.Self, c.Members = r.cluster.log.Member(), status.Members
	answers, silent, _ := r.gather(ctx, &shard.Call{Op: shard.OpStats}) // an error means that no shard has answered: silent says so too
	c.Silent = silent
	for _, s := range status.Shards {
		one := info.ShardInfo{Shard: s}
		if i := slices.IndexFunc(status.Members, func(m journal.Member) bool { return m.ID == s.Owner }); i >= 0 {
			one.Name = status.Members[i].Name
		}
		if s.Number < len(answers) && answers[s.Number].Stats != nil {
			st := answers[s.Number].Stats
			one.Running, one.Waiting, one.Behind, one.Troubles = st.Running, st.Waiting, st.Behind, st.Troubles
		}
		c.Shards = append(c.Shards, one)
	}
	return c, true, nil
}

// ChangeWorkflow sends a call about the workflow c.Workflow to all shards.
func (r *Router) ChangeWorkflow(ctx context.Context, c *shard.Call) error {
	if err := r.checkKnown(ctx, c.Workflow); err != nil {
		return err
	}
	var silent []int
	var errs []error
	stored := 0
	for n, got := range r.all(ctx, c) {
		switch {
		case got.err == nil:
			stored++
		case r.alone == nil && errors.Is(got.err, shard.ErrAway):
			silent = append(silent, n)
		default:
			errs = append(errs, got.err)
		}
	}
	switch {
	case len(silent) == 0:
	case len(errs) == 0 && stored > 0:
		errs = append(errs, fmt.Errorf("%s: %w, and the others have stored it: repeat the command", c.Workflow, Away(silent)))
	default:
		errs = append(errs, fmt.Errorf("%s: %w: repeat the command", c.Workflow, Away(silent)))
	}
	return errors.Join(errs...)
}

// checkKnown returns an error if no workflow of the name is registered here, and no shard has, or
// had, runs of it.
func (r *Router) checkKnown(ctx context.Context, name string) error {
	if r.process.Handlers.Workflow(name) != nil {
		return nil
	}
	s, err := r.Stats(ctx)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(s.Workflows, func(w info.WorkflowStats) bool { return w.Name == name }):
		return nil
	case len(s.Silent) > 0:
		return fmt.Errorf("workflow %q: not found, but %w", name, Away(s.Silent))
	}
	return fmt.Errorf("workflow %q: %w", name, shard.ErrUnknownWorkflow)
}

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
		page.Behind += a.Page.Behind
		more = more || m.taken[n] < len(a.Page.Runs) || a.Page.Next != ""
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
	answers []*shard.Answer // of a shard that has not answered: empty
	taken   []int           // how many runs of each page are in the merged one
}

// limit returns how many runs the merged page can have. A shard without a view returns all its runs.
func (m *pageMerge) limit() (limit int) {
	for _, a := range m.answers {
		if len(a.Cursors) == 0 {
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
	case m.taken[n] == 0:
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
		if len(a.Page.Runs) > 0 {
			closest = min(closest, a.Distance)
		}
	}
	far = make([]bool, len(answers))
	for n, a := range answers {
		if a.Distance > closest {
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

// mergeGroups merges the groups of all shards, and returns the largest ones first.
func mergeGroups(answers []*shard.Answer, limit int) (groups []info.Group) {
	type alike struct{ pattern, workflow, step string }
	at := map[alike]int{}
	for _, a := range answers {
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
		if a == nil || a.Stats == nil { // it was not asked, or has not answered
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
	machine.AddTotals(&w.Totals, other.Totals)
	if p := other.Paused; w.Paused == nil || p != nil && p.At.Before(w.Paused.At) {
		w.Paused = p
	}
}

// manyGroups is the least number of groups that each shard is asked for. A group that is
// large in the whole cluster may be small in each shard.
const manyGroups = 1000
