package breaker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/breaker"
)

var errDown = errors.New("down")

func TestDoTellsFailureFromCancellation(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithTimeout(t.Context(), 0)
	defer cancelLate()
	failed := breaker.Counts{Calls: 1, Failures: 1, ConsecutiveFailures: 1}
	tests := []struct {
		name string
		ctx  context.Context
		err  error
		want breaker.Counts
	}{
		{"no error is a success", t.Context(), nil, breaker.Counts{Calls: 1}},
		{"an error is a failure", t.Context(), errDown, failed},
		{"an error after the caller canceled is neither", canceled, context.Canceled, breaker.Counts{}},
		{"any error, if the caller canceled", canceled, errDown, breaker.Counts{}},
		{"a success counts although the caller canceled", canceled, nil, breaker.Counts{Calls: 1}},
		{"a deadline that passed is a failure", late, context.DeadlineExceeded, failed},
		{"a cancellation the caller has no part in is a failure", t.Context(), context.Canceled, failed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := breaker.Must(breaker.Config{WindowCalls: 10})
			err := breaker.Do(tt.ctx, b, func(context.Context) error { return tt.err })
			if !errors.Is(err, tt.err) {
				t.Errorf("Do = %v, want %v", err, tt.err)
			}
			if got := b.Counts(); got != tt.want {
				t.Errorf("Counts() = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestDoDoesNotCallWhenOpen(t *testing.T) {
	t.Parallel()
	b := breaker.Must(fragile)
	_ = b.Force(breaker.ForcedOpen)
	err := breaker.Do(t.Context(), b, func(context.Context) error {
		t.Error("it was called")
		return nil
	})
	if !errors.Is(err, breaker.ErrOpen) {
		t.Errorf("Do = %v, want ErrOpen", err)
	}
}

func TestAPanicIsAFailureAndGoesOn(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{WindowCalls: 10})
	defer func() {
		if r := recover(); r != "boom" {
			t.Errorf("recovered %v, want boom", r)
		}
		if got := b.Counts().Failures; got != 1 {
			t.Errorf("%d failures, want 1", got)
		}
	}()
	_ = breaker.Do(t.Context(), b, func(context.Context) error { panic("boom") })
}

func TestDoWithoutAnOperationIsAnError(t *testing.T) {
	t.Parallel()
	b := breaker.Must(fragile)
	if err := breaker.Do(t.Context(), b, nil); err == nil {
		t.Error("Do(ctx, b, nil) = nil, want an error")
	}
	if got := b.Counts(); got != (breaker.Counts{}) {
		t.Errorf("Counts() = %+v, want none", got)
	}
}

func TestDoAllocatesNothingClosureIncluded(t *testing.T) {
	for name, c := range map[string]breaker.Config{"calls": {WindowCalls: 10}, "time": {}} {
		b, ctx, sum := breaker.Must(c), t.Context(), 0
		n := testing.AllocsPerRun(100, func() {
			x := sum
			_ = breaker.Do(ctx, b, func(context.Context) error { x++; return nil })
			sum = x
		})
		if n != 0 {
			t.Errorf("%s: Do allocates %v times, want 0", name, n)
		}
	}
}

func TestTheShellsFollowTheClock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]breaker.Config{
		"window of calls": withCalls(fragile, 10),
		"time window":     fragile,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := breaker.Must(c)
				fail := func(context.Context) error { return errDown }
				_ = breaker.Do(t.Context(), b, fail)
				if got := b.OpenFor(); got != 5*sec {
					t.Errorf("OpenFor() = %v, want 5s", got)
				}
				time.Sleep(5*sec - 1)
				if got := b.State(); got != breaker.Open {
					t.Errorf("State() a moment before = %v, want open", got)
				}
				time.Sleep(1)
				if got := b.State(); got != breaker.HalfOpen {
					t.Errorf("State() = %v, want half-open", got)
				}
				if err := breaker.Do(t.Context(), b, func(context.Context) error { return nil }); err != nil {
					t.Errorf("Do = %v", err)
				}
				if got, open := b.State(), b.OpenFor(); got != breaker.Closed || open != 0 {
					t.Errorf("State(), OpenFor() = %v, %v, want closed, 0s", got, open)
				}
			})
		})
	}
}

func TestDoTimesSlowCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.Must(breaker.Config{WindowCalls: 10, SlowCall: 2 * sec})
		for _, took := range []int{1, 2, 3} {
			_ = breaker.Do(t.Context(), b, func(context.Context) error { time.Sleep(time.Duration(took) * sec); return nil })
		}
		if got, want := b.Counts(), (breaker.Counts{Calls: 3, Slow: 2}); got != want {
			t.Errorf("Counts() = %+v, want %+v", got, want)
		}
	})
}

func TestDoOfAHungProbeIsNotWaitedForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.Must(fragile)
		_ = breaker.Do(t.Context(), b, func(context.Context) error { return errDown })
		time.Sleep(5 * sec)
		release := make(chan struct{})
		go func() {
			_ = breaker.Do(t.Context(), b, func(context.Context) error { <-release; return nil })
		}()
		synctest.Wait()
		if got := b.OpenFor(); got != 30*sec {
			t.Errorf("OpenFor() = %v, want 30s, the time the probe has", got)
		}
		time.Sleep(30 * sec)
		if err := breaker.Do(t.Context(), b, func(context.Context) error { return nil }); err != nil {
			t.Errorf("Do = %v, want the second probe to pass", err)
		}
		close(release)
		synctest.Wait()
		if got := b.State(); got != breaker.Closed {
			t.Errorf("State() = %v, want closed", got)
		}
	})
}
