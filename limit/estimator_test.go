package limit

import (
	"math/rand/v2"
	"testing"
	"time"
)

const (
	ms      = time.Millisecond
	aMinute = time.Minute
)

func newEstimator(t testing.TB, cfg AdaptiveConfig) *Estimator {
	t.Helper()
	e, err := NewEstimator(cfg)
	if err != nil {
		t.Fatalf("NewEstimator(%+v): %v", cfg, err)
	}
	return e
}

// limitRange runs the model until the given time and returns the smallest, the
// largest and the mean limit over that time, without probes.
func (s *server) limitRange(e *Estimator, until time.Duration) (lo, hi, mean int) {
	lo, sum, n := 1<<30, 0, 0
	s.watch = func(limit int) {
		if !e.probe.running {
			lo, hi, sum, n = min(lo, limit), max(hi, limit), sum+limit, n+1
		}
	}
	s.run(e, until)
	s.watch = nil
	return lo, hi, sum / max(n, 1)
}

func wantLimit(t *testing.T, when string, got, lo, hi int) {
	t.Helper()
	if got < lo || got > hi {
		t.Errorf("%s the limit is %d, want %d to %d", when, got, lo, hi)
	}
}

func TestEstimatorFindsTheKnee(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		workers int
		initial int
		lo, hi  int
	}{
		{"from the default", 10, 0, 11, 15},
		{"from one", 10, 1, 11, 15},
		{"from far above, where all that is ever seen is a queue", 10, 200, 11, 15},
		{"of a single worker", 1, 0, 1, 3},
		{"of many workers", 80, 0, 80, 92},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEstimator(t, AdaptiveConfig{Max: 1000, Initial: tt.initial})
			s := &server{workers: tt.workers, service: constant(10 * ms)}
			s.run(e, 8*time.Second)
			lo, hi, _ := s.limitRange(e, 20*time.Second) // there is a probe every ten seconds
			wantLimit(t, "at its lowest", lo, tt.lo, tt.hi)
			wantLimit(t, "at its highest", hi, tt.lo, tt.hi)
		})
	}
}

func TestEstimatorCopesWithCallsOfVariedLength(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		service func() time.Duration
	}{
		{"exponential", exponential(10*ms, 1)},
		{"long-tailed", lognormal(10*ms, 1, 2)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEstimator(t, AdaptiveConfig{Max: 1000})
			s := &server{workers: 50, service: tt.service}
			_, _, mean := s.limitRange(e, 12*time.Second)
			wantLimit(t, "on average", mean, 45, 75)
			if share := float64(s.done) / (50 * 12 * 100); share < 0.9 {
				t.Errorf("throughput is %.3f of what is possible, want at least 0.9", share)
			}
		})
	}
}

func TestEstimatorFollowsACapacityDip(t *testing.T) {
	t.Parallel()
	e := newEstimator(t, AdaptiveConfig{Max: 100})
	s := &server{workers: 10, service: constant(10 * ms)}
	s.run(e, 10*time.Second)
	wantLimit(t, "before the dip", e.Limit(), 11, 15)
	s.workers = 4
	s.run(e, 12*time.Second)
	wantLimit(t, "two seconds into the dip", e.Limit(), 4, 8)
	s.run(e, 30*time.Second)
	s.workers = 10
	s.run(e, 32*time.Second)
	wantLimit(t, "two seconds after the dip", e.Limit(), 10, 15)
}

// With the smallest duration ever as the base, calls that are slower for good would
// seem to be queued. The estimator must raise its base instead.
func TestEstimatorAcceptsThatCallsHaveBecomeSlower(t *testing.T) {
	t.Parallel()
	e := newEstimator(t, AdaptiveConfig{Max: 100})
	s := &server{workers: 30, service: constant(10 * ms)}
	s.run(e, 5*time.Second)
	s.service = constant(30 * ms)
	s.run(e, 30*time.Second)
	wantLimit(t, "after calls became three times slower", e.Limit(), 28, 40)
}

// A long-term average as the base drifts: steady overload must not raise the
// limit.
func TestEstimatorDoesNotDriftUnderSteadyOverload(t *testing.T) {
	t.Parallel()
	e := newEstimator(t, AdaptiveConfig{Max: 1000})
	s := &server{workers: 10, service: constant(10 * ms)}
	s.run(e, 5*time.Second)
	_, hi, _ := s.limitRange(e, 35*time.Second)
	wantLimit(t, "within thirty seconds of overload", hi, 11, 15)
}

func TestEstimatorCorrectsABaseThatIsTooSmall(t *testing.T) {
	t.Parallel()
	e := newEstimator(t, AdaptiveConfig{Max: 100, Probe: time.Hour})
	s := &server{workers: 30, service: constant(10 * ms)}
	s.run(e, 5*time.Second)
	e.base = float64(6 * ms)
	s.run(e, 10*time.Second)
	wantLimit(t, "after the base was made too small, with no probe due,", e.Limit(), 28, 40)
}

func TestEstimatorSpendsLittleTimeOnProbes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ service, from, until time.Duration }{
		{10 * ms, 5 * time.Second, 30 * time.Second},
		{time.Second, 10 * aMinute, 20 * aMinute},
	} {
		e := newEstimator(t, AdaptiveConfig{Max: 100})
		s := &server{workers: 10, service: constant(tt.service)}
		s.run(e, tt.from)
		var probing time.Duration
		last := s.now
		s.watch = func(int) {
			if e.probe.running {
				probing += s.now - last
			}
			last = s.now
		}
		s.run(e, tt.until)
		if total := tt.until - tt.from; probing == 0 || probing > total/20 {
			t.Errorf("calls of %v: %v of %v went into probes, want some and at most a twentieth", tt.service, probing, total)
		}
	}
}

func TestEstimatorAndDroppedCalls(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		share  float64
		lo, hi int
	}{
		{"one in a hundred hardly matters", 0.01, 18, 27},
		{"one in three holds the limit down", 0.33, 1, 15},
		{"all bring it to the minimum", 1, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEstimator(t, AdaptiveConfig{Max: 100})
			s := &server{workers: 20, service: constant(10 * ms)}
			s.run(e, 5*time.Second)
			r := rand.New(rand.NewPCG(9, 9))
			s.drop = func() bool { return r.Float64() < tt.share }
			s.run(e, 10*time.Second)
			_, _, mean := s.limitRange(e, 22*time.Second)
			wantLimit(t, "on average", mean, tt.lo, tt.hi)
			s.drop = nil
			s.run(e, 34*time.Second)
			wantLimit(t, "when nothing is dropped any more", e.Limit(), 20, 27)
		})
	}
}

func TestEstimatorDoesNotGrowBeyondTwiceWhatIsUsed(t *testing.T) {
	t.Parallel()
	e := newEstimator(t, AdaptiveConfig{Max: 1000, Initial: 5})
	s := &server{workers: 100, service: constant(10 * ms), load: 12}
	_, hi, _ := s.limitRange(e, 20*time.Second)
	wantLimit(t, "with twelve callers", hi, 12, 28)
}

func TestEstimatorStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		workers int
		drops   float64
		want    int // where it is pushed to
	}{
		{"the maximum", 60, 0, 40},
		{"the minimum", 1, 1, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEstimator(t, AdaptiveConfig{Min: 5, Max: 40})
			r := rand.New(rand.NewPCG(1, 1))
			s := &server{workers: tt.workers, service: constant(10 * ms), drop: func() bool { return r.Float64() < tt.drops }}
			s.watch = func(limit int) {
				if limit < 5 || limit > 40 {
					t.Fatalf("the limit is %d, want 5 to 40", limit)
				}
			}
			s.run(e, 8*time.Second)
			if e.Limit() != tt.want {
				t.Errorf("the limit is %d, want %d", e.Limit(), tt.want)
			}
		})
	}
}

func TestEstimatorGivesUpAProbeWhoseCallsHang(t *testing.T) {
	t.Parallel()
	e := newEstimator(t, AdaptiveConfig{Max: 100})
	now := time.Duration(0)
	for !e.probe.running && now < aMinute {
		now += ms
		e.SampleAt(now, 10*ms, e.Limit(), false)
	}
	if !e.probe.running {
		t.Fatal("no probe ran within a minute")
	}
	lowered, before := e.Limit(), int(e.probe.limit)
	// The calls in flight never fall to the lowered limit.
	for range 100 {
		now += 100 * ms
		e.SampleAt(now, 10*ms, before, false)
	}
	if e.probe.running || e.Limit() <= lowered {
		t.Errorf("ten seconds into a probe that hangs the limit is %d, want above %d", e.Limit(), lowered)
	}
}
