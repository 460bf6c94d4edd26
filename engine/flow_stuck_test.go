package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// The goroutine of a function makes the attempts of its operations. If one of them is stuck, the
// function is called again in another goroutine, and continues.
func TestFlowContinuesBesideAStuckOperation(t *testing.T) {
	for policy, want := range map[string]struct {
		attempts int
		calls    int32
	}{
		"fixed(1s) attempts=1 attempt-timeout=2s": {1, 2},
		"fixed(1s) attempts=3 attempt-timeout=2s": {1, 2}, // it is not made again beside the handler that does not return
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			var calls, afterwards atomic.Int32
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				block := make(chan struct{})
				w := engine.MustFlow("stuck", func(f *engine.Flow, _ int) (string, error) {
					calls.Add(1)
					_, err := engine.Do(f, "hangs", func(context.Context) (int, error) { <-block; return 0, nil }, engine.Policy(policy))
					failed, ok := errors.AsType[*engine.OpError](err)
					if !ok {
						return "", fmt.Errorf("got %w", err)
					}
					_, err = engine.Do(f, "next", func(context.Context) (int32, error) { return afterwards.Add(1), nil })
					return failed.Code + ": " + failed.Text, err
				})
				run := e.Run(w, 1)
				wantRun(t, run, "succeeded", "stuck: still running 10s after its context ended: attempt timed out after 2s")
				if n := len(operations(run, "do", "hangs")[0].Attempts); n != want.attempts || calls.Load() != want.calls || afterwards.Load() != 1 {
					t.Errorf("%d attempts, %d calls of the function, %d operations after it; want %+v", n, calls.Load(), afterwards.Load(), want)
				}
				close(block)
				synctest.Wait()
				if calls.Load() != want.calls || afterwards.Load() != 1 {
					t.Errorf("%d calls and %d operations when the handler has returned", calls.Load(), afterwards.Load())
				}
			})
		})
	}
}

// A run whose operation does not return is canceled after the grace time. Only the operation is
// reported as stuck, and not the function whose goroutine makes the attempt.
func TestFlowIsCanceledBesideAStuckOperation(t *testing.T) {
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		block := make(chan struct{})
		var calls atomic.Int32
		w := engine.MustFlow("stuck", func(f *engine.Flow, _ int) (int, error) {
			calls.Add(1)
			return engine.Do(f, "hangs", func(context.Context) (int, error) { <-block; return 0, nil })
		})
		id := startFlow(t, e, w, 1)
		flowRun(t, e, id)
		mustDo(t, e.Cancel(t.Context(), id, "me"))
		time.Sleep(time.Minute) // real clock: it runs in the bubble of enginetest
		run := flowRun(t, e, id)
		wantRun(t, run, "canceled", "")
		var stuck []string
		for _, s := range run.Steps {
			for _, a := range s.Attempts {
				if strings.Contains(a.Error, "after") {
					stuck = append(stuck, s.Name+": "+a.Error)
				}
			}
		}
		if len(stuck) != 1 || !strings.HasPrefix(stuck[0], "hangs: still running 10s after") {
			t.Errorf("stuck: %q", stuck)
		}
		close(block)
		synctest.Wait()
		if calls.Load() != 1 {
			t.Errorf("%d calls", calls.Load())
		}
	})
}

// An operation that ends its goroutine ends that of the function. The function is called again, and
// its policy does not count that. Its deferred calls can't call operations.
func TestFlowOperationEndsTheGoroutine(t *testing.T) {
	for _, policy := range []string{"fixed(0s) attempts=3", "fixed(100ms) attempts=3", "fixed(1m) attempts=3"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			var calls, tries atomic.Int32
			var late atomic.Pointer[error] // nothing waits for the deferred calls of a function that is suspended
			w := engine.MustFlow("ends", func(f *engine.Flow, _ int) (int32, error) {
				if calls.Add(1) == 1 {
					defer func() {
						_, err := engine.Now(f, "late")
						late.Store(&err)
					}()
				}
				return engine.Do(f, "op", func(context.Context) (int32, error) {
					if tries.Add(1) < 3 {
						runtime.Goexit()
					}
					return tries.Load(), nil
				}, engine.Policy(policy))
			}, engine.Function(engine.Policy("fixed(1m) attempts=1")))
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				wantRun(t, e.Run(w, 1), "succeeded", "3")
				if err := late.Load(); tries.Load() != 3 || err == nil || !errors.Is(*err, engine.ErrFlowOver) {
					t.Errorf("%d attempts, and the operation in a deferred call got %v", tries.Load(), err)
				}
			}, w)
		})
	}
}

// A run that is paused and then canceled ends after the grace time, even if its operation does not
// return.
func TestFlowIsPausedAndCanceledBesideAStuckOperation(t *testing.T) {
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		block := make(chan struct{})
		defer close(block)
		w := engine.MustFlow("stuck", func(f *engine.Flow, _ int) (int, error) {
			return engine.Do(f, "hangs", func(context.Context) (int, error) { <-block; return 0, nil })
		})
		id := startFlow(t, e, w, 1)
		flowRun(t, e, id)
		mustDo(t, e.Pause(t.Context(), id, "me"))
		time.Sleep(time.Second) // real clock: it runs in the bubble of enginetest
		mustDo(t, e.Cancel(t.Context(), id, "me"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of virtual time
		defer cancel()
		run, err := e.Wait(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		wantRun(t, run, "canceled", "")
	})
}

// Deferred calls of a function that has ended at an operation may take long. The next attempt of the
// operation does not wait for them.
func TestFlowOperationBesideADeferredCall(t *testing.T) {
	pause := func(t *testing.T, e *enginetest.Engine, id string) {
		mustDo(t, e.Pause(t.Context(), id, "me"))
		time.Sleep(time.Second) // real clock: it runs in the bubble of enginetest
		mustDo(t, e.Resume(t.Context(), id, "me"))
	}
	wait := func(ctx context.Context) { <-ctx.Done() }
	for name, test := range map[string]struct {
		first     func(context.Context) // in the first attempt
		interrupt func(*testing.T, *enginetest.Engine, string)
		policy    string
	}{
		"after a pause":                  {wait, pause, "fixed(1s) attempts=3"},
		"after the end of the goroutine": {func(context.Context) { runtime.Goexit() }, nil, "fixed(100ms) attempts=3"},
		"after that, without a wait":     {func(context.Context) { runtime.Goexit() }, nil, "fixed(0s) attempts=3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				var calls, tries atomic.Int32
				block := make(chan struct{})
				w := engine.MustFlow("slow", func(f *engine.Flow, _ int) (int32, error) {
					if calls.Add(1) == 1 {
						defer func() { <-block }()
					}
					return engine.Do(f, "op", func(ctx context.Context) (int32, error) {
						n := tries.Add(1)
						if n == 1 {
							test.first(ctx)
						}
						return n, ctx.Err()
					}, engine.Policy(test.policy))
				})
				id := startFlow(t, e, w, 1)
				flowRun(t, e, id)
				if test.interrupt != nil {
					test.interrupt(t, e, id)
				}
				time.Sleep(time.Hour) // real clock: it runs in the bubble of enginetest
				if tries.Load() != 2 {
					t.Errorf("%d attempts while a deferred call runs", tries.Load())
				}
				close(block)
				wantRun(t, endOfFlow(t, e, id), "succeeded", "2")
			})
		})
	}
}

// Operations that begin with their calls leave a free place to an operation that waits for one.
func TestFlowsShareThePlaces(t *testing.T) {
	for _, places := range []int{1, 2, 3, 4} {
		t.Run(fmt.Sprint(places), func(t *testing.T) {
			t.Parallel()
			var before, done atomic.Int64
			many := engine.MustFlow("many", func(f *engine.Flow, _ int) (int, error) {
				for i := range 100 {
					_, err := engine.Do(f, "op", func(context.Context) (int, error) {
						time.Sleep(time.Second) // real clock: it runs in the bubble of enginetest
						done.Add(1)
						return 0, nil
					}, engine.ForKey(fmt.Sprint(i)))
					if err != nil {
						return 0, err
					}
				}
				return 0, nil
			})
			other := engine.MustFlow("other", func(f *engine.Flow, _ int) (int, error) {
				return engine.Do(f, "op", func(context.Context) (int, error) { before.Store(done.Load()); return 0, nil })
			})
			cfg := engine.Config{Workflows: []*engine.Workflow{many, other}, Concurrency: places}
			enginetest.TestConfig(t, cfg, func(t *testing.T, e *enginetest.Engine) {
				for range places {
					startFlow(t, e, many, 1)
				}
				time.Sleep(2500 * time.Millisecond) // real clock: it runs in the bubble of enginetest
				endOfFlow(t, e, startFlow(t, e, other, 1))
				if n := before.Load(); n > int64(10*places) {
					t.Errorf("the other operation began after %d operations", n)
				}
			})
		})
	}
}
