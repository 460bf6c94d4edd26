package retry

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

func TestAttempts(t *testing.T) {
	for _, policy := range []string{"fixed(1s) attempts=3", "fixed(1s) attempts=3 attempt-timeout=1m"} {
		synctest.Test(t, func(t *testing.T) {
			r := Must(policy)
			op, at := failing(2, errFlaky)
			var err error
			var numbers []int
			var contexts []context.Context
			for a := range r.Attempts(t.Context(), &err) {
				numbers = append(numbers, a.Number())
				contexts = append(contexts, a.Context())
				err = op(a.Context())
			}
			if err != nil || !reflect.DeepEqual(numbers, []int{1, 2, 3}) || (*at)[2] != 2*time.Second {
				t.Errorf("%s: %v, attempts %v at %v", policy, err, numbers, *at)
			}
			if r.policy.AttemptTimeout > 0 && contexts[0].Err() == nil {
				t.Error("the context of an attempt outlives it")
			}

			op, _ = failing(9, errFlaky)
			for a := range r.Attempts(t.Context(), &err) {
				err = op(a.Context())
			}
			wantError(t, err, StopAttempts, 3, errFlaky)
		})
	}
}

func TestLeavingTheLoopKeepsTheError(t *testing.T) {
	for _, policy := range []string{"fixed(0s) attempts=5", "fixed(0s) attempts=5 attempt-timeout=1m"} {
		for stopAt := 1; stopAt <= 3; stopAt++ {
			var err error
			n := 0
			for range Must(policy).Attempts(t.Context(), &err) {
				n++
				err = errFlaky
				if n == stopAt {
					break
				}
			}
			if err != errFlaky || n != stopAt {
				t.Errorf("%s: left at %d of %d with %v, want the error as it was", policy, n, stopAt, err)
			}
		}
	}
}

func TestEachTurnStartsWithoutAnError(t *testing.T) {
	for _, policy := range []string{"fixed(0s) attempts=5", "fixed(0s) attempts=5 attempt-timeout=1m"} {
		err := errors.New("of something before")
		n := 0
		for range Must(policy).Attempts(t.Context(), &err) {
			if n++; n == 1 {
				err = errFlaky
			}
			// The second iteration assigns no error, so it has succeeded.
		}
		if err != nil || n != 2 {
			t.Errorf("%s: %v after %d turns, want success after 2", policy, err, n)
		}
	}
}

func TestNoTurnWithADeadContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var err error
	for range Must("fixed(0s) attempts=5").Attempts(ctx, &err) {
		t.Error("an attempt was made")
	}
	wantError(t, err, StopCanceled, 0, context.Canceled)
}
