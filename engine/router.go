package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
)

// fanOut is how long a call to all shards waits for their answers.
const fanOut = 5 * time.Second

// router sends calls to the shards that can answer them, in this process or in other
// processes of the cluster.
type router struct {
	process   *process
	alone     *shard   // the only shard of an engine without a cluster; nil in a cluster
	cluster   *cluster // nil without a cluster
	deadlocks deadlockWatcher
}

// open joins the cluster of the log, or opens the only shard of a log without a cluster.
func (r *router) open(ctx context.Context, p *process, log journal.Log) (err error) {
	r.process, p.peers = p, r
	r.deadlocks.router, r.deadlocks.waits = r, map[handlerWait]int{}
	if log, ok := log.(journal.Cluster); ok {
		r.cluster, err = join(ctx, p, log)
		return err
	}
	r.alone = newShard(p, 0, 1, p.cfg.Dir)
	return r.alone.open(ctx, log)
}

// run runs the shards until they are closed or can't continue, and returns why.
func (r *router) run() (err error) {
	if r.cluster != nil {
		err = r.cluster.run()
	} else {
		r.alone.run()
		err = r.alone.Err()
	}
	r.deadlocks.close()
	return err
}

// close stops the shards. When the context ends, they stop at once.
func (r *router) close(ctx context.Context) {
	if r.cluster != nil {
		r.cluster.close(ctx)
	} else {
		r.alone.close(ctx, false)
	}
}

// followEvents begins to add the events of other processes to the event stream.
func (r *router) followEvents() {
	if r.cluster != nil {
		r.cluster.follower.watch()
	}
}

// count returns the number of shards.
func (r *router) count() int {
	if r.alone != nil {
		return 1
	}
	return r.cluster.log.Shards()
}

// at sends a call to a shard and returns its answer.
func (r *router) at(ctx context.Context, shard int, c *call) (answer, error) {
	if r.alone != nil {
		return r.alone.perform(ctx, c)
	}
	return r.cluster.calls.ask(ctx, shard, c)
}

// of sends the call to the shard that has the run. It tries the shard that follows from
// the id first. If the run is not there, it looks in the other shards, because a run that
// was moved into the cluster may be in any of them.
func (r *router) of(ctx context.Context, id string, c *call) (answer, error) {
	c.ID = id
	run, err := machine.ParseID(id)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w: %q", c.Op, ErrNotFound, id)
	}
	home := run.Slot() % r.count()
	a, err := r.at(ctx, home, c)
	if r.alone != nil || !errors.Is(err, ErrNotFound) {
		return a, err
	}
	shard, there, locateErr := r.locate(ctx, id, home)
	switch {
	case there:
		return r.at(ctx, shard, c)
	case locateErr != nil:
		return a, locateErr
	default:
		return a, err
	}
}

// change sends a call that changes a run to the shard that has the run.
func (r *router) change(ctx context.Context, id string, c *call) error {
	_, err := r.of(ctx, id, c)
	return err
}

// locate asks all shards for a run, and returns the shard that has it. If no shard has the run,
// but some did not answer, it returns an error: one of them may have it. It does not count the
// shard asked, which the caller has asked already.
func (r *router) locate(ctx context.Context, id string, asked int) (number int, there bool, err error) {
	var silent []int
	for n, got := range r.all(ctx, &call{Op: opHas, ID: id}) {
		switch {
		case got.err == nil:
			return n, true, nil
		case !errors.Is(got.err, ErrNotFound) && n != asked:
			silent = append(silent, n)
		}
	}
	if len(silent) > 0 {
		return 0, false, fmt.Errorf("run %s: not found, but %w", id, away(silent))
	}
	return 0, false, nil
}

// away returns the error that these shards did not answer.
func away(shards []int) error {
	if len(shards) == 1 {
		return fmt.Errorf("shard %d %w", shards[0], ErrAway)
	}
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(shards), " ", ", "), "[]")
	return fmt.Errorf("shards %s %w", list, ErrAway)
}

// reply is the answer of one shard to a call to all shards.
type reply struct {
	answer
	err error
}

// all sends a call to all shards, and waits for their answers up to fanOut. The replies are
// in the order of the shards.
func (r *router) all(ctx context.Context, c *call) []reply {
	list := make([]reply, r.count())
	if r.alone != nil {
		list[0].answer, list[0].err = r.alone.perform(ctx, c)
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
			list[n].answer, list[n].err = r.at(ctx, n, &one)
		})
	}
	each.Wait()
	return list
}

// gather sends a call to all shards. It returns their answers, nil for a shard that did not
// answer, and the numbers of those shards. It fails if no shard answers, if a shard rejects
// the cursor of a list, and without a cluster if the only shard fails.
func (r *router) gather(ctx context.Context, c *call) (answers []*answer, silent []int, err error) {
	list := r.all(ctx, c)
	answers = make([]*answer, len(list))
	for n := range list {
		switch got := &list[n]; {
		case got.err == nil:
			answers[n] = &got.answer
		case r.alone == nil && !errors.Is(got.err, view.ErrCursor):
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

// wakeShards wakes the shards of this process after handlers were registered: steps that
// waited for them can begin.
func (r *router) wakeShards() error {
	if r.alone != nil {
		return r.alone.do(context.Background(), func(recorder) error { return nil })
	}
	for _, sh := range r.cluster.own() {
		sh.Wake()
	}
	return nil
}

// shards returns the shards of this process.
func (r *router) shards() []*shard {
	if r.alone != nil {
		return []*shard{r.alone}
	}
	return r.cluster.own()
}

// start starts a run, in the shard that the placement of the cluster chooses.
func (r *router) start(ctx context.Context, w *workflow.Workflow, s *machine.Start, due time.Time) (a answer, err error) {
	if r.alone != nil {
		setDelay(due, &s.At, &s.In)
		a.Started, err = r.alone.start(ctx, w.Def, s)
		return a, err
	}
	if err := checkInput(w.Def, s, r.process.cfg.MaxPayload); err != nil {
		return a, err
	}
	return r.cluster.placement.start(ctx, w, s, due)
}

// keyed returns the run that has the key.
func (r *router) keyed(ctx context.Context, workflow, key string) (string, error) {
	c := &call{Op: opKeyed, Text: key, Workflow: workflow}
	home := machine.KeySlot(key) % r.count()
	a, err := r.at(ctx, home, c)
	if err == nil && len(a.IDs) > 0 {
		return a.IDs[0], nil
	}
	if r.alone != nil && err != nil {
		return "", err
	}
	var silent []int
	for n, got := range r.all(ctx, c) { // runs of a limited workflow, and scheduled ones, may be elsewhere
		switch {
		case got.err != nil:
			silent = append(silent, n)
		case len(got.IDs) > 0:
			return got.IDs[0], nil
		}
	}
	if len(silent) > 0 {
		return "", fmt.Errorf("no run of workflow %q with the key %q was found, but %w", workflow, key, away(silent))
	}
	return "", fmt.Errorf("%w: no run of workflow %q has the key %q", ErrNotFound, workflow, key)
}

// backup copies all data to the folder, except those of the given shards.
func (r *router) backup(ctx context.Context, dir string, shards []int) (copied move.Moved, err error) {
	if r.cluster != nil {
		copied, err = move.Copy(ctx, r.cluster.log, dir, shards)
	} else if len(shards) > 0 {
		err = fmt.Errorf("shard %d %w: this is no cluster", shards[0], move.ErrNotLost)
	} else if b, ok := r.alone.lease.(journal.Backuper); ok {
		err = b.Backup(ctx, dir)
	} else {
		err = errors.New("this kind of log does not support backups")
	}
	if err != nil {
		return move.Moved{}, fmt.Errorf("backup: %w", err)
	}
	return copied, nil
}
