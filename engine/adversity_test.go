package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

// nilError is an error whose method Error panics.
type nilError struct{ text *string }

func (e *nilError) Error() string { return *e.text }

func TestHandlersThatEndOtherwise(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(context.Context, int) (int, error)
		want string
	}{
		"an error that panics":        {func(context.Context, int) (int, error) { return 0, (*nilError)(nil) }, "can't be read: panic"},
		"the end of the goroutine":    {func(context.Context, int) (int, error) { runtime.Goexit(); return 0, nil }, "runtime.Goexit"},
		"the context of another call": {func(context.Context, int) (int, error) { return 0, context.Canceled }, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := opened(t, Config{})
				i := waited(t, started(t, e, one(t, c.do, Policy("fixed(1s) attempts=2 attempt-timeout=1m")), 1))
				if i.State != "dead" || i.Attempts != 2 || !strings.Contains(i.Error, c.want) {
					t.Errorf("%s after %d attempts: %s", i.State, i.Attempts, i.Error)
				}
			})
		})
	}
}

func TestOfManyWhoReplayOneSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		w := one(t, func(_ context.Context, n int) (int, error) {
			calls.Add(1)
			return 0, retry.Permanent(errors.New("no"))
		})
		e := opened(t, Config{})
		dead := waited(t, started(t, e, w, 1))
		var won, replays atomic.Int32
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() {
				var err error
				if n%2 == 0 {
					_, err = e.Replay(t.Context(), dead.ID, nil, "test")
				} else {
					err = e.Retry(t.Context(), dead.ID, "test")
				}
				switch {
				case err == nil && n%2 == 0:
					replays.Add(1)
					won.Add(1)
				case err == nil: // it may have died again, and be retried again
					won.Add(1)
				case !errors.Is(err, ErrState):
					t.Error(err)
				}
			})
		}
		all.Wait()
		synctest.Wait()
		if replays.Load() > 1 || calls.Load() != 1+won.Load() {
			t.Errorf("%d replays and %d in all have won, %d calls", replays.Load(), won.Load(), calls.Load())
		}
	})
}

func TestClosingInWhateverWay(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	synctest.Test(t, func(t *testing.T) {
		var e *Engine
		child := one(t, func(context.Context, int) (int, error) { return 1, nil })
		w := must(NewWorkflow("parent", Step("do", func(ctx context.Context, n int) (int, error) {
			<-ctx.Done()
			// With a context that does not end: it must not wait for ever.
			_, err := e.Start(context.Background(), child, 1)
			return 0, err
		})))
		block := make(chan struct{})
		e = must(Open(t.Context(), Config{Log: new(memlog.Store).Open(), Logger: quiet(), Workflows: []*Workflow{w, child},
			Observer: func(retry.Event) { <-block }}))
		s := started(t, e, w, 1)
		synctest.Wait()
		waiter := make(chan error)
		go func() {
			_, err := e.Wait(context.Background(), s.ID)
			waiter <- err
		}()
		synctest.Wait()
		limit, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := e.Close(limit); err != nil {
			t.Errorf("Close() = %v", err)
		}
		for range 2 {
			if err := e.Close(gone); err != nil {
				t.Errorf("Close() again = %v", err)
			}
		}
		if err := <-waiter; !errors.Is(err, ErrClosed) {
			t.Errorf("Wait() = %v", err)
		}
		close(block)
		synctest.Wait()
	})
}

func TestWhatIsTooMuchIsRefused(t *testing.T) {
	t.Parallel()
	e := opened(t, Config{MaxPayload: 1000})
	w := one(t, func(context.Context, string) (int, error) { return 1, nil })
	huge := strings.Repeat("x", 1<<20)
	if _, err := e.Start(t.Context(), w, huge); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a huge input: %v", err)
	}
	if _, err := e.Start(t.Context(), w, "", Key(huge)); err == nil {
		t.Error("a huge key is accepted")
	}
	if _, err := e.Start(t.Context(), w, "", At(time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC))); err == nil {
		t.Error("the year 3000 is accepted")
	}
	s := started(t, e, w, "", In(time.Hour), Source(huge))
	if err := e.Cancel(t.Context(), s.ID, huge); err != nil {
		t.Error(err)
	}
	for name, s := range map[string]Schedule{
		"too large": {Name: "s", Workflow: "one", Cron: "@hourly", Input: json.RawMessage(`"` + huge + `"`)},
		"not JSON":  {Name: "s", Workflow: "one", Cron: "@hourly", Input: json.RawMessage(`{`)},
		"cron":      {Name: "s", Workflow: "one", Cron: "TZ=Europe/Berlin"},
	} {
		if err := e.SetSchedules(t.Context(), []Schedule{s}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewWorkflow("w", Call("s", "h", huge)); err == nil {
		t.Error("a huge argument is accepted")
	}
	if err := e.Err(); err != nil {
		t.Errorf("the engine has stopped: %v", err)
	}
}

func TestContextsEndWhileTheDiskIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := one(t, func(context.Context, int) (int, error) { return 1, nil })
		log := &faulty{Log: new(memlog.Store).Open()}
		e := opened(t, Config{Log: log})
		full := fmt.Errorf("disk: %w", journal.ErrFull)
		log.fail.Store(&full)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := e.Start(ctx, w, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Start() = %v", err)
		}
		if _, err := e.Stats(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stats() = %v", err)
		}
		if len(e.Troubles()) != 1 {
			t.Errorf("Troubles() = %v", e.Troubles())
		}
		log.fail.Store(nil)
		again := &faulty{Log: new(memlog.Store).Open()}
		again.fail.Store(&full)
		limit, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := Open(limit, Config{Log: again, Logger: quiet()}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Open() = %v", err)
		}
	})
}

// spoiling is a log that damages the snapshots that it stores, or fails to store them.
type spoiling struct {
	journal.Log
	spoil, refuse atomic.Bool
}

type spoilingLease struct {
	journal.Lease
	log *spoiling
}

func (s *spoiling) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	l, err := s.Log.Lease(ctx, shard)
	return &spoilingLease{l, s}, err
}

func (l *spoilingLease) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if l.log.refuse.Load() {
		return errors.New("no blobs today")
	}
	return l.Lease.Put(ctx, name, func(w io.Writer) error {
		if l.log.spoil.Load() && strings.HasPrefix(name, "snapshot-") {
			w = half{w}
		}
		return write(w)
	})
}

type half struct{ io.Writer }

func (h half) Write(p []byte) (int, error) {
	_, err := h.Writer.Write(p[:len(p)/2])
	return len(p), err
}

func TestSnapshotsThatFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, snapshotsThatFail)
}

func snapshotsThatFail(t *testing.T) {
	t.Helper()
	var store memlog.Store
	log := &spoiling{Log: store.Open()}
	w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
	e := must(Open(t.Context(), Config{Log: log, Workflows: []*Workflow{w}, Logger: quiet(), snapshotAfter: 2000}))
	snapshots := func() (names []string) {
		for _, b := range must(e.shard().Lease.Blobs(t.Context())) {
			names = append(names, b.Name)
		}
		return names
	}
	n := 0
	work := func(what string, holds func() bool) {
		t.Helper()
		until(t, what, func() bool {
			waited(t, started(t, e, w, n, Key(fmt.Sprint(n))))
			n++
			return holds()
		})
	}
	work("two snapshots", func() bool { return len(snapshots()) >= 2 })
	log.spoil.Store(true)
	work("a snapshot can't be read", func() bool { return hasTrouble(e, "can't write a snapshot") })
	good := snapshots()
	work("the next ones can't be read either", func() bool { return n%100 == 0 })
	if now := snapshots(); len(now) > len(good)+1 {
		t.Errorf("snapshots that can't be read are kept: %v", now)
	}
	log.spoil.Store(false)
	work("a snapshot can be read again", func() bool { return !hasTrouble(e, "can't write a snapshot") })
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	e = opened(t, Config{Log: store.Open(), Workflows: []*Workflow{w}})
	for k := range n {
		if s := started(t, e, w, k, Key(fmt.Sprint(k))); !s.Existing {
			t.Fatalf("run %d of %d is gone", k, n)
		}
	}
}

func TestWhatEndedSurvivesAFailedSnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, endedRunsSurviveAFailedSnapshot)
}

func endedRunsSurviveAFailedSnapshot(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
	blobs := filepath.Join(dir, "blobs")
	e := must(Open(t.Context(), Config{Dir: dir, Workflows: []*Workflow{w}, Logger: quiet(), snapshotAfter: 5000, uptime: noUptime}))
	ids := map[string]bool{}
	work := func(what string, holds func() bool) {
		t.Helper()
		until(t, what, func() bool {
			s := started(t, e, w, len(ids))
			waited(t, s)
			ids[s.ID] = true
			return holds()
		})
	}
	if err := os.Rename(blobs, blobs+".away"); err != nil {
		t.Fatal(err)
	}
	work("a snapshot can't be written", func() bool { return hasTrouble(e, "can't write a snapshot") })
	if err := os.Rename(blobs+".away", blobs); err != nil {
		t.Fatal(err)
	}
	work("the log is cut off", func() bool {
		first, _, err := e.shard().Lease.Bounds(t.Context())
		return err == nil && first > 1
	})
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, f := range must(filepath.Glob(filepath.Join(dir, "view.db*"))) {
		_ = os.Remove(f)
	}
	e = opened(t, Config{Dir: dir, Workflows: []*Workflow{w}, uptime: noUptime})
	until(t, "all runs are there", func() bool { return len(must(e.List(t.Context(), Filter{Limit: 5000})).Runs) == len(ids) })
	for id := range ids {
		if i := must(e.Get(t.Context(), id)); i.State != "succeeded" {
			t.Errorf("%+v", i)
		}
	}
}
