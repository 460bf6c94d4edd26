package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
)

// fakeScheduler accepts schedules after some failures, or blocks.
type fakeScheduler struct {
	mu       sync.Mutex
	calls    int
	failures int    // how many calls fail
	blocked  bool   // calls return when their context ends
	accepted string // name of the first schedule that was accepted
}

func (f *fakeScheduler) set(ctx context.Context, list []engine.Schedule) error {
	f.mu.Lock()
	f.calls++
	fail, blocked := f.calls <= f.failures, f.blocked
	f.mu.Unlock()
	switch {
	case blocked:
		<-ctx.Done()
		return ctx.Err()
	case fail:
		return errors.New("shard 3: no process has the shard")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.accepted = list[0].Name
	return nil
}

func (f *fakeScheduler) state() (accepted string, calls int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accepted, f.calls
}

func newTestSchedules(f *fakeScheduler) *clusterSchedules {
	return &clusterSchedules{set: f.set, log: slog.New(slog.DiscardHandler), latest: make(chan []engine.Schedule, 1)}
}

func oneSchedule(name string) []engine.Schedule { return []engine.Schedule{{Name: name}} }

func TestSchedulesAreSetUntilAllShardsAccept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeScheduler{failures: 5}
		c := newTestSchedules(f)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		c.replace(oneSchedule("first"))
		go func() { done <- c.run(ctx) }()
		time.Sleep(5 * time.Minute)
		if accepted, calls := f.state(); accepted != "first" || calls != 6 {
			t.Errorf("after %d calls it has %q", calls, accepted)
		}
		c.replace(oneSchedule("second"))
		synctest.Wait()
		if accepted, calls := f.state(); accepted != "second" || calls != 7 {
			t.Errorf("after %d calls it has %q", calls, accepted)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestNewSchedulesReplaceThoseBeingSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeScheduler{blocked: true}
		c := newTestSchedules(f)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		c.replace(oneSchedule("first"))
		go func() { done <- c.run(ctx) }()
		synctest.Wait()
		f.mu.Lock()
		f.blocked = false
		f.mu.Unlock()
		c.replace(oneSchedule("second"))
		c.replace(oneSchedule("third"))
		synctest.Wait()
		if accepted, _ := f.state(); accepted != "third" {
			t.Errorf("it has %q", accepted)
		}
		f.mu.Lock()
		f.blocked = true
		f.mu.Unlock()
		c.replace(oneSchedule("last")) // the call is still blocked when the context ends
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
