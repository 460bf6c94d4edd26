package breaker_test

import (
	"testing"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/breaker"
)

const sec = time.Second

// fiveSeconds is an open time without jitter.
var fiveSeconds = backoff.Schedule{Base: 5 * sec}

// fragile opens at the first failure, for five seconds.
var fragile = breaker.Config{FailureRate: breaker.Off, ConsecutiveFailures: 1, Open: fiveSeconds}

// allow requests a call that must be allowed.
func allow(t *testing.T, b *breaker.Breaker, now time.Duration) breaker.Permit {
	t.Helper()
	p, err := b.AllowAt(now)
	if err != nil {
		t.Fatalf("AllowAt(%v) = %v, want a permit", now, err)
	}
	return p
}

// refuse requests a call that must be rejected.
func refuse(t *testing.T, b *breaker.Breaker, now time.Duration) *breaker.OpenError {
	t.Helper()
	_, err := b.AllowAt(now)
	open, ok := err.(*breaker.OpenError)
	if !ok {
		t.Fatalf("AllowAt(%v) = %v, want an *OpenError", now, err)
	}
	return open
}

// call makes a call that must be allowed and takes no time.
func call(t *testing.T, b *breaker.Breaker, now time.Duration, r breaker.Result) {
	t.Helper()
	allow(t, b, now).DoneAt(now, r)
}

func calls(t *testing.T, b *breaker.Breaker, now time.Duration, n int, r breaker.Result) {
	t.Helper()
	for range n {
		call(t, b, now, r)
	}
}

func wantState(t *testing.T, b *breaker.Breaker, now time.Duration, want breaker.State) {
	t.Helper()
	if got := b.StateAt(now); got != want {
		t.Fatalf("StateAt(%v) = %v, want %v", now, got, want)
	}
}

func wantCounts(t *testing.T, b *breaker.Breaker, now time.Duration, want breaker.Counts) {
	t.Helper()
	if got := b.CountsAt(now); got != want {
		t.Fatalf("CountsAt(%v):\n got %+v\nwant %+v", now, got, want)
	}
}

// result parses one letter: success, failure or canceled.
func result(c rune) breaker.Result {
	switch c {
	case 's':
		return breaker.Success
	case 'f':
		return breaker.Failure
	default:
		return breaker.Canceled
	}
}
