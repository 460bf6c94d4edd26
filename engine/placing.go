package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
)

// start starts a run where it belongs.
func (cl *cluster) start(ctx context.Context, w *Workflow, s *machine.Start) (a answer, err error) {
	gathered, err := cl.gathered(ctx, w)
	if err != nil {
		return a, fmt.Errorf("start %s: %w", w.Name(), err)
	}
	c := &call{Op: opStart, Start: &start{
		Definition: w.def.Text(), Key: s.Key, Source: s.Source, Input: s.Input, At: s.At, Timeout: s.Timeout, def: w.def,
	}}
	n := cl.log.Shards()
	slot := machine.KeySlot(s.Key)
	shard := slot % n
	switch {
	case gathered:
		shard = machine.WorkflowSlot(w.Name()) % n
	case s.Key == "":
		return cl.startAnywhere(ctx, c)
	}
	if s.Key == "" || slot%n != shard {
		slot = anySlot(shard, n)
	}
	c.Start.ID = newID(slot)
	return cl.ask(ctx, shard, c)
}

// startAnywhere starts a run in a shard that has an owner.
func (cl *cluster) startAnywhere(ctx context.Context, c *call) (answer, error) {
	n := cl.log.Shards()
	shard := cl.aim.next(n)
	c.Start.ID = newID(anySlot(shard, n))
	defer cl.aim.done()
	return cl.askAt(ctx, shard, c, func() int {
		shard = cl.aim.other(shard, n)
		c.Start.ID = newID(anySlot(shard, n))
		return shard
	})
}

func newID(slot int) string {
	return machine.NewID(time.Now().UnixNano(), rand.Uint64(), rand.Uint64()).In(slot).String()
}

// anySlot returns one of the slots of a shard.
func anySlot(shard, shards int) int { return rand.IntN(machine.Slots/shards)*shards + shard }

// gathered reports whether a workflow has one shard for all its runs. One with a
// limit has, because only an owner can count. That is settled when it is first
// started, or a key that was used before might be looked for in another shard.
func (cl *cluster) gathered(ctx context.Context, w *Workflow) (bool, error) {
	name := w.Name()
	cl.mu.Lock()
	gathered, known := cl.settled[name]
	cl.mu.Unlock()
	if !known {
		place, err := store.PlaceOf(ctx, cl.log, name, store.PlaceFor(w.Limited()))
		if err != nil {
			return false, err
		}
		gathered = place == store.Gathered
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.settled[name] = gathered
	if !w.Limited() {
		delete(cl.loose, name)
	} else if _, told := cl.loose[name]; !gathered && !told {
		cl.loose[name] = Trouble{
			What: "the limit of workflow " + name + " holds in each shard apart", Since: time.Now(),
			Error: "it had none when it was first started, and its runs are spread; give the workflow another name to have the limit for all of them",
		}
		cl.e.cfg.Logger.Warn(cl.loose[name].What, "because", cl.loose[name].Error)
	}
	return gathered, nil
}

// aim is where runs without a key are started. Those that come together go to the
// same shard, whose owner stores them in one entry; those that come one after the
// other are spread, as are all over time.
type aim struct {
	mu    sync.Mutex
	shard int
	until time.Time
	left  int // starts before the next shard's turn
	open  int // starts that are not answered
	peak  int // the most that were open during this turn
}

const (
	aimFor   = 50 * time.Millisecond
	aimTimes = 16 // as many starts of each who starts as a turn is for
	aimRuns  = 1000
)

// next returns the shard of a start, which is followed by done.
func (a *aim) next(shards int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open++
	a.peak = max(a.peak, a.open)
	if now := time.Now(); a.left <= 0 || now.After(a.until) {
		a.left, a.peak = min(aimTimes*(a.peak-1)+1, aimRuns), a.open
		a.shard, a.until = rand.IntN(shards), now.Add(aimFor)
	}
	a.left--
	return a.shard
}

// other returns the shard of a start that was refused: that shard's turn is over.
func (a *aim) other(refused, shards int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.shard == refused {
		a.shard, a.until = rand.IntN(shards), time.Now().Add(aimFor)
	}
	return a.shard
}

// done says that a start has been answered.
func (a *aim) done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open--
}
