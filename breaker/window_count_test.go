package breaker_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/breaker"
)

// history is the naive model of a window of calls: all results, counted again
// each time.
type history struct {
	config breaker.Config
	calls  []outcome
}

type outcome struct{ failed, slow bool }

func (h *history) counts() (c breaker.Counts) {
	for _, o := range h.calls[max(len(h.calls)-h.config.WindowCalls, 0):] {
		c.Calls++
		if o.failed {
			c.Failures++
		}
		if o.slow {
			c.Slow++
		}
	}
	for _, o := range slices.Backward(h.calls) {
		if !o.failed {
			break
		}
		c.ConsecutiveFailures++
	}
	return c
}

// opens reports whether the rules open the breaker after the last result,
// computed with integers.
func (h *history) opens(perMille int) bool {
	c, o := h.counts(), h.calls[len(h.calls)-1]
	rates := c.Calls >= h.config.MinCalls &&
		(c.Failures > 0 && c.Failures*1000 >= perMille*c.Calls || c.Slow > 0 && c.Slow*1000 >= perMille*c.Calls)
	return (o.failed || o.slow) && (rates || c.ConsecutiveFailures >= h.config.ConsecutiveFailures)
}

// FuzzCallWindow feeds a history to a breaker and to the model, and compares
// all counts and the decision to open after every call.
func FuzzCallWindow(f *testing.F) {
	f.Add(uint8(3), uint8(0), uint16(500), uint8(9), []byte("sfsffsxfSFff"))
	f.Add(uint8(250), uint8(249), uint16(4), uint8(200), append(make([]byte, 249), 'f'))
	f.Fuzz(func(t *testing.T, size, least uint8, perMille uint16, run uint8, results []byte) {
		compareCalls(t, size, least, perMille, run, results)
	})
}

func TestCallWindowMatchesTheModelOnRandomHistories(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		results := make([]byte, r.IntN(400))
		for i := range results {
			results[i] = "ssssssssfxSF"[r.IntN(12)]
		}
		compareCalls(t, uint8(r.Uint32()), uint8(r.Uint32()), uint16(r.IntN(1000)), uint8(3+r.IntN(20)), results)
	}
}

func compareCalls(t *testing.T, size, least uint8, perMille uint16, run uint8, results []byte) {
	t.Helper()
	rate := int(perMille)%1000 + 1
	c := breaker.Config{
		WindowCalls:         int(size) + 1,
		MinCalls:            int(least)%(int(size)+1) + 1,
		FailureRate:         float64(rate) / 1000,
		SlowCall:            sec,
		SlowRate:            float64(rate) / 1000,
		ConsecutiveFailures: int(run) + 1,
	}
	b, h := breaker.Must(c), history{config: c}
	for i, letter := range results {
		o := outcome{failed: letter == 'f' || letter == 'F', slow: letter == 'F' || letter == 'S'}
		took, r := time.Duration(0), breaker.Success
		if o.slow {
			took = sec
		}
		if o.failed {
			r = breaker.Failure
		}
		if letter == 'x' {
			r = breaker.Canceled
		} else {
			h.calls = append(h.calls, o)
		}
		allow(t, b, 0).DoneAt(took, r)
		if r != breaker.Canceled && h.opens(rate) {
			wantState(t, b, 0, breaker.Open)
			return
		}
		wantState(t, b, 0, breaker.Closed)
		if got, want := b.CountsAt(0), h.counts(); got != want {
			t.Fatalf("%+v\nafter %q:\n got %+v\nwant %+v", c, results[:i+1], got, want)
		}
	}
}

func TestCountsAreExactWhateverTheNumberOfGoroutines(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 1000
	for name, c := range map[string]breaker.Config{
		"calls": {WindowCalls: goroutines * each},
		"time":  {Window: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := breaker.Must(c)
			inParallel(goroutines, func(g int) { mixed(b, g, each) })
			got := b.Counts()
			got.ConsecutiveFailures = 0
			if want := (breaker.Counts{Calls: goroutines * each, Failures: goroutines * each / 10}); got != want {
				t.Errorf("Counts() = %+v, want %+v", got, want)
			}
		})
	}
}

func TestASmallWindowForgetsExactlyAfterParallelCalls(t *testing.T) {
	t.Parallel()
	// No order of the calls may open it.
	b := breaker.Must(breaker.Config{WindowCalls: 7, FailureRate: breaker.Off, ConsecutiveFailures: math.MaxInt32})
	inParallel(8, func(g int) { mixed(b, g, 1000) })
	for range 7 {
		mixed(b, 1, 1)
	}
	if got, want := b.Counts(), (breaker.Counts{Calls: 7}); got != want {
		t.Errorf("Counts() after as many successes as the window holds = %+v, want %+v", got, want)
	}
}

// mixed makes calls of which every tenth fails.
func mixed(b *breaker.Breaker, g, n int) {
	for i := range n {
		p, err := b.Allow()
		if err != nil {
			return // the caller finds the missing calls in the totals
		}
		if (i+g)%10 == 0 {
			p.Done(breaker.Failure)
		} else {
			p.Done(breaker.Success)
		}
	}
}

func inParallel(n int, f func(g int)) {
	var wg sync.WaitGroup
	for g := range n {
		wg.Go(func() { f(g) })
	}
	wg.Wait()
}
