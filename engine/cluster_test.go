package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

// together runs a test of several processes that share a log, in virtual time.
func together(t *testing.T, test func(t *testing.T, s *memlog.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		test(t, &memlog.Store{Shards: 8})
	})
}

// member is a process of a cluster.
type member struct {
	*Engine
	log   *memlog.Member
	calls *hookedLog
}

type clusterLog = memlog.Member

// hookedLog is a log whose calls of other processes a test can see and keep back.
type hookedLog struct {
	*clusterLog
	before atomic.Pointer[func(*shard.Call) error]
}

func (h *hookedLog) Call(ctx context.Context, n int, request []byte) ([]byte, error) {
	if before := h.before.Load(); before != nil {
		c := new(shard.Call)
		if err := errors.Join(json.Unmarshal(request, c), (*before)(c)); err != nil {
			return nil, err
		}
	}
	return h.clusterLog.Call(ctx, n, request)
}

// joined opens an engine of the cluster, which is closed with the test.
func joined(t *testing.T, s *memlog.Store, name string, cfg Config) *member {
	t.Helper()
	return memberOf(t, s.Join(name), cfg)
}

// memberOf is a process that uses this log: before it is opened, a test can disturb the log.
func memberOf(t *testing.T, log *memlog.Member, cfg Config) *member {
	t.Helper()
	m := &member{log: log, calls: &hookedLog{clusterLog: log}}
	cfg.Log, cfg.Logger = m.calls, quiet()
	m.Engine = must(Open(t.Context(), cfg))
	t.Cleanup(func() { _ = m.Close(gone()) })
	return m
}

// kill ends a process as SIGKILL does, as far as others can see.
func (m *member) kill() {
	m.log.Kill()
	_ = m.Close(gone())
}

// gone is a context that has ended: its caller does not wait.
func gone() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// settled waits until every member owns the shards that are assigned to it. It is not enough that
// every shard has an owner: a member that has just joined owns nothing at first.
func settled(t *testing.T, members ...*member) {
	t.Helper()
	for range 1000 {
		n := 0
		for _, m := range members {
			if m.ownsAssigned() {
				n += len(m.router.Shards())
			}
		}
		if n == members[0].router.Count() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("the shards do not have the owners that they are assigned to")
}

// ownsAssigned reports whether a member owns the shards that are assigned to it, and no
// others.
func (m *member) ownsAssigned() bool {
	var own []int
	for _, sh := range m.router.Shards() {
		own = append(own, sh.Number)
	}
	slices.Sort(own)
	assigned, _ := m.log.Assigned()
	return slices.Equal(own, assigned)
}

func TestClusterSharesTheWork(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		var mu sync.Mutex
		by := map[string]int{}
		var all []*member
		for _, name := range []string{"a", "b", "c"} {
			w := one(t, func(_ context.Context, n int) (int, error) {
				mu.Lock()
				by[name]++
				mu.Unlock()
				return 2 * n, nil
			})
			all = append(all, joined(t, s, name, Config{Workflows: []*Workflow{w}}))
		}
		settled(t, all...)
		for i := range 100 {
			asked := all[i%3]
			w, _ := asked.Workflow("one")
			run := started(t, asked.Engine, w, i, Key(fmt.Sprint("key ", i)))
			info := must(all[(i+1)%3].Wait(t.Context(), run.ID))
			if info.State != "succeeded" || string(info.Output) != fmt.Sprint(2*i) {
				t.Fatalf("%+v", info)
			}
			other := all[(i+2)%3]
			w, _ = other.Workflow("one")
			if again := started(t, other.Engine, w, i, Key(fmt.Sprint("key ", i))); again.ID != run.ID || !again.Existing {
				t.Fatalf("the key is started anew by another process: %+v, want %s", again, run.ID)
			}
		}
		for _, m := range all {
			if n := by[m.log.Member()[:1]]; n < 15 {
				t.Errorf("%s did %d of 100: %v", m.log.Member(), n, by)
			}
			stats := must(m.Stats(t.Context()))
			if len(stats.Workflows) != 1 || stats.Workflows[0].Totals.Succeeded != 100 || len(stats.Silent) != 0 {
				t.Errorf("%s counts %+v", m.log.Member(), stats)
			}
			if page := must(m.List(t.Context(), Filter{})); len(page.Runs) != 100 {
				t.Errorf("%s lists %d", m.log.Member(), len(page.Runs))
			}
		}
	})
}

func TestClusterCommandsReachTheOwner(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(ctx context.Context, _ int) (int, error) { return 0, retry.Permanent(errors.New("no")) })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		for i := range 20 { // in shards of both
			dead := started(t, a.Engine, w, i, Key(fmt.Sprint(i)))
			if info := must(b.Wait(t.Context(), dead.ID)); info.State != "dead" {
				t.Fatal(info.State)
			}
			if err := b.Retry(t.Context(), dead.ID, "me"); err != nil {
				t.Fatal(err)
			}
			if info := must(a.Wait(t.Context(), dead.ID)); info.Attempts != 2 {
				t.Fatalf("%d attempts after a retry", info.Attempts)
			}
			next := must(b.Replay(t.Context(), dead.ID, []byte("7"), "me"))
			if info := must(next.Wait(t.Context())); info.ReplayOf != dead.ID {
				t.Fatalf("%+v", info)
			}
			later := started(t, b.Engine, w, i, In(time.Hour))
			for _, step := range []struct {
				do   func(context.Context, string, string) error
				want string
			}{{a.Pause, "paused"}, {b.Resume, "scheduled"}, {a.Cancel, "canceled"}} {
				if err := step.do(t.Context(), later.ID, "me"); err != nil {
					t.Fatal(err)
				}
				if info := must(b.Get(t.Context(), later.ID)); info.State != step.want {
					t.Fatalf("%s, want %s", info.State, step.want)
				}
			}
			if err := b.Cancel(t.Context(), later.ID, "me"); !errors.Is(err, ErrState) {
				t.Fatalf("a second cancel: %v", err)
			}
			if ids := must(b.Find(t.Context(), later.ID, 5)); len(ids) != 1 {
				t.Fatalf("found %q", ids)
			}
		}
		if _, err := a.Get(t.Context(), "01ky00000000000000000000zz"); !errors.Is(err, ErrNotFound) {
			t.Errorf("a run that never was: %v", err)
		}
	})
}

// real clock: the rows run in a bubble
func TestClusterTakesOverFromTheDead(t *testing.T) {
	t.Parallel()
	for end, do := range map[string]func(*member){
		"killed": (*member).kill,
		"frozen": func(m *member) { m.log.Freeze(); time.AfterFunc(20*time.Second, m.log.Thaw) },
		"closed": func(m *member) { _ = m.Close(context.Background()) },
		"cut":    func(m *member) { m.log.Cut(); time.AfterFunc(20*time.Second, m.log.Heal) },
	} {
		t.Run(end, func(t *testing.T) { together(t, func(t *testing.T, s *memlog.Store) { takesOver(t, s, do) }) })
	}
}

// takesOver ends one of two members that both run attempts, and checks that the other takes over.
func takesOver(t *testing.T, s *memlog.Store, end func(*member)) {
	t.Helper()
	begun := make(chan struct{}, 100)
	w := one(t, func(ctx context.Context, n int) (int, error) {
		begun <- struct{}{}
		if task, _ := TaskOf(ctx); task.Total == 1 {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return n, nil
	}, Policy("fixed(1s) attempts=1"))
	a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
	b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
	settled(t, a, b)
	var runs []Started
	for i := range 20 {
		runs = append(runs, started(t, b.Engine, w, i, Key(fmt.Sprint(i))))
	}
	for range runs {
		<-begun
	}
	end(a)
	// The policy allows one attempt, and a lost attempt does not count.
	moved := 0
	for _, r := range runs {
		info := must(b.Get(t.Context(), r.ID))
		if info.State == "running" && info.Attempts == 1 { // it is b's, and goes on
			if err := b.Cancel(t.Context(), r.ID, "the test"); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if info = must(b.Wait(t.Context(), r.ID)); info.State != "succeeded" {
			t.Errorf("%s, %s", info.State, info.Error)
		}
		moved++
	}
	if moved < 3 || moved > 17 {
		t.Errorf("%d of 20 runs were taken over", moved)
	}
	time.Sleep(time.Minute)
	if stats := must(b.Stats(t.Context())); len(stats.Silent) > 0 || len(stats.Troubles) > 0 {
		t.Errorf("a minute later: %+v", stats)
	}
}

func TestClusterStartsOnceHoweverAnswersAreLost(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		var mu sync.Mutex
		calls := map[int]int{}
		w := one(t, func(_ context.Context, n int) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			calls[n]++
			return n, nil
		})
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		random := rand.New(rand.NewPCG(1, 2))
		var lost int
		a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			mu.Lock()
			defer mu.Unlock()
			if op.Name == "call" {
				switch random.IntN(3) {
				case 0:
					f.Before = errors.New("not sent")
				case 1:
					f.After = errors.New("answer lost")
					lost++
				}
			}
			return f
		})
		for i := range 100 {
			run := started(t, a.Engine, w, i)
			time.Sleep(20 * time.Millisecond) // so that the next may have another shard
			if info := must(b.Wait(t.Context(), run.ID)); info.State != "succeeded" {
				t.Fatal(info.State)
			}
		}
		for i := range 100 {
			if calls[i] != 1 {
				t.Errorf("start %d: %d runs", i, calls[i])
			}
		}
		if lost < 10 {
			t.Errorf("%d answers were lost, which is too few to learn from", lost)
		}
		a.log.Disturb(nil)
		if n := len(must(a.List(t.Context(), Filter{})).Runs); n != 100 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestClusterNamesTheShardsThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		for i := range 50 {
			waited(t, started(t, a.Engine, w, i, Key(fmt.Sprint(i))))
		}
		hidden := len(b.router.Shards())
		b.log.Freeze()
		page := must(a.List(t.Context(), Filter{}))
		stats := must(a.Stats(t.Context()))
		if len(page.Silent) != hidden && len(page.Silent) != 0 {
			t.Errorf("shards %v are silent, want %d of them or, if the others were quick, none", page.Silent, hidden)
		}
		t.Logf("silent: %v in the list of %d, %v in the counts", page.Silent, len(page.Runs), stats.Silent)
		settled(t, a)
		if page = must(a.List(t.Context(), Filter{})); len(page.Runs) != 50 || len(page.Silent) != 0 {
			t.Errorf("%d runs after the takeover, silent: %v", len(page.Runs), page.Silent)
		}
		b.log.Thaw()
		time.Sleep(time.Minute)
		settled(t, a, b)
	})
}

func TestClusterKeepsALimit(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		var mu sync.Mutex
		var now, most int
		w := must(NewWorkflow("narrow", MaxRuns(2), Step("do", func(context.Context, int) (int, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return 0, nil
		})))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		var runs []Started
		for i := range 10 {
			runs = append(runs, started(t, []*member{a, b}[i%2].Engine, w, i, Key(fmt.Sprint(i))))
		}
		for _, r := range runs {
			waited(t, r)
		}
		if most != 2 {
			t.Errorf("%d runs at once, want 2", most)
		}
	})
}

func TestClusterKeysOutliveAChangedLimit(t *testing.T) {
	t.Parallel()
	for _, first := range []int{0, 2} {
		together(t, func(t *testing.T, s *memlog.Store) {
			step := Step("do", func(context.Context, int) (int, error) { return 0, nil })
			versions := map[int]*Workflow{0: must(NewWorkflow("w", step)), 2: must(NewWorkflow("w", MaxRuns(2), step))}
			a := joined(t, s, "a", Config{Workflows: []*Workflow{versions[first]}})
			settled(t, a)
			ids := map[string]string{}
			for i := range 20 {
				ids[fmt.Sprint(i)] = started(t, a.Engine, versions[first], i, Key(fmt.Sprint(i))).ID
			}
			if err := a.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			b := joined(t, s, "b", Config{Workflows: []*Workflow{versions[2-first]}})
			for key, id := range ids {
				if again := started(t, b.Engine, versions[2-first], 1, Key(key)); again.ID != id || !again.Existing {
					t.Errorf("key %s was run %s and is now %s", key, id, again.ID)
				}
			}
			if n := len(b.Troubles()); n != map[int]int{0: 1, 2: 0}[first] {
				t.Errorf("troubles: %+v", b.Troubles())
			}
		})
	}
}

func TestClusterSchedulesStartOnce(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(context.Context, int) (int, error) { return 0, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		list := []Schedule{
			{Name: "hourly", Workflow: "one", Cron: "0 * * * *", Input: []byte("1")},
			{Name: "often", Workflow: "one", Cron: "*/10 * * * *", Input: []byte("1")},
		}
		for _, m := range []*member{a, b} {
			if err := m.SetSchedules(t.Context(), list); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2*time.Hour + time.Second)
		a.kill()
		time.Sleep(time.Hour)
		if n := len(must(b.List(t.Context(), Filter{})).Runs); n != 3+18 {
			t.Errorf("%d runs in three hours, want 21", n)
		}
		if n := len(must(b.Schedules(t.Context()))); n != 2 {
			t.Errorf("%d schedules", n)
		}
	})
}

func TestClusterSharesConcurrencyAmongShards(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		var mu sync.Mutex
		var now, most int
		w := one(t, func(context.Context, int) (int, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return 0, nil
		})
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Concurrency: 3})
		settled(t, a)
		var runs []Started
		for i := range 30 {
			runs = append(runs, started(t, a.Engine, w, i, Key(fmt.Sprint(i))))
		}
		begin := time.Now()
		for _, r := range runs {
			waited(t, r)
		}
		if most != 3 || time.Since(begin) > 12*time.Second {
			t.Errorf("%d at once in %v, want 3 in 10s", most, time.Since(begin))
		}
	})
}

func TestClusterEventsComeFromAll(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		var mu sync.Mutex
		observed := map[string]int{} // by run and kind
		observe := func(ev retry.Event) {
			mu.Lock()
			defer mu.Unlock()
			observed[ev.Run+ev.Kind.String()]++
		}
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Observer: observe})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}, Observer: observe})
		settled(t, a, b)
		ctx, cancel := context.WithCancel(t.Context())
		seen, from := map[string]int{}, map[string]int{}
		var reader sync.WaitGroup
		reader.Go(func() {
			for ev := range a.Events(ctx, NewEvents) {
				if ev.Kind == retry.RunStarted {
					seen[ev.Run]++
					from[ev.Member]++
				}
			}
		})
		go func() {
			for range b.Events(ctx, NewEvents) { // so that each has what the other has told
			}
		}()
		time.Sleep(5 * time.Second)
		var runs []Started
		for i := range 50 {
			runs = append(runs, started(t, a.Engine, w, i, Key(fmt.Sprint(i))))
			waited(t, runs[i])
		}
		time.Sleep(10 * time.Second)
		cancel()
		reader.Wait()
		for _, r := range runs {
			if seen[r.ID] != 1 {
				t.Errorf("there were %d events of the start of %s", seen[r.ID], r.ID)
			}
			if n := observed[r.ID+retry.RunStarted.String()]; n != 1 {
				t.Errorf("observers were shown the start of %s %d times", r.ID, n)
			}
		}
		if from[""] == 0 || from[b.log.Member()] == 0 {
			t.Errorf("they came from %v", from)
		}
	})
}

func TestClusterSaysWhoHasWhat(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		for i := range 16 {
			started(t, b.Engine, w, i, In(time.Hour), Key(fmt.Sprint(i)))
		}
		info, ok, err := b.Cluster(t.Context())
		if err != nil || !ok || len(info.Members) != 2 || len(info.Shards) != 8 || info.Self != b.log.Member() {
			t.Fatalf("%+v, %v, %v", info, ok, err)
		}
		names, waiting := map[string]int{}, 0
		for _, sh := range info.Shards {
			names[sh.Name]++
			waiting += sh.Waiting
			if sh.Epoch == 0 || sh.Last == 0 {
				t.Errorf("%+v", sh)
			}
		}
		if names["a"] != 4 || names["b"] != 4 || waiting != 16 {
			t.Errorf("owners %v, %d waits", names, waiting)
		}
		if _, ok, err := opened(t, Config{}).Cluster(t.Context()); ok || err != nil {
			t.Errorf("an engine alone is a cluster: %v, %v", ok, err)
		}
	})
}
