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
	"github.com/tideover/tideover/internal/option"
)

// Pool chooses among targets that can do the same work. All its methods may be
// called by any number of goroutines; none blocks.
//
// A target is out while any of these holds, and in otherwise:
//
//   - It is cooling: its server sent a Retry-After ([Outcome.Wait]). Of two
//     such times the later one counts.
//   - Its breaker rejects calls ([WithBreaker]).
//   - It is ejected, after PoolConfig.Failures failures in a row. After the
//     ejection it gets one call at a time, until one succeeds.
//
// Of the targets that are in, those of the lowest tier are candidates. The pool
// draws two of them, and the one whose [Score] divided by its weight is lower
// gets the call. Choosing the better of two uses every candidate and still
// avoids the worst; choosing the best of all would send every caller to the
// same target.
//
// Ejections are only a guess of this process. When the share of targets that
// are in is below PoolConfig.Panic, or none is in, the pool is in panic: it
// ignores ejections and tiers and chooses by score alone. It never ignores a
// Retry-After or an open breaker.
type Pool struct {
	config PoolConfig // without zeros
	names  map[string]int

	all   members
	tiers []members // the lowest first

	mu       sync.Mutex
	targets  []target
	suspects members // targets that may be out; all others are in
}

type target struct {
	Target
	score     Score
	breaker   *breaker.Breaker // nil means none
	siblings  members          // targets of the same provider, itself included
	failures  int              // failures in a row
	ejections int              // ejections in a row, without a success between them
	ejectFor  time.Duration    // length of the last ejection
	out       time.Duration    // the ejection ends at this time
	trials    int              // calls in flight that began while ejections was above zero
	cool      time.Duration    // the cooling ends at this time
}

// NewPool returns a pool of the targets, or an error that lists every problem
// of the targets, the configuration and the options.
func NewPool(cfg PoolConfig, targets []Target, opts ...PoolOption) (*Pool, error) {
	p := &Pool{config: cfg.withDefaults(), names: make(map[string]int, len(targets))}
	for i, t := range targets {
		t.Weight = max(t.Weight, 1)
		p.names[t.Name] = i
		p.targets = append(p.targets, target{Target: t})
	}
	if err := errors.Join(cfg.Validate(), validTargets(targets), option.Apply(p, opts)); err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	for i := range p.targets {
		p.all.add(i)
		p.targets[i].siblings = p.sameProvider(i)
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

// sameProvider returns the targets that have the provider of target i.
func (p *Pool) sameProvider(i int) (s members) {
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
// It always returns a target. If all targets are cooling or behind open
// breakers, that is the one that reopens first, and [Call.Wait] returns when.
func (p *Pool) PickAt(now time.Duration, u uint64) Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	if set := p.candidates(now); set != 0 {
		return p.begin(now, p.bestOfTwo(now, set, u))
	}
	i, wait := p.firstToReopen(now)
	return Call{pool: p, index: i, start: now, wait: wait}
}

// Next chooses another target for a call that failed. See [Pool.NextAt].
func (p *Pool) Next(failed *Call) (Call, bool) {
	return p.NextAt(clock.Now(), rand.Uint64(), failed)
}

// NextAt chooses a target for the work of a failed call: one that is in and
// that the work has not tried. It returns false if there is none. After a
// rejection ([Outcome.Refused]) another key of the same provider comes first,
// then other providers. After any other failure other providers come first,
// because all keys of a provider lead to the same servers.
func (p *Pool) NextAt(now time.Duration, u uint64, failed *Call) (Call, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	tried := failed.tried
	tried.add(failed.index)
	all := p.callable(now) &^ tried
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

// begin counts and returns a call of target i.
func (p *Pool) begin(now time.Duration, i int) Call {
	t := &p.targets[i]
	t.score.Begin()
	c := Call{pool: p, index: i, start: now, counted: true, trial: t.ejections > 0}
	if c.trial {
		t.trials++
	}
	return c
}

// Cool closes the named target for the time wait, as a reported [Outcome.Wait]
// does. Use it for information that did not come from a call. It returns false
// if there is no such target.
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
	p.closeFor(i, now, wait)
	return true
}

// Readmit ends the cooling and the ejection of the named target and resets its
// failure count. Its score and an open breaker stay. It returns false if there
// is no such target.
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

// Recovery returns the time until a target is in; 0 if one is in now. Use it as
// the Retry-After of a response when all targets are cooling.
func (p *Pool) Recovery() time.Duration { return p.RecoveryAt(clock.Now()) }

// RecoveryAt is [Pool.Recovery] at the time now.
func (p *Pool) RecoveryAt(now time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, wait := p.firstToReopen(now)
	return wait
}

// firstToReopen returns the target that its server or breaker keeps closed for
// the shortest time, and that time. It ignores ejections, because the pool also
// ignores them when no target is in.
func (p *Pool) firstToReopen(now time.Duration) (first int, wait time.Duration) {
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
	Mean     time.Duration // expected time to first byte
	Cost     float64       // the score, weight included
	Failures int           // failures in a row
	Closed   time.Duration // how much longer its server or breaker keeps it closed; 0 means that it is open
	Ejected  time.Duration // how much longer it is ejected; 0 means that it is not
}

// Status returns the state of all targets, in the order in which NewPool got
// them.
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
