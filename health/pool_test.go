package health

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/breaker"
)

// exact ejects after three failures for 10 s, 20 s, 40 s.
var exact = PoolConfig{Failures: 3, Eject: backoff.Schedule{Kind: backoff.Exponential, Base: 10 * sec, Cap: time.Minute}}

func newPool(t testing.TB, cfg PoolConfig, targets []Target, opts ...PoolOption) *Pool {
	t.Helper()
	p, err := NewPool(cfg, targets, opts...)
	if err != nil {
		t.Fatalf("NewPool: %v", err)
	}
	return p
}

// newTargets returns targets of one tier with these names, each with a provider
// of its own.
func newTargets(names ...string) (list []Target) {
	for _, n := range names {
		list = append(list, Target{Name: n})
	}
	return list
}

// callOnce makes a call of the named target and ends it at once.
func callOnce(p *Pool, now time.Duration, name string, o Outcome) {
	p.mu.Lock()
	c := p.begin(now, p.names[name])
	p.mu.Unlock()
	c.DoneAt(now, 0, o)
}

func callTimes(p *Pool, now time.Duration, n int, name string, o Outcome) {
	for range n {
		callOnce(p, now, name, o)
	}
}

// pickable returns the names that Pick can return, and the shortest Call.Wait.
func pickable(p *Pool, now time.Duration) (names []string, wait time.Duration) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		c := p.PickAt(now, r.Uint64())
		if n := c.Target().Name; !slices.Contains(names, n) {
			names = append(names, n)
		}
		wait = c.Wait()
		c.DoneAt(now, 0, Canceled)
	}
	slices.Sort(names)
	return names, wait
}

func wantPickable(t *testing.T, p *Pool, now time.Duration, want string, wait time.Duration) {
	t.Helper()
	names, got := pickable(p, now)
	if s := strings.Join(names, " "); s != want || got != wait {
		t.Errorf("at %v picks choose %q and say to wait %v, want %q and %v", now, s, got, want, wait)
	}
	if got := p.RecoveryAt(now); got != wait {
		t.Errorf("RecoveryAt(%v) = %v, want %v", now, got, wait)
	}
}

func TestNewPoolNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := NewPool(
		PoolConfig{Failures: -1, Panic: math.NaN(), MaxCool: -1, Eject: backoff.Schedule{Base: -1}},
		[]Target{{}, {Name: "a"}, {Name: "a", Weight: -2}},
		WithBreaker("b", breaker.Must(breaker.Config{})), WithBreaker("a", nil), nil)
	if err == nil {
		t.Fatal("NewPool accepted a configuration in which all is wrong")
	}
	for _, want := range []string{
		"failures: -1", "panic: NaN", "max-cool: -1ns", "eject: base: -1ns", "target 0: name: is empty",
		`target "a": name: is used twice`, `target "a": weight: -2`, `no target "b"`, `target "a": is nil`, "option: nil",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error = %q, want it to say %q", err, want)
		}
	}
	for _, n := range []int{0, MaxTargets + 1} {
		if _, err := NewPool(PoolConfig{}, make([]Target, n)); err == nil || !strings.Contains(err.Error(), "not between 1 and 64") {
			t.Errorf("NewPool with %d targets: %v", n, err)
		}
	}
}

func TestPoolTakesTargetsOut(t *testing.T) {
	t.Parallel()
	failing := func(n int) func(*Pool) {
		return func(p *Pool) { callTimes(p, 0, n, "a", Failed) }
	}
	for _, tt := range []struct {
		name string
		play func(p *Pool)
		at   time.Duration
		want string
		wait time.Duration
	}{
		{"all new targets are in", func(*Pool) {}, 0, "a b c", 0},
		{"two failures in a row eject no target", failing(2), 60 * sec, "a b c", 0},
		{"three do", failing(3), 9 * sec, "b c", 0},
		{"for the time of the first ejection", failing(3), 10 * sec, "a b c", 0},
		{"a success in between starts the row again", func(p *Pool) {
			callTimes(p, 0, 2, "a", Failed)
			callOnce(p, 0, "a", Succeeded)
			callTimes(p, 0, 2, "a", Failed)
		}, 60 * sec, "a b c", 0},
		{"a cancelled call counts nothing", func(p *Pool) {
			callTimes(p, 0, 2, "a", Failed)
			callTimes(p, 0, 5, "a", Canceled)
		}, 60 * sec, "a b c", 0},
		{"one that fails on its return is out for longer", func(p *Pool) {
			callTimes(p, 0, 3, "a", Failed)
			callOnce(p, 10*sec, "a", Failed)
		}, 29 * sec, "b c", 0},
		{"failures while it is out do not lengthen that", func(p *Pool) {
			callTimes(p, 0, 3, "a", Failed)
			callTimes(p, 5*sec, 9, "a", Failed)
		}, 10 * sec, "a b c", 0},
		{"one success on its return makes it as good as new", func(p *Pool) {
			callTimes(p, 0, 3, "a", Failed)
			callOnce(p, 10*sec, "a", Succeeded)
			callTimes(p, 10*sec, 2, "a", Failed)
		}, 70 * sec, "a b c", 0},
		{"a server's wait closes its target", func(p *Pool) { callOnce(p, 0, "b", FailedFor(60*sec)) }, 59 * sec, "a c", 0},
		{"and no longer", func(p *Pool) { callOnce(p, 0, "b", FailedFor(60*sec)) }, 60 * sec, "a b c", 0},
		{"cooling again keeps the later time", func(p *Pool) {
			callOnce(p, 0, "b", FailedFor(60*sec))
			callOnce(p, sec, "b", FailedFor(5*sec))
		}, 59 * sec, "a c", 0},
		{"a success does not end a server's wait", func(p *Pool) {
			callOnce(p, 0, "b", FailedFor(60*sec))
			callOnce(p, sec, "b", Succeeded)
		}, 30 * sec, "a c", 0},
		{"when all are ejected all are in", func(p *Pool) {
			for _, n := range []string{"a", "b", "c"} {
				callTimes(p, 0, 3, n, Failed)
			}
		}, 0, "a b c", 0},
		{"when the only open one is ejected it is in", func(p *Pool) {
			callTimes(p, 0, 3, "a", Failed)
			p.CoolAt(0, "b", 60*sec)
			p.CoolAt(0, "c", 60*sec)
		}, 0, "a", 0},
		{"when all are cooling it is the one that is back first", func(p *Pool) {
			p.CoolAt(0, "a", 30*sec)
			p.CoolAt(0, "b", 20*sec)
			p.CoolAt(0, "c", 40*sec)
		}, 5 * sec, "b", 15 * sec},
		{"an absurd wait is cut", func(p *Pool) {
			for _, n := range []string{"a", "b", "c"} {
				p.CoolAt(0, n, math.MaxInt64)
			}
		}, 0, "a", time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, exact, newTargets("a", "b", "c"))
			tt.play(p)
			// The score would hide a target that is in: only eligibility matters here.
			for i := range p.targets {
				p.targets[i].score = Score{}
			}
			wantPickable(t, p, tt.at, tt.want, tt.wait)
		})
	}
}

func TestPoolCoolReportsUnknownNames(t *testing.T) {
	t.Parallel()
	if p := newPool(t, exact, newTargets("a")); p.Cool("x", sec) || !p.Cool("a", sec) || p.Recovery() <= 0 {
		t.Error("Cool did not tell a target from a stranger")
	}
}

func TestPoolLetsAnEjectedTargetBackForOneCallAtATime(t *testing.T) {
	t.Parallel()
	p := newPool(t, exact, []Target{{Name: "a"}, {Name: "b", Tier: 1}})
	callTimes(p, 0, 3, "a", Failed)
	probe := p.PickAt(10*sec, 0)
	if got := probe.Target().Name; got != "a" {
		t.Fatalf("after its ejection the pick is %q, want a", got)
	}
	second := p.PickAt(10*sec, 0)
	if got := second.Target().Name; got != "b" {
		t.Errorf("while a is being tried the pick is %q, want b", got)
	}
	probe.FirstByteAt(11 * sec)
	third := p.PickAt(11*sec, 0)
	if got := third.Target().Name; got != "a" {
		t.Errorf("after a's first byte the pick is %q, want a", got)
	}
}

func TestPoolCallsFromBeforeAnEjectionDoNotDelayTheReturn(t *testing.T) {
	t.Parallel()
	p := newPool(t, exact, []Target{{Name: "a"}, {Name: "b", Tier: 1}})
	stream := p.PickAt(0, 0)
	callTimes(p, sec, 3, "a", Failed)
	c := p.PickAt(11*sec, 0)
	if got := c.Target().Name; got != "a" {
		t.Errorf("with an old stream under way the pick is %q, want a", got)
	}
	stream.DoneAt(12*sec, 0, Canceled)
	c.DoneAt(12*sec, 0, Canceled)
	if got := p.targets[0].trials; got != 0 {
		t.Errorf("%d trials under way, want none", got)
	}
}

func TestPoolPassesOverAnOpenBreaker(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{FailureRate: breaker.Off, ConsecutiveFailures: 1, Open: backoff.Schedule{Base: 5 * sec}})
	p := newPool(t, exact, newTargets("a", "b"), WithBreaker("a", b))
	wantPickable(t, p, 0, "a b", 0)
	permit, _ := b.AllowAt(0)
	permit.DoneAt(0, breaker.Failure)
	wantPickable(t, p, sec, "b", 0)
	p.CoolAt(0, "b", 10*sec)
	wantPickable(t, p, sec, "a", 4*sec)
	wantPickable(t, p, 5*sec, "a", 0)
}

func TestPoolUsesTheLowestTierThatIsIn(t *testing.T) {
	t.Parallel()
	p := newPool(t, exact, []Target{{Name: "a"}, {Name: "b"}, {Name: "c", Tier: 1}, {Name: "d", Tier: 2}})
	wantPickable(t, p, 0, "a b", 0)
	p.CoolAt(0, "a", 10*sec)
	wantPickable(t, p, 0, "b", 0)
	p.CoolAt(0, "b", 20*sec)
	wantPickable(t, p, 0, "c", 0)
	p.CoolAt(0, "c", 30*sec)
	wantPickable(t, p, 0, "d", 0)
	wantPickable(t, p, 10*sec, "a", 0)
}

func TestPoolPanicsBelowItsThreshold(t *testing.T) {
	t.Parallel()
	cfg := exact
	cfg.Panic = 0.5
	p := newPool(t, cfg, newTargets("a", "b", "c", "d"))
	callTimes(p, 0, 3, "a", Failed)
	callTimes(p, 0, 3, "b", Failed)
	wantPickable(t, p, 0, "c d", 0) // exactly half is in
	callTimes(p, 0, 3, "c", Failed)
	for i := range p.targets {
		p.targets[i].score = Score{}
	}
	wantPickable(t, p, 0, "a b c d", 0)
	p.CoolAt(0, "d", 60*sec)
	wantPickable(t, p, 0, "a b c", 0) // a Retry-After holds in panic too
}

func TestPoolNextFollowsTheFailoverOrder(t *testing.T) {
	t.Parallel()
	keys := []Target{
		{Name: "a1", Provider: "a"}, {Name: "a2", Provider: "a"}, {Name: "a3", Provider: "a", Tier: 1},
		{Name: "b1", Provider: "b", Tier: 1}, {Name: "c1", Tier: 2},
	}
	for _, tt := range []struct {
		name string
		o    Outcome
		want string
	}{
		{"a refused key goes to the provider's other keys first", RefusedFor(0), "a2 a3 b1 c1"},
		{"a failure goes to other providers first", Failed, "b1 a2 c1 a3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, exact, keys)
			p.CoolAt(0, "a2", sec)
			c := p.PickAt(0, 0) // a1: the only one of its tier
			var got []string
			for ok := true; ok; {
				c.DoneAt(sec, 0, tt.o)
				if c, ok = p.NextAt(sec, 0, &c); ok {
					got = append(got, c.Target().Name)
				}
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("after a1 the work goes to %q, want %q", s, tt.want)
			}
		})
	}
}

func TestPoolNextSaysWhenNothingIsLeft(t *testing.T) {
	t.Parallel()
	p := newPool(t, exact, newTargets("a", "b"))
	c := p.PickAt(0, 0)
	c.DoneAt(0, 0, Failed)
	p.CoolAt(0, "a", sec)
	p.CoolAt(0, "b", sec)
	if n, ok := p.NextAt(0, 0, &c); ok {
		t.Errorf("Next = %q though all are cooling", n.Target().Name)
	}
}

func TestPoolCallsCountOnce(t *testing.T) {
	t.Parallel()
	p := newPool(t, exact, newTargets("a"))
	c := p.PickAt(0, 0)
	c.FirstByteAt(sec)
	c.FirstByteAt(9 * sec)
	c.DoneAt(9*sec, 0, Succeeded)
	c.DoneAt(9*sec, 0, Failed)
	c.FirstByteAt(9 * sec)
	got := p.StatusAt(sec)[0]
	if got.InFlight != 0 || got.Mean != sec || got.Failures != 0 {
		t.Errorf("StatusAt = %+v, want one call whose first byte came after 1s", got)
	}
	var zero Call
	zero.FirstByte()
	zero.Done(Failed)
	if zero.Target() != (Target{}) || zero.Wait() != 0 {
		t.Error("the zero Call has a target")
	}
}

func TestPoolCallThatShouldNotBeMadeHoldsNothing(t *testing.T) {
	t.Parallel()
	p := newPool(t, exact, newTargets("a"))
	p.CoolAt(0, "a", sec)
	c := p.PickAt(0, 0)
	if got := p.StatusAt(0)[0]; got.InFlight != 0 || got.Closed != sec {
		t.Errorf("StatusAt = %+v, want nothing in flight, closed for 1s", got)
	}
	c.DoneAt(0, 0, Failed) // made all the same: it counts
	if got := p.StatusAt(0)[0]; got.InFlight != 0 || got.Failures != 1 {
		t.Errorf("StatusAt = %+v, want one failure", got)
	}
}

func TestPoolPrefersTheFasterTargetAndKeepsTheSlowerInUse(t *testing.T) {
	t.Parallel()
	p := newPool(t, PoolConfig{}, newTargets("fast", "slow", "slower"))
	r := rand.New(rand.NewPCG(3, 4))
	ttfb := map[string]time.Duration{"fast": 50 * ms, "slow": 200 * ms, "slower": 800 * ms}
	count := map[string]int{}
	for now := time.Duration(0); now < 5*time.Minute; now += 100 * ms {
		c := p.PickAt(now, r.Uint64())
		name := c.Target().Name
		count[name]++
		c.DoneAt(now+ttfb[name], 0, Succeeded)
	}
	if !(count["fast"] > count["slow"] && count["slow"] > count["slower"] && count["slower"] > 0) {
		t.Errorf("calls = %v, want more for the faster and some for all", count)
	}
}

func TestPoolGivesCallsByWeight(t *testing.T) {
	t.Parallel()
	p := newPool(t, PoolConfig{}, []Target{{Name: "a"}, {Name: "b", Weight: 3}})
	for _, n := range []string{"a", "b"} {
		callOnce(p, 0, n, Succeeded)
		p.targets[p.names[n]].score.ObserveAt(0, sec)
	}
	r := rand.New(rand.NewPCG(3, 4))
	count := map[string]int{}
	for range 400 { // all in flight at once
		c := p.PickAt(0, r.Uint64())
		count[c.Target().Name]++
	}
	if count["a"] < 98 || count["a"] > 102 {
		t.Errorf("calls = %v, want a quarter for a", count)
	}
}

func FuzzPoolAlwaysReturnsATarget(f *testing.F) {
	f.Add(uint64(1), uint8(3), []byte{0, 9, 18, 27, 255})
	f.Fuzz(func(t *testing.T, seed uint64, n uint8, ops []byte) {
		r := rand.New(rand.NewPCG(seed, 1))
		var targets []Target
		for i := range 1 + int(n)%MaxTargets {
			targets = append(targets, Target{Name: string(rune('A' + i)), Tier: r.IntN(3), Weight: r.IntN(3), Provider: string(rune('a' + r.IntN(4)))})
		}
		p := newPool(t, PoolConfig{Failures: 1 + r.IntN(3), Panic: r.Float64()}, targets)
		now, begun := time.Duration(0), []Call{}
		for _, op := range ops {
			now += time.Duration(r.Int64N(int64(5 * sec)))
			c := p.PickAt(now, r.Uint64())
			if c.Target().Name == "" {
				t.Fatal("PickAt returned no target")
			}
			if closed := p.StatusAt(now)[c.index].Closed; closed != c.Wait() || closed != 0 && p.RecoveryAt(now) != closed {
				t.Fatalf("picked a target that is closed for %v and says to wait %v", closed, c.Wait())
			}
			begun = append(begun, c)
			b := &begun[r.IntN(len(begun))]
			b.DoneAt(now, r.Uint64(), Outcome{Result: breaker.Result(op % 4), Refused: op&4 > 0, Wait: time.Duration(op/8) * sec})
			if next, ok := p.NextAt(now, r.Uint64(), b); ok {
				if next.index == b.index || b.tried>>next.index&1 == 1 {
					t.Fatal("NextAt returned a target that was tried")
				}
				begun = append(begun, next)
			}
		}
		for i := range begun {
			begun[i].DoneAt(now, 0, Canceled)
		}
		for _, s := range p.StatusAt(now) {
			if s.InFlight != 0 || !(s.Cost >= 0) {
				t.Fatalf("after all calls ended: %+v", s)
			}
		}
	})
}

func TestPoolUnderConcurrency(t *testing.T) {
	t.Parallel()
	p := newPool(t, PoolConfig{}, newTargets("a", "b", "c", "d"))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				c := p.Pick()
				c.FirstByte()
				if (i+g)%5 == 0 {
					c.Done(Failed)
					if next, ok := p.Next(&c); ok {
						next.Done(Succeeded)
					}
					continue
				}
				c.Done(Succeeded)
			}
		})
	}
	wg.Wait()
	for _, s := range p.Status() {
		if s.InFlight != 0 {
			t.Errorf("%s has %d calls in flight", s.Name, s.InFlight)
		}
	}
}

func TestPoolAllocatesNothing(t *testing.T) {
	p := newPool(t, PoolConfig{}, newTargets("a", "b", "c", "d"))
	if n := testing.AllocsPerRun(100, func() {
		c := p.Pick()
		c.FirstByte()
		c.Done(Failed)
		if next, ok := p.Next(&c); ok {
			next.Done(Succeeded)
		}
	}); n != 0 {
		t.Errorf("a call allocates %v times", n)
	}
}

func TestReadmittedTargetIsInAgain(t *testing.T) {
	p, err := NewPool(PoolConfig{Failures: 1}, []Target{{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	c := p.PickAt(0, 1)
	c.DoneAt(0, 1, FailedFor(time.Hour))
	if st := p.StatusAt(0)[0]; st.Closed != time.Hour || st.Ejected == 0 || st.Cost == 0 {
		t.Fatalf("after a failure: %+v", st)
	}
	if !p.Readmit("a") || p.Readmit("b") {
		t.Error("Readmit knows not which targets there are")
	}
	if st := p.StatusAt(0)[0]; st.Closed != 0 || st.Ejected != 0 || st.Failures != 0 || st.Cost == 0 {
		t.Errorf("readmitted: %+v, want it in, with its score", st)
	}
}
