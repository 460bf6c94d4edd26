package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal/memlog"
)

// queueTest is an engine with one place, and a workflow that takes it.
type queueTest struct {
	*Engine
	store *memlog.Store
	cfg   Config
	block *Workflow // takes the place until its input ends
}

func newQueueTest(t *testing.T, w *Workflow) *queueTest {
	t.Helper()
	q := &queueTest{store: new(memlog.Store)}
	q.block = must(NewWorkflow("block", Step("hold", func(ctx context.Context, d time.Duration) (int, error) {
		select {
		case <-time.After(d):
			return 0, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})))
	q.cfg = Config{Workflows: []*Workflow{q.block, w}, Logger: quiet(), Concurrency: 1}
	q.open(t)
	return q
}

func (q *queueTest) open(t *testing.T) {
	t.Helper()
	q.cfg.Log = q.store.Open()
	q.Engine = must(Open(t.Context(), q.cfg))
}

// TestAnAttemptsTimeoutBeginsWithItsHandler has a run wait in the queue for longer than
// its attempt may take: the attempt has all its time.
func TestAnAttemptsTimeoutBeginsWithItsHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := one(t, func(ctx context.Context, _ int) (time.Duration, error) {
			deadline, _ := ctx.Deadline()
			return time.Until(deadline), nil
		}, Policy("fixed(1s) attempts=1 attempt-timeout=1m"))
		q := newQueueTest(t, w)
		defer q.Close(context.Background())
		started(t, q.Engine, q.block, time.Hour)
		synctest.Wait()
		if i := waited(t, started(t, q.Engine, w, 1)); string(i.Output) != "60000000000" {
			t.Errorf("after an hour in the queue: %s, %s, %s", i.State, i.Output, i.Error)
		}
	})
}

// TestATimeoutInTheQueueSaysSo ends the time of runs and of steps in the queue.
func TestATimeoutInTheQueueSaysSo(t *testing.T) {
	t.Parallel()
	calls := 0
	fails := one(t, func(context.Context, int) (int, error) { calls++; return 0, errors.New("flaky") }, Policy("fixed(1s) attempts=9 total-timeout=10m"))
	for _, test := range []struct {
		name     string
		policy   time.Duration
		begins   bool // it has an attempt before it is in the queue
		restart  bool // the process is away when the time ends
		want     string
		attempts int
		calls    int
	}{
		{"it never began", 5 * time.Minute, false, false, "timed out after 5m0s in the queue for a free place; it never began", 0, 0},
		{"it has begun", 5 * time.Minute, true, false, "timed out after 5m0s, the last 4m59s of it in the queue for a free place; the last error: flaky", 1, 1},
		{"nothing ran", 5 * time.Minute, false, true, "timed out after 5m0s: no process was working on the run when its time ended", 0, 0},
		{"the step", 0, true, false, "the step's total timeout of 10m0s ended in the queue for a free place; the handler was not called", 2, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls = 0
				q := newQueueTest(t, fails)
				defer func() { _ = q.Close(context.Background()) }()
				var opts []StartOption
				if test.policy > 0 {
					opts = append(opts, RunTimeout(test.policy))
				}
				var run Started
				if test.begins {
					run = started(t, q.Engine, fails, 1, opts...)
					synctest.Wait() // its first attempt has failed
				}
				started(t, q.Engine, q.block, time.Hour)
				synctest.Wait()
				if !test.begins {
					run = started(t, q.Engine, fails, 1, opts...)
				}
				if test.restart {
					synctest.Wait()
					ctx, cancel := context.WithCancel(t.Context())
					cancel()
					_ = q.Close(ctx)
					time.Sleep(time.Hour)
					q.open(t)
				}
				i := must(q.Wait(t.Context(), run.ID))
				if i.State != StateDead || !strings.HasSuffix(i.Reason, "timeout") || !strings.HasSuffix(i.Error, test.want) || i.Attempts != test.attempts || calls != test.calls {
					t.Errorf("%s (%s) after %d attempts and %d calls: %s\nwant %s", i.State, i.Reason, i.Attempts, calls, i.Error, test.want)
				}
				if err := i.Err(); !strings.Contains(err.Error(), test.want) {
					t.Errorf("Err() = %v", err)
				}
			})
		})
	}
}
