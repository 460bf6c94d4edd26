package retry

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tideover/tideover/limit"
)

func mustParse(t testing.TB, text string) Policy {
	t.Helper()
	p, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDecide(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name   string
		policy string
		state  State
		out    Outcome
		gates  Gates
		want   Decision
	}{
		{"waits by the policy", "exponential(1s..32s) attempts=4", State{Attempt: 2}, Outcome{}, Gates{},
			Decision{Wait: 2 * s, Prev: 2 * s}},
		{"the zero policy stops after one attempt", "fixed(0s)", State{Attempt: 1}, Outcome{}, Gates{},
			Decision{Stop: StopAttempts}},
		{"attempts used up", "fixed(1s) attempts=3", State{Attempt: 3}, Outcome{}, Gates{},
			Decision{Stop: StopAttempts}},
		{"unlimited never is", "fixed(1s) attempts=unlimited", State{Attempt: math.MaxInt}, Outcome{}, Gates{},
			Decision{Wait: s, Prev: s}},
		{"permanent", "fixed(1s) attempts=3", State{Attempt: 1}, Outcome{Class: ClassPermanent, After: s}, Gates{},
			Decision{Stop: StopPermanent}},
		{"canceled", "fixed(1s) attempts=3", State{Attempt: 1}, Outcome{Class: ClassCanceled}, Gates{},
			Decision{Stop: StopCanceled}},
		{"final", "fixed(1s) attempts=3", State{Attempt: 1}, Outcome{Final: true}, Gates{},
			Decision{Stop: StopPermanent}},
		{"stuck", "fixed(1s) attempts=3", State{Attempt: 1}, Outcome{Class: ClassStuck}, Gates{},
			Decision{Stop: StopStuck}},
		{"throttled waits from its own base", "exponential(50ms..20s) attempts=5 throttle-base=1s", State{Attempt: 2}, Outcome{Class: ClassThrottled}, Gates{},
			Decision{Wait: 2 * s, Prev: 2 * s}},
		{"throttled without its own base", "fixed(1s) attempts=5", State{Attempt: 2}, Outcome{Class: ClassThrottled}, Gates{},
			Decision{Wait: s, Prev: s}},
		{"the server's delay replaces ours", "exponential(1s..2s) attempts=4", State{Attempt: 1, Prev: 5}, Outcome{After: 60 * s}, Gates{},
			Decision{Wait: 60 * s, By: ByServer, Prev: 5}},
		{"with slack", "exponential(1s..2s) attempts=4 server-slack=90s", State{Attempt: 1}, Outcome{After: 60 * s}, Gates{},
			Decision{Wait: 150 * s, By: ByServer}},
		{"up to the limit, itself included", "fixed(1s) attempts=4", State{Attempt: 1}, Outcome{After: 120 * s}, Gates{},
			Decision{Wait: 120 * s, By: ByServer}},
		{"and not beyond", "fixed(1s) attempts=4", State{Attempt: 1}, Outcome{After: 120*s + 1}, Gates{},
			Decision{Stop: StopServerWait}},
		{"a limit of its own", "fixed(1s) attempts=4 server-wait=10s", State{Attempt: 1}, Outcome{After: 11 * s}, Gates{},
			Decision{Stop: StopServerWait}},
		{"an endless server delay does not overflow", "fixed(1s) attempts=4 server-wait=106751d server-slack=1d", State{Attempt: 1}, Outcome{After: 106751 * 24 * time.Hour}, Gates{},
			Decision{Wait: math.MaxInt64, By: ByServer}},
		{"a delay of a schedule", "fixed(1s..5s) attempts=4", State{Attempt: 1}, Outcome{Delay: 3 * s}, Gates{},
			Decision{Wait: 3 * s, By: BySchedule}},
		{"stays within the cap", "fixed(1s..5s) attempts=4", State{Attempt: 1}, Outcome{Delay: time.Hour}, Gates{},
			Decision{Wait: 5 * s, By: BySchedule}},
		{"the total timeout is too close", "fixed(1s) attempts=4 total-timeout=10s", State{Attempt: 1, Elapsed: 9 * s}, Outcome{}, Gates{},
			Decision{Stop: StopTotalTimeout, Wait: s, Prev: s}},
		{"the total timeout leaves a moment", "fixed(1s) attempts=4 total-timeout=10s", State{Attempt: 1, Elapsed: 9*s - 1}, Outcome{}, Gates{},
			Decision{Wait: s, Prev: s}},
		{"the total timeout has passed", "fixed(0s) attempts=4 total-timeout=10s", State{Attempt: 1, Elapsed: 11 * s}, Outcome{}, Gates{},
			Decision{Stop: StopTotalTimeout}},
		{"the deadline is too close", "fixed(1s) attempts=4", State{Attempt: 1, Left: s}, Outcome{}, Gates{},
			Decision{Stop: StopDeadline, Wait: s, Prev: s}},
		{"the deadline has passed", "fixed(0s) attempts=4", State{Attempt: 1, Left: -1}, Outcome{}, Gates{},
			Decision{Stop: StopDeadline}},
		{"the server asks for more than the deadline leaves", "fixed(1s) attempts=4", State{Attempt: 1, Left: 59 * s}, Outcome{After: 60 * s}, Gates{},
			Decision{Stop: StopDeadline, Wait: 60 * s, By: ByServer}},
		{"the breaker is open longer than the wait", "fixed(1s) attempts=4", State{Attempt: 1}, Outcome{}, Gates{OpenFor: s + 1},
			Decision{Stop: StopBreaker, Wait: s, Prev: s}},
		{"the breaker will let us try", "fixed(1s) attempts=4", State{Attempt: 1}, Outcome{}, Gates{OpenFor: s},
			Decision{Wait: s, Prev: s}},
		{"the budget is empty", "fixed(1s) attempts=4", State{Attempt: 1}, Outcome{}, Gates{OverBudget: true},
			Decision{Stop: StopBudget, Wait: s, Prev: s}},
	}
	for _, tt := range tests {
		if got := Decide(mustParse(t, tt.policy), tt.state, tt.out, tt.gates, 0); got != tt.want {
			t.Errorf("%s: Decide = %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestServerDelaysAreOnlyLengthened(t *testing.T) {
	p := mustParse(t, "fixed(1s) attempts=4 server-wait=1d")
	for _, after := range []time.Duration{1, time.Millisecond, 10 * time.Second, time.Minute, 3 * time.Hour} {
		most := min(after/5, 30*time.Second)
		longest := time.Duration(0)
		for range 10_000 {
			d := Decide(p, State{Attempt: 1}, Outcome{After: after}, Gates{}, rand.Uint64())
			if d.Wait < after || d.Wait > after+most {
				t.Fatalf("after %v: waits %v, outside %v..%v", after, d.Wait, after, after+most)
			}
			longest = max(longest, d.Wait-after)
		}
		if longest < most*9/10 {
			t.Errorf("after %v: the longest extra wait is %v, want up to %v", after, longest, most)
		}
	}
}

func TestDecorrelatedDelaysFollowTheStoredState(t *testing.T) {
	p := mustParse(t, "decorrelated(1s..1m) attempts=9")
	d := Decide(p, State{Attempt: 1}, Outcome{}, Gates{}, math.MaxUint64)
	if d.Wait != 3*time.Second || d.Prev != d.Wait {
		t.Fatalf("first: %+v", d)
	}
	d = Decide(p, State{Attempt: 2, Prev: d.Prev}, Outcome{}, Gates{}, math.MaxUint64)
	if d.Wait != 9*time.Second {
		t.Errorf("second: %+v, want 9s", d)
	}
}

// Runners decide with compiled schedules, and with a shorter function about failures
// without an outcome of their own. Both must decide as Decide does.
func TestCompiledPoliciesDecideAlike(t *testing.T) {
	texts := []string{
		"http", "default", "contention", "daemon", "fixed(0s) attempts=3", "fixed(0s) attempts=3 throttle-base=1s", "fixed(1s)",
		"linear(1s) attempts=unlimited", "linear(1s..10s) attempts=9 throttle-base=2s", "decorrelated(1s..1m) attempts=unlimited",
		"exponential(1ms..1h) factor=1.5 attempts=unlimited jitter=full", "exponential(1s..1m) attempts=40 throttle-base=7s server-slack=1s",
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, text := range texts {
		p := mustParse(t, text)
		compiled := p.compile()
		for range 2000 {
			s := State{Attempt: 1 + random.IntN(70), Prev: time.Duration(random.Int64N(int64(time.Minute)))}
			u := random.Uint64()
			o := Outcome{Class: Class(random.IntN(3))}
			if random.IntN(4) == 0 {
				o.After = time.Duration(random.Int64N(int64(time.Minute)))
			}
			if got, want := p.decide(&s, &o, Gates{}, compiled, u), Decide(p, s, o, Gates{}, u); got != want {
				t.Fatalf("%s, %+v, %+v: the compiled policy decides %+v, want %+v", text, s, o, got, want)
			}
			if p.TotalTimeout > 0 {
				continue
			}
			if got, want := p.decidePlain(&s, compiled, u), Decide(p, s, Outcome{}, Gates{}, u); got != want {
				t.Fatalf("%s, %+v: a failure without outcome decides %+v, want %+v", text, s, got, want)
			}
		}
	}
}

func FuzzDecide(f *testing.F) {
	f.Add("http", 1, int64(0), int64(0), int64(0), uint8(0), int64(0), int64(0), true, int64(0), uint64(1))
	f.Add("decorrelated(1ns..9d) attempts=unlimited server-wait=100000d", 9, int64(7), int64(1<<62), int64(-1), uint8(1), int64(1<<62), int64(1<<62), false, int64(1<<62), uint64(1<<63))
	f.Fuzz(func(t *testing.T, text string, attempt int, prev, elapsed, left int64, class uint8, after, delay int64, over bool, open int64, u uint64) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		s := State{max(attempt, 1), max(0, time.Duration(prev)), max(0, time.Duration(elapsed)), time.Duration(left)}
		o := Outcome{Class: Class(class), After: max(0, time.Duration(after)), Delay: max(0, time.Duration(delay))}
		d := Decide(p, s, o, Gates{over, time.Duration(open)}, u)
		if got := p.decide(&s, &o, Gates{over, time.Duration(open)}, p.compile(), u); got != d {
			t.Fatalf("Decide(%v, %+v, %+v) = %+v, compiled %+v", p, s, o, d, got)
		}
		switch {
		case d.Wait < 0:
			t.Fatalf("Decide(%v, %+v, %+v) = %+v: a negative wait", p, s, o, d)
		case d.Stop != 0:
		case d.By != ByServer && p.Cap > 0 && d.Wait > p.Cap:
			t.Fatalf("Decide(%v, %+v, %+v) = %+v: above the cap", p, s, o, d)
		case d.By == ByServer && d.Wait < o.After:
			t.Fatalf("Decide(%v, %+v, %+v) = %+v: before the server's time", p, s, o, d)
		case s.Left != 0 && d.Wait >= s.Left, p.TotalTimeout > 0 && d.Wait >= p.TotalTimeout-s.Elapsed, time.Duration(open) > d.Wait:
			t.Fatalf("Decide(%v, %+v, %+v) = %+v: a wait towards a closed door", p, s, o, d)
		}
	})
}

func TestDecideWithin(t *testing.T) {
	const s = time.Second
	budget, err := limit.NewBudget(limit.BudgetSpec{Kind: limit.RefundBudget, Cost: 2, Credit: 1, Max: 3, Throttled: 1})
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name   string
		state  State
		out    Outcome
		open   time.Duration
		want   Reason
		tokens float64 // tokens left in the budget afterwards
	}{
		{"the attempts are used up, which costs nothing", State{Attempt: 9}, Outcome{}, 0, StopAttempts, 3},
		{"the breaker is open, which costs nothing", State{Attempt: 1}, Outcome{}, time.Hour, StopBreaker, 3},
		{"a retry is paid", State{Attempt: 1}, Outcome{}, 0, 0, 1},
		{"the next is too dear", State{Attempt: 1}, Outcome{}, 0, StopBudget, 1},
		{"one after throttling is not", State{Attempt: 1}, Outcome{Class: ClassThrottled}, 0, 0, 0},
		{"then nothing is left", State{Attempt: 1}, Outcome{Class: ClassThrottled}, 0, StopBudget, 0},
	}
	p := mustParse(t, "fixed(1s) attempts=9")
	account := budget.Begin()
	for _, tt := range steps {
		got := DecideWithin(p, tt.state, tt.out, tt.open, &account, 0)
		if got.Stop != tt.want || budget.Tokens() != tt.tokens {
			t.Errorf("%s: DecideWithin = %+v with %v tokens left, want %v and %v", tt.name, got, budget.Tokens(), tt.want, tt.tokens)
		}
	}
	if got, want := DecideWithin(p, State{Attempt: 1}, Outcome{}, 0, new(limit.Call), 0), (Decision{Wait: s, Prev: s}); got != want {
		t.Errorf("without a budget: %+v, want %+v", got, want)
	}
}
