package engine

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
)

// placement decides in which shard of a cluster runs are started.
type placement struct {
	log   journal.Cluster
	calls *remoteCalls
	cfg   *Config
	next  startPlacement // of runs without a key

	mu       sync.Mutex
	gathered map[string]bool    // whether the runs of a workflow are in one shard
	loose    map[string]Trouble // workflows whose limits do not hold for all their runs
}

// start starts a run where it belongs.
func (p *placement) start(ctx context.Context, w *Workflow, s *machine.Start) (a answer, err error) {
	gathered, err := p.isGathered(ctx, w)
	if err != nil {
		return a, fmt.Errorf("start %s: %w", w.Name(), err)
	}
	c := &call{Op: opStart, Start: &start{
		Definition: w.def.Text(), Key: s.Key, Source: s.Source, Input: s.Input, At: s.At, Timeout: s.Timeout, def: w.def,
	}}
	n := p.log.Shards()
	slot := machine.KeySlot(s.Key)
	shard := slot % n
	switch {
	case gathered:
		shard = machine.WorkflowSlot(w.Name()) % n
	case s.Key == "":
		return p.startAnywhere(ctx, c)
	}
	if s.Key == "" || slot%n != shard {
		slot = anySlot(shard, n)
	}
	c.Start.ID = newID(slot)
	return p.calls.ask(ctx, shard, c)
}

// startAnywhere starts a run in a shard that has an owner.
func (p *placement) startAnywhere(ctx context.Context, c *call) (answer, error) {
	n := p.log.Shards()
	shard := p.next.next(n)
	c.Start.ID = newID(anySlot(shard, n))
	defer p.next.done()
	return p.calls.askAt(ctx, shard, c, func() int {
		shard = p.next.other(shard, n)
		c.Start.ID = newID(anySlot(shard, n))
		return shard
	})
}

func newID(slot int) string {
	return machine.NewID(time.Now().UnixNano(), rand.Uint64(), rand.Uint64()).In(slot).String()
}

// anySlot returns one of the slots of a shard.
func anySlot(shard, shards int) int { return rand.IntN(machine.Slots/shards)*shards + shard }

// isGathered reports whether a workflow has one shard for all its runs. A workflow with a
// limit has, because only an owner can count. That is decided when it is first started, or
// a key that was used before might be looked for in another shard.
func (p *placement) isGathered(ctx context.Context, w *Workflow) (bool, error) {
	name := w.Name()
	p.mu.Lock()
	gathered, known := p.gathered[name]
	p.mu.Unlock()
	if !known {
		place, err := store.PlaceOf(ctx, p.log, name, store.PlaceFor(w.Limited()))
		if err != nil {
			return false, err
		}
		gathered = place == store.Gathered
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gathered[name] = gathered
	if !w.Limited() {
		delete(p.loose, name)
	} else if _, known := p.loose[name]; !gathered && !known {
		p.loose[name] = Trouble{
			What: "the limit of workflow " + name + " holds in each shard apart", Since: time.Now(),
			Error: "it had none when it was first started, and its runs are spread; give the workflow another name to have the limit for all of them",
		}
		p.cfg.Logger.Warn(p.loose[name].What, "because", p.loose[name].Error)
	}
	return gathered, nil
}

// troubles returns the workflows whose limits do not hold for all their runs.
func (p *placement) troubles() []Trouble {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.loose))
}

// startPlacement says where runs without a key are started. Those that come together go to the
// same shard, whose owner stores them in one entry; those that come one after the
// other are spread, as are all over time.
type startPlacement struct {
	mu    sync.Mutex
	shard int
	until time.Time
	left  int // starts before the next shard's turn
	open  int // starts that are not answered
	peak  int // the most that were open during this turn
}

const (
	aimFor   = 50 * time.Millisecond
	aimTimes = 16 // starts of a turn for each caller that starts at the same time
	aimRuns  = 1000
)

// next returns the shard of a start, which is followed by done.
func (a *startPlacement) next(shards int) int {
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
func (a *startPlacement) other(refused, shards int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.shard == refused {
		a.shard, a.until = rand.IntN(shards), time.Now().Add(aimFor)
	}
	return a.shard
}

// done says that a start has been answered.
func (a *startPlacement) done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open--
}
