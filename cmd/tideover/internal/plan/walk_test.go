package plan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
)

// samples are policies of every kind, each with another combination of keys.
var samples = []string{
	"fixed(1s)",
	"fixed(1s) attempts=1 attempt-timeout=3s",
	"fixed(0s) attempts=5 attempt-timeout=1s",
	"fixed(0s) attempts=unlimited attempt-timeout=1s total-timeout=10s",
	"fixed(1s) jitter=20% attempts=300",
	"fixed(10m) attempts=2 attempt-timeout=5s total-timeout=30s",
	"linear(1s..10s) jitter=+50% attempts=40 total-timeout=1m30s attempt-timeout=2s",
	"linear(5s) attempts=200 total-timeout=5m",
	"exponential(1s..32s) jitter=20% attempts=4 attempt-timeout=30s",
	"exponential(1ns) factor=1.1 attempts=500",
	"exponential(1s..1m) factor=3 jitter=full attempts=unlimited total-timeout=2m attempt-timeout=10s",
	"exponential(10ms..1s) max-doublings=3 jitter=+50% attempts=120 total-timeout=5s",
	"exponential(50ms..20s) jitter=full attempts=9 attempt-timeout=2s total-timeout=30s throttle-base=1s",
	"exponential(1s..20s) jitter=equal attempts=9 attempt-timeout=2s throttle-base=100ms total-timeout=1m",
	"decorrelated(1s..1m) attempts=12 total-timeout=3m attempt-timeout=5s",
	"decorrelated(1ns..3ns) attempts=200",
	"decorrelated(100ms..10s) attempts=unlimited total-timeout=20s",
}

// The sums are the same as if all waits are added up one by one.
func TestSums(t *testing.T) {
	t.Parallel()
	for _, text := range samples {
		for _, n := range []int{1, 2, 7, 50, 1000} {
			p := retry.Must(text).Policy()
			p.Attempts = n + 1
			var want Sum
			for k, d := range p.Delays(nil) {
				low, high := p.Bounds(k)
				want.Delay, want.Low, want.High = want.Delay+d, want.Low+low, want.High+high
			}
			// Here the sum overflows. Another test checks such sums.
			if want.High < 0 || want.Delay < 0 || p.Base > 0 && want.High < p.Base {
				continue
			}
			if got := New("", p, Options{}).Total; *got != want {
				t.Errorf("New(%q with %d retries).Total = %+v, want %+v", text, n, *got, want)
			}
		}
	}
}

// The test makes calls with retry.Decide, with attempts and waits of random length. Their retries
// and times must be within the limits of the plan.
func TestDecide(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, text := range samples {
		p := retry.Must(text).Policy()
		pl := New("", p, Options{})
		furthest := 0
		for round := range 120 {
			reached, elapsed := call(p, random, round)
			if pl.WorstCase > 0 && elapsed > pl.WorstCase {
				t.Fatalf("%q took %v, worst case is %v", text, elapsed, pl.WorstCase)
			}
			furthest = max(furthest, reached)
		}
		if never := pl.reach.never; never > 0 && furthest != never-1 {
			t.Errorf("%q got as far as retry %d, the first that can't happen is %d", text, furthest, never)
		}
	}
}

// call simulates failed attempts until the policy stops. It returns the number of retries and the
// elapsed time. If round%3 is 0, attempts and waits are as short as possible; if it is 1, they are
// as long as possible; else they are random.
func call(p retry.Policy, random *rand.Rand, round int) (retries int, elapsed time.Duration) {
	s := retry.State{}
	for s.Attempt < 500 {
		u, took := random.Uint64(), time.Duration(random.Float64()*float64(p.AttemptTimeout))
		o := retry.Outcome{Class: retry.ClassTransient}
		switch round % 3 {
		case 0:
			u, took = 0, 0
		case 1:
			u, took = math.MaxUint64, p.AttemptTimeout
		}
		if round%2 == 0 {
			o.Class = retry.ClassThrottled
		}
		if p.TotalTimeout > 0 {
			took = min(took, p.TotalTimeout-s.Elapsed)
		}
		s.Elapsed += took
		s.Attempt++
		d := retry.Decide(p, s, o, retry.Gates{}, u)
		if d.Stop != 0 {
			break
		}
		s.Prev = d.Prev
		s.Elapsed += d.Wait
	}
	return s.Attempt - 1, s.Elapsed
}

func TestWorstCase(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		policy string
		want   time.Duration
	}{
		{"http", 0},
		{"http attempt-timeout=30s", 128400 * time.Millisecond},
		{"http attempt-timeout=30s total-timeout=1m", time.Minute},
		{"http total-timeout=1m", time.Minute},
		{"fixed(1s) attempt-timeout=3s", 3 * time.Second},
		{"fixed(1s) attempts=unlimited attempt-timeout=3s", 0},
		{"fixed(1s) attempts=unlimited attempt-timeout=3s total-timeout=1h", time.Hour},
		{"fixed(10m) attempts=2 attempt-timeout=5s total-timeout=30s", 5 * time.Second},
		{"fixed(1s) attempts=2000000000 attempt-timeout=1s", 3_999_999_999 * time.Second},
		{"fixed(1s) attempts=3 attempt-timeout=1s throttle-base=10s", 23 * time.Second},
		{"exponential(1s) attempts=100 attempt-timeout=1s", forever},
		{"linear(1ns) attempts=2000000000 attempt-timeout=1s", 0},
		{"linear(1ns) attempts=2000000000 attempt-timeout=1s total-timeout=1h", time.Hour},
	} {
		p, err := Parse(tt.policy, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if p.WorstCase != tt.want {
			t.Errorf("Parse(%q).WorstCase = %v, want %v", tt.policy, p.WorstCase, tt.want)
		}
	}
}

func TestReach(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		policy string
		want   reached
	}{
		{"daemon", reached{}},
		{"daemon total-timeout=5m", reached{never: 4, maybe: 4, slow: 4}},
		{"http total-timeout=6s", reached{maybe: 3}},
		{"http total-timeout=1m attempt-timeout=20s", reached{slow: 3}},
		{"fixed(1s) attempts=unlimited total-timeout=1000d", reached{86_400_000, 86_400_000, 86_400_000}},
		{"fixed(1s) jitter=full attempts=unlimited total-timeout=1m", reached{maybe: 60}},
		{"fixed(10s) attempts=4 total-timeout=10s", reached{1, 1, 1}},
		{"fixed(10s) attempts=4 total-timeout=11s", reached{2, 2, 2}},
	} {
		p, err := Parse(tt.policy, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Policy.AttemptTimeout == 0 {
			p.reach.slow = tt.want.slow // has no meaning without an attempt timeout
		}
		if p.reach != tt.want {
			t.Errorf("Parse(%q).reach = %+v, want %+v", tt.policy, p.reach, tt.want)
		}
	}
}

func TestListed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		policy string
		list   int
		want   int
	}{
		{"fixed(1s)", 0, 0},
		{"fixed(1s)", 5, 0},
		{"fixed(1s) attempts=101", 0, 100},
		{"fixed(1s) attempts=102", 0, 8},
		{"fixed(1s) attempts=unlimited", 0, 8},
		{"fixed(1s) attempts=unlimited", 12, 12},
		{"fixed(1s) attempts=unlimited", MaxList, MaxList},
		{"fixed(1s) attempts=4", 12, 3},
		{"fixed(1s) attempts=4", 2, 2},
		{"exponential(1s..5m) attempts=unlimited", 0, 10},
		{"exponential(1s..5m) jitter=20% attempts=unlimited", 0, 10},
		{"exponential(1s) attempts=unlimited", 0, 20},
		{"exponential(1s) attempts=unlimited total-timeout=1m", 0, 6},
		{"linear(1s) attempts=2000000000", 0, 20},
		{"decorrelated(1s..1m) attempts=unlimited", 0, 8},
	} {
		p, err := Parse(tt.policy, Options{List: tt.list})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(p.Retries); got != tt.want {
			t.Errorf("Parse(%q, list %d) lists %d retries, want %d", tt.policy, tt.list, got, tt.want)
		}
	}
}

// FuzzNew checks the plans of all policies that can be parsed.
func FuzzNew(f *testing.F) {
	for _, text := range samples {
		f.Add(text, uint64(1), 0)
	}
	f.Add("exponential(292d) factor=1000000 jitter=0.5..1000000 attempts=unlimited total-timeout=100000d", uint64(0), 100)
	f.Add("exponential(1ns) factor=1.0000001 attempts=2147483647", uint64(0), 3)
	f.Fuzz(func(t *testing.T, text string, seed uint64, list int) {
		p, err := Parse(text, Options{Seed: &seed, List: max(0, min(list, 300))})
		if err != nil {
			t.Skip()
		}
		if err := invariants(&p); err != nil {
			t.Errorf("Parse(%q, list %d): %v", text, list, err)
		}
	})
}

func invariants(p *Plan) error {
	var before Sum
	for _, r := range p.Retries {
		switch {
		case r.Low < 0 || r.Low > r.High:
			return fmt.Errorf("retry %d: band %v..%v", r.N, r.Low, r.High)
		case p.Policy.Cap > 0 && max(r.Delay, r.High, r.Sample) > p.Policy.Cap:
			return fmt.Errorf("retry %d: %+v is above the cap", r.N, r)
		case r.Sample < r.Low || r.Sample > r.High:
			return fmt.Errorf("retry %d: sample %v outside %v..%v", r.N, r.Sample, r.Low, r.High)
		case r.Sum.Low < before.Low || r.Sum.High < before.High || r.Sum.Delay < before.Delay || r.Sum.Low > r.Sum.High:
			return fmt.Errorf("retry %d: sum %+v after %+v", r.N, r.Sum, before)
		}
		before = r.Sum
	}
	if t := p.Total; t != nil && (t.Low < before.Low || t.High < before.High || t.Low > t.High) {
		return fmt.Errorf("total %+v is less than %+v", *t, before)
	}
	if w := p.WorstCase; w < 0 || p.Policy.TotalTimeout > 0 && w > p.Policy.TotalTimeout {
		return fmt.Errorf("worst case %v", w)
	}
	return nil
}
