package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// distantFamily has a child workflow with a limit: all its runs are in one shard of the cluster,
// and most of its parents in others.
type distantFamily struct {
	mu       sync.Mutex
	executed map[int]int
}

func (f *distantFamily) workflows() (parent, child *Workflow) {
	child = MustFlow("child", func(fl *Flow, n int) (string, error) {
		_, err := Do(fl, "work", func(context.Context) (int, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.executed[n]++
			return n, nil
		}, MaxLost(100))
		if err != nil {
			return "", err
		}
		if err := Sleep(fl, "rest", time.Minute); err != nil {
			return "", err
		}
		go_, err := Await[string](fl, "go", Within(time.Hour))
		return fmt.Sprint("child ", n, " ", go_), err
	}, MaxRuns(50))
	parent = MustFlow("parent", func(fl *Flow, n int) (string, error) {
		return Child[string](fl, "one", child, n)
	}, Function(MaxLost(100)))
	return parent, child
}

// TestClusterChildren kills the members one after the other while parents and children are in
// different shards.
func TestClusterChildren(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		f := &distantFamily{executed: map[int]int{}}
		parent, child := f.workflows()
		cfg := Config{Workflows: []*Workflow{parent, child}}
		members := []*member{joined(t, s, "a", cfg), joined(t, s, "b", cfg), joined(t, s, "c", cfg)}
		settled(t, members...)
		const n = 24
		var parents []string
		for i := range n {
			parents = append(parents, started(t, members[i%3].Engine, parent, i, Key(fmt.Sprint("parent ", i))).ID)
		}
		for i := range members { // each one once, at different times of the children's lives
			time.Sleep(time.Duration(i*25) * time.Second)
			members[i].kill()
			members[i] = joined(t, s, fmt.Sprint("again", i), cfg)
		}
		settled(t, members...)
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		children := map[string]bool{}
		for i, id := range parents {
			info := must(members[0].Get(t.Context(), id))
			var op *StepInfo
			for k := range info.Steps {
				if info.Steps[k].Kind == "child" {
					op = &info.Steps[k]
				}
			}
			if op == nil || op.Child == "" {
				t.Fatalf("parent %d is %s and has no child", i, info.State)
			}
			children[op.Child] = true
			if err := members[1].Signal(t.Context(), op.Child, "go", "now", ID("once")); err != nil {
				t.Error(err)
			}
		}
		for i, id := range parents {
			info := must(members[2].Wait(t.Context(), id))
			if info.State != StateSucceeded || string(info.Output) != fmt.Sprintf(`"child %d now"`, i) {
				t.Errorf("parent %d is %s: %s %s", i, info.State, info.Output, info.Error)
			}
		}
		page := must(members[0].List(t.Context(), Filter{Workflow: "child", Limit: 1000, Fresh: true}))
		if len(page.Runs) != n || len(children) != n {
			t.Errorf("%d children, %d of them known to their parents, want %d", len(page.Runs), len(children), n)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for i := range n {
			if f.executed[i] < 1 || f.executed[i] > 2 {
				t.Errorf("child %d was executed %d times", i, f.executed[i])
			}
		}
	})
}

// TestClusterChildrenAreCanceled cancels parents whose children are in another shard.
func TestClusterChildrenAreCanceled(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		f := &distantFamily{executed: map[int]int{}}
		parent, child := f.workflows()
		cfg := Config{Workflows: []*Workflow{parent, child}}
		a, b := joined(t, s, "a", cfg), joined(t, s, "b", cfg)
		settled(t, a, b)
		const n = 16
		var parents []string
		for i := range n {
			parents = append(parents, started(t, a.Engine, parent, i).ID)
		}
		for i, id := range parents {
			if i%4 == 0 {
				time.Sleep(20 * time.Second)
			}
			if err := b.Cancel(t.Context(), id, "tester"); err != nil {
				t.Fatal(err)
			}
			if i == n/2 {
				b.kill()
				b = joined(t, s, "b2", cfg)
				settled(t, a, b)
			}
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		page := must(a.List(t.Context(), Filter{Workflow: "child", Limit: 1000, Fresh: true}))
		for _, run := range page.Runs {
			if run.State != StateCanceled {
				t.Errorf("child %s is %s", run.ID, run.State)
			}
		}
		if len(page.Runs) == 0 {
			t.Error("no child was started")
		}
		for _, m := range []*member{a, b} { // nothing is kept in memory for a family that is over
			for _, sh := range m.router.Shards() {
				for _, id := range inOwner(t, sh, neededRuns) {
					t.Errorf("shard %d needs run %s", sh.Number, id)
				}
			}
		}
	})
}

// chargingChild has a child workflow with a limit, whose runs charge, and then die until it is
// repaired.
type chargingChild struct {
	mu       sync.Mutex
	keys     map[int]map[string]int // charges of each order, by key
	repaired bool
}

func (c *chargingChild) workflows() (parent, child *Workflow) {
	child = MustFlow("pay", func(f *Flow, order int) (int, error) {
		_, err := Do(f, "charge", func(ctx context.Context) (int, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.keys[order] == nil {
				c.keys[order] = map[string]int{}
			}
			task, _ := TaskOf(ctx)
			c.keys[order][task.Origin+"/"+task.Step]++
			return order, nil
		}, MaxLost(100))
		if err != nil {
			return 0, err
		}
		if err := Sleep(f, "settle", time.Minute); err != nil {
			return 0, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.repaired {
			return 0, errors.New("no carrier")
		}
		return order, nil
	}, MaxRuns(50), Function(MaxLost(100)))
	parent = MustFlow("order", func(f *Flow, n int) (int, error) {
		paid, err := Children[int, int](f, "pay", child, []int{2 * n, 2*n + 1})
		return len(paid), err
	}, Function(MaxLost(100)))
	return parent, child
}

// TestClusterRetryOfParents retries parents whose children are in another shard and in all states,
// while the members are killed one after the other.
func TestClusterRetryOfParents(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		c := &chargingChild{keys: map[int]map[string]int{}}
		parent, child := c.workflows()
		cfg := Config{Workflows: []*Workflow{parent, child}}
		members := []*member{joined(t, s, "a", cfg), joined(t, s, "b", cfg), joined(t, s, "c", cfg)}
		settled(t, members...)
		const n = 18
		var parents []string
		for i := range n {
			parents = append(parents, started(t, members[i%3].Engine, parent, i).ID)
		}
		for i, id := range parents {
			info := must(members[0].Wait(t.Context(), id))
			if info.State != StateDead {
				t.Fatalf("parent %d is %s: %s", i, info.State, info.Error)
			}
			for _, op := range info.Steps {
				if op.Kind != "child" {
					continue
				}
				var err error
				switch i % 4 {
				case 1:
					err = members[1].Cancel(t.Context(), op.Child, "tester")
				case 2:
					_, err = members[1].Replay(t.Context(), op.Child, nil, "tester")
				case 3:
					err = members[1].Retry(t.Context(), op.Child, "tester")
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		c.mu.Lock()
		c.repaired = true
		c.mu.Unlock()
		last := map[int]string{}
		for i, id := range parents {
			if i%2 == 0 {
				if err := members[i%3].Retry(t.Context(), id, "tester"); err != nil {
					t.Fatal(err)
				}
				last[i] = id
			} else {
				last[i] = must(members[i%3].Replay(t.Context(), id, nil, "tester")).ID
			}
			if i%6 == 5 { // between the retry and the end of the children
				members[i/6].kill()
				members[i/6] = joined(t, s, fmt.Sprint("again", i), cfg)
				settled(t, members...)
			}
		}
		for i, id := range last {
			if info := must(members[1].Wait(t.Context(), id)); info.State != StateSucceeded || string(info.Output) != "2" {
				t.Errorf("parent %d is %s: %s %s", i, info.State, info.Output, info.Error)
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for order := range 2 * n {
			if len(c.keys[order]) != 1 {
				t.Errorf("order %d of parent %d was charged under the keys %v", order, order/2, c.keys[order])
			}
		}
	})
}

// TestClusterRetryOfAParentWaitsForOldMembers: a retry that an older release can't read is refused,
// and changes nothing, until the rolling deploy is finished.
func TestClusterRetryOfAParentWaitsForOldMembers(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		c := &chargingChild{keys: map[int]map[string]int{}}
		parent, child := c.workflows()
		cfg := Config{Workflows: []*Workflow{parent, child}}
		old := memberOf(t, s.JoinOlder("old", machine.ChildFormat-1), cfg)
		a := joined(t, s, "a", cfg)
		settled(t, old, a)
		id := started(t, a.Engine, parent, 1).ID
		if info := must(a.Wait(t.Context(), id)); info.State != StateDead {
			t.Fatal(info.State)
		}
		err := a.Retry(t.Context(), id, "tester")
		if !errors.Is(err, ErrOldMember) || !strings.Contains(err.Error(), "finish the rolling deploy, then retry the run") {
			t.Fatalf("Retry = %v", err)
		}
		if info := must(a.Get(t.Context(), id)); info.State != StateDead {
			t.Errorf("the run is %s", info.State)
		}
		for _, m := range []*member{old, a} {
			for _, sh := range m.router.Shards() {
				if got := formats(t, sh.Lease); got[machine.ChildFormat] > 0 {
					t.Errorf("shard %d has the formats %v", sh.Number, got)
				}
			}
		}
		old.kill()
		b := joined(t, s, "b", cfg)
		settled(t, a, b)
		c.mu.Lock()
		c.repaired = true
		c.mu.Unlock()
		if err := a.Retry(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		if info := must(a.Wait(t.Context(), id)); info.State != StateSucceeded {
			t.Errorf("the run is %s: %s", info.State, info.Error)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for order, keys := range c.keys {
			if len(keys) != 1 || len(c.keys) != 2 {
				t.Errorf("order %d was charged under the keys %v", order, keys)
			}
		}
	})
}

// If the run is purged that another one repeats, the keys of its children are not known: the run
// does not charge, and says so.
func TestAReplayOfAPurgedParentDoesNotCharge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &chargingChild{keys: map[int]map[string]int{}}
		_, child := c.workflows()
		late := MustFlow("late", func(f *Flow, order int) (int, error) {
			if err := Sleep(f, "week", 7*24*time.Hour); err != nil {
				return 0, err
			}
			return Child[int](f, "pay", child, order)
		})
		e := opened(t, Config{Dir: t.TempDir(), Workflows: []*Workflow{late, child}, Retention: 48 * time.Hour, DeadRetention: 48 * time.Hour, uptime: noUptime})
		s := started(t, e, late, 1)
		waited(t, s)
		next := must(e.Replay(t.Context(), s.ID, nil, "tester"))
		i := waited(t, next)
		want := "operation pay: run " + s.ID + ", which this run repeats, is not stored any more: it may have started the same child, " +
			"whose idempotency keys are not known now: check by hand what that child has done, and start a new run"
		if i.State != StateDead || i.Error != want || len(c.keys[1]) != 1 {
			t.Errorf("the run is %s: %s; keys %v", i.State, i.Error, c.keys)
		}
	})
}
