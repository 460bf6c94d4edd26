package breaker_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/breaker"
)

// A failure rate of 0.4 % opens the breaker. Another library rounds the rate to two
// decimals, so its breaker never opens.
func TestAThresholdOfFourPerMilleTrips(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]breaker.Config{
		"calls": {WindowCalls: 250, MinCalls: 250, FailureRate: 0.004},
		"time":  {Window: 10 * sec, MinCalls: 250, FailureRate: 0.004},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := breaker.Must(c)
			calls(t, b, 0, 249, breaker.Success)
			wantState(t, b, 0, breaker.Closed)
			call(t, b, 0, breaker.Failure)
			wantState(t, b, 0, breaker.Open)
		})
	}
}

func TestOneFailureBelowAThresholdOfFourPerMilleIsBorne(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{Window: 10 * sec, MinCalls: 250, FailureRate: 0.004})
	calls(t, b, 0, 250, breaker.Success)
	call(t, b, 0, breaker.Failure) // 1 of 251
	wantState(t, b, 0, breaker.Closed)
}

// Calls that the caller cancels do not count. Another library counts them as failures.
func TestTenCancellationsByTheCallerDoNotOpen(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{ConsecutiveFailures: 2, MinCalls: 1})
	calls(t, b, 0, 10, breaker.Canceled)
	wantState(t, b, 0, breaker.Closed)
	wantCounts(t, b, 0, breaker.Counts{})
}

func TestCancellationDoesNotEndARunOfFailures(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{FailureRate: breaker.Off, ConsecutiveFailures: 2})
	call(t, b, 0, breaker.Failure)
	call(t, b, 0, breaker.Canceled)
	call(t, b, 0, breaker.Failure)
	wantState(t, b, 0, breaker.Open)
}

func TestFailuresInARowCountHoweverFarApart(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{ConsecutiveFailures: 3})
	call(t, b, 0, breaker.Failure)
	call(t, b, time.Hour, breaker.Failure)
	wantState(t, b, time.Hour, breaker.Closed)
	call(t, b, 2*time.Hour, breaker.Failure)
	wantState(t, b, 2*time.Hour, breaker.Open)
}

func TestTheZeroConfigOpensAtSixteenOfTwenty(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{})
	calls(t, b, 0, 4, breaker.Success)
	calls(t, b, 0, 15, breaker.Failure)
	wantState(t, b, 0, breaker.Closed)
	call(t, b, 0, breaker.Failure)
	wantState(t, b, 0, breaker.Open)
}

func TestASuccessNeverOpens(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{})
	calls(t, b, 0, 19, breaker.Failure)
	call(t, b, 0, breaker.Success) // the twentieth call, at 95 %
	wantState(t, b, 0, breaker.Closed)
	call(t, b, 0, breaker.Failure)
	wantState(t, b, 0, breaker.Open)
}

func TestSlowCallsOpen(t *testing.T) {
	t.Parallel()
	c := breaker.Config{SlowCall: 2 * sec, SlowRate: 0.5, MinCalls: 4}
	b := breaker.Must(c)
	slow := func(took time.Duration) { allow(t, b, 0).DoneAt(took, breaker.Success) }
	slow(2*sec - 1)
	slow(2*sec - 1)
	slow(2 * sec)
	wantState(t, b, 2*sec, breaker.Closed)
	slow(2 * sec)
	wantState(t, b, 2*sec, breaker.Open)
}

func TestTheSlowRateIsEightyPerCentUnlessSaid(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{WindowCalls: 5, SlowCall: sec})
	allow(t, b, 0).DoneAt(0, breaker.Success)
	for range 3 {
		allow(t, b, 0).DoneAt(sec, breaker.Success)
	}
	wantState(t, b, sec, breaker.Closed)
	allow(t, b, 0).DoneAt(sec, breaker.Success)
	wantState(t, b, sec, breaker.Open)
}

func TestOpenTimesGrowUntilItClosesAndThenStartAgain(t *testing.T) {
	t.Parallel()
	c := fragile
	c.Open = backoff.Schedule{Kind: backoff.Exponential, Base: sec, Cap: 5 * sec}
	b := breaker.Must(c)
	now := time.Duration(0)
	for _, want := range []time.Duration{sec, 2 * sec, 4 * sec, 5 * sec, 5 * sec} {
		call(t, b, now, breaker.Failure)
		if got := b.OpenForAt(now); got != want {
			t.Fatalf("OpenForAt(%v) = %v, want %v", now, got, want)
		}
		if got := refuse(t, b, now+want-1); got.For != 1 || got.State != breaker.Open {
			t.Fatalf("refused at the last moment with %+v, want For 1ns and State open", got)
		}
		now += want
	}
	call(t, b, now, breaker.Success)
	wantState(t, b, now, breaker.Closed)
	call(t, b, now, breaker.Failure)
	if got := b.OpenForAt(now); got != sec {
		t.Errorf("OpenForAt after it had closed = %v, want %v", got, sec)
	}
}

func TestOpenTimesUseTheGivenRandomSourceAndTheDelayBefore(t *testing.T) {
	t.Parallel()
	s := backoff.Schedule{Kind: backoff.Decorrelated, Base: sec, Cap: time.Minute}
	c := fragile
	c.Open = s
	b := breaker.Must(c, breaker.WithRand(rand.New(rand.NewPCG(1, 2)).Uint64))
	r := rand.New(rand.NewPCG(1, 2))
	now, prev := time.Duration(0), time.Duration(0)
	for k := 1; k <= 20; k++ {
		want := s.Delay(k, prev, r.Uint64())
		call(t, b, now, breaker.Failure)
		if got := b.OpenForAt(now); got != want {
			t.Fatalf("opening %d: open for %v, want %v", k, got, want)
		}
		now, prev = now+want, want
	}
}

func TestARandomSourceThatPanicsLeavesTheBreakerWorking(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{ConsecutiveFailures: 1}, breaker.WithRand(func() uint64 { panic("empty") }))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was lost")
			}
		}()
		call(t, b, 0, breaker.Failure)
	}()
	wantState(t, b, 0, breaker.Closed)
	call(t, b, 0, breaker.Success)
}

func TestAnEndlessOpenTimeDoesNotOverflow(t *testing.T) {
	t.Parallel()
	c := fragile
	c.Open = backoff.Schedule{Base: math.MaxInt64}
	b := breaker.Must(c)
	call(t, b, time.Hour, breaker.Failure)
	wantState(t, b, 1000*time.Hour, breaker.Open)
}

func TestAResultOfAnEarlierStateDoesNotCount(t *testing.T) {
	t.Parallel()
	c := fragile
	c.ConsecutiveFailures = 2
	tests := []struct {
		name   string
		late   breaker.Result
		config breaker.Config
	}{
		{"failure, time window", breaker.Failure, c},
		{"success, time window", breaker.Success, c},
		{"failure, window of calls", breaker.Failure, withCalls(c, 10)},
		{"success, window of calls", breaker.Success, withCalls(c, 10)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := breaker.Must(tt.config)
			p, q := allow(t, b, 0), allow(t, b, 0)
			calls(t, b, 0, 2, breaker.Failure)
			p.DoneAt(1, tt.late)
			wantState(t, b, 1, breaker.Open)

			call(t, b, 5*sec, breaker.Success)
			wantState(t, b, 5*sec, breaker.Closed)
			q.DoneAt(5*sec, tt.late)
			wantState(t, b, 5*sec, breaker.Closed)
			wantCounts(t, b, 5*sec, breaker.Counts{})
		})
	}
}

func withCalls(c breaker.Config, n int) breaker.Config {
	c.WindowCalls = n
	return c
}

func TestLookingAtTheStateChangesNothing(t *testing.T) {
	t.Parallel()
	var events int
	b := breaker.Must(fragile, breaker.WithObserver(func(breaker.Event) { events++ }))
	call(t, b, 0, breaker.Failure)
	wantState(t, b, 5*sec-1, breaker.Open)
	wantState(t, b, 5*sec, breaker.HalfOpen)
	wantState(t, b, 5*sec-1, breaker.Open)
	if events != 1 {
		t.Errorf("%d events, want 1: that it opened", events)
	}
}
