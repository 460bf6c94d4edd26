package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
		if a != nil {
			ids = append(ids, a.IDs...)
		}
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
		if s.Number < len(answers) && answers[s.Number] != nil {
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
