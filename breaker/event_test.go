package breaker_test

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/breaker"
)

// recorder is an observer that stores its events.
type recorder struct{ events []breaker.Event }

func (r *recorder) observe(e breaker.Event) { r.events = append(r.events, e) }

func (r *recorder) causes() (list []breaker.Cause) {
	for _, e := range r.events {
		list = append(list, e.Cause)
	}
	return list
}

func TestEveryChangeOfStateIsAnEvent(t *testing.T) {
	t.Parallel()
	var r recorder
	c := fragile
	c.WindowCalls = 10
	b := breaker.Must(c, breaker.WithName("mail"), breaker.WithObserver(r.observe))
	call(t, b, 1*sec, breaker.Success)
	call(t, b, 1*sec, breaker.Failure)
	call(t, b, 6*sec, breaker.Failure)
	call(t, b, 11*sec, breaker.Success)
	_ = b.ForceAt(12*sec, breaker.ForcedOpen)
	_ = b.ForceAt(12*sec, breaker.ForcedOpen)
	b.ResetAt(13 * sec)
	b.ResetAt(13 * sec)

	failed := breaker.Counts{Calls: 1, Failures: 1, ConsecutiveFailures: 1}
	want := []breaker.Event{
		{From: breaker.Closed, To: breaker.Open, At: 1 * sec, Cause: breaker.CauseConsecutive, OpenFor: 5 * sec,
			Counts: breaker.Counts{Calls: 2, Failures: 1, ConsecutiveFailures: 1}},
		{From: breaker.Open, To: breaker.HalfOpen, At: 6 * sec, Cause: breaker.CauseOpenElapsed},
		{From: breaker.HalfOpen, To: breaker.Open, At: 6 * sec, Cause: breaker.CauseProbeFailed, Counts: failed, OpenFor: 5 * sec},
		{From: breaker.Open, To: breaker.HalfOpen, At: 11 * sec, Cause: breaker.CauseOpenElapsed},
		{From: breaker.HalfOpen, To: breaker.Closed, At: 11 * sec, Cause: breaker.CauseProbeSucceeded, Counts: breaker.Counts{Calls: 1}},
		{From: breaker.Closed, To: breaker.ForcedOpen, At: 12 * sec, Cause: breaker.CauseForced, OpenFor: 1<<63 - 1},
		{From: breaker.ForcedOpen, To: breaker.Closed, At: 13 * sec, Cause: breaker.CauseReset},
	}
	for i := range want {
		want[i].Name = "mail"
	}
	if !slices.Equal(r.events, want) {
		t.Errorf("events\n got %+v\nwant %+v", r.events, want)
	}
}

func TestTheCauseNamesTheRule(t *testing.T) {
	t.Parallel()
	tests := []struct {
		cause  breaker.Cause
		config breaker.Config
	}{
		{breaker.CauseFailureRate, breaker.Config{WindowCalls: 2}},
		{breaker.CauseConsecutive, breaker.Config{WindowCalls: 2, ConsecutiveFailures: 2}},
		{breaker.CauseSlowRate, breaker.Config{WindowCalls: 2, FailureRate: breaker.Off, SlowCall: 1}},
	}
	for _, tt := range tests {
		t.Run(string(tt.cause), func(t *testing.T) {
			t.Parallel()
			var r recorder
			b := breaker.Must(tt.config, breaker.WithObserver(r.observe))
			for range 2 {
				allow(t, b, 0).DoneAt(1, breaker.Failure)
			}
			if got := r.causes(); !slices.Equal(got, []breaker.Cause{tt.cause}) {
				t.Errorf("causes %v, want %v", got, tt.cause)
			}
		})
	}
}

// An observer may call the breaker. In another library a callback that reads the state
// deadlocks.
func TestACallbackMayAskTheBreakerAnything(t *testing.T) {
	t.Parallel()
	var b *breaker.Breaker
	var seen []breaker.State
	b = breaker.Must(fragile, breaker.WithObserver(func(e breaker.Event) {
		seen = append(seen, b.StateAt(e.At))
		b.CountsAt(e.At)
		b.OpenForAt(e.At)
		_, _ = b.AllowAt(e.At)
	}))
	call(t, b, 0, breaker.Failure)
	if want := []breaker.State{breaker.Open}; !slices.Equal(seen, want) {
		t.Errorf("the callback saw %v, want %v", seen, want)
	}
}

func TestACallbackMayChangeTheStateAndHearsOfItAfterwards(t *testing.T) {
	t.Parallel()
	var b *breaker.Breaker
	var r recorder
	inside := false
	b = breaker.Must(fragile, breaker.WithObserver(func(e breaker.Event) {
		if inside {
			t.Error("an observer was called while it was running")
		}
		inside = true
		r.observe(e)
		if e.Cause == breaker.CauseConsecutive {
			if err := b.ForceAt(e.At, breaker.ForcedOpen); err != nil {
				t.Error(err)
			}
			b.ResetAt(e.At)
		}
		inside = false
	}))
	call(t, b, 0, breaker.Failure)
	want := []breaker.Cause{breaker.CauseConsecutive, breaker.CauseForced, breaker.CauseReset}
	if got := r.causes(); !slices.Equal(got, want) {
		t.Errorf("causes %v, want %v", got, want)
	}
}

func TestAPanickingObserverHurtsNobody(t *testing.T) {
	t.Parallel()
	var r recorder
	b := breaker.Must(fragile,
		breaker.WithObserver(func(breaker.Event) { panic("observer") }),
		breaker.WithObserver(r.observe))
	call(t, b, 0, breaker.Failure)
	wantState(t, b, 0, breaker.Open)
	call(t, b, 5*sec, breaker.Success)
	wantState(t, b, 5*sec, breaker.Closed)
	if len(r.events) != 3 {
		t.Errorf("the other observer got %d events, want 3", len(r.events))
	}
}

func TestAnObserverThatEndsItsGoroutineDoesNotStopLaterEvents(t *testing.T) {
	t.Parallel()
	var r recorder
	b := breaker.Must(fragile, breaker.WithObserver(func(e breaker.Event) {
		r.observe(e)
		if e.Cause == breaker.CauseForced {
			runtime.Goexit()
		}
	}))
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.ForceAt(0, breaker.ForcedOpen) })
	wg.Wait()
	b.ResetAt(0)
	if want := []breaker.Cause{breaker.CauseForced, breaker.CauseReset}; !slices.Equal(r.causes(), want) {
		t.Errorf("causes %v, want %v", r.causes(), want)
	}
}

// TestEventsFormAChain changes the state from many goroutines: each event must
// begin where the one before it ended.
func TestEventsFormAChain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var r recorder
	b := breaker.Must(fragile, breaker.WithObserver(func(e breaker.Event) {
		if !mu.TryLock() {
			t.Error("two events were delivered at once")
			return
		}
		defer mu.Unlock()
		r.observe(e)
	}))
	inParallel(4, func(g int) {
		for i := range 500 {
			now := time.Duration(i) * sec
			if p, err := b.AllowAt(now); err == nil {
				p.DoneAt(now, breaker.Result((i+g)%2))
			}
			if i%100 == 0 {
				b.ResetAt(now)
			}
		}
	})
	state := breaker.Closed
	for i, e := range r.events {
		if e.From != state {
			t.Fatalf("event %d goes from %v, but the one before it went to %v", i, e.From, state)
		}
		state = e.To
	}
	if got := b.StateAt(0); got != state {
		t.Errorf("StateAt(0) = %v, but the last event went to %v", got, state)
	}
}
