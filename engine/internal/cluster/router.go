// Package cluster sends calls to the shards of a process and of other processes, merges their answers, and keeps the
// shards that are assigned to this process open.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
)

// Router sends calls to the shards that can answer them, in this process or in other
// processes of the cluster.
type Router struct {
	process   *shard.Process
	alone     *shard.Shard // the only shard of an engine without a cluster; nil in a cluster
	cluster   *cluster     // nil without a cluster
	deadlocks deadlockWatcher
}

// Open joins the cluster of the log, or opens the only shard of a log without a cluster.
func (r *Router) Open(ctx context.Context, p *shard.Process, log journal.Log) (err error) {
	r.process, p.Peers = p, r
	r.deadlocks.process, r.deadlocks.shards, r.deadlocks.waits = p, r.Shards, map[handlerWait]int{}
	r.deadlocks.ctx, r.deadlocks.stop = context.WithCancel(context.Background())
	if log, ok := log.(journal.Cluster); ok {
		r.cluster, err = join(ctx, p, log)
		return err
	}
	r.alone = shard.New(p, 0, 1, p.Settings.Dir)
	return r.alone.Open(ctx, log)
}

// Run runs the shards until they are closed or can't continue, and returns why.
func (r *Router) Run() (err error) {
	if r.cluster != nil {
		err = r.cluster.run()
	} else {
		r.alone.Run()
		err = r.alone.Err()
	}
	r.deadlocks.close()
	return err
}

// Close stops the shards. When the context ends, they stop at once.
func (r *Router) Close(ctx context.Context) {
	if r.cluster != nil {
		r.cluster.close(ctx)
	} else {
		r.alone.Close(ctx, false)
	}
}

// FollowEvents begins to add the events of other processes to the event stream.
func (r *Router) FollowEvents() {
	if r.cluster != nil {
		r.cluster.follower.watch()
	}
}

// Count returns the number of shards.
func (r *Router) Count() int {
	if r.alone != nil {
		return 1
	}
	return r.cluster.log.Shards()
}

// At sends a call to a shard and returns its answer.
func (r *Router) At(ctx context.Context, shard int, c *shard.Call) (shard.Answer, error) {
	if r.alone != nil {
		return r.alone.Perform(ctx, c)
	}
	return r.cluster.calls.ask(ctx, shard, c)
}

// Of sends the call to the shard that has the run. It tries the shard that follows from
// the id first. If the run is not there, it looks in the other shards, because a run that
// was moved into the cluster may be in any of them.
func (r *Router) Of(ctx context.Context, id string, c *shard.Call) (shard.Answer, error) {
	c.ID = id
	run, err := machine.ParseID(id)
	if err != nil {
		return shard.Answer{}, fmt.Errorf("%s: %w: %q", c.Op, machine.ErrUnknown, id)
	}
	home := run.Slot() % r.Count()
	a, err := r.At(ctx, home, c)
	if r.alone != nil || !errors.Is(err, machine.ErrUnknown) {
		return a, err
	}
	n, _, silent := r.search(ctx, &shard.Call{Op: shard.OpHas, ID: id}, func(*shard.Answer) bool { return true })
	silent = slices.DeleteFunc(silent, func(n int) bool { return n == home }) // which has answered before
	switch {
	case n >= 0:
		return r.At(ctx, n, c)
	case len(silent) > 0:
		return a, fmt.Errorf("run %s: not found, but %w", id, Away(silent))
	}
	return a, err
}

// Change sends a call that changes a run to the shard that has the run.
func (r *Router) Change(ctx context.Context, id string, c *shard.Call) error {
	_, err := r.Of(ctx, id, c)
	return err
}

// search sends a call to all shards, and returns the first one whose answer fits; -1 if there is none, and the shards
// that did not answer: one of them may have what is searched.
func (r *Router) search(ctx context.Context, c *shard.Call, fits func(*shard.Answer) bool) (number int, a *shard.Answer, silent []int) {
	for n, got := range r.all(ctx, c) {
		switch {
		case got.err == nil && fits(&got.Answer):
			return n, &got.Answer, nil
		case got.err != nil && !errors.Is(got.err, machine.ErrUnknown):
			silent = append(silent, n)
		}
	}
	return -1, nil, silent
}

// Away returns the error that these shards did not answer.
func Away(shards []int) error {
	if len(shards) == 1 {
		return fmt.Errorf("shard %d %w", shards[0], shard.ErrAway)
	}
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(shards), " ", ", "), "[]")
	return fmt.Errorf("shards %s %w", list, shard.ErrAway)
}

// reply is the answer of one shard to a call to all shards.
type reply struct {
	shard.Answer
	err error
}

// all sends a call to all shards, and waits for their answers up to fanOut. The replies are
// in the order of the shards.
func (r *Router) all(ctx context.Context, c *shard.Call) []reply {
	list := make([]reply, r.Count())
	if r.alone != nil {
		list[0].Answer, list[0].err = r.alone.Perform(ctx, c)
		return list
	}
	ctx, cancel := context.WithTimeout(ctx, fanOut)
	defer cancel()
	var each sync.WaitGroup
	for n := range list {
		each.Go(func() {
			one := *c
			if c.Filter != nil {
				filter := *c.Filter
				filter.After = cursorOf(c.Filter.After, n)
				one.Filter = &filter
			}
			list[n].Answer, list[n].err = r.At(ctx, n, &one)
		})
	}
	each.Wait()
	return list
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

// gather sends a call to all shards. It returns their answers, an empty one for a shard that did not
// answer, and the numbers of those shards. It fails if no shard answers, if a shard rejects
// the cursor of a list, and without a cluster if the only shard fails.
func (r *Router) gather(ctx context.Context, c *shard.Call) (answers []*shard.Answer, silent []int, err error) {
	list := r.all(ctx, c)
	answers = make([]*shard.Answer, len(list))
	for n := range list {
		answers[n] = &list[n].Answer
		switch got := &list[n]; {
		case got.err == nil:
		case r.alone == nil && !errors.Is(got.err, view.ErrCursor):
			*answers[n] = shard.Answer{Page: new(info.Page)}
			silent = append(silent, n)
			err = got.err
		default:
			return nil, nil, got.err
		}
	}
	if len(silent) < len(list) {
		err = nil
	}
	return answers, silent, err
}

// WakeShards wakes the shards of this process after handlers were registered: steps that
// waited for them can begin.
func (r *Router) WakeShards() error {
	if r.alone != nil {
		return r.alone.Do(context.Background(), func(shard.Recorder) error { return nil })
	}
	for _, sh := range r.cluster.own() {
		sh.Wake()
	}
	return nil
}

// Shards returns the shards of this process.
func (r *Router) Shards() []*shard.Shard {
	if r.alone != nil {
		return []*shard.Shard{r.alone}
	}
	return r.cluster.own()
}

// Start starts a run, in the shard that the placement of the cluster chooses.
func (r *Router) Start(ctx context.Context, w *workflow.Workflow, s *machine.Start, due time.Time) (a shard.Answer, err error) {
	if r.alone != nil {
		shard.SetDelay(due, &s.At, &s.In)
		a.Started, err = r.alone.Start(ctx, w.Def, s)
		return a, err
	}
	if err := shard.CheckInput(w.Def, s, r.process.Settings.MaxPayload); err != nil {
		return a, err
	}
	return r.cluster.placement.start(ctx, w, s, due)
}

// Keyed returns the run that has the key.
func (r *Router) Keyed(ctx context.Context, workflow, key string) (string, error) {
	c := &shard.Call{Op: shard.OpKeyed, Text: key, Workflow: workflow}
	home := machine.KeySlot(key) % r.Count()
	a, err := r.At(ctx, home, c)
	if err == nil && len(a.IDs) > 0 {
		return a.IDs[0], nil
	}
	if r.alone != nil && err != nil {
		return "", err
	}
	// Runs of a limited workflow, and scheduled ones, may be elsewhere.
	_, found, silent := r.search(ctx, c, func(a *shard.Answer) bool { return len(a.IDs) > 0 })
	switch {
	case found != nil:
		return found.IDs[0], nil
	case len(silent) > 0:
		return "", fmt.Errorf("no run of workflow %q with the key %q was found, but %w", workflow, key, Away(silent))
	}
	return "", fmt.Errorf("%w: no run of workflow %q has the key %q", machine.ErrUnknown, workflow, key)
}

// Backup copies all data to the folder, except those of the given shards.
func (r *Router) Backup(ctx context.Context, dir string, shards []int) (copied move.Moved, err error) {
	if r.cluster != nil {
		copied, err = move.Copy(ctx, r.cluster.log, dir, shards)
	} else if len(shards) > 0 {
		err = fmt.Errorf("shard %d %w: this is no cluster", shards[0], move.ErrNotLost)
	} else if b, ok := r.alone.Lease.(journal.Backuper); ok {
		err = b.Backup(ctx, dir)
	} else {
		err = errors.New("this kind of log does not support backups")
	}
	if err != nil {
		return move.Moved{}, fmt.Errorf("backup: %w", err)
	}
	return copied, nil
}
