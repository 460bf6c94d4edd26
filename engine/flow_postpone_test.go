package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
)

// A run is postponed or paused when its function, or an operation that ends, is about to begin the
// next operation: that one begins at the new time, and is executed once.
func TestFlowPostponedBeforeTheNextOperation(t *testing.T) {
	t.Parallel()
	for what, interrupt := range map[string]func(ctx context.Context, e *Engine, id string, at time.Time) error{
		"postponed": func(ctx context.Context, e *Engine, id string, at time.Time) error {
			return e.Postpone(ctx, id, at, "me")
		},
		"paused": func(ctx context.Context, e *Engine, id string, at time.Time) error {
			// real clock: the rows run in a bubble
			time.AfterFunc(time.Until(at), func() { _ = e.Resume(ctx, id, "me") })
			return e.Pause(ctx, id, "me")
		},
	} {
		testBeforeTheNextOperation(t, what, interrupt)
	}
}

func testBeforeTheNextOperation(t *testing.T, what string, interrupt func(ctx context.Context, e *Engine, id string, at time.Time) error) {
	t.Helper()
	for name, call := range map[string]func(f *Flow, first func(context.Context) error, next func()) error{
		"one of a map": func(f *Flow, first func(context.Context) error, next func()) error {
			_, err := Map(f, "items", []int{0, 1}, func(ctx context.Context, i int) (int, error) {
				if i == 0 {
					return 0, first(ctx)
				}
				next()
				return 0, nil
			}, Parallel(1))
			return err
		},
		"one of the function": func(f *Flow, first func(context.Context) error, next func()) error {
			if err := first(context.Background()); err != nil {
				return err
			}
			_, err := Do(f, "next", func(context.Context) (int, error) { next(); return 0, nil })
			return err
		},
		"one after a single operation": func(f *Flow, first func(context.Context) error, next func()) error {
			if _, err := Do(f, "first", func(ctx context.Context) (int, error) { return 0, first(ctx) }); err != nil {
				return err
			}
			_, err := Do(f, "next", func(context.Context) (int, error) { next(); return 0, nil })
			return err
		},
	} {
		t.Run(what+" before the next "+name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				var executed atomic.Int32
				w := MustFlow("postponed", func(f *Flow, _ int) (string, error) {
					err := call(f, func(context.Context) error { <-release; return nil }, func() { executed.Add(1) })
					return "ok", err
				})
				e := opened(t, Config{Workflows: []*Workflow{w}})
				run := started(t, e, w, 1)
				synctest.Wait()
				at := time.Now().Add(time.Hour)

				// One turn of the owner handles the command, and then what follows the release.
				gate := make(chan struct{})
				go func() {
					_ = e.router.Shards()[0].Do(context.Background(), func(shard.Recorder) error { <-gate; return nil })
				}()
				synctest.Wait()
				interrupted := make(chan error, 1)
				go func() { interrupted <- interrupt(context.Background(), e, run.ID, at) }()
				synctest.Wait()
				close(release)
				synctest.Wait()
				close(gate)
				if err := <-interrupted; err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour - time.Second)
				if i := must(e.Get(t.Context(), run.ID)); i.State != StateWaiting && i.State != StatePaused || executed.Load() != 0 {
					t.Errorf("before its time the run is %s, and the next operation was executed %d times", i.State, executed.Load())
				}
				if i := waited(t, run); i.State != StateSucceeded || executed.Load() != 1 || time.Now().Before(at) {
					t.Errorf("at the end the run is %s: %s; the next operation was executed %d times", i.State, i.Error, executed.Load())
				}
				wantFreePlaces(t, e)
			})
		})
	}
}
