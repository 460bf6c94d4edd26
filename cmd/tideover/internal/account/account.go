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
	"github.com/tideover/tideover/internal/textfmt"
)

// None as the name of an account means that a session has none.
const None = "none"

var validName = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// Store has what is known of accounts, in a folder.
type Store struct {
	Dir string // is made when it is needed

	// Warn is told once what is wrong with a file; nil means that nobody is told.
	Warn func(text string)

	// Uptime returns the time since the machine's boot, and which boot it was; nil means the machine's. Tests in virtual
	// time replace it.
	Uptime func() (time.Duration, string)

	mu    sync.Mutex
	gates map[string]*Gate
}

// Gate returns the gate of an account.
func (s *Store) Gate(name string) (*Gate, error) {
	if !validName.MatchString(name) || name == None {
		return nil, fmt.Errorf("%q is not a name for an account", name)
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

// mutex is a lock that is held while the lock of a file is waited for. A sync.Mutex would stop the time of a bubble of
// testing/synctest meanwhile.
type mutex chan struct{}

func newMutex() mutex   { return make(mutex, 1) }
func (m mutex) lock()   { m <- struct{}{} }
func (m mutex) unlock() { <-m }

// Gate says who may use an account.
type Gate struct {
	store *Store
	name  string
	path  string

	mu      mutex
	unsaved *state // what could not be written; nil if all is in the file
	warned  bool
}

// Asker is a session or a step that wants to use an account.
type Asker struct {
	ID      string        // of the run; the same after a restart
	Name    string        // for people, such as "session todo"
	Slack   time.Duration // how long it waits beyond a stated end
	Longest time.Duration // it does not wait for a stated end that is farther away
	Spread  time.Duration // after a limit it goes on within that time
	Forced  bool          // a person has told it to go on
}

// Held is what keeps an asker from going on.
type Held struct {
	Wait   time.Duration // until it asks again
	Why    string
	Stated bool // the end of the limit is known
}

// Pass is the permission to use an account. Leave ends it.
type Pass struct {
	gate  *Gate
	asker Asker

	mu      mutex
	serial  int64  // of the state that it was given for
	probes  bool   // the others wait for what it finds out
	unlease func() // releases the lease of the probe; may be nil
}

func (g *Gate) now() moment {
	uptime := g.store.Uptime
	if uptime == nil {
		uptime = boottime.Elapsed
	}
	m := moment{At: time.Now().Round(0)} // without a reading of the monotonic clock, which other processes can't use
	m.Uptime, m.Boot = uptime()
	return m
}

// warn says once that something is wrong with the file.
func (g *Gate) warn(err error) {
	if g.warned || g.store.Warn == nil {
		return
	}
	g.warned = true
	g.store.Warn(fmt.Sprintf("the limit of account %s is not shared with other processes: %v", g.name, err))
}

// update changes what is known. change reports whether it did. What can't be written is kept for this process.
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

// begin takes the lock and reads the file. Without the lock what is in the file is still known, but nothing is written.
func (g *Gate) begin() (s *state, unlock func(), err error) {
	unlock = func() {}
	if err := makeFolder(g.store.Dir); err != nil {
		return nil, unlock, err
	}
	release, err := takeLock(g.lockPath())
	if err != nil {
		s, _ = readState(g.path) // or nothing is known
		return s, unlock, err
	}
	s, err = g.load()
	return s, release, err
}

func (g *Gate) lockPath() string  { return g.path[:len(g.path)-len(".json")] + ".lock" }
func (g *Gate) leasePath() string { return g.path[:len(g.path)-len(".json")] + ".probe" }

// load reads the file. A damaged one is renamed, and nothing is known. It needs the lock.
func (g *Gate) load() (*state, error) {
	s, err := readState(g.path)
	if errors.Is(err, errDamaged) {
		aside := g.path + ".damaged"
		if e := os.Rename(g.path, aside); e != nil {
			return nil, errors.Join(err, e)
		}
		g.warn(fmt.Errorf("%w: renamed to %s, and nothing is known now", err, aside))
		return new(state), nil
	}
	return s, err
}

// newest returns a copy of what this process knows, if that could not be written, or what is in the file.
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

// look returns what is known, without the lock.
func (g *Gate) look() *state {
	g.mu.lock()
	defer g.mu.unlock()
	var s *state
	if fileaccess.CheckFolder(g.store.Dir) == nil {
		s, _ = readState(g.path) // or nothing is known; update says why
	}
	return g.newest(s)
}

// leaseHeld reports whether the process of a probe lives.
func (g *Gate) leaseHeld() bool {
	unlock, held, err := tryLock(g.leasePath())
	if unlock != nil {
		unlock()
	}
	return held || err != nil
}

// busy returns the probe that others than the asker wait for, or nil.
func (g *Gate) busy(s *state, id string, now moment) *probe {
	if p := s.probedBy(id, now); p != nil && g.leaseHeld() {
		return p
	}
	return nil
}

// Enter asks whether the account may be used now. It returns a pass, or what the asker is held by.
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
		if held = l.hold(g.name, &a, busy, now); held != nil || l.stated() {
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

// lease makes the pass the one whose result the others wait for. The lease ends with the process, however that ends.
func (p *Pass) lease() {
	p.probes = true
	if unlock, held, err := tryLock(p.gate.leasePath()); err == nil && !held {
		p.unlease = unlock
	}
}

// Probes reports whether others wait for what this pass finds out.
func (p *Pass) Probes() bool {
	p.mu.lock()
	defer p.mu.unlock()
	return p.probes
}

// Reset is when a limit ends, as it was stated. The zero Reset says nothing.
type Reset struct {
	At time.Time     // of the calendar
	In time.Duration // time that passes, instead of At
}

// wait returns how long it is until then, and 0 for what is unknown or absurd.
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

// Limited records that the account is limited. Without a stated end, the asker is the one that probes it next, after
// the delay. It returns what the asker is held by, if that was known before: nothing was learned then.
func (p *Pass) Limited(r Reset, why string, probeIn time.Duration) (held *Held) {
	p.mu.lock()
	defer p.mu.unlock()
	g, a := p.gate, &p.asker
	g.update(func(s *state, now moment) bool {
		changed := p.endProbe(s)
		l, wait := s.active(now), r.wait(now)
		switch {
		case l == nil:
		case wait == 0 && l.stated():
			held = l.hold(g.name, a, nil, now)
			return changed
		case wait == 0 && l.Serial > p.serial: // another was faster
			held = l.hold(g.name, a, g.busy(s, a.ID, now), now)
			return changed
		case l.stated() && l.left(now) >= wait: // the later one holds
			return changed
		}
		s.Limit = &limit{moment: now, Serial: s.Serial + 1, ID: a.ID, By: textfmt.TruncateValid(a.Name, maxText, "…"), Why: textfmt.TruncateValid(why, maxText, "…"), Wait: wait}
		if wait == 0 {
			s.Limit.Next = min(max(probeIn, 0), maxProbeDelay)
		} else if r.In == 0 {
			s.Limit.Until = r.At.Round(0)
		}
		return true
	})
	return held
}

// Worked records that the account has no limit, as far as this pass can know: it says nothing about a limit that another
// ran into later.
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

// Leave ends the pass. A probe that found out nothing lets another probe.
func (p *Pass) Leave() {
	p.mu.lock()
	defer p.mu.unlock()
	if p.probes {
		p.gate.update(p.abandon)
	}
}

func (p *Pass) abandon(s *state, _ moment) bool { return p.endProbe(s) }

// endProbe ends the probe of the pass, if it is one. It needs the lock.
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

// Free reports whether an asker that was held may ask again before its wait is over: the limit is, or the process
// that probed it.
func (g *Gate) Free(a Asker) bool {
	s, now := g.look(), g.now()
	l := s.Limit
	switch {
	case l == nil:
		return true
	case l.stated():
		return l.hold(g.name, &a, nil, now) == nil
	case l.isOver(now):
		return true
	}
	return s.Probe != nil && g.busy(s, a.ID, now) == nil
}

// Describe returns in words that the account is limited, and "" if it is not.
func (g *Gate) Describe() string {
	s, now := g.look(), g.now()
	l := s.active(now)
	if l == nil {
		return ""
	}
	return "account " + l.describe(g.name, s.probedBy("", now), now)
}

// CheckName says what is wrong with the name of an account.
func CheckName(name string) error {
	if validName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%q is not a name for an account: want 1 to 63 lower-case letters, digits, hyphens, underscores and dots, the first a letter or digit; or %s",
		cmp.Or(textfmt.TruncateValid(name, maxText, "…"), ""), None)
}
