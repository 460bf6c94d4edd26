package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

func snapshotsOf(m *member, shard int) (names []string) {
	for _, b := range must(m.shardAt(shard).Lease.Blobs(context.Background())) {
		if strings.HasPrefix(b.Name, "snapshot-") {
			names = append(names, b.Name)
		}
	}
	return names
}

func TestClusterTransientErrorKeepsTheSnapshot(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		cfg := Config{Workflows: []*Workflow{w}, snapshotAfter: 500}
		a := joined(t, s, "a", cfg)
		settled(t, a)
		for i := range 30 {
			started(t, a.Engine, w, i, Key(keyOf(0, 8, i)))
			time.Sleep(20 * time.Second)
		}
		before := snapshotsOf(a, 0)
		_ = a.Close(t.Context())
		log := s.Join("b")
		var once sync.Once
		gets := 0
		var mu sync.Mutex
		log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			mu.Lock()
			defer mu.Unlock()
			if op.Name == "get" && op.Shard == 0 {
				if gets++; gets == 3 { // after the two marks of a move
					once.Do(func() { f.Before = errors.New("timeout") })
				}
			}
			return f
		})
		cfg.Log, cfg.Logger = log, quiet()
		b := &member{Engine: must(Open(t.Context(), cfg)), log: log}
		defer b.Close(gone())
		settled(t, b)
		after := snapshotsOf(b, 0)
		t.Log(before, after)
		if len(before) < 2 || before[len(before)-1] != after[len(after)-1] {
			t.Errorf("snapshots before: %v, after: %v", before, after)
		}
	})
}

func TestClusterTransientErrorKeepsTheArchive(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		cfg := Config{Workflows: []*Workflow{w}, snapshotAfter: 500, Dir: t.TempDir()}
		a := joined(t, s, "a", cfg)
		settled(t, a)
		var runs []Started
		for i := range 60 {
			runs = append(runs, started(t, a.Engine, w, i, Key(keyOf(0, 8, i))))
			time.Sleep(20 * time.Second)
		}
		_ = a.Close(t.Context())
		cfg.Dir = t.TempDir()
		log := s.Join("b")
		gets := 0
		var mu sync.Mutex
		log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			mu.Lock()
			defer mu.Unlock()
			if op.Name == "get" && op.Shard == 0 {
				if gets++; gets == 4 { // two marks, the snapshot
					f.Before = errors.New("timeout")
				}
			}
			return f
		})
		cfg.Log, cfg.Logger = log, quiet()
		b := &member{Engine: must(Open(t.Context(), cfg)), log: log}
		defer b.Close(gone())
		settled(t, b)
		time.Sleep(time.Hour)
		lost := 0
		for _, r := range runs {
			if _, err := b.Get(t.Context(), r.ID); err != nil {
				if lost++; lost == 1 {
					t.Log(err)
				}
			}
		}
		if lost > 0 {
			t.Errorf("%d of %d are gone", lost, len(runs))
		}
	})
}

func TestClusterEventsAfterASlowMember(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		from := map[string]int{}
		var reader sync.WaitGroup
		reader.Go(func() {
			for ev := range a.Events(ctx, NewEvents) {
				mu.Lock()
				from[ev.Member]++
				mu.Unlock()
			}
		})
		time.Sleep(5 * time.Second)
		a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			if op.Name == "ask" {
				f.Delay = 10 * time.Second
			}
			return f
		})
		time.Sleep(30 * time.Second)
		a.log.Disturb(nil)
		time.Sleep(30 * time.Second)
		waited(t, started(t, b.Engine, w, 1, Key(keyIn(b, 1))))
		time.Sleep(10 * time.Second)
		cancel()
		reader.Wait()
		if from[b.log.Member()] == 0 {
			t.Errorf("none came from b: %v", from)
		}
	})
}

func TestClusterFailedOpenLeavesNothing(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		log := s.Join("a")
		if err := log.Serve(func([]byte, func([]byte)) {}); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), Config{Log: log, Logger: quiet()}); err == nil {
			t.Fatal("opened")
		}
		fmt.Println("failed as it should")
	})
}

func TestClusterHotLoopKillsTheInnocent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memlog.Store{Shards: 1}
		w := one(t, func(ctx context.Context, n int) (int, error) {
			if n == 100 {
				return 0, errors.New("poison")
			}
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(time.Minute):
				return n, nil
			}
		}, Policy("fixed(10ms) attempts=unlimited"))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		settled(t, a)
		var runs []Started
		for i := range 10 {
			runs = append(runs, started(t, a.Engine, w, i))
		}
		poison := started(t, a.Engine, w, 100, In(time.Second))
		var mu sync.Mutex
		appends, leases := 0, 0
		begin := time.Now()
		a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			mu.Lock()
			defer mu.Unlock()
			switch op.Name {
			case "lease":
				leases++
				appends = 0
			case "append":
				if appends++; appends > 2 && time.Since(begin) < 3*time.Second || leases == 0 {
					f.Before = fmt.Errorf("not after the second: %w", journal.ErrStale)
				}
			}
			return f
		})
		time.Sleep(3 * time.Second)
		mu.Lock()
		t.Logf("%d leases", leases)
		mu.Unlock()
		_ = a.Cancel(t.Context(), poison.ID, "me")
		states := map[string]int{}
		for _, r := range runs {
			info := must(r.Wait(t.Context()))
			states[info.State+" "+info.Reason]++
		}
		if states["succeeded "] != 10 {
			t.Errorf("%v", states)
		}
	})
}

// keyIn returns a key of a shard that the member owns.
func keyIn(m *member, n int) string {
	for i := range 10_000 {
		k := fmt.Sprint("k", n, ".", i)
		if m.shardAt(machine.KeySlot(k)%m.router.Count()) != nil {
			return k
		}
	}
	panic(m.log.Member() + " owns no shard")
}

func TestClusterWaitLongerThanAMinute(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(ctx context.Context, n int) (int, error) { time.Sleep(5 * time.Minute); return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		settled(t, a)
		run := started(t, a.Engine, w, 1)
		begin := time.Now()
		_, err := run.Wait(t.Context())
		t.Logf("after %v: %v", time.Since(begin), err)
		if err != nil {
			t.Error(err)
		}
	})
}

func TestClusterRemoteWaitSurvivesOrderlyClose(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(ctx context.Context, n int) (int, error) {
			select {
			case <-time.After(30 * time.Second):
				return n, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		run := started(t, a.Engine, w, 1, Key(keyIn(b, 1)))
		done := make(chan error, 1)
		go func() { _, err := a.Wait(t.Context(), run.ID); done <- err }()
		time.Sleep(time.Second)
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("a wait of a process that lives on: %v", err)
		}
	})
}

func TestClusterStartSurvivesLostLease(t *testing.T) {
	for _, remote := range []bool{false, true} {
		together(t, func(t *testing.T, s *memlog.Store) {
			w := one(t, func(ctx context.Context, n int) (int, error) { return n, nil })
			a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
			b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
			settled(t, a, b)
			key := keyIn(b, 1)
			done := make(chan error, 1)
			// appends of b fail, so that the start is in the middle of one when the lease is lost
			b.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
				if op.Name == "append" {
					f.Before = errors.New("no leader")
				}
				return f
			})
			from := b
			if remote {
				from = a
			}
			go func() { _, err := from.Start(t.Context(), w, 1, Key(key)); done <- err }()
			time.Sleep(time.Second)
			b.log.Disturb(nil)
			b.log.Freeze() // for so long that it is taken for dead
			time.Sleep(10 * time.Second)
			b.log.Thaw()
			if err := <-done; err != nil {
				t.Errorf("remote=%v: %v", remote, err)
			}
		})
	}
}

func TestClusterCloseIsQuick(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		begun := make(chan struct{}, 10)
		w := one(t, func(ctx context.Context, n int) (int, error) {
			begun <- struct{}{}
			time.Sleep(time.Minute) // deaf
			return n, nil
		})
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		settled(t, a)
		started(t, a.Engine, w, 1)
		<-begun
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = a.Close(ctx)
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("Close with a second took %v", d)
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestClusterSecondCloseHurries(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		together(t, func(t *testing.T, s *memlog.Store) {
			begun := make(chan struct{}, 10)
			w := one(t, func(ctx context.Context, n int) (int, error) {
				begun <- struct{}{}
				time.Sleep(time.Hour) // deaf
				return n, nil
			})
			var e *Engine
			if cluster {
				a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
				settled(t, a)
				e = a.Engine
			} else {
				e = opened(t, Config{Workflows: []*Workflow{w}})
			}
			started(t, e, w, 1)
			<-begun
			go e.Close(context.Background())
			time.Sleep(time.Second)
			begin := time.Now()
			_ = e.Close(gone())
			if d := time.Since(begin); d > 2*time.Second {
				t.Errorf("cluster=%v: the second Close took %v", cluster, d)
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

func TestClusterClosedEngineRefuses(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(ctx context.Context, n int) (int, error) { return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		settled(t, a)
		later := started(t, a.Engine, w, 1, In(time.Hour))
		waiting := make(chan error, 1)
		var took time.Duration
		go func() {
			_, err := later.Wait(t.Context())
			waiting <- err
		}()
		time.Sleep(time.Second)
		begin := time.Now()
		_ = a.Close(t.Context())
		err := <-waiting
		took = time.Since(begin)
		t.Logf("the wait ended %v after Close: %v", took, err)
		if took > 2*time.Second || !errors.Is(err, ErrClosed) {
			t.Errorf("the wait ended %v after Close: %v", took, err)
		}
		for name, do := range map[string]func() error{
			"start":  func() error { _, err := a.Start(t.Context(), w, 1); return err },
			"get":    func() error { _, err := a.Get(t.Context(), later.ID); return err },
			"cancel": func() error { return a.Cancel(t.Context(), later.ID, "me") },
			"list":   func() error { _, err := a.List(t.Context(), Filter{}); return err },
			"stats":  func() error { _, err := a.Stats(t.Context()); return err },
		} {
			begin := time.Now()
			err := do()
			if d := time.Since(begin); d > time.Second || !errors.Is(err, ErrClosed) {
				t.Errorf("%s of a closed engine after %v: %v", name, d, err)
			}
		}
	})
}

func TestClusterBadShardDoesNotStarveOthers(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(ctx context.Context, n int) (int, error) { return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Concurrency: 16})
		settled(t, a)
		in := func(shard, n int) string {
			for i := 0; ; i++ {
				if k := fmt.Sprint(n, "-", i); machine.KeySlot(k)%8 == shard {
					return k
				}
			}
		}
		for i := range 40 { // due together
			started(t, a.Engine, w, i, Key(in(0, i)), In(10*time.Second))
		}
		a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			if op.Name == "append" && op.Shard == 0 {
				f.Before = errors.New("no leader")
			}
			return f
		})
		time.Sleep(11 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		begin := time.Now()
		run := started(t, a.Engine, w, 1, Key(in(1, 1)))
		for {
			info := must(a.Get(ctx, run.ID))
			if info.Finished() {
				break
			}
			if time.Since(begin) > 5*time.Minute {
				t.Errorf("a run of a good shard is %s after %v, because shard 0 can't store", info.State, time.Since(begin))
				break
			}
			time.Sleep(time.Second)
		}
		a.log.Disturb(nil)
	})
}

func TestClusterWaitersDoNotBlockStarts(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(ctx context.Context, n int) (int, error) { return n, nil })
		const most = 40
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, maxCalls: most})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}, maxCalls: most})
		settled(t, a, b)
		later := started(t, a.Engine, w, 1, In(10*time.Minute), Key(keyIn(b, 1)))
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range 10 * most {
			waiting.Go(func() { _, _ = a.Wait(ctx, later.ID) })
		}
		time.Sleep(time.Second)
		begin := time.Now()
		_, err := a.Start(t.Context(), w, 2, Key(keyIn(b, 2)))
		if d := time.Since(begin); err != nil || d > 5*time.Second {
			t.Errorf("a start took %v: %v", d, err)
		}
		cancel()
		waiting.Wait()
	})
}

func TestClusterMalformedRequest(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(ctx context.Context, n int) (int, error) { return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		for n := range 8 {
			for _, op := range []string{`{"op":"list"}`, `{"op":"start"}`} {
				text, err := a.log.Call(t.Context(), n, []byte(op))
				t.Logf("%s: %s %v", op, text, err)
			}
		}
	})
}

func TestClusterInputIsTheSameFromAfar(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := must(NewWorkflow("any", Step("do", func(_ context.Context, v any) (int, error) { return 0, nil })))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		input := []byte(`"` + strings.Repeat("<", 100_000) + `"`)
		_, near := b.Start(t.Context(), w, json.RawMessage(input), Key(keyIn(b, 1)))
		_, far := a.Start(t.Context(), w, json.RawMessage(input), Key(keyIn(b, 2)))
		if (near == nil) != (far == nil) {
			t.Errorf("near: %v, far: %v", near, far)
		}
	})
}

func TestClusterNegativeLimits(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		together(t, func(t *testing.T, s *memlog.Store) {
			w := one(t, func(ctx context.Context, n int) (int, error) { return n, nil })
			var e *Engine
			if cluster {
				a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
				settled(t, a)
				e = a.Engine
			} else {
				e = opened(t, Config{Workflows: []*Workflow{w}})
			}
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("cluster=%v: Find: %v", cluster, p)
					}
				}()
				_, _ = e.Find(t.Context(), "abc", -1)
			}()
		})
	}
}

func TestClusterNoHotLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memlog.Store{Shards: 1}
		w := one(t, func(ctx context.Context, n int) (int, error) { return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		settled(t, a)
		started(t, a.Engine, w, 1, In(time.Second))
		var mu sync.Mutex
		appends, leases := 0, 0
		begin := time.Now()
		a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			mu.Lock()
			defer mu.Unlock()
			switch op.Name {
			case "lease":
				leases++
				appends = 0
			case "append":
				if appends++; appends > 1 && leases < 5000 || leases == 0 {
					f.Before = fmt.Errorf("not after the first: %w", journal.ErrTooLarge)
				}
			}
			return f
		})
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if leases > 100 {
			t.Errorf("%d leases in %v", leases, time.Since(begin))
		}
		t.Log(leases)
	})
}

func TestClusterRemoteStartOnStaleAppend(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(ctx context.Context, n int) (int, error) { return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		key := keyIn(b, 1)
		var once sync.Once
		b.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			if op.Name == "append" {
				once.Do(func() { f.Before = fmt.Errorf("wrong last sequence: %w", journal.ErrStale) })
			}
			return f
		})
		if _, err := a.Start(t.Context(), w, 1, Key(key)); err != nil {
			t.Error(err)
		}
	})
}

func TestClusterLateStartIsOne(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		var mu sync.Mutex
		calls := map[int]int{}
		w := one(t, func(_ context.Context, n int) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			calls[n]++
			return n, nil
		})
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Dir: t.TempDir()})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}, Dir: t.TempDir()})
		settled(t, a, b)
		n := 0
		a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			mu.Lock()
			defer mu.Unlock()
			if op.Name == "call" {
				if n++; n%2 == 1 {
					f.After, f.Late = errors.New("connection lost"), 2*time.Second
				}
			}
			return f
		})
		for i := range 20 {
			started(t, a.Engine, w, i)
			time.Sleep(5 * time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range 20 {
			if calls[i] != 1 {
				t.Errorf("start %d ran %d times", i, calls[i])
			}
		}
	})
}

// A start whose answer was lost is sent again. The owner has applied the start by then, but may
// never be able to store it: it must not answer that the run is stored.
func TestClusterStartIsAcknowledgedOnlyWhenStored(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(ctx context.Context, n int) (int, error) { return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		b.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			if op.Name == "append" {
				f.Before = errors.New("no leader")
			}
			return f
		})
		var calls atomic.Int32
		a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			if op.Name == "call" && calls.Add(1) == 1 {
				f.After = errors.New("connection lost")
			}
			return f
		})
		type result struct {
			Started
			error
		}
		done := make(chan result, 1)
		go func() {
			st, err := a.Start(t.Context(), w, 1, Key(keyIn(b, 1)))
			done <- result{st, err}
		}()
		time.Sleep(time.Second)
		b.log.Freeze() // for so long that it is taken for dead
		b.log.Disturb(nil)
		time.Sleep(10 * time.Second)
		b.log.Thaw()
		r := <-done
		if r.error != nil {
			t.Fatal(r.error)
		}
		time.Sleep(time.Minute)
		if _, err := a.Get(t.Context(), r.ID); err != nil {
			t.Errorf("the run that Start returned: %v", err)
		}
	})
}

func keyOf(shard, shards, n int) string {
	for i := 0; ; i++ {
		if k := fmt.Sprint(n, "-", i); machine.KeySlot(k)%shards == shard {
			return k
		}
	}
}

func TestClusterWaitEndsWithItsContext(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		settled(t, a)
		run := started(t, a.Engine, w, 1, In(time.Hour), Key(keyOf(0, 8, 1)))
		other := started(t, a.Engine, w, 1, In(time.Hour), Key(keyOf(0, 8, 2)))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begin := time.Now()
		done := make(chan error)
		go func() { _, err := a.Wait(ctx, run.ID); done <- err }()
		time.Sleep(time.Second)
		a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			if op.Name == "append" {
				f.Before = errors.New("no leader")
			}
			return f
		})
		time.AfterFunc(10*time.Minute, func() { a.log.Disturb(nil) })
		go a.Cancel(t.Context(), other.ID, "me")
		<-done
		if d := time.Since(begin); d > 11*time.Second {
			t.Errorf("Wait with ten seconds took %v", d)
		}
	})
}

func TestClusterRegisterIsNotHeldUp(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		settled(t, a)
		other := started(t, a.Engine, w, 1, In(time.Hour), Key(keyOf(0, 8, 2)))
		a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			if op.Name == "append" && op.Shard == 0 {
				f.Before = errors.New("no leader")
			}
			return f
		})
		time.AfterFunc(10*time.Minute, func() { a.log.Disturb(nil) })
		go a.Cancel(t.Context(), other.ID, "me")
		time.Sleep(time.Second)
		begin := time.Now()
		_ = a.Replace([]*Workflow{w})
		if d := time.Since(begin); d > time.Minute {
			t.Errorf("Replace took %v", d)
		}
	})
}

func TestClusterBadIDNeedsNoShard(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		log := s.Join("a")
		log.Disturb(func(op memlog.Operation) (f memlog.Fault) { // before the first lease
			if op.Name == "lease" && op.Shard == 0 {
				f.Before = errors.New("no leader")
			}
			return f
		})
		a := memberOf(t, log, Config{Workflows: []*Workflow{w}})
		time.Sleep(20 * time.Second)
		if a.shardAt(0) != nil {
			t.Fatal("shard 0 is there")
		}
		begin := time.Now()
		_, err := a.Get(t.Context(), "nonsense")
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

func TestClusterLooseTroubleEnds(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		step := Step("do", func(context.Context, int) (int, error) { return 0, nil })
		wide, narrow := must(NewWorkflow("w", step)), must(NewWorkflow("w", MaxRuns(2), step))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{wide}})
		settled(t, a)
		started(t, a.Engine, wide, 1)
		_ = a.Replace([]*Workflow{narrow})
		started(t, a.Engine, narrow, 1)
		_ = a.Replace([]*Workflow{wide})
		started(t, a.Engine, wide, 1)
		if n := len(a.Troubles()); n > 0 {
			t.Errorf("%+v", a.Troubles())
		}
	})
}

func TestClusterPlaceIsPassedOn(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(ctx context.Context, n int) (int, error) {
			if n == 0 {
				<-ctx.Done()
				time.Sleep(9 * time.Second)
				return 0, ctx.Err()
			}
			return n, nil
		})
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Concurrency: 2})
		settled(t, a)
		_ = keyOf
	})
}

func TestClusterShardThatComesBack(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		dir := t.TempDir()
		cfg := Config{Workflows: []*Workflow{w}, Dir: dir, snapshotAfter: 1000}
		a := joined(t, s, "a", cfg)
		settled(t, a)
		var runs []Started
		for i := range 40 {
			runs = append(runs, started(t, a.Engine, w, i, Key(fmt.Sprint(i)), In(time.Minute)))
		}
		time.Sleep(10 * time.Second)
		_ = a.Close(t.Context())
		cfg.Dir = t.TempDir()
		b := joined(t, s, "b", cfg)
		settled(t, b)
		time.Sleep(time.Hour) // they run, are archived, and are in no snapshot
		for _, r := range runs {
			if info := must(b.Get(t.Context(), r.ID)); info.State != "succeeded" {
				t.Fatal(info.State)
			}
		}
		_ = b.Close(t.Context())
		cfg.Dir = dir
		a = joined(t, s, "a", cfg)
		settled(t, a)
		lost := 0
		for _, r := range runs {
			if _, err := a.Get(t.Context(), r.ID); err != nil {
				if lost++; lost == 1 {
					t.Log(err)
				}
			}
		}
		time.Sleep(time.Minute)
		wrong := map[string]int{}
		for _, r := range must(a.List(t.Context(), Filter{Limit: 100})).Runs {
			wrong[r.State]++
		}
		if lost > 0 || wrong["succeeded"] != 40 {
			t.Errorf("%d of 40 runs that have succeeded are gone; listed: %v", lost, wrong)
		}
	})
}

// real clock: the rows run in a bubble
func TestClusterCloseInEveryState(t *testing.T) {
	t.Parallel()
	type state struct {
		name string
		do   func(a, b *member)
	}
	for _, st := range []state{
		{"at once", func(a, b *member) {}},
		{"during takeover", func(a, b *member) { b.kill(); time.Sleep(3010 * time.Millisecond) }},
		{"no owner", func(a, b *member) { b.kill() }},
		{"cut off", func(a, b *member) { a.log.Cut() }},
		{"cut off for long", func(a, b *member) { a.log.Cut(); time.Sleep(10 * time.Second) }},
		{"frozen", func(a, b *member) { a.log.Freeze(); time.AfterFunc(20*time.Second, a.log.Thaw) }},
		{"killed", func(a, b *member) { a.log.Kill() }},
		{"can't store", func(a, b *member) {
			a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
				if op.Name == "append" {
					f.Before = errors.New("no leader")
				}
				return f
			})
		}},
		{"nothing works", func(a, b *member) {
			a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) { f.Before = errors.New("no leader"); return f })
		}},
		{"other left", func(a, b *member) { _ = b.Close(context.Background()); time.Sleep(time.Millisecond) }},
	} {
		for _, patient := range []time.Duration{0, 2 * time.Second} {
			for _, dir := range []bool{false, true} {
				if dir && patient == 0 {
					continue
				}
				t.Run(fmt.Sprint(st.name, " ", patient, " ", dir), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := &memlog.Store{Shards: 2}
						w := one(t, func(ctx context.Context, n int) (int, error) {
							select {
							case <-ctx.Done():
								return 0, ctx.Err()
							case <-time.After(time.Minute):
								return n, nil
							}
						})
						cfg := Config{Workflows: []*Workflow{w}, Concurrency: 5}
						if dir {
							cfg.Dir = t.TempDir()
						}
						a := joined(t, s, "a", cfg)
						if dir {
							cfg.Dir = t.TempDir()
						}
						b := joined(t, s, "b", cfg)
						settled(t, a, b)
						for i := range 20 {
							started(t, a.Engine, w, i, Key(fmt.Sprint(i)))
						}
						go func() {
							for range a.Events(t.Context(), NewEvents) {
							}
						}()
						for i := range 5 {
							go a.Wait(t.Context(), must(a.Find(t.Context(), fmt.Sprint(i), 1))[0])
						}
						time.Sleep(time.Second)
						st.do(a, b)
						ctx, cancel := context.WithTimeout(context.Background(), patient)
						defer cancel()
						begin := time.Now()
						_ = a.Close(ctx)
						most := patient + 100*time.Millisecond
						if st.name == "frozen" {
							most = 30 * time.Second
						}
						if d := time.Since(begin); d > most {
							t.Errorf("Close with %v took %v", patient, d)
						}
					})
				})
			}
		}
	}
}

func TestClusterEventsOverTheWire(t *testing.T) {
	ev := retry.Event{Kind: retry.Waiting, Time: time.Unix(5, 7).UTC(), Name: "n", Run: "r", Step: "s", Attempt: 3, Attempts: 4, Delay: time.Second, By: retry.ByServer, Until: time.Unix(9, 0).UTC(), Prev: time.Millisecond, Reason: retry.StopAttempts, Err: errors.New("x <y>"), Note: "n"}
	text := must(json.Marshal(ev))
	var back retry.Event
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%+v", ev) != fmt.Sprintf("%+v", back) {
		t.Errorf("\n%+v\n%+v", ev, back)
	}
}
