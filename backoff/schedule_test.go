package backoff

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

func TestDelaysWithoutJitter(t *testing.T) {
	tests := []struct {
		name string
		s    Schedule
		want []time.Duration
	}{
		{"the zero schedule never waits", Schedule{}, []time.Duration{0, 0, 0}},
		{"fixed stays", Schedule{Base: sec}, []time.Duration{sec, sec, sec}},
		{"linear adds the base", Schedule{Kind: Linear, Base: sec, Cap: 3500 * ms}, []time.Duration{sec, 2 * sec, 3 * sec, 3500 * ms}},
		{"exponential doubles to the cap", Schedule{Kind: Exponential, Base: 30 * sec, Cap: 300 * sec},
			[]time.Duration{30 * sec, 60 * sec, 120 * sec, 240 * sec, 300 * sec, 300 * sec}},
		{"a factor of one and a half", Schedule{Kind: Exponential, Base: sec, Factor: 1.5},
			[]time.Duration{sec, 1500 * ms, 2250 * ms, 3375 * ms}},
		{"a factor of one stays", Schedule{Kind: Exponential, Base: sec, Factor: 1}, []time.Duration{sec, sec, sec}},
		{"doublings are limited", Schedule{Kind: Exponential, Base: 10 * ms, MaxDoublings: 2},
			[]time.Duration{10 * ms, 20 * ms, 40 * ms, 40 * ms, 40 * ms}},
		{"one nanosecond is exact", Schedule{Kind: Exponential, Base: 1}, []time.Duration{1, 2, 4, 8, 16, 32}},
		{"the cap below a step cuts it", Schedule{Kind: Exponential, Base: 7, Cap: 10}, []time.Duration{7, 10, 10}},
		{"decorrelated yields what it expects", Schedule{Kind: Decorrelated, Base: sec, Cap: 10 * sec},
			[]time.Duration{2 * sec, 3500 * ms, 5500 * ms, 5500 * ms}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.s.Validate(); err != nil {
				t.Fatal(err)
			}
			for k, d := range tt.s.Delays(nil) {
				if d != tt.want[k-1] {
					t.Errorf("retry %d waits %v, want %v", k, d, tt.want[k-1])
				}
				if k == len(tt.want) {
					break
				}
			}
		})
	}
}

func TestDelayIsSafeForEveryRetryNumber(t *testing.T) {
	numbers := []int{math.MinInt, -1, 0, 1, 2, 61, 62, 63, 64, 65, 1000, math.MaxInt32, math.MaxInt}
	for _, kind := range []Kind{Fixed, Linear, Exponential, Decorrelated} {
		for _, base := range []time.Duration{1, 3, sec, math.MaxInt64 / 2, math.MaxInt64} {
			for _, limit := range []time.Duration{0, math.MaxInt64} {
				for _, factor := range []float64{0, 1, 1.0001, 3, 1e6} {
					s := Schedule{Kind: kind, Base: base, Cap: limit}
					if kind == Exponential {
						s.Factor = factor
					}
					if kind != Decorrelated {
						s.Jitter = Wide
					}
					for _, k := range numbers {
						if d := s.Delay(k, math.MaxInt64, math.MaxUint64); d < base/2 {
							t.Errorf("%+v.Delay(%d) = %v, below half of its base", s, k, d)
						}
					}
				}
			}
		}
	}
}

func TestShortBasesDouble(t *testing.T) {
	s := Schedule{Kind: Exponential, Base: 1}
	for k := 1; k <= 63; k++ {
		if got, want := s.Delay(k, 0, 0), time.Duration(1)<<(k-1); got != want {
			t.Errorf("Delay(%d) = %d, want %d", k, got, want)
		}
	}
	if got := s.Delay(64, 0, 0); got != math.MaxInt64 {
		t.Errorf("Delay(64) = %d, want the largest duration", got)
	}
}

func TestTheBandIsCutOffAtTheCap(t *testing.T) {
	tests := []struct {
		name   string
		jitter Band
		d      time.Duration
		lo, hi time.Duration
	}{
		{"below the cap the whole band", PlusMinus(0.2), 100 * ms, 80 * ms, 120 * ms},
		{"an upper edge on the cap stays", PlusMinus(0.25), 800 * ms, 600 * ms, sec},
		{"beyond the cap the upper part is gone", PlusMinus(0.2), 900 * ms, 720 * ms, sec},
		{"on the plateau the lower half is left", PlusMinus(0.2), sec, 800 * ms, sec},
		{"full is below the cap anyway", Full, sec, 0, sec},
		{"equal too", Equal, sec, 500 * ms, sec},
		{"one that only lengthens keeps its proportions", Plus(0.5), sec, 666666667, sec},
		{"also shortly before the plateau", Plus(0.5), 700 * ms, 666666667, sec},
		{"but not where it fits", Plus(0.5), 640 * ms, 640 * ms, 960 * ms},
	}
	for _, tt := range tests {
		s := Schedule{Base: tt.d, Cap: sec, Jitter: tt.jitter}
		if lo, hi := s.Range(1, 0); lo != tt.lo || hi != tt.hi {
			t.Errorf("%s: %v of %v is %v..%v, want %v..%v", tt.name, tt.jitter, tt.d, lo, hi, tt.lo, tt.hi)
		}
	}
}

func TestDecorrelatedFollowsThePreviousDelay(t *testing.T) {
	s := Schedule{Kind: Decorrelated, Base: sec, Cap: 10 * sec}
	tests := []struct{ prev, lo, hi time.Duration }{
		{0, sec, 3 * sec},
		{sec, sec, 3 * sec},
		{2 * sec, sec, 6 * sec},
		{5 * sec, sec, 10 * sec},
		{math.MaxInt64, sec, 10 * sec},
	}
	for _, tt := range tests {
		lo, hi := s.Range(7, tt.prev)
		if lo != tt.lo || hi != tt.hi {
			t.Errorf("after %v: %v..%v, want %v..%v", tt.prev, lo, hi, tt.lo, tt.hi)
		}
		if d := s.Delay(7, tt.prev, 0); d != lo {
			t.Errorf("after %v, least draw: %v, want %v", tt.prev, d, lo)
		}
		if d := s.Delay(7, tt.prev, math.MaxUint64); d != hi {
			t.Errorf("after %v, greatest draw: %v, want %v", tt.prev, d, hi)
		}
	}
	for k, want := range []time.Duration{3 * sec, 9 * sec, 10 * sec} {
		if lo, hi := s.Bounds(k + 1); lo != sec || hi != want {
			t.Errorf("Bounds(%d) = %v, %v, want 1s, %v", k+1, lo, hi, want)
		}
	}
}

func TestValidateNamesEveryField(t *testing.T) {
	tests := []struct {
		name string
		s    Schedule
		want []string
	}{
		{"kind", Schedule{Kind: 9}, []string{"kind:"}},
		{"negative base", Schedule{Base: -1}, []string{"base:"}},
		{"exponential without base", Schedule{Kind: Exponential}, []string{"base:"}},
		{"cap below base", Schedule{Base: 2, Cap: 1}, []string{"cap:"}},
		{"negative cap", Schedule{Cap: -1}, []string{"cap:"}},
		{"decorrelated without cap", Schedule{Kind: Decorrelated, Base: 1}, []string{"cap:"}},
		{"decorrelated with jitter", Schedule{Kind: Decorrelated, Base: 1, Cap: 2, Jitter: Full}, []string{"jitter:"}},
		{"factor below one", Schedule{Kind: Exponential, Base: 1, Factor: 0.5}, []string{"factor:"}},
		{"factor not a number", Schedule{Kind: Exponential, Base: 1, Factor: math.NaN()}, []string{"factor:"}},
		{"factor infinite", Schedule{Kind: Exponential, Base: 1, Factor: math.Inf(1)}, []string{"factor:"}},
		{"factor of a fixed one", Schedule{Base: 1, Factor: 2}, []string{"factor:"}},
		{"doublings of a linear one", Schedule{Kind: Linear, Base: 1, MaxDoublings: 2}, []string{"max-doublings:"}},
		{"negative doublings", Schedule{Kind: Exponential, Base: 1, MaxDoublings: -2}, []string{"max-doublings:"}},
		{"jitter not a number", Schedule{Jitter: Band{math.NaN(), 1}}, []string{"jitter:"}},
		{"all at once", Schedule{Base: -1, Cap: -1, Factor: 2, MaxDoublings: -1, Jitter: Band{2, 1}},
			[]string{"base:", "cap:", "factor:", "max-doublings:", "jitter:"}},
	}
	for _, tt := range tests {
		err := tt.s.Validate()
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: Validate() = %v, want %q in it", tt.name, err, want)
			}
		}
	}
}

func FuzzDelayStaysInRange(f *testing.F) {
	f.Add(uint8(2), int64(sec), int64(10*sec), 2.0, 0, 0.8, 1.2, 5, int64(0), uint64(1))
	f.Add(uint8(3), int64(1), int64(100), 0.0, 0, 0.0, 0.0, 50, int64(7), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, kind uint8, base, limit int64, factor float64, doublings int, lo, hi float64, k int, prev int64, u uint64) {
		s := Schedule{Kind(kind), time.Duration(base), time.Duration(limit), factor, doublings, Band{lo, hi}}
		if s.Validate() != nil {
			return
		}
		d := s.Delay(k, time.Duration(prev), u)
		low, high := s.Range(k, time.Duration(prev))
		switch {
		case low < 0 || low > high:
			t.Fatalf("%+v.Range(%d, %d) = %d, %d", s, k, prev, low, high)
		case d < low || d > high:
			t.Fatalf("%+v.Delay(%d, %d, %d) = %d, outside %d..%d", s, k, prev, u, d, low, high)
		case s.Cap > 0 && d > s.Cap:
			t.Fatalf("%+v.Delay(%d, %d, %d) = %d, above the cap", s, k, prev, u, d)
		}
	})
}

func BenchmarkDelay(b *testing.B) {
	s := Schedule{Kind: Exponential, Base: 100 * ms, Cap: 10 * sec, Jitter: Equal}
	i, sum := 0, time.Duration(0)
	for b.Loop() {
		sum += s.Delay(i&7+1, 0, rand.Uint64())
		i++
	}
	_ = sum
}

func TestLongDelaysWithEqualEdgesStayWhereTheyAre(t *testing.T) {
	for _, d := range []time.Duration{20961*time.Hour + 24*time.Minute + 19534293517, math.MaxInt64 - 1, math.MaxInt64} {
		for _, limit := range []time.Duration{0, d} {
			s := Schedule{Base: d, Cap: limit, Jitter: Band{1, 1}}
			for _, u := range []uint64{0, math.MaxUint64} {
				if got := s.Delay(1, 0, u); got < d-1024 || got > d {
					t.Errorf("fixed(%v) jitter=1..1 waits %v", d, got)
				}
			}
		}
	}
}
