package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// largeFamily is a run with 1000 children, one for each branch or item.
type largeFamily struct {
	branches bool // the children are started by Branches, otherwise by Children
	distant  bool // they are in another shard than their parent
	undoes   bool // the parent has an operation with an undo

	running atomic.Int32 // operations of children whose handler runs
	undone  atomic.Int32 // undos that have ended
}

// familySize is how many children the canceled run of TestClusterCancelOfManyChildren has.
var familySize = flag.Int("family.size", 250, "children of the run in TestClusterCancelOfManyChildren")

func (l *largeFamily) workflows() (parent, child *Workflow) {
	var limit []Part
	if l.distant {
		limit = append(limit, MaxRuns(2**familySize))
	}
	child = MustFlow("child", func(f *Flow, n int) (string, error) {
		if n%50 > 0 {
			return Await[string](f, "go")
		}
		return Do(f, "work", func(ctx context.Context) (string, error) {
			l.running.Add(1)
			defer l.running.Add(-1)
			<-ctx.Done()
			return "", ctx.Err()
		}, MaxLost(100))
	}, limit...)
	parent = MustFlow("parent", func(f *Flow, _ int) (string, error) {
		if l.undoes {
			undo := func(context.Context, *int) error {
				time.Sleep(10 * time.Minute) // real clock: it runs in a bubble.
				l.undone.Add(1)
				return nil
			}
			if _, err := DoUndo(f, "reserve", func(context.Context) (int, error) { return 1, nil }, undo, MaxLost(100)); err != nil {
				return "", err
			}
		}
		return "", l.startChildren(f, child)
	}, Function(MaxLost(100)))
	return parent, child
}

func (l *largeFamily) startChildren(f *Flow, child *Workflow) error {
	if !l.branches {
		inputs := make([]int, *familySize)
		for i := range inputs {
			inputs[i] = i
		}
		_, err := Children[int, string](f, "many", child, inputs, Parallel(*familySize))
		return err
	}
	branches := make([]FlowBranch, *familySize)
	for i := range branches {
		name := fmt.Sprint("b", i)
		branches[i] = Branch(name, func(f *Flow) error {
			_, err := Child[string](f, "of-"+name, child, i)
			return err
		})
	}
	return Branches(f, branches...)
}

// atAppend calls do when the member has stored this many entries from now on.
func (m *member) atAppend(n int, do func()) {
	var once sync.Once
	var appended atomic.Int32
	m.log.Disturb(func(op memlog.Operation) memlog.Fault {
		if op.Name == "append" && int(appended.Add(1)) == n {
			once.Do(func() { go do() })
		}
		return memlog.Fault{}
	})
}

// Many children end with their parent that is canceled, whatever happens to the members in
// the middle of that, and nothing is left of them.
func TestClusterCancelOfManyChildren(t *testing.T) {
	t.Parallel()
	kill := func(m *member) { m.kill() }
	handOver := func(m *member) { _ = m.Close(context.Background()) }
	ofParent := func(id string) int { return shardOf(id) }
	ofChildren := func(string) int { return distantShard }
	for name, test := range map[string]struct {
		family  *largeFamily
		shard   func(parent string) int // its owner is the one to which something happens; nil for none
		happens func(*member)
	}{
		"branches":                                    {family: &largeFamily{branches: true}},
		"branches, owner killed":                      {&largeFamily{branches: true}, ofParent, kill},
		"branches, elsewhere, owner killed":           {&largeFamily{branches: true, distant: true}, ofParent, kill},
		"branches, elsewhere, shard handed over":      {&largeFamily{branches: true, distant: true}, ofParent, handOver},
		"branches, elsewhere, undo, owner killed":     {&largeFamily{branches: true, distant: true, undoes: true}, ofParent, kill},
		"children, owner killed":                      {&largeFamily{}, ofParent, kill},
		"children, shard handed over":                 {&largeFamily{}, ofParent, handOver},
		"children, undo, owner killed":                {&largeFamily{undoes: true}, ofParent, kill},
		"children, elsewhere":                         {family: &largeFamily{distant: true}},
		"children, elsewhere, owner killed":           {&largeFamily{distant: true}, ofParent, kill},
		"children, elsewhere, owner of theirs killed": {&largeFamily{distant: true}, ofChildren, kill},
		"children, elsewhere, undo, handed over":      {&largeFamily{distant: true, undoes: true}, ofParent, handOver},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			together(t, func(t *testing.T, s *memlog.Store) {
				testCancelOfLargeFamily(t, s, test.family, test.shard, test.happens)
			})
		})
	}
}

func testCancelOfLargeFamily(t *testing.T, s *memlog.Store, l *largeFamily, slotOf func(string) int, happens func(*member)) {
	parent, child := l.workflows()
	cfg := Config{Workflows: []*Workflow{parent, child}, Concurrency: 100}
	members := []*member{joined(t, s, "a", cfg), joined(t, s, "b", cfg), joined(t, s, "c", cfg)}
	settled(t, members...)
	id := distantParent(t, members[0].Engine, parent, 1)
	time.Sleep(time.Hour)
	if n := countRuns(t, members[0].Engine, "child", StateWaiting) + countRuns(t, members[0].Engine, "child", StateRunning); n != *familySize || l.running.Load() == 0 {
		t.Fatalf("%d children wait or run, %d operations run", n, l.running.Load())
	}
	over := make(chan struct{})
	if slotOf != nil {
		at := slices.IndexFunc(members, func(m *member) bool { return m.shardAt(slotOf(id)) != nil })
		victim := members[at]
		members = slices.Delete(members, at, at+1)
		victim.atAppend(2, func() { happens(victim); close(over) })
	} else {
		close(over)
	}
	cancel := func() error { return members[0].Cancel(t.Context(), id, "tester") }
	if err := cancel(); err != nil && !errors.Is(err, ErrAway) {
		t.Fatal(err)
	}
	<-over
	settled(t, members...)
	if l.undoes { // it is undoing: another cancellation changes nothing
		if err := cancel(); !errors.Is(err, ErrState) {
			t.Errorf("canceled during the undo: %v", err)
		}
	}
	time.Sleep(time.Hour)
	if run := must(members[0].Wait(t.Context(), id)); run.State != StateCanceled {
		t.Errorf("the parent is %s: %s", run.State, run.Error)
	}
	if l.undoes != (l.undone.Load() > 0) {
		t.Errorf("%d undos", l.undone.Load())
	}
	if n := countRuns(t, members[0].Engine, "child", StateCanceled); n != *familySize {
		t.Errorf("%d children are canceled, want %d", n, *familySize)
	}
	synctest.Wait()
	if n := l.running.Load(); n != 0 {
		t.Errorf("%d operations of children still run", n)
	}
	for _, m := range members {
		wantNothingLeft(t, m)
	}
}

// wantNothingLeft checks that a member has neither calls nor attempts, and no run that it must keep
// in memory.
func wantNothingLeft(t *testing.T, m *member) {
	t.Helper()
	for _, sh := range m.router.Shards() {
		left := inOwner(t, sh, neededRuns)
		if len(left) > 0 {
			t.Errorf("shard %d needs %d runs, the first: %s", sh.Number, len(left), left[0])
		}
	}
	if c := m.process.Admission.Counts(); c.Attempts != m.cfg.Concurrency || c.Calls != m.cfg.maxFunctions || c.Running != 0 {
		t.Errorf("%s has attempts or calls left: %+v", m.log.Member(), c)
	}
}

// neededRuns returns the runs of a shard that it must keep in memory.
func neededRuns(t shard.Recorder) (list []string) {
	for _, r := range t.State().All() {
		if r.IsNeeded() {
			list = append(list, r.ID.String())
		}
	}
	return list
}
