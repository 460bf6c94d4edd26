package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// Options say how often a scenario is run and how many runs are executed at
// once. Only Seed and Seeds affect the results.
type Options struct {
	Seed     uint64                // of the first run; the following runs use the following numbers
	Seeds    int                   // runs of each contestant; 0 means 5
	Workers  int                   // runs at once; 0 means one for each processor; never more than fit into [MaxMemory]
	Progress func(done, total int) // called after each run, one call at a time; nil means none
}

// DefaultSeeds is the default of Options.Seeds.
const DefaultSeeds = 5

// MaxSeeds is the most runs of a contestant.
const MaxSeeds = 100_000

// Validate reports everything that is wrong with the options, each problem with
// its field's name.
func (o Options) Validate() error {
	var p problems
	p.checkInt("seeds", o.Seeds, 0, MaxSeeds)
	p.checkInt("workers", o.Workers, 0, 1e6)
	return errors.Join(p...)
}

// fit returns an error if the results of all runs do not fit into memory.
func (o Options) fit(contestants int) error {
	bytes := float64(contestants) * float64(o.Seeds) * float64(unsafe.Sizeof(Measures[float64]{}))
	if bytes <= MaxMemory {
		return nil
	}
	return fmt.Errorf("seeds: the results of %d runs of each of %d contestants take %s of memory; at most %s: use fewer seeds", o.Seeds, contestants, gib(bytes), gib(MaxMemory))
}

// Run runs every contestant through the scenario, once for each seed. If an
// argument is invalid, it runs nothing and returns all problems. When the
// context ends, Run stops at once and returns the cause.
func Run(ctx context.Context, s Scenario, contestants []Contestant, o Options) (*Report, error) {
	o.Seeds = cmp.Or(o.Seeds, DefaultSeeds)
	if err := errors.Join(s.Validate(), Check(s, contestants), o.Validate(), o.fit(len(contestants))); err != nil {
		return nil, fmt.Errorf("sim: scenario %q: %w", s.Name, err)
	}
	t := newTournament(s, contestants, o)
	if err := t.run(ctx); err != nil {
		return nil, fmt.Errorf("sim: scenario %q: %w", s.Name, err)
	}
	return t.report(), nil
}

// tournament is the set of all runs of a report.
type tournament struct {
	plan        *plan
	contestants []Contestant
	options     Options
	next        atomic.Int64 // index of the next run

	mu     sync.Mutex
	done   int
	events int
	sums   []sums                // of each contestant
	runs   [][]Measures[float64] // of each contestant and seed
}

func newTournament(s Scenario, cs []Contestant, o Options) *tournament {
	t := &tournament{plan: newPlan(s), contestants: cs, options: o}
	for range cs {
		t.sums = append(t.sums, newRecorder(t.plan).sums)
		t.runs = append(t.runs, make([]Measures[float64], o.Seeds))
	}
	return t
}

// total returns how many runs there are.
func (t *tournament) total() int { return len(t.contestants) * t.options.Seeds }

// run executes all runs on the workers, and waits for them.
func (t *tournament) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	workers := t.workers()
	t.plan.share = t.plan.memoryLimit / int64(workers)
	for range workers {
		group.Go(func() {
			if err := t.work(ctx); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// workers returns how many runs are executed at once: no more than fit into
// memory.
func (t *tournament) workers() int {
	n := cmp.Or(t.options.Workers, runtime.GOMAXPROCS(0))
	fit := int(MaxMemory / memory(t.plan.scenario, t.contestants).total())
	return min(n, t.total(), max(fit, 1))
}

// work executes one run after the other until all have been taken. Runs with
// the same seed, one for each contestant, are taken in a row.
func (t *tournament) work(ctx context.Context) error {
	for {
		i := int(t.next.Add(1)) - 1
		if i >= t.total() {
			return nil
		}
		n, seed := i%len(t.contestants), i/len(t.contestants)
		r, err := runOnce(ctx, t.plan, &t.contestants[n], t.options.Seed+uint64(seed))
		if err != nil {
			return err
		}
		t.add(n, seed, r)
	}
}

func runOnce(ctx context.Context, p *plan, c *Contestant, seed uint64) (*recorder, error) {
	if s := p.scenario.Writers; s != nil && (s.Model == Register || s.Model == Decree) {
		return runBallots(ctx, p, c, seed)
	} else if s != nil {
		return runWriters(ctx, p, c, seed)
	}
	if p.scenario.Group != nil {
		return runGroup(ctx, p, c, seed)
	}
	return runServices(ctx, p, c, seed)
}

// add adds the results of a run of contestant n with the given seed.
func (t *tournament) add(n, seed int, r *recorder) {
	m := r.measure(t.plan)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sums[n].add(&r.sums)
	t.runs[n][seed] = m
	t.events += r.events
	t.plan.ended.put(r)
	t.done++
	if t.options.Progress != nil {
		t.options.Progress(t.done, t.total())
	}
}

// plan is a valid scenario with values that can be computed before a run.
type plan struct {
	scenario    Scenario
	targets     []int          // services that the clients' attempts go to, in turn
	policies    []retry.Policy // of the services that have their own
	sharing     int            // clients per process
	processes   int
	prioritised bool

	highestFactor float64 // of the rate of open arrivals
	arrivalRate   float64 // arrivals per second at that factor

	failuresEnd time.Duration // when the last failure has ended; 0 if none ends
	outages     []Failure     // the failures of kind Outage

	memoryLimit int64         // bytes that a run may use
	share       int64         // bytes that a run may use while others use their share
	large       chan struct{} // contains an element while a run uses more than its share

	ended spares
}

func newPlan(s Scenario) *plan {
	p := &plan{scenario: s, sharing: max(s.Clients.Sharing, 1), targets: []int{0}, memoryLimit: MaxMemory, share: MaxMemory, large: make(chan struct{}, 1)}
	p.processes = (s.Clients.Count + p.sharing - 1) / p.sharing
	p.highestFactor = s.Clients.highestFactor()
	p.arrivalRate = s.Clients.Rate * p.highestFactor / float64(max(s.Clients.Batch, 1))
	p.prioritised = s.Clients.Priorities != [limit.Classes]float64{}
	for _, name := range s.Clients.Fallback {
		p.targets = append(p.targets, s.index(name))
	}
	p.policies = make([]retry.Policy, len(s.Services))
	for i, v := range s.Services {
		if v.Policy != "" {
			p.policies[i], _ = retry.Parse(v.Policy) // it was validated
		}
	}
	for _, f := range s.Failures {
		p.failuresEnd = max(p.failuresEnd, f.Until)
		if f.Kind == Outage {
			p.outages = append(p.outages, f)
		}
	}
	return p
}
