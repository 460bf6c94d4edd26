package health

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/limit"
)

func newSendRate(t testing.TB, cfg SendRateConfig) *SendRate {
	t.Helper()
	r, err := NewSendRate(cfg)
	if err != nil {
		t.Fatalf("NewSendRate(%+v): %v", cfg, err)
	}
	return r
}

func TestNewSendRateRefusesANegativeWait(t *testing.T) {
	t.Parallel()
	if _, err := NewSendRate(SendRateConfig{MaxWait: -1}); err == nil || err.Error() != "send rate: max-wait: -1ns is negative" {
		t.Errorf("NewSendRate = %v", err)
	}
}

// The times at which the rate is back where it was cut are those of botocore's
// own test (tests/unit/retries/test_throttling.py): 1.957 s for 10/s, 1.817 s for
// 8/s; and a cut takes it to 0.7. The others are worked out by hand.
func TestCubic(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ most, since, want float64 }{
		{10, 0, 7},
		{10, 1.9574338205844317, 10},
		{8, 0, 5.6},
		{8, 1.8171205928321397, 8},
		{10, 2.9574338205844317, 10.4},
		{0, 1, 0.4},
		{10, -3, 7},
	} {
		if got := cubic(tt.most, tt.since); math.Abs(got-tt.want) > 1e-6 {
			t.Errorf("cubic(%v, %v) = %v, want %v", tt.most, tt.since, got, tt.want)
		}
	}
}

func TestSendRateLimitsNothingBeforeAThrottledAnswer(t *testing.T) {
	t.Parallel()
	r := newSendRate(t, SendRateConfig{})
	for i := range 1000 {
		now := time.Duration(i) * ms
		if wait, ok := r.ReserveAt(now); wait != 0 || !ok {
			t.Fatalf("ReserveAt(%v) = %v, %v", now, wait, ok)
		}
		r.ReportAt(now, false)
	}
	if s := r.Stats(); s.Limited || s.Rate != 0 {
		t.Errorf("Stats() = %+v", s)
	}
}

func TestSendRateFallsToSevenTenths(t *testing.T) {
	t.Parallel()
	r := newSendRate(t, SendRateConfig{})
	now := time.Duration(0)
	for ; now < 10*sec; now += 10 * ms {
		r.ReportAt(now, false)
	}
	r.ReportAt(now, true)
	if s := r.Stats(); math.Abs(s.Measured-100) > 1 || math.Abs(s.Rate-0.7*s.Measured) > 1e-9 {
		t.Errorf("Stats() = %+v, want 100/s measured and 70/s allowed", s)
	}
	for range 100 {
		r.ReportAt(now, true)
	}
	if s := r.Stats(); s.Rate != rateFloor {
		t.Errorf("after a hundred throttled answers the rate is %v, want the floor", s.Rate)
	}
}

// A destination that allows 20/s and does not say so: the purpose of SendRate.
func TestSendRateFindsTheLimitOfADestination(t *testing.T) {
	t.Parallel()
	r := newSendRate(t, SendRateConfig{})
	server, err := limit.NewRate(limit.RateConfig{Rate: limit.Frequency{Events: 20, Per: sec}, Burst: 20})
	if err != nil {
		t.Fatal(err)
	}
	now, sent, throttled := time.Duration(0), 0, 0
	for now < 5*time.Minute {
		wait, ok := r.ReserveAt(now)
		if !ok {
			t.Fatalf("ReserveAt(%v) refused a wait of %v", now, wait)
		}
		now += max(wait, 2*ms) // greedy: up to 500/s
		over := !server.AllowAt(now)
		r.ReportAt(now, over)
		if now > time.Minute {
			sent++
			if over {
				throttled++
			}
		}
	}
	good := float64(sent-throttled) / (4 * 60)
	if share := float64(throttled) / float64(sent); share > 0.15 || good < 14 {
		t.Errorf("%.1f%% throttled and %.1f/s served, want below 15%% and above 14/s", 100*share, good)
	}
}

func TestSendRateWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newSendRate(t, SendRateConfig{MaxWait: 5 * sec})
		r.Report(true) // at once: the floor, a call every two seconds
		begin := time.Now()
		if err := r.Wait(t.Context()); err != nil || time.Since(begin) != 2*sec {
			t.Errorf("Wait = %v after %v, want 2s", err, time.Since(begin))
		}
		short, stop := context.WithTimeout(t.Context(), sec)
		defer stop()
		begin = time.Now()
		var re *limit.RateError
		if err := r.Wait(short); !errors.As(err, &re) || re.Wait != 2*sec || time.Since(begin) != 0 {
			t.Errorf("Wait = %v after %v, want a RateError of 2s at once", err, time.Since(begin))
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Wait(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Wait = %v, want the context's error", err)
		}
		if err := r.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait with an ended context = %v", err)
		}
		if err := r.Wait(t.Context()); err != nil || time.Since(begin) != 2*sec {
			t.Errorf("after the cancellation Wait = %v after %v, want its slot", err, time.Since(begin))
		}
	})
}

func TestSendRateUnderConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newSendRate(t, SendRateConfig{MaxWait: time.Hour})
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for k := range 20 {
					if err := r.Wait(t.Context()); err != nil {
						t.Errorf("Wait: %v", err)
					}
					r.Report((i+k)%7 == 0)
				}
			})
		}
		wg.Wait()
	})
}

func FuzzSendRate(f *testing.F) {
	f.Add(uint64(1), []byte{1, 2, 3, 250})
	f.Fuzz(func(t *testing.T, seed uint64, ops []byte) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := newSendRate(t, SendRateConfig{})
		now := time.Duration(0)
		for _, op := range ops {
			now += time.Duration(rnd.ExpFloat64() * math.Exp2(float64(op%32)) * 1000)
			if op&32 > 0 {
				r.ReportAt(now, op&64 > 0)
			} else if wait, _ := r.ReserveAt(now); wait < 0 {
				t.Fatalf("ReserveAt(%v) = %v", now, wait)
			}
			s := r.Stats()
			if s.Limited && !(s.Rate >= rateFloor) || math.IsInf(s.Rate, 0) || !(s.Measured >= 0) || math.IsNaN(r.tokens) || r.tokens > burst(r.rate) {
				t.Fatalf("Stats() = %+v, %v tokens", s, r.tokens)
			}
		}
	})
}
