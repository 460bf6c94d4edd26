package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
			for _, sh := range m.cluster.own() {
				for _, id := range must(ask(t.Context(), sh, func(t *turn) (ids []string, err error) {
					for _, r := range t.o.m.All() {
						if r.IsNeeded() {
							ids = append(ids, r.ID.String())
						}
					}
					return ids, nil
				})) {
					t.Errorf("shard %d needs run %s", sh.number, id)
				}
			}
		}
	})
}
