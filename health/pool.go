package health

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/clock"
)

// Pool chooses among targets that can do the same work. All its methods may be
// called by any number of goroutines; none waits.
//
// A target is out while any of these holds:
//
//   - It is cooling: its server asked to be left alone ([Outcome.Wait]). Asking
//     again keeps the later of the two times.
//   - Its breaker refuses calls ([WithBreaker]).
//   - It is ejected, after PoolConfig.Failures failures in a row. When that time
//     is over it is let in again for one call at a time, until one succeeds.
//
// Of the targets that are in, those of the lowest tier are candidates. Two of
// them are drawn, and the one whose [Score] is lower, divided by its weight, gets
// the call. Best of two keeps every candidate in use and still avoids the worst;
// the best of all would send every caller to the same one.
//
// Ejections are only this side's opinion. When a smaller share of the targets
// than PoolConfig.Panic is in, or none, the pool panics: it ignores them, and
// the tiers, and chooses by score alone. A server's word and an open breaker
// are never ignored.
type Pool struct {
	config PoolConfig // without zeros
	names  map[string]int

	all   members
	tiers []members // the lowest first

	mu       sync.Mutex
	targets  []target
	suspects members // those that may be out; all others are in
}

type target struct {
	Target
	score     Score
	breaker   *breaker.Breaker // nil means none
	siblings  members          // the keys of the same provider, itself included
	failures  int              // in a row
	ejections int              // in a row, without a success in between
	ejectFor  time.Duration    // how long the last of them was meant to last
	out       time.Duration    // ejected until
	trials    int              // calls under way that began while ejections was above zero
	cool      time.Duration    // cooling until
}

// NewPool returns a pool of the targets, or everything that is wrong with them,
// the configuration and the options.
func NewPool(cfg PoolConfig, targets []Target, opts ...PoolOption) (*Pool, error) {
	p := &Pool{config: cfg.withDefaults(), names: make(map[string]int, len(targets))}
	errs := []error{cfg.Validate(), validTargets(targets)}
	for i, t := range targets {
		t.Weight = max(t.Weight, 1)
		p.names[t.Name] = i
		p.targets = append(p.targets, target{Target: t})
	}
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("option: nil"))
			continue
		}
		errs = append(errs, o(p))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	for i := range p.targets {
		p.all.add(i)
		p.targets[i].siblings = p.keysOf(i)
		if p.targets[i].breaker != nil {
			p.suspects.add(i)
		}
	}
	p.tiers = tiersOf(targets)
	return p, nil
}

// tiersOf returns the targets of each tier, the lowest first.
func tiersOf(targets []Target) []members {
	sets := map[int]members{}
	for i, t := range targets {
		sets[t.Tier] |= 1 << i
	}
	var list []members
	for _, tier := range slices.Sorted(maps.Keys(sets)) {
		list = append(list, sets[tier])
	}
	return list
}

// keysOf returns the targets that share the provider of target i.
func (p *Pool) keysOf(i int) (s members) {
	s.add(i)
	for j, t := range p.targets {
		if t.Provider != "" && t.Provider == p.targets[i].Provider {
			s.add(j)
		}
	}
	return s
}

// Pick chooses a target for a new call.
func (p *Pool) Pick() Call { return p.PickAt(clock.Now(), rand.Uint64()) }

// PickAt is [Pool.Pick] at the time now; u is a uniform random number.
//
// There always is a target. When all are cooling or behind open breakers it is
// the one that is back first, and [Call.Wait] says when that will be.
func (p *Pool) PickAt(now time.Duration, u uint64) Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	if set := p.candidates(now); set != 0 {
		return p.begin(now, p.bestOfTwo(now, set, u))
	}
	i, wait := p.soonest(now)
	return Call{pool: p, index: i, start: now, wait: wait}
}

// Next chooses another target for a call that failed. See [Pool.NextAt].
func (p *Pool) Next(failed *Call) (Call, bool) {
	return p.NextAt(clock.Now(), rand.Uint64(), failed)
}

// NextAt chooses a target for the work of a call that has failed, one that is in
// and that the work has not been to; false means that there is none. After a
// refusal ([Outcome.Refused]) another key of the same provider comes first, then
// other providers; after any other failure it is the other way round, because
// all keys of a provider lead to the same servers.
func (p *Pool) NextAt(now time.Duration, u uint64, failed *Call) (Call, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	tried := failed.tried
	tried.add(failed.index)
	all := p.in(now) &^ tried
	set := all & p.targets[failed.index].siblings
	if !failed.refused {
		set = all &^ set
	}
	if set == 0 {
		set = all
	}
	if set == 0 {
		return Call{}, false
	}
	c := p.begin(now, p.bestOfTwo(now, p.lowestTier(set), u))
	c.tried = tried
	return c, true
}

// begin starts a call of target i.
func (p *Pool) begin(now time.Duration, i int) Call {
	t := &p.targets[i]
	t.score.Begin()
	c := Call{pool: p, index: i, start: now, counted: true, trial: t.ejections > 0}
	if c.trial {
		t.trials++
	}
	return c
}

// Cool closes the target with the name for so long, as [Outcome.Wait] does; for
// news that came by another way than a call. It returns false if there is no
// such target.
func (p *Pool) Cool(name string, wait time.Duration) bool {
	return p.CoolAt(clock.Now(), name, wait)
}

// CoolAt is [Pool.Cool] at the time now.
func (p *Pool) CoolAt(now time.Duration, name string, wait time.Duration) bool {
	i, ok := p.names[name]
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coolDown(i, now, wait)
	return true
}

// Readmit lets the target with the name in again, whatever its server said and
// however often it failed; for news that it is wanted after all. Its score, and an
// open breaker, stay. It returns false if there is no such target.
func (p *Pool) Readmit(name string) bool {
	i, ok := p.names[name]
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &p.targets[i]
	t.cool, t.failures, t.ejections, t.ejectFor, t.out = 0, 0, 0, 0, 0
	return true
}

// Recovery returns how long it will be until a target is in: 0 when one is now.
// It is what to answer as Retry-After when all are cooling.
func (p *Pool) Recovery() time.Duration { return p.RecoveryAt(clock.Now()) }

// RecoveryAt is [Pool.Recovery] at the time now.
func (p *Pool) RecoveryAt(now time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, wait := p.soonest(now)
	return wait
}

// soonest returns the target that no server and no breaker keeps closed for
// longer than any other, and for how long that is. Ejections don't count: when
// they are all there is, they are ignored.
func (p *Pool) soonest(now time.Duration) (first int, wait time.Duration) {
	wait = math.MaxInt64
	for i := range p.targets {
		if w := p.targets[i].closedFor(now); i == 0 || w < wait {
			first, wait = i, w
		}
	}
	return first, wait
}

// Status is the state of one target at one moment.
type Status struct {
	Target
	InFlight int
	Mean     time.Duration // time to first byte to be expected
	Cost     float64       // the score, weight included
	Failures int           // in a row
	Closed   time.Duration // how long its server or breaker keeps it closed; 0 means not
	Ejected  time.Duration // how long it is ejected; 0 means not
}

// Status returns the state of all targets, in the order they were given.
func (p *Pool) Status() []Status { return p.StatusAt(clock.Now()) }

// StatusAt is [Pool.Status] at the time now.
func (p *Pool) StatusAt(now time.Duration) []Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Status, len(p.targets))
	for i := range p.targets {
		t := &p.targets[i]
		list[i] = Status{
			Target:   t.Target,
			InFlight: t.score.inflight,
			Mean:     time.Duration(t.score.MeanAt(now) * float64(time.Second)),
			Cost:     t.cost(now),
			Failures: t.failures,
			Closed:   t.closedFor(now),
			Ejected:  max(t.out-now, 0),
		}
	}
	return list
}
