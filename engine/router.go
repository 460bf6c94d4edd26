package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/journal"
)

// fanOut is how long a call to all shards waits for their answers.
const fanOut = 5 * time.Second

// router sends calls to the shards that can answer them, in this process or in other
// processes of the cluster.
type router struct {
	process *process
	alone   *shard   // the only shard of an engine without a cluster; nil in a cluster
	cluster *cluster // nil without a cluster
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

// change sends a call that changes a run to the shard that has the run.
func (r *router) change(ctx context.Context, id string, c *call) error {
	_, err := r.of(ctx, id, c)
	return err
}

// locate asks all shards for a run, and returns the shard that has it. If no shard has the run,
// but some did not answer, it returns an error: one of them may have it. It does not count the
// shard asked, which the caller has asked already.
func (r *router) locate(ctx context.Context, id string, asked int) (shard int, there bool, err error) {
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
		return r.alone.do(context.Background(), func(*turn) error { return nil })
	}
	for _, sh := range r.cluster.own() {
		sh.wake()
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

// placement decides in which shard of a cluster a run is started.
type placement struct {
	process *process
	log     journal.Cluster
	calls   *remoteCalls
	cfg     *Config
	next    startPlacement // for runs without a key

	mu       sync.Mutex
	gathered map[string]bool    // by workflow: whether all its runs are in one shard
	loose    map[string]Trouble // by workflow: its limits hold only within each shard
}

// start starts a run. If all runs of the workflow are in one shard (see isGathered), it starts
// there. Otherwise the key determines the shard; a run without a key may start in any shard.
func (p *placement) start(ctx context.Context, w *Workflow, s *machine.Start, due time.Time) (a answer, err error) {
	if err := p.process.checkMembers(w.format); err != nil {
		return a, fmt.Errorf("start %s: %w", w.Name(), err)
	}
	gathered, err := p.isGathered(ctx, w)
	if err != nil {
		return a, fmt.Errorf("start %s: %w", w.Name(), err)
	}
	c := &call{Op: startOp(w.def), Start: &start{
		Definition: w.def.Text(), Key: s.Key, Source: s.Source, Input: s.Input, At: s.At, Timeout: s.Timeout, Trace: s.Trace, def: w.def, due: due,
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

// startAnywhere starts a run without a key. If the chosen shard does not accept the run, it
// tries other shards.
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

// anySlot returns a random slot of a shard. shards is the number of all shards.
func anySlot(shard, shards int) int { return rand.IntN(machine.Slots/shards)*shards + shard }

// isGathered reports whether all runs of a workflow are in one shard. Those of a workflow
// with a limit are, because one owner must count them. This is decided for good when the
// workflow is first started: otherwise a key could belong to runs in two shards.
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
			What: "the limit of workflow " + name + " applies to each shard separately", Since: time.Now(),
			Error: "the workflow had no limit when it was first started, so its runs are in all shards; give the workflow another name to make the limit apply to all its runs",
		}
		p.cfg.Logger.Warn(p.loose[name].What, "because", p.loose[name].Error)
	}
	return gathered, nil
}

// troubles returns a trouble for each workflow whose limits hold only within each shard.
func (p *placement) troubles() []Trouble {
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
