package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal"
)

// placement decides in which shard of a cluster a run is started.
type placement struct {
	log    journal.Cluster
	calls  *remoteCalls
	logger *slog.Logger
	next   startPlacement // for runs without a key

	mu       sync.Mutex
	gathered map[string]bool         // by workflow: whether all its runs are in one shard
	loose    map[string]info.Trouble // by workflow: its limits hold only within each shard
}

// start starts a run. If all runs of the workflow are in one shard (see isGathered), it starts
// there. Otherwise the key determines the shard; a run without a key may start in any shard.
func (p *placement) start(ctx context.Context, w *workflow.Workflow, s *machine.Start, due time.Time) (a shard.Answer, err error) {
	home := -1
	if err = checkFormat(p.log, w.Format()); err == nil {
		home, err = p.home(ctx, w)
	}
	if err != nil {
		return a, fmt.Errorf("start %s: %w", w.Name(), err)
	}
	c := &shard.Call{Op: shard.StartOp(w.Def), Start: &shard.Start{
		Definition: w.Def.Text(), Key: s.Key, Source: s.Source, Input: s.Input, At: s.At, Timeout: s.Timeout, Trace: s.Trace, Def: w.Def, Due: due,
	}}
	n, slot := p.log.Shards(), machine.KeySlot(s.Key)
	switch {
	case home >= 0 && (s.Key == "" || slot%n != home):
		slot = anySlot(home, n)
	case s.Key == "":
		return p.startAnywhere(ctx, c)
	}
	c.Start.ID = newID(slot)
	return p.calls.ask(ctx, slot%n, c)
}

// startAnywhere starts a run without a key. If the chosen shard does not accept the run, it
// tries other shards.
func (p *placement) startAnywhere(ctx context.Context, c *shard.Call) (shard.Answer, error) {
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

// anySlot returns a random slot of a shard. shards is the number of all shards.
func anySlot(shard, shards int) int { return rand.IntN(machine.Slots/shards)*shards + shard }

// isGathered reports whether all runs of a workflow are in one shard. Those of a workflow
// with a limit are, because one owner must count them. This is decided for good when the
// workflow is first started: otherwise a key could belong to runs in two shards.
func (p *placement) isGathered(ctx context.Context, w *workflow.Workflow) (bool, error) {
	name := w.Name()
	p.mu.Lock()
	gathered, known := p.gathered[name]
	p.mu.Unlock()
	if !known {
		place, err := store.PlaceOf(ctx, p.log, name, store.PlaceFor(w.Limits.Limited()))
		if err != nil {
			return false, err
		}
		gathered = place == store.Gathered
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gathered[name] = gathered
	if !w.Limits.Limited() {
		delete(p.loose, name)
	} else if _, known := p.loose[name]; !gathered && !known {
		p.loose[name] = info.Trouble{
			What: "the limit of workflow " + name + " applies to each shard separately", Since: time.Now(),
			Error: "the workflow had no limit when it was first started, so its runs are in all shards; give the workflow another name to make the limit apply to all its runs",
		}
		p.logger.Warn(p.loose[name].What, "because", p.loose[name].Error)
	}
	return gathered, nil
}

// home returns the shard of the runs of the workflow if all are in one shard; otherwise -1.
func (p *placement) home(ctx context.Context, w *workflow.Workflow) (int, error) {
	gathered, err := p.isGathered(ctx, w)
	if err != nil || !gathered {
		return -1, err
	}
	return machine.WorkflowSlot(w.Name()) % p.log.Shards(), nil
}

// troubles returns a trouble for each workflow whose limits hold only within each shard.
func (p *placement) troubles() []info.Trouble {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.loose))
}

// startPlacement chooses the shards of runs without a key. Starts at the same time go to
// the same shard, whose owner stores them in one entry of the log. After a number of starts
// or some time it chooses another shard, so that runs are spread over all shards.
type startPlacement struct {
	mu    sync.Mutex
	shard int       // the shard of the current turn
	until time.Time // end of the turn
	left  int       // number of starts until the turn ends
	open  int       // starts that are not answered yet
	peak  int       // largest value of open in this turn
}

const (
	aimFor   = 50 * time.Millisecond // longest turn of a shard
	aimTimes = 16                    // starts in a turn for each concurrent caller
	aimRuns  = 1000                  // most starts in a turn
)

// next returns the shard of a start. The caller must call done when the start is answered.
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

// other returns the shard to try next for a start that the shard refused did not accept. If
// that shard has the current turn, the turn ends and a shard is chosen at random.
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

// checkFormat returns an ErrOldMember if a member of the cluster can't read a format.
func checkFormat(log journal.Cluster, format int) error {
	if format <= machine.FirstFormat {
		return nil
	}
	behind := log.Behind(format)
	if len(behind) == 0 {
		return nil
	}
	m, others := behind[0], ""
	if n := len(behind) - 1; n > 0 {
		others = fmt.Sprintf(" and %d more", n)
	}
	what, then := "a workflow as code", "start the run again"
	switch format {
	case machine.PauseFormat:
		what, then = "a paused workflow", "pause it again"
	case machine.ChildFormat:
		what, then = "a retry that continues the children of a run", "retry the run"
	}
	return fmt.Errorf("%w: %s (%s)%s can read stored data up to format %d, and %s needs format %d: finish the rolling deploy, then %s",
		shard.ErrOldMember, m.Name, m.ID, others, m.Format, what, format, then)
}
