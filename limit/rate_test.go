package limit

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

func newRate(t testing.TB, cfg RateConfig) *Rate {
	t.Helper()
	r, err := NewRate(cfg)
	if err != nil {
		t.Fatalf("NewRate(%+v): %v", cfg, err)
	}
	return r
}

func TestRateConfigValidateNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := NewRate(RateConfig{Burst: -1, MaxWait: -time.Second})
	if err == nil {
		t.Fatal("NewRate accepted a configuration in which all is wrong")
	}
	for _, want := range []string{"rate: 0 events", "rate: a span of 0s", "burst: -1", "max-wait: -1s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error = %q, want it to say %q", err, want)
		}
	}
	for _, cfg := range []RateConfig{
		{Rate: Frequency{1, day}, Burst: 1 << 20},
		{Rate: Frequency{1, day}, MaxWait: 367 * day},
	} {
		if err := cfg.Validate(); err == nil {
			t.Errorf("%+v is valid, want an error", cfg)
		}
	}
}

func TestRateAllowsTheBurstAndThenThePace(t *testing.T) {
	t.Parallel()
	r := newRate(t, RateConfig{Rate: Frequency{10, time.Second}, Burst: 3})
	for i, tt := range []struct {
		at   time.Duration
		want bool
	}{
		{0, true}, {0, true}, {0, true}, {0, false},
		{99 * time.Millisecond, false}, {100 * time.Millisecond, true}, {100 * time.Millisecond, false},
		{250 * time.Millisecond, true}, {299 * time.Millisecond, false}, {300 * time.Millisecond, true},
		{10 * time.Second, true}, {10 * time.Second, true}, {10 * time.Second, true}, {10 * time.Second, false},
	} {
		if got := r.AllowAt(tt.at); got != tt.want {
			t.Errorf("event %d at %v: AllowAt = %v, want %v", i, tt.at, got, tt.want)
		}
	}
}

// In any interval t there are at most burst + rate×t events, in exact numbers.
// Slots that are waited for are rounded up to a nanosecond, so there t may be one
// nanosecond longer than it looks.
func TestRateNeverExceedsBurstPlusRate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		take  func(r *Rate, now time.Duration) (time.Duration, bool)
		slack time.Duration
	}{
		{"by Allow", func(r *Rate, now time.Duration) (time.Duration, bool) { return now, r.AllowAt(now) }, 0},
		{"by Reserve", func(r *Rate, now time.Duration) (time.Duration, bool) {
			wait, ok := r.ReserveAt(now)
			return now + wait, ok
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(4, 5))
			for range 40 {
				f := Frequency{1 + rnd.IntN(1000), time.Duration(1000 + rnd.Int64N(int64(time.Second)))}
				burst := 1 + rnd.IntN(5)
				r := newRate(t, RateConfig{Rate: f, Burst: burst, MaxWait: 10 * f.Per})
				var events []time.Duration
				now := time.Duration(rnd.Int64N(1 << 40))
				for range 300 {
					now += time.Duration(rnd.Int64N(1 + 3*int64(f.Per)/int64(f.Events)))
					if at, ok := tt.take(r, now); ok {
						events = append(events, at)
					}
				}
				checkEnvelope(t, f, burst, events, tt.slack)
			}
		})
	}
}

// checkEnvelope tests n-burst <= rate×t for the interval between any two events.
func checkEnvelope(t *testing.T, f Frequency, burst int, events []time.Duration, slack time.Duration) {
	t.Helper()
	for i := range events {
		for j := i; j < len(events); j++ {
			n, span := int64(j-i+1-burst), int64(events[j]-events[i]+slack)
			if n*int64(f.Per) > span*int64(f.Events) {
				t.Fatalf("%v burst %d: %d events within %v", f, burst, j-i+1, events[j]-events[i])
			}
		}
	}
}

// A caller that always takes the next slot gets every event of the rate: after
// a billion events, spread over years, the slot is where arithmetic says.
func TestRateDoesNotDriftOverABillionEvents(t *testing.T) {
	t.Parallel()
	for _, f := range []Frequency{{3, time.Second}, {7, time.Minute}, {999_983, time.Second}, {13, 17 * time.Millisecond}} {
		r := newRate(t, RateConfig{Rate: f, MaxWait: day})
		const events = 1_000_000_000
		// Without drift, the state after this many events can be computed exactly.
		r.AllowAt(0)
		r.full.Store(events * r.ticks.step)
		start := r.ticks.time(r.full.Load())
		exact := new(big.Int).Mul(big.NewInt(events), big.NewInt(int64(f.Per)))
		exact.Div(exact.Add(exact, big.NewInt(int64(f.Events-1))), big.NewInt(int64(f.Events)))
		if exact.Int64() != int64(start) {
			t.Errorf("%v: event %d is due at %d ns, want %v", f, events, int64(start), exact)
		}
		if r.AllowAt(start-1) || !r.AllowAt(start) {
			t.Errorf("%v: event %d is not allowed at exactly %v", f, events, start)
		}
	}
}

func TestRateGivesExactlyItsRateToAGreedyCaller(t *testing.T) {
	t.Parallel()
	for _, f := range []Frequency{{3, time.Second}, {999, time.Second}, {7, time.Microsecond}} {
		r := newRate(t, RateConfig{Rate: f, MaxWait: time.Second})
		now := time.Duration(0)
		for range f.Events * 50 {
			wait, ok := r.ReserveAt(now)
			if !ok {
				t.Fatalf("%v: ReserveAt(%v) refused a wait of %v", f, now, wait)
			}
			now += wait
		}
		// One more event would be the first of the span after the last.
		if wait, _ := r.ReserveAt(now); now+wait != 50*f.Per {
			t.Errorf("%v: %d events took until %v, want %v", f, f.Events*50, now+wait, 50*f.Per)
		}
	}
}

func TestRateTakesNothingWhenItRefuses(t *testing.T) {
	t.Parallel()
	r := newRate(t, RateConfig{Rate: Frequency{1, time.Second}, MaxWait: 2 * time.Second})
	for _, tt := range []struct {
		wait time.Duration
		ok   bool
	}{{0, true}, {time.Second, true}, {2 * time.Second, true}, {3 * time.Second, false}, {3 * time.Second, false}} {
		wait, ok := r.ReserveAt(0)
		if wait != tt.wait || ok != tt.ok {
			t.Errorf("ReserveAt(0) = %v, %v, want %v, %v", wait, ok, tt.wait, tt.ok)
		}
	}
	if wait, ok := r.ReserveAt(time.Second); wait != 2*time.Second || !ok {
		t.Errorf("ReserveAt(1s) = %v, %v, want the slot at 3s", wait, ok)
	}
}

func TestRateTreatsTimesBeforeTheOriginAsTheOrigin(t *testing.T) {
	t.Parallel()
	r := newRate(t, RateConfig{Rate: Frequency{3, time.Second}, MaxWait: time.Second})
	if !r.AllowAt(-time.Hour) || r.AllowAt(-time.Minute) {
		t.Error("before the origin the burst of one was not exactly one event")
	}
	if wait, ok := r.ReserveAt(-time.Second); !ok || wait != 333_333_334 {
		t.Errorf("ReserveAt(-1s) = %v, %v, want a third of a second", wait, ok)
	}
}

func TestRateWaitServesInOrderAtThePace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRate(t, RateConfig{Rate: Frequency{10, time.Second}, MaxWait: time.Second})
		begin := time.Now()
		for i := range 5 {
			if err := r.Wait(t.Context()); err != nil {
				t.Fatalf("Wait %d: %v", i, err)
			}
			if got, want := time.Since(begin), time.Duration(i)*100*time.Millisecond; got != want {
				t.Errorf("event %d came after %v, want %v", i, got, want)
			}
		}
	})
}

func TestRateWaitRefusesAtOnceWhatMustOutliveTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRate(t, RateConfig{Rate: Frequency{1, time.Second}, MaxWait: 10 * time.Second})
		r.Allow()
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		begin := time.Now()
		err := r.Wait(ctx)
		var re *RateError
		if !errors.Is(err, ErrRate) || !errors.As(err, &re) || re.Wait != time.Second || re.Within != 400*time.Millisecond {
			t.Errorf("Wait = %v, want a RateError of 1s within 400ms", err)
		}
		if want := "limit: rate exceeded: the next slot is 1s away and the caller can wait 400ms"; err.Error() != want {
			t.Errorf("Wait = %q, want %q", err, want)
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("Wait took %v to refuse, want no time", d)
		}
		if wait, ok := r.ReserveAt(clock.Now()); wait != time.Second || !ok {
			t.Errorf("after the refusal the next slot is %v away, %v, want 1s: nothing was taken", wait, ok)
		}
	})
}

func TestRateWaitAfterCancellation(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		later bool // another caller reserved after the one that is cancelled
		want  time.Duration
	}{
		{"the last slot is given back", false, time.Second},
		{"a slot with another behind it stays empty", true, 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRate(t, RateConfig{Rate: Frequency{1, time.Second}, MaxWait: 10 * time.Second})
				r.Allow()
				cause := errors.New("the user left")
				ctx, cancel := context.WithCancelCause(t.Context())
				done := make(chan error)
				go func() { done <- r.Wait(ctx) }()
				synctest.Wait()
				if tt.later {
					r.ReserveAt(clock.Now())
				}
				cancel(cause)
				if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
					t.Errorf("Wait = %v, want the context's error and its cause", err)
				}
				if wait, _ := r.ReserveAt(clock.Now()); wait != tt.want {
					t.Errorf("the next slot is %v away, want %v", wait, tt.want)
				}
			})
		})
	}
}

func TestRateWaitOnAnEndedContextTakesNothing(t *testing.T) {
	t.Parallel()
	r := newRate(t, RateConfig{Rate: Frequency{1, time.Hour}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v, want the context's error", err)
	}
	if !r.Allow() {
		t.Error("the event that was not waited for was counted")
	}
}

func TestRateIsExactUnderConcurrency(t *testing.T) {
	t.Parallel()
	r := newRate(t, RateConfig{Rate: Frequency{1, day}, Burst: 1000})
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if r.Allow() {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got := allowed.Load(); got != 1000 {
		t.Errorf("%d events were allowed, want the burst of 1000", got)
	}
}

func TestRateErrorMessageStartsWithTheSentinel(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("send: %w", &RateError{Wait: time.Second})
	if !errors.Is(err, ErrRate) || !strings.Contains(err.Error(), ErrRate.Error()) {
		t.Errorf("%v does not match ErrRate", err)
	}
}
