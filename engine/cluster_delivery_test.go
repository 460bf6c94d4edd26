package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// distantShard is where all children of a distantFamily are.
var distantShard = machine.WorkflowSlot("child") % 8

func shardOf(id string) int { return must(machine.ParseID(id)).Slot() % 8 }

// newRunID returns the id of a run in the slot.
func newRunID(slot int) string {
	return machine.NewID(time.Now().UnixNano(), rand.Uint64(), rand.Uint64()).In(slot).String()
}

// distantParent starts a run that is in another shard than its children.
func distantParent(t *testing.T, e *Engine, w *Workflow, input any) string {
	t.Helper()
	for n := 0; ; n++ {
		if key := fmt.Sprint("parent-", n); machine.KeySlot(key)%8 != distantShard {
			id := started(t, e, w, input, Key(key)).ID
			if shardOf(id) == distantShard {
				t.Fatalf("run %s is in the shard of its children", id)
			}
			return id
		}
	}
}

// deliveryGate holds the calls that deliveries of a member make, until it is opened.
type deliveryGate struct {
	open chan struct{}

	mu     sync.Mutex
	starts []string // ids of the children that were started
}

// hold makes deliveries of the member that cancel or start a child wait for the gate.
func (g *deliveryGate) hold(m *member, cancels, starts bool) {
	m.process.Peers = &gatedPeers{Peers: m.process.Peers, deliverBy: func(ctx context.Context, d *shard.Delivery, deliver func(context.Context, *shard.Delivery) error) error {
		switch d.Kind {
		case shard.CancelChild:
			if cancels {
				g.wait(ctx)
			}
		case shard.StartChild:
			g.mu.Lock()
			g.starts = append(g.starts, d.Start.ID)
			g.mu.Unlock()
			if starts {
				g.wait(ctx)
			}
		}
		return deliver(ctx, d)
	}}
}

// gatedPeers are peers whose deliveries a test changes.
type gatedPeers struct {
	shard.Peers
	deliverBy func(ctx context.Context, d *shard.Delivery, deliver func(context.Context, *shard.Delivery) error) error
}

func (p *gatedPeers) Deliver(ctx context.Context, d *shard.Delivery) error {
	return p.deliverBy(ctx, d, p.Peers.Deliver)
}

// children returns the ids of the children that were started, with repetitions.
func (g *deliveryGate) children() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.starts)
}

func (g *deliveryGate) wait(ctx context.Context) {
	select {
	case <-g.open:
	case <-ctx.Done():
	}
}

// TestManyDeliveriesNeedFewGoroutines cancels a run with 1000 children in another shard.
func TestManyDeliveriesNeedFewGoroutines(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		const n = 1000
		child := MustFlow("child", func(f *Flow, _ int) (string, error) { return Await[string](f, "go") }, MaxRuns(2*n))
		parent := MustFlow("parent", func(f *Flow, _ int) (string, error) {
			_, err := Children[int, string](f, "many", child, make([]int, n), Parallel(n))
			return "", err
		})
		cfg := Config{Workflows: []*Workflow{parent, child}}
		a, b := joined(t, s, "a", cfg), joined(t, s, "b", cfg)
		settled(t, a, b)
		gate := &deliveryGate{open: make(chan struct{})}
		gate.hold(a, true, false)
		gate.hold(b, true, false)
		id := distantParent(t, a.Engine, parent, 1)
		time.Sleep(time.Hour)
		if n := countRuns(t, a.Engine, "child", StateWaiting); n != 1000 {
			t.Fatalf("%d children wait", n)
		}
		if err := b.Cancel(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stacks := make([]byte, 64<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		// Other tests may have some at the same time.
		if n := strings.Count(string(stacks), "\ngithub.com/tideover/tideover/engine/internal/shard.(*deliveryQueue).work("); n < 32 || n > 5*64 {
			t.Errorf("%d goroutines of deliveries", n)
		}
		close(gate.open)
		time.Sleep(time.Minute)
		if run := must(a.Wait(t.Context(), id)); run.State != StateCanceled {
			t.Errorf("the parent is %s", run.State)
		}
		if n := len(gate.children()); countRuns(t, a.Engine, "child", StateCanceled) != 1000 || n != 1000 {
			t.Errorf("%d children are canceled, and %d were started", countRuns(t, a.Engine, "child", StateCanceled), n)
		}
	})
}

// countRuns returns how many of the first 1000 runs of a workflow are in the state.
func countRuns(t *testing.T, e *Engine, workflow, state string) int {
	t.Helper()
	return len(must(e.List(t.Context(), Filter{Workflow: workflow, States: []string{state}, Limit: 1000, Fresh: true})).Runs)
}

// TestChildStartedAfterItsParentHasEnded has a start that comes to the other shard after the
// cancellation: the child does not continue without its parent.
func TestChildStartedAfterItsParentHasEnded(t *testing.T) {
	t.Parallel()
	for _, undoes := range []bool{false, true} {
		together(t, func(t *testing.T, s *memlog.Store) {
			child := MustFlow("child", func(f *Flow, _ int) (string, error) { return Await[string](f, "go") }, MaxRuns(10))
			parent := MustFlow("parent", func(f *Flow, _ int) (string, error) {
				if undoes {
					if _, err := DoUndo(f, "a", func(context.Context) (int, error) { return 1, nil }, func(context.Context, *int) error { return nil }); err != nil {
						return "", err
					}
				}
				return Child[string](f, "one", child, 1)
			})
			cfg := Config{Workflows: []*Workflow{parent, child}}
			a, b := joined(t, s, "a", cfg), joined(t, s, "b", cfg)
			settled(t, a, b)
			gate := &deliveryGate{open: make(chan struct{})}
			gate.hold(a, false, true)
			gate.hold(b, false, true)
			id := distantParent(t, a.Engine, parent, 1)
			time.Sleep(time.Second)
			if err := b.Cancel(t.Context(), id, "tester"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if len(gate.children()) != 1 || countRuns(t, a.Engine, "child", StateWaiting) != 0 {
				t.Fatalf("%d starts before the gate is open", len(gate.children()))
			}
			close(gate.open)
			if run := must(a.Wait(t.Context(), id)); run.State != StateCanceled {
				t.Errorf("the parent is %s", run.State)
			}
			time.Sleep(time.Minute)
			if run, err := a.Get(t.Context(), gate.children()[0]); err == nil && run.State != StateCanceled {
				t.Errorf("undoes %v: the child is %s", undoes, run.State)
			}
		})
	}
}

// TestChildIsNotStartedAgainElsewhere has a function that is called again while a child works, also by
// the next owner of its shard: it knows which children were started.
func TestChildIsNotStartedAgainElsewhere(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		child := MustFlow("child", func(f *Flow, _ int) (string, error) { return Await[string](f, "go") }, MaxRuns(10))
		parent := MustFlow("parent", func(f *Flow, _ int) (string, error) {
			got, err := Children[int, string](f, "many", child, []int{0, 1, 2, 3}, Parallel(2))
			return strings.Join(got, " "), err
		}, Function(MaxLost(10)))
		cfg := Config{Workflows: []*Workflow{parent, child}}
		gate := &deliveryGate{open: make(chan struct{})}
		members := []*member{joined(t, s, "a", cfg), joined(t, s, "b", cfg)}
		settled(t, members...)
		for _, m := range members {
			gate.hold(m, false, false)
		}
		id := distantParent(t, members[0].Engine, parent, 1)
		time.Sleep(time.Minute)
		released := map[string]bool{}
		for i := range 4 {
			if i < 2 { // the parent's owner is one of them
				members[i].kill()
				members[i] = joined(t, s, fmt.Sprint("again", i), cfg)
				gate.hold(members[i], false, false)
				settled(t, members...)
				time.Sleep(time.Minute)
			}
			// The end of the first child that works has the function called, to start the next one.
			for _, step := range must(members[0].Get(t.Context(), id)).Steps {
				if step.Child == "" || released[step.Child] {
					continue
				}
				released[step.Child] = true
				if err := members[0].Signal(t.Context(), step.Child, "go", "now"); err != nil {
					t.Error(err)
				}
				break
			}
			time.Sleep(time.Minute)
		}
		if run := must(members[0].Wait(t.Context(), id)); string(run.Output) != `"now now now now"` {
			t.Errorf("the parent is %s with %s", run.State, run.Output)
		}
		started := map[string]int{}
		for _, child := range gate.children() {
			started[child]++
		}
		for child, n := range started {
			if n != 1 {
				t.Errorf("child %s was started %d times", child, n)
			}
		}
		if len(started) != 4 {
			t.Errorf("%d children were started", len(started))
		}
	})
}

// TestMembersRefuseMalformedCalls sends calls about families as a process with a bug would: they
// change nothing.
func TestMembersRefuseMalformedCalls(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		f := &distantFamily{executed: map[int]int{}}
		parent, child := f.workflows()
		cfg := Config{Workflows: []*Workflow{parent, child}}
		a, b := joined(t, s, "a", cfg), joined(t, s, "b", cfg)
		settled(t, a, b)
		id := distantParent(t, a.Engine, parent, 1)
		time.Sleep(30 * time.Second)
		before := must(json.Marshal(must(a.Get(t.Context(), id))))
		owner := cmp.Or(a.shardAt(shardOf(id)), b.shardAt(shardOf(id)))
		run := must(machine.ParseID(id))
		end := func(change func(*machine.ChildEnd)) []byte {
			e := &machine.ChildEnd{Parent: machine.Parent{Run: run, Number: 1}, Output: []byte(`"wrong"`)}
			change(e)
			return must(json.Marshal(e))
		}
		other := machine.NewID(1, 2, 3).In(run.Slot())
		childStart := func(change func(*shard.Start)) *shard.Call {
			st := &shard.Start{ID: newRunID(shardOf(id)), Definition: child.core.Def.Text(), Input: []byte("1"), Again: true, Parent: &shard.ChildOf{Run: id, Number: 1}, Def: child.core.Def}
			change(st)
			return &shard.Call{Op: shard.OpStartFlow, Start: st}
		}
		for name, c := range map[string]*shard.Call{
			"the end of a child, not JSON":          {Op: shard.OpChildEnded, ID: id, Input: []byte(`{"Parent":`)},
			"the end of a child of another run":     {Op: shard.OpChildEnded, ID: id, Input: end(func(e *machine.ChildEnd) { e.Parent.Run = other })},
			"the end of a child that is too large":  {Op: shard.OpChildEnded, ID: id, Input: end(func(e *machine.ChildEnd) { e.Output = []byte(`"` + strings.Repeat("x", 1<<20) + `"`) })},
			"the end of a child that is not JSON":   {Op: shard.OpChildEnded, ID: id, Input: end(func(e *machine.ChildEnd) { e.Output = []byte("wrong") })},
			"the start of a child without a parent": childStart(func(s *shard.Start) { s.Parent.Run = "nothing" }),
			"the start of a child of operation -1":  childStart(func(s *shard.Start) { s.Parent.Number = -1 }),
			"a start without anything":              {Op: shard.OpStartFlow},
			"a signal without a name":               {Op: shard.OpSignal, ID: id, Signal: &shard.Signal{ID: "x", Data: []byte("1")}},
			"a signal that is not JSON":             {Op: shard.OpSignal, ID: id, Signal: &shard.Signal{Name: "go", ID: "x", Data: []byte("x")}},
			"a call without a signal":               {Op: shard.OpSignal, ID: id},
			"an answer that is not JSON":            {Op: shard.OpAnswer, ID: id, Step: "boss", Input: []byte("x")},
		} {
			if _, err := owner.PerformForOthers(t.Context(), c); !errors.Is(err, shard.ErrCall) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if after := must(json.Marshal(must(a.Get(t.Context(), id)))); string(after) != string(before) {
			t.Errorf("the run has changed: %s", after)
		}
		if n := countRuns(t, a.Engine, "child", StateWaiting); n == 0 {
			t.Error("no child waits")
		}
	})
}

// TestChildElsewhereWaitsForItsWorkflow kills all members before the child of a run is started in
// another shard. The next ones do not have its workflow: the run says so, and continues when only
// that is registered.
func TestChildElsewhereWaitsForItsWorkflow(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		child := MustFlow("child", func(f *Flow, n int) (string, error) { return fmt.Sprint("child ", n), Sleep(f, "s", time.Hour) }, MaxRuns(10))
		parent := MustFlow("parent", func(f *Flow, _ int) (string, error) {
			got, err := Children[int, string](f, "many", Registered("child"), []int{1, 2, 3}, Parallel(3))
			return strings.Join(got, ", "), err
		}, Function(MaxLost(10)))
		both, alone := Config{Workflows: []*Workflow{parent, child}}, Config{Workflows: []*Workflow{parent}}
		gate := &deliveryGate{open: make(chan struct{})}
		a := joined(t, s, "a", both)
		settled(t, a)
		gate.hold(a, false, true)
		id := distantParent(t, a.Engine, parent, 1)
		time.Sleep(time.Minute)
		if len(gate.children()) != 3 {
			t.Fatalf("%d children are being started", len(gate.children()))
		}
		a.kill()
		b := joined(t, s, "b", alone)
		settled(t, b)
		time.Sleep(10 * time.Minute)
		if run := must(b.Get(t.Context(), id)); run.State != StateNeedsHandler || !strings.Contains(run.Error, `there is no workflow "child" now`) {
			t.Fatalf("the parent is %s: %s", run.State, run.Error)
		}
		if err := b.Register(child); err != nil {
			t.Fatal(err)
		}
		if run := must(b.Wait(t.Context(), id)); string(run.Output) != `"child 1, child 2, child 3"` {
			t.Errorf("the parent is %s: %s%s", run.State, run.Output, run.Error)
		}
	})
}

// TestTheInputOfAChildElsewhereIsRefusedLater kills all members while children are being started in
// another shard. The next ones refuse the inputs: a child that was started continues, and one that
// was not fails.
func TestTheInputOfAChildElsewhereIsRefusedLater(t *testing.T) {
	t.Parallel()
	for _, isStarted := range []bool{false, true} {
		together(t, func(t *testing.T, s *memlog.Store) {
			var refuses atomic.Bool
			child := MustFlow("child", func(f *Flow, n int) (string, error) { return fmt.Sprint("child ", n), Sleep(f, "s", time.Hour) }, MaxRuns(10),
				PrepareInput(func(in json.RawMessage, _ time.Time) (json.RawMessage, error) {
					if refuses.Load() {
						return nil, errors.New("out of fashion")
					}
					return in, nil
				}))
			parent := MustFlow("parent", func(f *Flow, _ int) (string, error) { return Child[string](f, "one", child, 1) }, Function(MaxLost(10)))
			cfg := Config{Workflows: []*Workflow{parent, child}}
			gate := &deliveryGate{open: make(chan struct{})}
			a := joined(t, s, "a", cfg)
			settled(t, a)
			gate.hold(a, false, !isStarted)
			if isStarted { // the answer is lost
				a.process.Peers = &gatedPeers{Peers: a.process.Peers, deliverBy: func(ctx context.Context, d *shard.Delivery, deliver func(context.Context, *shard.Delivery) error) error {
					err := deliver(ctx, d)
					gate.wait(ctx)
					return err
				}}
			}
			id := distantParent(t, a.Engine, parent, 1)
			time.Sleep(time.Minute)
			if n := len(gate.children()); n != 1 {
				t.Fatalf("%d children are being started", n)
			}
			a.kill()
			refuses.Store(true)
			b := joined(t, s, "b", cfg)
			settled(t, b)
			run := must(b.Wait(t.Context(), id))
			if want := map[bool]string{false: "operation one: input: out of fashion", true: `"child 1"`}[isStarted]; run.Error+string(run.Output) != want {
				t.Errorf("started %v: the parent is %s: %s%s, want %s", isStarted, run.State, run.Output, run.Error, want)
			}
		})
	}
}

// TestDeliveriesOfOtherShardsGetThrough has hundreds of deliveries with shards that do not answer, or
// whose owner is away: those with another shard are done.
func TestDeliveriesOfOtherShardsGetThrough(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		stuck int // shards that can't be asked
		ask   func(ctx context.Context) error
	}{
		{"one does not answer", 1, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		{"three are away", 3, func(context.Context) error { return fmt.Errorf("shard 1 %w", ErrAway) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			together(t, func(t *testing.T, s *memlog.Store) { testOtherShardsGetThrough(t, s, test.stuck, test.ask) })
		})
	}
}

func testOtherShardsGetThrough(t *testing.T, s *memlog.Store, stuck int, fail func(ctx context.Context) error) {
	inShard := func(shard int) string { // returns the name of a workflow whose runs are there
		for i := 0; ; i++ {
			if name := fmt.Sprint("child", i); machine.WorkflowSlot(name)%8 == shard {
				return name
			}
		}
	}
	child := func(shard int) *Workflow {
		return MustFlow(inShard(shard), func(_ *Flow, n int) (string, error) { return fmt.Sprint("done ", n), nil }, MaxRuns(1000))
	}
	free := child(7)
	workflows := []*Workflow{free}
	var blocked []*Workflow
	for n := range stuck {
		blocked = append(blocked, child(n+1))
	}
	starts := MustFlow("starts", func(f *Flow, n int) (string, error) {
		_, err := Children[int, string](f, "many", blocked[n], make([]int, 100), Parallel(100))
		return "", err
	})
	parent := MustFlow("parent", func(f *Flow, n int) (string, error) { return Child[string](f, "one", free, n) })
	a := joined(t, s, "a", Config{Workflows: append(append(workflows, blocked...), starts, parent)})
	settled(t, a)
	var isOpen atomic.Bool
	a.process.Peers = &gatedPeers{Peers: a.process.Peers, deliverBy: func(ctx context.Context, d *shard.Delivery, deliver func(context.Context, *shard.Delivery) error) error {
		if d.Kind == shard.StartChild && d.Shard <= stuck && !isOpen.Load() {
			return fail(ctx)
		}
		return deliver(ctx, d)
	}}
	key := func(prefix string) string { // in shard 0
		for i := 0; ; i++ {
			if k := fmt.Sprint(prefix, i); machine.KeySlot(k)%8 == 0 {
				return k
			}
		}
	}
	var parents []string
	for n := range blocked {
		parents = append(parents, started(t, a.Engine, starts, n, Key(key(fmt.Sprint(n, "-")))).ID)
	}
	time.Sleep(time.Minute)
	id := started(t, a.Engine, parent, 1, Key(key("p"))).ID
	time.Sleep(time.Hour)
	if run := must(a.Get(t.Context(), id)); string(run.Output) != `"done 1"` {
		t.Errorf("the run whose child is in another shard is %s", run.State)
	}
	if stuck == 1 {
		return
	}
	isOpen.Store(true)
	for _, id := range parents {
		if run := must(a.Wait(t.Context(), id)); run.State != StateSucceeded {
			t.Errorf("a parent is %s: %s", run.State, run.Error)
		}
	}
}
