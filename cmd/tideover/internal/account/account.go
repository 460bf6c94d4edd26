package account

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/internal/boottime"
	"github.com/tideover/tideover/internal/lazyregexp"
)

// None is the account name of a session that uses no account, and so shares no limit with other
// sessions.
const None = "none"

var validName = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// Store stores the limits of accounts in a folder.
type Store struct {
	Dir string // created at the first use

	// Warn is called when a file can't be read or written: once, and again only after the file has
	// worked. It may be nil.
	Warn func(text string)

	// Uptime returns the time since the boot of the machine, and the id of the boot; nil means the real ones. Tests with
	// virtual time replace it.
	Uptime func() (time.Duration, string)

	mu    sync.Mutex
	gates map[string]*Gate
}

// Gate returns the [Gate] of the account with this name: the same one for every call.
func (s *Store) Gate(name string) (*Gate, error) {
	if !validName.MatchString(name) || name == None {
		return nil, fmt.Errorf("%q is not a valid account name", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gates[name]
	if g == nil {
		if s.gates == nil {
			s.gates = map[string]*Gate{}
		}
		g = &Gate{store: s, name: name, path: filepath.Join(s.Dir, name+".json"), mu: newMutex()}
		s.gates[name] = g
	}
	return g, nil
}

// mutex is a lock that a goroutine may hold while it waits for the lock of a file. It is a channel,
// because goroutines that wait for a sync.Mutex stop the virtual time of testing/synctest.
type mutex chan struct{}

func newMutex() mutex   { return make(mutex, 1) }
func (m mutex) lock()   { m <- struct{}{} }
func (m mutex) unlock() { <-m }

// Gate decides which sessions and steps may use an account.
type Gate struct {
	store *Store
	name  string
	path  string

	mu      mutex
	unsaved *state // state that could not be written; nil if the file is current
	warned  bool
}

// Asker is a session or a step that wants to use an account.
type Asker struct {
	ID      string        // of the run; the same after a restart
	Name    string        // for display, such as "session todo"
	Slack   time.Duration // added to a stated end
	Longest time.Duration // longest stated wait that it accepts
	Spread  time.Duration // after a limit it continues at a random time within this
	Forced  bool          // an operator overrides the limit
}

// Held says how long an asker that may not use the account yet must wait, and why.
type Held struct {
	Wait   time.Duration // until it should ask again
	Why    string
	Stated bool // the end of the limit is known
	Own    bool // the asker itself has just found the limit, and probes it next
}

// Pass is the permission to use an account. Leave ends it.
type Pass struct {
	gate  *Gate
	asker Asker

	mu      mutex
	serial  int64  // serial of the state when the pass was given
	probes  bool   // the pass is a probe: the others wait for its result
	unlease func() // releases the lease of the probe; may be nil
}

func (g *Gate) now() moment {
	uptime := g.store.Uptime
	if uptime == nil {
		uptime = boottime.Elapsed
	}
	m := moment{At: time.Now().Round(0)} // without the monotonic clock, which differs between processes
	m.Uptime, m.Boot = uptime()
	return m
}

// warn reports a problem with the file, unless it has reported one since the last successful write.
func (g *Gate) warn(err error) {
	if g.warned || g.store.Warn == nil {
		return
	}
	g.warned = true
	g.store.Warn(fmt.Sprintf("the limit of account %s is not shared with other processes: %v", g.name, err))
}

// update calls change with the current state. If change returns true, or an earlier state could not
// be written, update writes the file. If that fails, it keeps the state in memory.
func (g *Gate) update(change func(s *state, now moment) bool) {
	g.mu.lock()
	defer g.mu.unlock()
	s, unlock, err := g.begin()
	defer unlock()
	if s = g.newest(s); !change(s, g.now()) && g.unsaved == nil {
		if err != nil {
			g.warn(err)
		}
		return
	}
	s.Serial++
	if err == nil {
		err = writeState(g.path, s)
	}
	if err != nil {
		g.unsaved = s
		g.warn(err)
		return
	}
	g.unsaved, g.warned = nil, false
}

// begin takes the lock and reads the file. If it can't take the lock, it returns the state and an
// error; then the caller must not write the file.
func (g *Gate) begin() (s *state, unlock func(), err error) {
	unlock = func() {}
	if err := cmp.Or(os.MkdirAll(g.store.Dir, 0o700), fileaccess.CheckFolder(g.store.Dir)); err != nil {
		return nil, unlock, err
	}
	release, err := takeLock(g.lockPath())
	if err != nil {
		s, _ = readState(g.path) // on an error, use the empty state
		return s, unlock, err
	}
	s, err = g.load()
	return s, release, err
}

func (g *Gate) lockPath() string  { return g.path[:len(g.path)-len(".json")] + ".lock" }
func (g *Gate) leasePath() string { return g.path[:len(g.path)-len(".json")] + ".probe" }

// load reads the file. If the file is damaged, it renames the file and returns the empty state. The
// caller holds the lock.
func (g *Gate) load() (*state, error) {
	s, err := readState(g.path)
	if errors.Is(err, errDamaged) {
		aside := g.path + ".damaged"
		if e := os.Rename(g.path, aside); e != nil {
			return nil, errors.Join(err, e)
		}
		g.warn(fmt.Errorf("%w: renamed to %s, starting with an empty state", err, aside))
		return new(state), nil
	}
	return s, err
}

// newest returns a copy of the unsaved state of this process if that is newer, else s. A nil s means
// the empty state.
func (g *Gate) newest(s *state) *state {
	if s == nil {
		s = new(state)
	}
	if g.unsaved == nil || g.unsaved.Serial <= s.Serial {
		return s
	}
	c := *g.unsaved
	return &c
}

// current returns the state without taking the lock.
func (g *Gate) current() *state {
	g.mu.lock()
	defer g.mu.unlock()
	var s *state
	if fileaccess.CheckFolder(g.store.Dir) == nil {
		s, _ = readState(g.path) // on an error, use the empty state; update reports it
	}
	return g.newest(s)
}

// leaseHeld reports whether a process holds the lease of the probe, so that the probe is in
// progress. It returns true if that is unknown.
func (g *Gate) leaseHeld() bool {
	unlock, held, err := tryLock(g.leasePath())
	if unlock != nil {
		unlock()
	}
	return held || err != nil
}

// busy returns the probe that an asker other than id is making now; nil if there is none.
func (g *Gate) busy(s *state, id string, now moment) *probe {
	if p := s.probedBy(id, now); p != nil && g.leaseHeld() {
		return p
	}
	return nil
}

// Enter asks for permission to use the account. It returns a pass, or how long the asker must wait.
func (g *Gate) Enter(a Asker) (*Pass, *Held) {
	p := &Pass{gate: g, asker: a, mu: newMutex()}
	var held *Held
	g.update(func(s *state, now moment) bool {
		p.serial = s.Serial
		changed := s.rebase(now)
		l := s.Limit
		if l == nil || a.Forced || !l.stated() && l.isOver(now) {
			return changed
		}
		var busy *probe
		if !l.stated() {
			busy = g.busy(s, a.ID, now)
		}
		if held = l.heldFor(g.name, &a, busy, now); held != nil || l.stated() {
			return changed
		}
		p.lease()
		s.Probe = &probe{now, a.ID, a.Name}
		return true
	})
	if held != nil {
		return nil, held
	}
	return p, nil
}

// lease makes the pass a probe: other askers wait for its result. It locks a file, so that the
// probe ends with the process at the latest.
func (p *Pass) lease() {
	p.probes = true
	if unlock, held, err := tryLock(p.gate.leasePath()); err == nil && !held {
		p.unlease = unlock
	}
}

// Probes reports whether other askers wait for the result of this pass.
func (p *Pass) Probes() bool {
	p.mu.lock()
	defer p.mu.unlock()
	return p.probes
}

// Reset is the stated end of a limit. The zero Reset means that it was not stated.
type Reset struct {
	At time.Time     // a date and time
	In time.Duration // a duration, instead of At
}

// wait returns the time until the end; 0 if it is unknown or implausible.
func (r Reset) wait(now moment) time.Duration {
	wait := r.In
	if !r.At.IsZero() {
		wait = r.At.Sub(now.At)
	}
	if wait <= 0 || wait > maxStated {
		return 0
	}
	return wait
}

// Limited records that the asker ran into a limit of the account; a known limit that ends later
// stays. If r states an end, Limited returns nil. Otherwise it returns how long to wait: until the
// known end, or until the next probe, which is after probeIn unless another asker has recorded the
// limit already.
func (p *Pass) Limited(r Reset, why string, probeIn time.Duration) (held *Held) {
	p.mu.lock()
	defer p.mu.unlock()
	g, a := p.gate, &p.asker
	g.update(func(s *state, now moment) bool {
		changed := p.endProbe(s)
		l, wait := s.active(now), r.wait(now)
		switch {
		case wait == 0 && l != nil && (l.stated() || l.Serial > p.serial): // known, or another asker was faster
			held = l.heldFor(g.name, a, g.busy(s, a.ID, now), now)
			return changed
		case wait > 0 && l != nil && l.stated() && l.left(now) >= wait: // the later end counts
			return changed
		}
		s.setLimit(a, r, why, now)
		if wait == 0 {
			s.Limit.Next = min(max(probeIn, 0), maxProbeDelay)
			held = &Held{Wait: s.Limit.Next, Why: HeldPrefix + s.Limit.describe(g.name, nil, now), Own: true}
		}
		return true
	})
	return held
}

// Worked records that the account has no limit. It does not affect a limit that another asker found
// after this pass was given.
func (p *Pass) Worked() {
	p.mu.lock()
	defer p.mu.unlock()
	p.gate.update(func(s *state, _ moment) bool {
		changed := p.endProbe(s)
		if s.Limit != nil && s.Limit.Serial <= p.serial {
			s.Limit, changed = nil, true
		}
		return changed
	})
}

// Leave ends the pass. If it was a probe without a result, another asker may probe.
func (p *Pass) Leave() {
	p.mu.lock()
	defer p.mu.unlock()
	if p.probes {
		p.gate.update(func(s *state, _ moment) bool { return p.endProbe(s) })
	}
}

// endProbe ends the probe of the pass, if it is one. The caller holds the lock.
func (p *Pass) endProbe(s *state) (changed bool) {
	if !p.probes {
		return false
	}
	p.probes = false
	if p.unlease != nil {
		p.unlease()
		p.unlease = nil
	}
	if s.Probe == nil || s.Probe.ID != p.asker.ID {
		return false
	}
	s.Probe = nil
	return true
}

// Free reports whether an asker may ask again before its wait is over, because the limit has ended, or
// because the asker that probed it has ended without a result.
func (g *Gate) Free(a Asker) bool {
	s, now := g.current(), g.now()
	l := s.active(now)
	if l != nil && l.ID == a.ID && l.nextProbe(now) > 0 {
		return false // the asker waits for its own probe
	}
	return l == nil || l.heldFor(g.name, &a, g.busy(s, a.ID, now), now) == nil
}

// Describe describes the limit in words; "" if there is none.
func (g *Gate) Describe() string {
	if l := g.Limit(); l != nil {
		return "account " + l.Why
	}
	return ""
}

// CheckName returns an error if the name of an account is invalid.
func CheckName(name string) error {
	if validName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%q is not a valid account name: want 1 to 63 lower-case letters, digits, hyphens, underscores and dots, beginning with a letter or digit; or %s",
		shorten(name), None)
}
