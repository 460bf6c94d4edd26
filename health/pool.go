package health

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
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

// members is a set of targets of one pool: bit i stands for target i.
type members uint64

func (s *members) add(i int) { *s |= 1 << i }

func (s members) len() int { return bits.OnesCount64(uint64(s)) }

// nth returns the n-th target of the set, counted from 0.
func (s members) nth(n int) int {
	for ; n > 0; n-- {
		s &= s - 1
	}
	return bits.TrailingZeros64(uint64(s))
}

// The methods below need the lock held.

// closedFor returns how much longer the server's Retry-After or the breaker
// keeps the target closed; 0 if neither does.
func (t *target) closedFor(now time.Duration) time.Duration {
	wait := max(t.cool-now, 0)
	if t.breaker != nil {
		wait = max(wait, t.breaker.OpenForAt(now))
	}
	return wait
}

// ejected reports whether the target must not get another call: its ejection lasts,
// or the ejection is over and the single trial call that follows it is in flight.
func (t *target) ejected(now time.Duration) bool {
	return t.ejections > 0 && (now < t.out || t.trials > 0)
}

// cost returns the target's score divided by its weight.
func (t *target) cost(now time.Duration) float64 { return t.score.CostAt(now) / float64(t.Weight) }

// partition returns the open targets (closed neither by their server nor by
// their breaker) and, of those, the ones that are in (not ejected).
func (p *Pool) partition(now time.Duration) (open, in members) {
	open, in = p.all, p.all
	for rest := p.suspects; rest != 0; rest &= rest - 1 {
		i := rest.nth(0)
		switch t := &p.targets[i]; {
		case t.closedFor(now) > 0:
			open &^= 1 << i
			in &^= 1 << i
		case t.ejected(now):
			in &^= 1 << i
		case t.ejections == 0 && t.breaker == nil:
			p.suspects &^= 1 << i
		}
	}
	return open, in
}

// inPanic reports whether the share of the open targets that are in is below
// PoolConfig.Panic, or none of them is in.
func (p *Pool) inPanic(open, in members) bool {
	return in == 0 || float64(in.len()) < p.config.Panic*float64(open.len())
}

// callable returns the targets that may be called, ejected ones included if the
// pool is in panic. It is empty only if all targets are closed.
func (p *Pool) callable(now time.Duration) members {
	open, in := p.partition(now)
	if p.inPanic(open, in) {
		return open
	}
	return in
}

// candidates returns the targets among which a first call may choose: those of
// the lowest tier, or, in panic, all open ones.
func (p *Pool) candidates(now time.Duration) members {
	open, in := p.partition(now)
	if p.inPanic(open, in) {
		return open
	}
	return p.lowestTier(in)
}

// lowestTier returns the targets of the set that are in its lowest tier.
func (p *Pool) lowestTier(s members) members {
	for _, tier := range p.tiers {
		if low := s & tier; low != 0 {
			return low
		}
	}
	return 0
}

// bestOfTwo draws two different targets of the set and returns the one that
// costs less. The set must not be empty.
func (p *Pool) bestOfTwo(now time.Duration, s members, u uint64) int {
	n := uint64(s.len())
	if n == 1 {
		return s.nth(0)
	}
	a := int((u >> 32) * n >> 32)
	b := int((u & (1<<32 - 1)) * (n - 1) >> 32)
	if b >= a {
		b++
	}
	i, j := s.nth(a), s.nth(b)
	if p.targets[j].cost(now) < p.targets[i].cost(now) {
		return j
	}
	return i
}
