package limit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func newRateQueue(t testing.TB, cfg RateQueueConfig) *RateQueue {
	t.Helper()
	q, err := NewRateQueue(cfg)
	if err != nil {
		t.Fatalf("NewRateQueue(%+v): %v", cfg, err)
	}
	return q
}

func TestRateQueueConfigValidateNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := NewRateQueue(RateQueueConfig{Burst: -1, MaxWait: -1, Queue: -1, Aging: -1})
	for _, want := range []string{"rate: 0 events", "burst: -1", "max-wait: -1ns", "queue: -1", "aging: -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want it to say %q", err, want)
		}
	}
}

// waitAll starts a caller for each class, a moment after the one before, and
// returns the classes in the order in which they were served, or their errors.
func waitAll(q *RateQueue, classes ...Priority) []string {
	var mu sync.Mutex
	var got []string
	var all sync.WaitGroup
	for _, p := range classes {
		all.Go(func() {
			text := p.String()
			if err := q.Wait(WithPriority(context.Background(), p)); err != nil {
				text += ": " + err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, text)
		})
		synctest.Wait()
		time.Sleep(time.Millisecond)
	}
	all.Wait()
	return got
}

func TestRateQueueServesTheMostUrgentFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newRateQueue(t, RateQueueConfig{Rate: Frequency{1, time.Second}, MaxWait: time.Hour, Queue: 10})
		began := time.Now()
		got := waitAll(q, Normal, Low, Normal, Lowest, Highest, High)
		if want := []string{"normal", "highest", "high", "normal", "low", "lowest"}; !slices.Equal(got, want) {
			t.Errorf("served %v, want %v", got, want)
		}
		if d := time.Since(began); d < 5*time.Second || d > 5*time.Second+10*time.Millisecond {
			t.Errorf("six events at one a second took %v, want 5s", d)
		}
		if s := q.Stats(); s.Waiting != 0 {
			t.Errorf("%+v, want an empty queue", s)
		}
	})
}

func TestRateQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newRateQueue(t, RateQueueConfig{Rate: Frequency{1, time.Second}, MaxWait: time.Hour, Queue: 2})
		got := waitAll(q, Normal, Low, Low, Low, High)
		want := []string{"normal", "low: " + ErrQueueFull.Error(), "low: " + ErrShed.Error(), "high", "low"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		none := newRateQueue(t, RateQueueConfig{Rate: Frequency{1, time.Second}, MaxWait: time.Hour})
		if got := waitAll(none, Normal, Normal); got[1] != "normal: "+ErrQueueFull.Error() {
			t.Errorf("without a queue: %q", got)
		}
	})
}

func TestRateQueueWaitEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newRateQueue(t, RateQueueConfig{Rate: Frequency{1, time.Minute}, MaxWait: 90 * time.Second, Queue: 10})
		if err := q.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var late *RateError
		if err := q.Wait(short); !errors.As(err, &late) || late.Wait != time.Minute || late.Within != time.Second {
			t.Errorf("before a deadline that can't be kept: %v", err)
		}
		gone, leave := context.WithCancelCause(t.Context())
		why := errors.New("gone")
		result := make(chan error, 1)
		go func() { result <- q.Wait(gone) }()
		synctest.Wait()
		if err := q.Wait(t.Context()); !errors.As(err, &late) || late.Wait != 2*time.Minute {
			t.Errorf("behind another: %v, want that 2m is more than 90s", err)
		}
		leave(why)
		if err := <-result; !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		began := time.Now()
		overtaken := make(chan error, 1)
		go func() { overtaken <- q.Wait(t.Context()) }()
		synctest.Wait()
		for range 2 { // more urgent ones come first, until it is too late
			go func() { _ = q.Wait(WithPriority(context.Background(), Highest)) }()
		}
		if err := <-overtaken; !errors.Is(err, ErrRate) || time.Since(began) != 90*time.Second {
			t.Errorf("overtaken: %v after %v", err, time.Since(began))
		}
		time.Sleep(time.Hour)
		if !q.Allow() {
			t.Error("a slot is lost for good")
		}
		if err := q.Wait(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// However many callers come and go, no interval has more events than the rate
// allows.
func TestRateQueueKeepsThePace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newRateQueue(t, RateQueueConfig{Rate: Frequency{10, time.Second}, Burst: 3, MaxWait: time.Hour, Queue: 500})
		r := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		var events []time.Time
		var all sync.WaitGroup
		for i := range 300 {
			expires := time.Duration(1+r.IntN(40)) * time.Second
			p := Lowest + Priority(r.IntN(Classes))
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), expires)
				defer cancel()
				if q.Wait(WithPriority(ctx, p)) == nil {
					mu.Lock()
					defer mu.Unlock()
					events = append(events, time.Now())
				}
			})
			if i%10 == 0 {
				time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
			}
		}
		all.Wait()
		if len(events) < 100 {
			t.Fatalf("%d events, want more", len(events))
		}
		for i := range events {
			for j := i + 1; j < len(events); j++ {
				span := events[j].Sub(events[i])
				if n, most := j-i+1, 3+int(span/(100*time.Millisecond))+1; n > most {
					t.Fatalf("%d events in %v, want %d at most", n, span, most)
				}
			}
		}
	})
}

func ExampleRateQueue() {
	q, err := NewRateQueue(RateQueueConfig{Rate: Frequency{50, time.Minute}, MaxWait: time.Minute, Queue: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := WithPriority(context.Background(), High)
	fmt.Println(q.Wait(ctx))
	// Output: <nil>
}
