package storm

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/retry"
)

// load calls a service with this error rate ten times a second for three minutes, with virtual
// time, and returns the changes.
func load(t *testing.T, errorRate float64) (told []Change) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var count Count
		rnd := rand.New(rand.NewPCG(1, 2))
		runner := retry.Must("exponential(100ms..5s) jitter=full attempts=5", retry.WithSeed(3), retry.WithObserver(func(ev retry.Event) {
			if ev.Kind != retry.AttemptStarted {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if count.Attempts++; ev.Attempt == 1 {
				count.First++
			}
		}))
		a := New(rule, func() map[Subject]Count {
			mu.Lock()
			defer mu.Unlock()
			return map[Subject]Count{flow: count}
		}, func(c Change) { told = append(told, c) })
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _ = a.Run(ctx) })
		for range 1800 {
			all.Go(func() {
				_ = runner.Do(ctx, func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					if rnd.Float64() < errorRate {
						return errors.New("no")
					}
					return nil
				})
			})
			time.Sleep(100 * time.Millisecond)
		}
		cancel()
		all.Wait()
	})
	return told
}

func TestNormalLoadIsQuiet(t *testing.T) {
	t.Parallel()
	if told := load(t, 0.01); len(told) != 0 {
		t.Errorf("1 %% of errors: %v", told)
	}
}

func TestAnOutageIsAStorm(t *testing.T) {
	t.Parallel()
	told := load(t, 0.95)
	if len(told) != 1 || told[0].Ended || told[0].Subject != flow {
		t.Fatalf("95 %% of errors: %v", told)
	}
	ev := told[0].Event("order", start)
	if ev.Kind != retry.StormBegan || ev.Name != "order" || ev.Note == "" {
		t.Errorf("event %+v", ev)
	}
	told[0].Ended = true
	if ev := told[0].Event("order", start); ev.Kind != retry.StormEnded {
		t.Errorf("event %+v", ev)
	}
}

func TestARuleMayChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n uint64
		var told []Change
		a := New(Rule{1e6, time.Hour, 1}, func() map[Subject]Count { n += 30; return map[Subject]Count{flow: {n * 3, n}} }, func(c Change) { told = append(told, c) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		time.Sleep(time.Minute)
		a.Become(rule)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(told) != 1 || a.Totals()[flow] != 1 || len(a.Storms()) != 1 {
			t.Errorf("told %v, totals %v, storms %v", told, a.Totals(), a.Storms())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
