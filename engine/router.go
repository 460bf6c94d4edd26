package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
)

// fanOut is how long a list waits for a shard before it does without.
const fanOut = 5 * time.Second

// router finds the shard that has a run or takes a call, in this process or in another
// one of the cluster.
type router struct {
	process *process
	alone   *shard   // without a cluster there is one
	cluster *cluster // nil without
}

// count returns how many shards there are.
func (r *router) count() int {
	if r.alone != nil {
		return 1
	}
	return r.cluster.log.Shards()
}

// at asks a shard.
func (r *router) at(ctx context.Context, shard int, c *call) (answer, error) {
	if r.alone != nil {
		return r.alone.commands.perform(ctx, c)
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

// change asks the shard of a run to change it.
func (r *router) change(ctx context.Context, id string, c *call) error {
	_, err := r.of(ctx, id, c)
	return err
}

// locate looks for a run in all shards but one.
func (r *router) locate(ctx context.Context, id string, not int) (shard int, there bool, err error) {
	var silent []int
	for n, got := range r.all(ctx, &call{Op: opHas, ID: id}) {
		switch {
		case got.err == nil:
			return n, true, nil
		case !errors.Is(got.err, ErrNotFound) && n != not:
			silent = append(silent, n)
		}
	}
	if len(silent) > 0 {
		return 0, false, fmt.Errorf("run %s: not found, but %w", id, away(silent))
	}
	return 0, false, nil
}

// away is the error of shards that did not answer.
func away(shards []int) error {
	if len(shards) == 1 {
		return fmt.Errorf("shard %d %w", shards[0], ErrAway)
	}
	var list []string
	for _, n := range shards {
		list = append(list, strconv.Itoa(n))
	}
	return fmt.Errorf("shards %s %w", strings.Join(list, ", "), ErrAway)
}

// reply is the answer of one shard to a call of all shards.
type reply struct {
	answer
	err error
}

// all asks all shards, and waits for their answers as long as a list may take.
func (r *router) all(ctx context.Context, c *call) []reply {
	list := make([]reply, r.count())
	if r.alone != nil {
		list[0].answer, list[0].err = r.alone.commands.perform(ctx, c)
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

// gather returns the answers of all shards, and which gave none. Without any
// answer there is an error, and so there is when a shard refuses.
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

// wakeShards has the shards of this process begin what it can do now.
func (r *router) wakeShards() error {
	if r.alone != nil {
		return r.alone.do(context.Background(), func(*turn) error { return nil })
	}
	for _, sh := range r.cluster.own() {
		select {
		case sh.room <- struct{}{}:
		default: // it is about to
		}
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

// start starts a run where it belongs.
func (r *router) start(ctx context.Context, w *Workflow, s *machine.Start) (a answer, err error) {
	if r.alone != nil {
		a.Started, err = r.alone.commands.start(ctx, w.def, s)
		return a, err
	}
	if most := r.process.cfg.MaxPayload; len(s.Input) > most {
		return a, tooLarge(w.def, s, most)
	}
	return r.cluster.placement.start(ctx, w, s)
}
