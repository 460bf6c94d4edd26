package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/journal"
)

// find returns the ids of the runs whose id begins with the text, or whose key is the text.
func (r *router) find(ctx context.Context, text string, limit int) (ids []string, err error) {
	if _, err := machine.ParseID(text); err == nil {
		return []string{text}, nil
	}
	answers, silent, err := r.gather(ctx, &call{Op: opFind, Text: text, Limit: limit})
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

// list returns a page of the runs that match the filter.
func (r *router) list(ctx context.Context, f Filter) (Page, error) {
	f.Limit = min(cmp.Or(max(f.Limit, 0), view.DefaultLimit), view.MaxLimit)
	answers, silent, err := r.gather(ctx, &call{Op: opList, Filter: &f})
	if err != nil {
		return Page{}, err
	}
	if r.alone != nil {
		return *answers[0].Page, nil
	}
	return mergePages(answers, silent, &f), nil
}

// deadGroups sends a call for groups, and returns the largest ones.
func (r *router) deadGroups(ctx context.Context, limit int, c *call) (Groups, error) {
	c.Op, c.Limit = opGroups, limit
	if r.alone == nil {
		c.Limit = max(limit, manyGroups)
	}
	answers, silent, err := r.gather(ctx, c)
	if err != nil {
		return Groups{}, err
	}
	if r.alone != nil {
		return Groups{Groups: answers[0].Groups}, nil
	}
	return Groups{Groups: mergeGroups(answers, limit), Silent: silent}, nil
}

// stats returns the statistics of all shards.
func (r *router) stats(ctx context.Context) (Stats, error) {
	answers, silent, err := r.gather(ctx, &call{Op: opStats})
	if err != nil {
		return Stats{}, err
	}
	if r.alone != nil {
		return *answers[0].Stats, nil
	}
	s := mergeStats(answers)
	s.Silent = silent
	s.Troubles = append(s.Troubles, r.cluster.troubles()...)
	return s, nil
}

// troubles returns the troubles of this process.
func (r *router) troubles() []Trouble {
	if r.alone != nil {
		return r.alone.troubles()
	}
	list := r.cluster.troubles()
	for _, sh := range r.cluster.own() {
		list = append(list, ofShard(sh.number, sh.troubles())...)
	}
	return list
}

// warnings returns the warnings of the shards of this process.
func (r *router) warnings() (list []Trouble) {
	for _, sh := range r.shards() {
		list = append(list, sh.warnings()...)
	}
	return list
}

// history returns the history of a run as JSON.
func (r *router) history(ctx context.Context, id string) (json.RawMessage, error) {
	a, err := r.of(ctx, id, &call{Op: opHistory})
	return a.History, oldMemberError(err)
}

// askMembers sends a request to all other members of the cluster at once.
func (r *router) askMembers(ctx context.Context, request json.RawMessage) ([]MemberReply, error) {
	if r.cluster == nil {
		return nil, nil
	}
	log := r.cluster.log
	status, err := log.Status(ctx)
	if err != nil {
		return nil, err
	}
	var list []MemberReply
	for _, m := range status.Members {
		if m.ID != log.Member() {
			list = append(list, MemberReply{Member: m})
		}
	}
	var asked sync.WaitGroup
	for i := range list {
		asked.Go(func() {
			r := &list[i]
			a, err := askMember(ctx, log, r.Member.ID, &call{Op: opMember, Input: request})
			r.Reply, r.Err = a.Reply, err
		})
	}
	asked.Wait()
	return list, nil
}

// ownStats returns the statistics of the shards of this process, and their number.
func (r *router) ownStats(ctx context.Context) (s Stats, shards int, err error) {
	if r.alone != nil {
		one, err := r.alone.stats(ctx)
		if err != nil {
			return Stats{}, 1, err
		}
		return *one, 1, nil
	}
	answers := make([]*answer, r.count())
	for _, sh := range r.cluster.own() {
		// A shard that is being handed over is counted by its next owner.
		if one, err := sh.stats(ctx); err == nil {
			answers[sh.number] = &answer{Stats: one}
			shards++
		}
	}
	s = mergeStats(answers)
	s.Troubles = append(s.Troubles, r.cluster.troubles()...)
	return s, shards, ctx.Err()
}

// clusterInfo returns the members and shards of the cluster.
func (r *router) clusterInfo(ctx context.Context) (c ClusterInfo, ok bool, err error) {
	if r.cluster == nil {
		return c, false, nil
	}
	status, err := r.cluster.log.Status(ctx)
	if err != nil {
		return c, true, err
	}
	c.Self, c.Members = r.cluster.log.Member(), status.Members
	answers, silent, _ := r.gather(ctx, &call{Op: opStats}) // an error means that no shard has answered: silent says so too
	c.Silent = silent
	for _, s := range status.Shards {
		one := ShardInfo{Shard: s}
		if i := slices.IndexFunc(status.Members, func(m journal.Member) bool { return m.ID == s.Owner }); i >= 0 {
			one.Name = status.Members[i].Name
		}
		if s.Number < len(answers) && answers[s.Number] != nil {
			st := answers[s.Number].Stats
			one.Running, one.Waiting, one.Behind, one.Troubles = st.Running, st.Waiting, st.Behind, st.Troubles
		}
		c.Shards = append(c.Shards, one)
	}
	return c, true, nil
}

// changeWorkflow sends a call about the workflow c.Workflow to all shards.
func (r *router) changeWorkflow(ctx context.Context, c *call) error {
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
		case r.alone == nil && errors.Is(got.err, ErrAway):
			silent = append(silent, n)
		default:
			errs = append(errs, got.err)
		}
	}
	switch {
	case len(silent) == 0:
	case len(errs) == 0 && stored > 0:
		errs = append(errs, fmt.Errorf("%s: %w, and the others have stored it: repeat the command", c.Workflow, away(silent)))
	default:
		errs = append(errs, fmt.Errorf("%s: %w: repeat the command", c.Workflow, away(silent)))
	}
	return errors.Join(errs...)
}

// checkKnown returns an error if no workflow of the name is registered here, and no shard has, or
// had, runs of it.
func (r *router) checkKnown(ctx context.Context, name string) error {
	if r.process.handlers.Workflow(name) != nil {
		return nil
	}
	s, err := r.stats(ctx)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(s.Workflows, func(w WorkflowStats) bool { return w.Name == name }):
		return nil
	case len(s.Silent) > 0:
		return fmt.Errorf("workflow %q: not found, but %w", name, away(s.Silent))
	}
	return fmt.Errorf("workflow %q: %w", name, ErrUnknownWorkflow)
}
