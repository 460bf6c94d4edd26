package contend_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/contend"
)

// crowd lets writers make five changes each of one value, in virtual time. It returns how many
// changes succeeded, the attempts, and the time.
func crowd(t *testing.T, writers int, seed uint64, do func(context.Context, func(context.Context) error) error) (done, attempts int64, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var store cell
		var succeeded, made atomic.Int64
		var all sync.WaitGroup
		start := time.Now()
		for i := range writers {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			all.Go(func() {
				for range 5 {
					err := do(t.Context(), func(context.Context) error {
						made.Add(1)
						value, version := store.get()
						time.Sleep(5*time.Millisecond + time.Duration(r.IntN(2e5)))
						if _, ok := store.set(value, version); !ok {
							return contend.Lost(nil, nil)
						}
						return nil
					})
					if err == nil {
						succeeded.Add(1)
					}
				}
			})
		}
		all.Wait()
		done, attempts, took = succeeded.Load(), made.Load(), time.Since(start)
	})
	return done, attempts, took
}

// A loop that waits 10 ms after a conflict is the baseline.
func TestTheDefaultBeatsALoopThatWaitsTenMilliseconds(t *testing.T) {
	naive := func(ctx context.Context, add func(context.Context) error) error {
		for {
			err := add(ctx)
			if err == nil {
				return nil
			}
			time.Sleep(10 * time.Millisecond) // real clock: it runs in a bubble
		}
	}
	for _, writers := range []int{5, 20, 100} {
		for seed := range uint64(5) {
			w := contend.Must(contend.Config{}, contend.WithSeed(seed))
			done, attempts, took := crowd(t, writers, seed, func(ctx context.Context, add func(context.Context) error) error {
				return w.Do(ctx, func(ctx context.Context, _ contend.Try) error { return add(ctx) })
			})
			_, most, longest := crowd(t, writers, seed, naive)
			if done != int64(5*writers) {
				t.Errorf("%d writers: %d of %d changes", writers, done, 5*writers)
			}
			// Five writers have few conflicts: the baseline needs less than two attempts for a change.
			if took > longest || attempts > most || writers > 5 && attempts > most/2 {
				t.Errorf("%d writers: %d attempts in %v; the baseline makes %d in %v", writers, attempts, took, most, longest)
			}
		}
	}
}

// A Writer may be used for many values: an attempt that hangs and those that wait for it hold up no
// proposal for a value without conflicts, and losers of other values only for a while.
func TestAnAttemptThatHangsHoldsUpNoOtherValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := contend.Must(contend.Config{})
		hung, release := make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			err := w.Do(t.Context(), func(_ context.Context, try contend.Try) error {
				if try.Number == 1 {
					return contend.Lost(nil, nil)
				}
				close(hung)
				<-release
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		<-hung
		start := time.Now()
		for range 100 {
			if err := w.Do(t.Context(), func(context.Context, contend.Try) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("100 proposals without conflicts took %v; only the first may wait, for 200 attempts", took)
		}
		err := w.Do(t.Context(), func(_ context.Context, try contend.Try) error {
			if try.Number == 1 {
				return contend.Lost(nil, nil)
			}
			return nil
		})
		if err != nil {
			t.Errorf("a loser of another value: %v", err)
		}
		close(release)
		all.Wait()
	})
}

func TestAProposalThatIsCanceledBeforeItsTurnHasWrittenNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := contend.Must(contend.Config{})
		release := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			_ = w.Do(t.Context(), func(_ context.Context, try contend.Try) error {
				if try.Number == 1 {
					return contend.Lost(nil, nil)
				}
				<-release
				return nil
			})
		})
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		attempts := 0
		all.Go(func() {
			err := w.Do(ctx, func(context.Context, contend.Try) error {
				attempts++
				return contend.Lost(nil, fmt.Errorf("attempt %d", attempts))
			})
			if !errors.Is(err, context.Canceled) || errors.Is(err, contend.ErrUnsure) || attempts != 0 {
				t.Errorf("%v after %d attempts, want canceled before the first, and nothing written", err, attempts)
			}
		})
		time.Sleep(50 * time.Millisecond)
		cancel()
		synctest.Wait()
		close(release)
		all.Wait()
	})
}
