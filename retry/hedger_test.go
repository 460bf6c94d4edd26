package retry

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func hedger(t testing.TB, text string, opts ...Option) *Hedger {
	t.Helper()
	h, err := NewHedger(mustParse(t, text), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// slowFirst returns an operation whose first call takes the given time and
// whose later calls take a second. It answers with the number of the call.
func slowFirst(first time.Duration) (op func(context.Context) (int, error), canceled *atomic.Int32) {
	canceled = new(atomic.Int32)
	var calls atomic.Int32
	return func(ctx context.Context) (int, error) {
		n := int(calls.Add(1))
		d := time.Second
		if n == 1 {
			d = first
		}
		select {
		case <-time.After(d):
			return n, nil
		case <-ctx.Done():
			canceled.Add(1)
			return n, ctx.Err()
		}
	}, canceled
}

func TestHedge(t *testing.T) {
	tests := []struct {
		name     string
		first    time.Duration
		want     int
		took     time.Duration
		canceled int32
	}{
		{"a fast first attempt is alone", time.Second, 1, time.Second, 0},
		{"a slow one is overtaken, canceled and waited for", time.Hour, 2, 3 * time.Second, 1},
		{"a slow one that wins cancels the second", 2500 * time.Millisecond, 1, 2500 * time.Millisecond, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var kinds []string
				h := hedger(t, "fixed(0s) attempts=1 hedge=2s", WithObserver(func(e Event) { kinds = append(kinds, e.Kind.String()) }))
				op, canceled := slowFirst(tt.first)
				start := time.Now()
				v, err := Hedged(t.Context(), h, op)
				if v != tt.want || err != nil || time.Since(start) != tt.took || canceled.Load() != tt.canceled {
					t.Errorf("%d, %v in %v with %d canceled, want %d in %v with %d", v, err, time.Since(start), canceled.Load(), tt.want, tt.took, tt.canceled)
				}
				if hedged := strings.Contains(strings.Join(kinds, " "), "hedge-started"); hedged != (tt.took > 2*time.Second) {
					t.Errorf("events %v", kinds)
				}
			})
		})
	}
}

func TestHedgeFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hedger(t, "fixed(1s) attempts=2 hedge=2s/100%")
		var calls atomic.Int32
		start := time.Now()
		v, err := Hedged(t.Context(), h, func(context.Context) (int, error) {
			if n := calls.Add(1); n == 1 {
				time.Sleep(3 * time.Second)
				return 0, errFlaky // while the second call is in progress
			}
			time.Sleep(2 * time.Second)
			return 7, nil
		})
		if v != 7 || err != nil || calls.Load() != 2 || time.Since(start) != 4*time.Second {
			t.Errorf("a failed first and a good second: %d, %v, %d calls in %v", v, err, calls.Load(), time.Since(start))
		}

		calls.Store(0)
		_, err = Hedged(t.Context(), h, func(context.Context) (int, error) {
			calls.Add(1)
			time.Sleep(3 * time.Second)
			return 0, errFlaky
		})
		wantError(t, err, StopAttempts, 2, errFlaky)
		if calls.Load() != 4 {
			t.Errorf("%d calls, want two attempts of two", calls.Load())
		}

		calls.Store(0)
		_, err = Hedged(t.Context(), h, func(context.Context) (int, error) {
			calls.Add(1)
			return 0, Permanent(errFlaky)
		})
		wantError(t, err, StopPermanent, 1, errFlaky)
		if calls.Load() != 1 {
			t.Errorf("%d calls, want 1: a failure is not a slow answer", calls.Load())
		}
	})
}

func TestHedgesAreBudgeted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hedger(t, "fixed(0s) hedge=1s/10%")
		var calls atomic.Int32
		const n = 300
		for range n {
			_, _ = Hedged(t.Context(), h, func(context.Context) (int, error) {
				calls.Add(1)
				time.Sleep(2 * time.Second)
				return 0, nil
			})
		}
		// A tenth of the calls, and a burst of ten at the start.
		if hedges := calls.Load() - n; hedges < n/10 || hedges > n/10+hedgeBurst {
			t.Errorf("%d hedges of %d calls", hedges, n)
		}
	})
}

func TestHedgeAtAPercentile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hedger(t, "fixed(0s) hedge=p95/50%")
		var calls atomic.Int32
		call := func(d time.Duration) time.Duration {
			start := time.Now()
			first := calls.Add(1)
			_ = first
			n := atomic.Int32{}
			_, err := Hedged(t.Context(), h, func(ctx context.Context) (int, error) {
				if n.Add(1) == 2 {
					return 0, nil
				}
				select {
				case <-time.After(d):
				case <-ctx.Done():
				}
				return 0, ctx.Err()
			})
			if err != nil {
				t.Fatal(err)
			}
			return time.Since(start)
		}
		if took := call(time.Hour); took != time.Hour {
			t.Errorf("without samples a call took %v, want no hedge", took)
		}
		for i := range 500 {
			call(time.Duration(i%100+1) * time.Millisecond)
		}
		// 95 of 100 latencies are at most 95 ms; the buckets are 6 % wide, and the
		// hedges themselves shorten the tail a little.
		if took := call(time.Hour); took < 80*time.Millisecond || took > 105*time.Millisecond {
			t.Errorf("hedged after %v, want about 95ms", took)
		}
	})
}

func TestALoserThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stuck atomic.Int32
		h := hedger(t, "fixed(0s) attempts=3 hedge=1s/100%", WithGrace(10*time.Second), WithObserver(func(e Event) {
			if e.Kind == AttemptStuck {
				stuck.Add(1)
			}
		}))
		var calls atomic.Int32
		op := func(firstErr error) func(context.Context) (int, error) {
			calls.Store(0)
			return func(context.Context) (int, error) {
				if calls.Add(1) == 1 {
					time.Sleep(2 * time.Second)
					return 1, firstErr
				}
				time.Sleep(time.Minute) // ignores its context
				return 2, errFlaky
			}
		}
		start := time.Now()
		v, err := Hedged(t.Context(), h, op(nil))
		if v != 1 || err != nil || time.Since(start) != 12*time.Second || stuck.Load() != 1 {
			t.Errorf("a success beside a stuck loser: %d, %v in %v, %d events", v, err, time.Since(start), stuck.Load())
		}
		time.Sleep(time.Hour)

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err = Hedged(ctx, h, op(errFlaky))
		if !errors.Is(err, errFlaky) || calls.Load() != 2 {
			t.Errorf("a failure beside a stuck loser: %v, %d calls: no attempt may follow", err, calls.Load())
		}
		time.Sleep(time.Hour)

		h = hedger(t, "fixed(0s) attempts=3 hedge=1s/100% attempt-timeout=3s", WithGrace(10*time.Second))
		_, err = Hedged(t.Context(), h, op(errFlaky))
		wantError(t, err, StopStuck, 1, errFlaky)
		time.Sleep(time.Hour)
	})
}

func TestPanicsOfHedges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, guilty := range []int32{1, 2} {
			h := hedger(t, "fixed(0s) hedge=1s")
			var calls atomic.Int32
			func() {
				defer func() {
					if v := recover(); v != "boom" {
						t.Errorf("call %d panicked, recovered %v", guilty, v)
					}
				}()
				_, _ = Hedged(t.Context(), h, func(context.Context) (int, error) {
					n := calls.Add(1)
					time.Sleep(2 * time.Second)
					if n == guilty {
						panic("boom")
					}
					return 0, errFlaky
				})
			}()
		}
	})
}

func TestEveryValidShareMakesAHedger(t *testing.T) {
	for _, share := range []float64{0, 1.0 / 3, 1e-9, 0.05, 1} {
		if _, err := NewHedger(Policy{Hedge: Hedge{After: time.Second, Share: share}}); err != nil {
			t.Errorf("a share of %v: %v", share, err)
		}
	}
}

func TestNewHedgerRefuses(t *testing.T) {
	tests := []struct {
		text string
		opts []Option
		want string
	}{
		{"fixed(0s)", nil, "retry.NewHedger: hedge: the policy has no hedge"},
		{"fixed(0s) hedge=p95 reset-after=1s", nil, "reset-after: a Hedger can't honour"},
		{"fixed(0s) hedge=p95", []Option{WithGrace(-1)}, "WithGrace:"},
	}
	for _, tt := range tests {
		if _, err := NewHedger(mustParse(t, tt.text), tt.opts...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("NewHedger(%q) = %v, want %q in it", tt.text, err, tt.want)
		}
	}
	if _, err := Hedged[int](t.Context(), nil, nil); err == nil {
		t.Error("Hedged without a hedger succeeded")
	}
	if _, err := Hedged[int](t.Context(), hedger(t, "fixed(0s) hedge=1s"), nil); err == nil {
		t.Error("Hedged without an operation succeeded")
	}
}

func TestQuantileBuckets(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 15, 16, 17, 31, 32, 33, 1000, time.Millisecond, time.Hour, 1<<63 - 1} {
		i := bucketOf(d)
		if i < 0 || i >= buckets {
			t.Fatalf("%d is in bucket %d", d, i)
		}
		if up := upperEdge(i); up < d || float64(up) > float64(d)*1.07+1 {
			t.Errorf("%d is in bucket %d, which ends at %d", d, i, up)
		}
		if i > 0 && upperEdge(i-1) >= d {
			t.Errorf("%d is in bucket %d, but the one before ends at %d", d, i, upperEdge(i-1))
		}
	}
}
