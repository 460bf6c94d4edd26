package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
)

// fanOut is how long a list waits for a shard before it does without.
const fanOut = 5 * time.Second

// count returns how many shards there are.
func (e *Engine) count() int {
	if e.alone != nil {
		return 1
	}
	return e.cluster.log.Shards()
}

// at asks a shard.
func (e *Engine) at(ctx context.Context, shard int, c *call) (answer, error) {
	if e.alone != nil {
		return e.alone.perform(ctx, c)
	}
	return e.cluster.ask(ctx, shard, c)
}

// of asks the shard of a run. One that moved in may be elsewhere than its id says.
func (e *Engine) of(ctx context.Context, id string, c *call) (answer, error) {
	c.ID = id
	run, err := machine.ParseID(id)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w: %q", c.Op, ErrNotFound, id)
	}
	home := run.Slot() % e.count()
	a, err := e.at(ctx, home, c)
	if e.alone != nil || !errors.Is(err, ErrNotFound) {
		return a, err
	}
	shard, there, locateErr := e.locate(ctx, id, home)
	switch {
	case there:
		return e.at(ctx, shard, c)
	case locateErr != nil:
		return a, locateErr
	default:
		return a, err
	}
}

// locate looks for a run in all shards but one.
func (e *Engine) locate(ctx context.Context, id string, not int) (shard int, there bool, err error) {
	var silent []int
	for n, r := range e.all(ctx, &call{Op: opHas, ID: id}) {
		switch {
		case r.err == nil:
			return n, true, nil
		case !errors.Is(r.err, ErrNotFound) && n != not:
			silent = append(silent, n)
		}
	}
	if len(silent) > 0 {
		return 0, false, fmt.Errorf("run %s: not found, but %w", id, away(silent))
	}
	return 0, false, nil
}

// away says which shards did not answer.
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

// reply is what a shard said to something that all were asked.
type reply struct {
	answer
	err error
}

// all asks all shards, for as long as somebody who looks at a list waits.
func (e *Engine) all(ctx context.Context, c *call) []reply {
	list := make([]reply, e.count())
	if e.alone != nil {
		list[0].answer, list[0].err = e.alone.perform(ctx, c)
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
			list[n].answer, list[n].err = e.at(ctx, n, &one)
		})
	}
	each.Wait()
	return list
}

// gather returns the answers of all shards, and which gave none. Without any
// answer there is an error, and so there is when a shard refuses.
func (e *Engine) gather(ctx context.Context, c *call) (answers []*answer, silent []int, err error) {
	list := e.all(ctx, c)
	answers = make([]*answer, len(list))
	for n := range list {
		switch r := &list[n]; {
		case r.err == nil:
			answers[n] = &r.answer
		case e.alone == nil && !errors.Is(r.err, view.ErrCursor):
			silent = append(silent, n)
			err = r.err
		default:
			return nil, nil, r.err
		}
	}
	if len(silent) < len(list) {
		err = nil
	}
	return answers, silent, err
}

// started completes the answer to a start.
func (e *Engine) started(a answer, err error) (Started, error) {
	if err != nil {
		return Started{}, err
	}
	a.Started.e = e
	return *a.Started, nil
}

// startAt starts a run where it belongs.
func (e *Engine) startAt(ctx context.Context, w *Workflow, s *machine.Start) (Started, error) {
	if e.alone != nil {
		st, err := e.alone.start(ctx, w.def, s)
		return e.started(answer{Started: st}, err)
	}
	if len(s.Input) > e.cfg.MaxPayload {
		return Started{}, tooLarge(w.def, s, e.cfg.MaxPayload)
	}
	a, err := e.cluster.start(ctx, w, s)
	return e.started(a, err)
}

// Schedules returns the schedules.
func (e *Engine) Schedules(ctx context.Context) (list []Schedule, err error) {
	answers, silent, err := e.gather(ctx, &call{Op: opSchedules})
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		if a != nil {
			list = append(list, a.Schedules...)
		}
	}
	if len(silent) > 0 {
		return nil, fmt.Errorf("schedules: %w", away(silent))
	}
	return list, nil
}

// Find returns the ids of the runs that begin with the text, or have it as key.
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

// look has the shards of this process look at what it can do.
func (e *Engine) look() error {
	if e.alone != nil {
		return e.alone.do(context.Background(), func(*turn) error { return nil })
	}
	for _, sh := range e.cluster.own() {
		select {
		case sh.room <- struct{}{}:
		default: // it is about to look
		}
	}
	return nil
}
