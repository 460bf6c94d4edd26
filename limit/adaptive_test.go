package limit

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func newAdaptive(t testing.TB, cfg AdaptiveConfig) *Adaptive {
	t.Helper()
	a, err := NewAdaptive(cfg)
	if err != nil {
		t.Fatalf("NewAdaptive(%+v): %v", cfg, err)
	}
	return a
}

func TestAdaptiveConfigValidateNamesEveryProblem(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		cfg  AdaptiveConfig
		want []string
	}{
		{"all is wrong", AdaptiveConfig{Min: -1, Initial: 5, Probe: -1, Queue: -1, Aging: -1}, []string{"min: -1", "max: 0", "initial: 5", "probe: -1ns", "queue: -1", "aging: -1ns"}},
		{"the minimum is above the maximum", AdaptiveConfig{Min: 5, Max: 4}, []string{"min: 5 is above max 4"}},
		{"the start is below the minimum", AdaptiveConfig{Min: 5, Max: 9, Initial: 4}, []string{"initial: 4 is not between min 5 and max 9"}},
	} {
		_, err := NewAdaptive(tt.cfg)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error = %v, want it to say %q", tt.name, err, want)
			}
		}
	}
}

func TestAdaptiveStartsAtItsInitialLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		cfg  AdaptiveConfig
		want int
	}{
		{"as it says", AdaptiveConfig{Max: 100, Initial: 7}, 7},
		{"twenty by default", AdaptiveConfig{Max: 100}, 20},
		{"or the maximum below that", AdaptiveConfig{Max: 10}, 10},
		{"or the minimum above that", AdaptiveConfig{Min: 50, Max: 100}, 50},
	} {
		if got := newAdaptive(t, tt.cfg).Stats().Max; got != tt.want {
			t.Errorf("%s: the limit is %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestAdaptiveTokens(t *testing.T) {
	t.Parallel()
	a := newAdaptive(t, AdaptiveConfig{Max: 1})
	tok, err := a.Acquire(t.Context())
	if err != nil {
		t.Fatalf("Acquire = %v", err)
	}
	if _, err := a.Acquire(t.Context()); !errors.Is(err, ErrQueueFull) {
		t.Errorf("Acquire beyond the limit = %v, want ErrQueueFull", err)
	}
	tok.Done(Ignored)
	tok.Done(Ignored)
	var none Token
	none.Done(Dropped)
	if s := a.Stats(); s.InUse != 0 {
		t.Errorf("after Done %d permits are in use, want 0", s.InUse)
	}
	if a.estimate.round.skip != 1 {
		t.Error("an ignored call was sampled")
	}
}

// Adaptive in virtual time: thirty callers, ten workers behind a channel.
func TestAdaptiveFindsTheKneeOfAServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAdaptive(t, AdaptiveConfig{Max: 100, Initial: 30, Queue: 100})
		workers := make(chan struct{}, 10)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				for {
					tok, err := a.Acquire(ctx)
					if err != nil {
						return
					}
					workers <- struct{}{}
					time.Sleep(10 * time.Millisecond)
					<-workers
					tok.Done(Answered)
				}
			})
		}
		wg.Wait()
		if s := a.Stats(); s.Max < 10 || s.Max > 16 || s.InUse != 0 {
			t.Errorf("the limit is %d with %d in use, want 10 to 16 and none", s.Max, s.InUse)
		}
	})
}

func TestAdaptiveShrinksWhenCallsAreDropped(t *testing.T) {
	t.Parallel()
	a := newAdaptive(t, AdaptiveConfig{Min: 2, Max: 100})
	for range 1000 {
		tok, err := a.Acquire(t.Context())
		if err != nil {
			t.Fatalf("Acquire = %v", err)
		}
		tok.Done(Dropped)
	}
	if got := a.Stats().Max; got != 2 {
		t.Errorf("after a thousand dropped calls the limit is %d, want the minimum, 2", got)
	}
}
