package health

import (
	"math"
	"testing"
	"time"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// near reports whether the numbers agree to nine digits.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

func TestScore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		play func(s *Score)
		at   time.Duration
		want float64
	}{
		{"a target without observations costs nothing", func(*Score) {}, 0, 0},
		{"the first try of a target counts as a failure would", func(s *Score) { s.Begin() }, 0, 5},
		{"each further one as another", func(s *Score) { s.Begin(); s.Begin() }, 0, 10},
		{"one observation is the mean", func(s *Score) { s.ObserveAt(0, 200*ms) }, 0, 0.2},
		{"two at the same moment count alike", func(s *Score) { s.ObserveAt(sec, 100*ms); s.ObserveAt(sec, 300*ms) }, sec, 0.2},
		{"calls under way multiply the cost", func(s *Score) { s.ObserveAt(0, 200*ms); s.Begin(); s.Begin() }, 0, 0.6},
		{"an older observation counts less", func(s *Score) { s.ObserveAt(0, 100*ms); s.ObserveAt(Tau, 300*ms) }, Tau,
			(0.1/math.E + 0.3) / (1/math.E + 1)},
		{"silence fades the score", func(s *Score) { s.ObserveAt(0, 200*ms) }, Tau, 0.2 / math.E},
		{"a failure counts as five seconds", func(s *Score) { s.FailAt(0, 0) }, 0, 5},
		{"a failure with a shorter wait counts as five seconds", func(s *Score) { s.FailAt(0, sec) }, 0, 5},
		{"a failure with a longer wait counts as that", func(s *Score) { s.FailAt(0, time.Minute) }, 0, 60},
		{"a failure with an absurd wait counts as five minutes", func(s *Score) { s.FailAt(0, math.MaxInt64) }, 0, 300},
		{"a negative time counts as none", func(s *Score) { s.ObserveAt(0, -sec) }, 0, 0},
		{"an end too many is ignored", func(s *Score) { s.End(); s.ObserveAt(0, sec) }, 0, 1},
		{"a clock that went back changes nothing", func(s *Score) { s.ObserveAt(time.Minute, sec); s.ObserveAt(0, 3*sec) }, 0, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var s Score
			tt.play(&s)
			if got := s.CostAt(tt.at); !near(got, tt.want) {
				t.Errorf("CostAt(%v) = %v, want %v", tt.at, got, tt.want)
			}
		})
	}
}

func TestScoreFollowsAChangeWithinAFewTau(t *testing.T) {
	t.Parallel()
	var s Score
	now := time.Duration(0)
	for ; now < time.Minute; now += 100 * ms {
		s.ObserveAt(now, 100*ms)
	}
	for end := now + 3*Tau; now < end; now += 100 * ms {
		s.ObserveAt(now, 900*ms)
	}
	if got, want := s.MeanAt(now), 0.9-0.8*math.Exp(-3); math.Abs(got-want) > 0.02 {
		t.Errorf("three tau after the change the mean is %.3f, want about %.3f", got, want)
	}
}

func FuzzScoreIsNeverNegativeNorNaN(f *testing.F) {
	f.Add(int64(0), int64(1), int64(2), []byte{0, 1, 2, 3})
	f.Add(int64(math.MaxInt64), int64(math.MinInt64), int64(-1), []byte{1, 1, 0, 3, 2})
	f.Fuzz(func(t *testing.T, a, b, c int64, ops []byte) {
		var s Score
		times := [...]time.Duration{time.Duration(a), time.Duration(b), time.Duration(c)}
		for i, op := range ops {
			now, d := times[i%3], times[int(op/8)%3]
			switch op % 4 {
			case 0:
				s.Begin()
			case 1:
				s.End()
			case 2:
				s.ObserveAt(now, d)
			case 3:
				s.FailAt(now, d)
			}
			for _, now := range times {
				if got := s.CostAt(now); !(got >= 0) || math.IsInf(got, 0) {
					t.Fatalf("CostAt(%v) = %v after %v", now, got, ops[:i+1])
				}
			}
		}
	})
}

func TestScoreAllocatesNothing(t *testing.T) {
	var s Score
	if n := testing.AllocsPerRun(100, func() {
		s.Begin()
		s.ObserveAt(sec, ms)
		s.FailAt(2*sec, sec)
		_ = s.CostAt(3 * sec)
		s.End()
	}); n != 0 {
		t.Errorf("an observation allocates %v times", n)
	}
}
