package engine

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// faulty is a log whose appends fail as long as a test wants.
type faulty struct {
	journal.Log
	fail atomic.Pointer[error]
	done atomic.Bool // store the entry anyway, as if only the answer was lost
}

type faultyLease struct {
	journal.Lease
	log *faulty
}

func (f *faulty) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	l, err := f.Log.Lease(ctx, shard)
	return &faultyLease{l, f}, err
}

func (l *faultyLease) Append(ctx context.Context, expected uint64, id journal.ID, data []byte) (uint64, error) {
	if err := l.log.fail.Load(); err != nil {
		if l.log.done.Load() {
			_, _ = l.Lease.Append(ctx, expected, id, data)
		}
		return 0, *err
	}
	return l.Lease.Append(ctx, expected, id, data)
}

func TestAFullDiskIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, answerLost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			w := one(t, func(_ context.Context, n int) (int, error) { calls++; return n + 1, nil })
			log := &faulty{Log: new(memlog.Store).Open()}
			log.done.Store(answerLost)
			e := opened(t, Config{Log: log})
			waited(t, started(t, e, w, 1))
			full := fmt.Errorf("disk: %w", journal.ErrFull)
			log.fail.Store(&full)
			result := make(chan *Info)
			go func() { result <- waited(t, started(t, e, w, 2)) }()
			time.Sleep(time.Hour)
			if tr := e.Troubles(); len(tr) != 1 || !strings.Contains(tr[0].Error, "no room") {
				t.Errorf("Troubles() = %+v", tr)
			}
			if calls != 1 {
				t.Error("a handler was called for something that is not stored")
			}
			log.fail.Store(nil)
			if i := <-result; i.State != "succeeded" || calls != 2 || e.Troubles() != nil {
				t.Errorf("when there is room again: %s, %d calls, %v", i.State, calls, e.Troubles())
			}
		})
	}
}

// A caller that has not the time to wait gets the reason: at the latest after its limit, and at once if
// the log could not be written for longer.
func TestAChangeThatCannotBeStoredSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n + 1, nil })
		log := &faulty{Log: new(memlog.Store).Open()}
		e := opened(t, Config{Log: log})
		run := started(t, e, w, 1)
		waited(t, run)
		full := fmt.Errorf("disk: %w", journal.ErrFull)
		log.fail.Store(&full)
		ctx := shard.StoreWithin(t.Context(), 10*time.Second)
		began := time.Now()
		check := func(what string, err error, limit time.Duration) {
			t.Helper()
			if took := time.Since(began); !errors.Is(err, ErrNotStored) || !errors.Is(err, journal.ErrFull) || took > limit {
				t.Errorf("%s: %v after %v; want the reason within %v", what, err, took, limit)
			}
		}
		_, err := e.Start(ctx, w, 2, Key("second"))
		check("the first start", err, 11*time.Second)
		began = time.Now()
		_, err = e.Start(ctx, w, 3)
		check("another start", err, 0)
		_, err = e.Replay(ctx, run.ID, nil, "test")
		check("a replay", err, 0)
		if _, err := e.Get(ctx, run.ID); err != nil {
			t.Errorf("a read: %v", err)
		}
		log.fail.Store(nil)
		time.Sleep(time.Minute)
		second, err := e.Start(ctx, w, 2, Key("second"))
		if err != nil || !second.Existing {
			t.Errorf("the first start again, when there is room: %+v, %v; want the run that waited", second, err)
		}
		if _, err := e.Start(ctx, w, 4); err != nil {
			t.Errorf("a start when there is room: %v", err)
		}
	})
}

// While the log can't store, the end of a run is not certain: Wait must not return.
func TestAWaitEndsOnlyWhenTheEndIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := one(t, func(_ context.Context, n int) (int, error) { <-release; return n + 1, nil })
		log := &faulty{Log: new(memlog.Store).Open()}
		e := opened(t, Config{Log: log})
		run := started(t, e, w, 1)
		synctest.Wait()
		full := fmt.Errorf("disk: %w", journal.ErrFull)
		log.fail.Store(&full)
		close(release)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if i, err := e.Wait(ctx, run.ID); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait() = %+v, %v for a run whose end is not stored", i, err)
		}
		log.fail.Store(nil)
		if i := waited(t, run); i.State != StateSucceeded {
			t.Errorf("when there is room again: %s", i.State)
		}
	})
}

func TestAWaitForAStoredEndNeedsNoStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := one(t, func(_ context.Context, n int) (int, error) {
			if n == 0 {
				return 0, retry.Permanent(errors.New("no"))
			}
			return n, nil
		})
		log := &faulty{Log: new(memlog.Store).Open()}
		e := opened(t, Config{Log: log})
		runs := []string{started(t, e, w, 1).ID, started(t, e, w, 0).ID}
		synctest.Wait()
		full := fmt.Errorf("disk: %w", journal.ErrFull)
		log.fail.Store(&full)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go func() { _, _ = e.Start(ctx, w, 2) }()
		time.Sleep(time.Minute)
		for _, id := range runs {
			if i, err := e.Wait(ctx, id); err != nil || !i.Finished() {
				t.Errorf("Wait() = %+v, %v", i, err)
			}
		}
		if _, err := e.Wait(ctx, "01m7m3a6n7000000000000000g"); !errors.Is(err, ErrNotFound) {
			t.Errorf("an unknown run: %v", err)
		}
		log.fail.Store(nil)
	})
}

func TestAStaleOwnerStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := one(t, func(ctx context.Context, n int) (int, error) { return n, nil })
		log := &faulty{Log: new(memlog.Store).Open()}
		e, err := Open(t.Context(), Config{Log: log, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		stale := fmt.Errorf("log: %w", journal.ErrStale)
		log.fail.Store(&stale)
		if _, err := e.Start(t.Context(), w, 1); !errors.Is(err, journal.ErrStale) {
			t.Errorf("Start() = %v", err)
		}
		<-e.Done()
		if !errors.Is(e.Err(), journal.ErrStale) {
			t.Errorf("Err() = %v", e.Err())
		}
		if _, err := e.Start(t.Context(), w, 1); err == nil {
			t.Error("a start after the end")
		}
		if err := e.Close(t.Context()); !errors.Is(err, journal.ErrStale) {
			t.Errorf("Close() = %v", err)
		}
	})
}

func TestTwoStepsBehaveByTheirOwnPolicies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, twoStepsOfTwoPolicies)
}

func twoStepsOfTwoPolicies(t *testing.T) {
	t.Helper()
	var store memlog.Store
	fails := func(context.Context, int) (string, error) { return "", errors.New("no") }
	w := must(NewWorkflow("w",
		Step("database", fails, Policy("fixed(5ms) attempts=3")),
		Step("api", fails, Policy("exponential(40ms..120ms) jitter=0.5..1.5 attempts=5"))))
	// The policy that runs after a restart is the one that was written.
	e := must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet()}))
	ids := map[string]bool{}
	for range 8 {
		ids[started(t, e, w, 1).ID] = true
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := must(NewWorkflow("w", Step("database", fails, Policy("fixed(1h)")), Step("api", fails, Policy("fixed(1h)"))))
	e = opened(t, Config{Log: store.Open(), Workflows: []*Workflow{other}})
	spread := map[time.Duration]bool{}
	for id := range ids {
		// A run whose first branch has died is dead; put back to work, the other goes on.
		var i *Info
		for n := 0; ; n++ {
			i = waited(t, Started{ID: id, e: e})
			if i.Steps[1].Spent == 5 || n == 8 {
				break
			}
			if err := e.Retry(t.Context(), id, "test"); err != nil {
				t.Fatal(err)
			}
		}
		for _, a := range i.Steps[0].Attempts {
			if a.Wait != nil && a.Wait.Delay != 5*time.Millisecond {
				t.Errorf("database waits %v", a.Wait.Delay)
			}
		}
		base := 40 * time.Millisecond
		for _, a := range i.Steps[1].Attempts {
			if a.Wait == nil {
				continue
			}
			if d := a.Wait.Delay; d < base/2 || d > min(base*3/2, 120*time.Millisecond) {
				t.Errorf("api waits %v, want %v to %v", d, base/2, min(base*3/2, 120*time.Millisecond))
			} else {
				spread[d] = true
			}
			base = min(2*base, 120*time.Millisecond)
		}
	}
	if len(spread) < 8 {
		t.Errorf("only %d different waits: where is the jitter?", len(spread))
	}
}

var soakFor = flag.Duration("soak", 0, "how long the soak test runs; 0 means three seconds of virtual time")

// TestSoak runs a steady load with a short retention. Without a flag it checks in virtual
// time that runs leave after their retention. `make soak` runs it for minutes of real
// time, and checks that disk usage and memory stay flat.
func TestSoak(t *testing.T) {
	t.Parallel()
	if *soakFor > 0 {
		samples := soak(t, *soakFor, 5*time.Millisecond, nil)
		half, last := samples[len(samples)/2], samples[len(samples)-1]
		t.Logf("disk %d kB at half time, %d kB at the end; heap %d kB, %d kB", half.disk>>10, last.disk>>10, half.heap>>10, last.heap>>10)
		if *soakFor >= time.Minute && (float64(last.disk) > 1.3*float64(half.disk) || float64(last.heap) > 1.3*float64(half.heap)) {
			t.Errorf("disk or memory grow: %+v", samples)
		}
		return
	}
	synctest.Test(t, func(t *testing.T) { soak(t, 3*time.Second, 200*time.Millisecond, noUptime) })
}

// soakSample is what the engine uses at one moment of the soak test.
type soakSample struct{ disk, heap int64 }

// soak starts 20 runs, pauses, and repeats that for the duration. Then it waits until
// all runs have left.
//
// real clock: with -soak the load is spread over real time; it takes no less than the duration, and may take longer
func soak(t *testing.T, duration, pause time.Duration, uptime func() (time.Duration, string)) (samples []soakSample) {
	t.Helper()
	w := one(t, func(_ context.Context, n int) (string, error) {
		if n%3 == 0 && rand.IntN(2) == 0 {
			return "", errors.New("again")
		}
		return strings.Repeat("x", 500), nil
	}, Policy("fixed(10ms) attempts=20"))
	retention := max(duration/12, 500*time.Millisecond)
	e := opened(t, Config{
		Dir: t.TempDir(), Workflows: []*Workflow{w}, Retention: retention, DeadRetention: retention, snapshotAfter: 1 << 20, uptime: uptime,
	})
	sample := func() {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		samples = append(samples, soakSample{usage(t, e), int64(m.HeapAlloc)})
	}
	begin, n := time.Now(), 0
	for next := begin; time.Since(begin) < duration; time.Sleep(pause) {
		for range 20 {
			started(t, e, w, n, Key(fmt.Sprint("key-", n)))
			n++
		}
		if time.Since(next) > duration/20 && *soakFor > 0 {
			next = time.Now()
			sample()
		}
	}
	sample()
	t.Logf("%d runs in %v", n, time.Since(begin).Round(time.Second))
	for len(must(e.List(t.Context(), Filter{Limit: 1})).Runs) > 0 {
		time.Sleep(20 * time.Millisecond)
	}
	if s := started(t, e, w, 1, Key("key-0")); s.Existing {
		t.Error("a key is known after the retention")
	}
	return samples
}

func usage(t *testing.T, e *Engine) (sum int64) {
	t.Helper()
	for size := range maps.Values(must(e.Operator().DiskUsage())) {
		sum += size
	}
	return sum
}

func TestABackupUnderLoadHasEverythingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	w := one(t, func(_ context.Context, n int) (int, error) { return n * n, nil })
	e := opened(t, Config{Dir: t.TempDir(), Workflows: []*Workflow{w}, snapshotAfter: 20_000})
	var mu sync.Mutex
	acked := map[int]string{}
	stop := make(chan struct{})
	var load sync.WaitGroup
	for c := range 4 {
		load.Go(func() {
			for n := c * 1_000_000; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				s, err := e.Start(context.Background(), w, n, Key(fmt.Sprint(n)))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked[n] = s.ID
				mu.Unlock()
			}
		})
	}
	var before map[int]string
	testwait.Until(t, "100 runs are acknowledged", func() bool {
		mu.Lock()
		defer mu.Unlock()
		before = maps.Clone(acked)
		return len(before) >= 100
	})
	copied := filepath.Join(t.TempDir(), "copy")
	if err := e.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	close(stop)
	load.Wait()
	restored := opened(t, Config{Dir: copied, Workflows: []*Workflow{w}})
	for n, id := range before {
		s := started(t, restored, w, n, Key(fmt.Sprint(n)))
		if i := waited(t, s); s.ID != id || i.State != "succeeded" || string(i.Output) != fmt.Sprint(n*n) {
			t.Errorf("%d: run %s, want %s; %s %s", n, s.ID, id, i.State, i.Output)
		}
	}
	t.Logf("%d runs before the backup", len(before))
	if err := e.Backup(t.Context(), copied); err == nil {
		t.Error("a backup over another one")
	}
}

// TestAFolderOfAnEarlierVersionOpens opens a copy of a folder that was written by
// an earlier version, of which testdata/format1 is the first.
func TestAFolderOfAnEarlierVersionOpens(t *testing.T) {
	t.Parallel()
	w := must(NewWorkflow("golden",
		Step("a", func(context.Context, map[string]string) (string, error) { return "a", nil }, Policy("fixed(1s) attempts=2")),
		Step("b", func(ctx context.Context, _ map[string]string) (string, error) { return Result[string](ctx, "a") }, After("a"))))
	golden := filepath.Join("testdata", "format1")
	if testfile.Update() {
		writeGolden(t, golden, w)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden)); err != nil {
		t.Fatal(err)
	}
	e := opened(t, Config{Dir: dir, Workflows: []*Workflow{w}})
	for key, want := range map[string]string{"done": "succeeded", "waits": "scheduled", "dead": "dead", "lost": "succeeded"} {
		ids := must(e.Find(t.Context(), key, 2))
		if len(ids) != 1 {
			t.Fatalf("%q: %d runs", key, len(ids))
		}
		i := must(e.Get(t.Context(), ids[0]))
		if key == "lost" {
			i = waited(t, Started{ID: ids[0], e: e})
		}
		if i.State != want || string(i.Input) != fmt.Sprintf(`{"key":%q}`, key) {
			t.Errorf("%q is %s, want %s; input %s", key, i.State, want, i.Input)
		}
	}
}

func writeGolden(t *testing.T, dir string, w *Workflow) {
	t.Helper()
	tmp := t.TempDir()
	block := make(chan struct{})
	defer close(block)
	parts := func(a func(context.Context, map[string]string) (string, error)) *Workflow {
		return must(NewWorkflow("golden",
			Step("a", a, Policy("fixed(1s) attempts=2")),
			Step("b", func(ctx context.Context, _ map[string]string) (string, error) { return Result[string](ctx, "a") }, After("a"))))
	}
	wild := parts(func(ctx context.Context, in map[string]string) (string, error) {
		switch in["key"] {
		case "dead":
			return "", retry.Permanent(errors.New("never"))
		case "lost":
			<-block
		}
		return "a", nil
	})
	e := must(Open(t.Context(), Config{Dir: tmp, Workflows: []*Workflow{wild}, snapshotAfter: 1}))
	for _, key := range []string{"done", "dead"} {
		waited(t, started(t, e, wild, json.RawMessage(fmt.Sprintf(`{"key":%q}`, key)), Key(key)))
	}
	testwait.Until(t, "a snapshot", func() bool {
		return len(must(filepath.Glob(filepath.Join(tmp, "blobs", "snapshot-*")))) > 0
	})
	started(t, e, wild, json.RawMessage(`{"key":"waits"}`), Key("waits"), At(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)))
	started(t, e, wild, json.RawMessage(`{"key":"lost"}`), Key("lost"))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := e.Backup(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
}

// An idle engine writes a snapshot and removes the log entries that are not needed any more.
func TestLogGoesWhenIdle(t *testing.T) {
	t.Parallel()
	const after = 20_000
	synctest.Test(t, func(t *testing.T) {
		w := must(NewWorkflow("wait", Step("work", func(context.Context, string) (string, error) { return "", errors.New("not yet") },
			Policy("fixed(10h) attempts=2"))))
		e := must(Open(t.Context(), Config{Log: new(memlog.Store).Open(), Workflows: []*Workflow{w}, Logger: quiet(), snapshotAfter: after}))
		defer e.Close(t.Context())
		for range 200 {
			must(e.Start(t.Context(), w, strings.Repeat("x", 300)))
		}
		time.Sleep(time.Minute)
		kept, last := 0, uint64(0)
		for entry, err := range e.shard().Lease.Read(t.Context(), must(first(e))) {
			if err != nil {
				t.Fatal(err)
			}
			kept, last = kept+len(entry.Data), entry.Seq
		}
		if kept > after {
			t.Errorf("%d bytes of log are kept after a minute in which nothing happened, of at most %d", kept, after)
		}
		time.Sleep(time.Hour / 2) // less than until a purge
		if _, now, err := e.shard().Lease.Bounds(t.Context()); err != nil || now > last+1 {
			t.Errorf("the log ends at %d, %v, and ended at %d when nothing happened any more", now, err, last)
		}
	})
}

// first returns the first entry of the log.
func first(e *Engine) (uint64, error) {
	first, _, err := e.shard().Lease.Bounds(context.Background())
	return first, err
}
