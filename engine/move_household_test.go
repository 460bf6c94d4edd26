package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/internal/testwait"
)

// household has the workflows of an engine, and runs in all states.
type household struct {
	dir   string
	flows map[string]*Workflow
	infos map[string]string // runs that nothing happens to by itself, as text
	keys  map[string]string // ids by key
	soon  []string          // they wait for a little
	lost  []string          // an attempt was being made when the process ended
	state map[string]int
	total map[string]Totals
}

// rarely is a schedule that is not due while a test runs, but on a leap day at three.
var rarely = Schedule{Name: "rarely", Workflow: "quick", Cron: "0 3 29 2 *", Input: json.RawMessage(`0`)}

// furnish fills a folder: it runs an engine that gets runs into all states, and stops it while
// attempts are running. If there are many runs, some wait for a handler, which takes a while.
func furnish(t *testing.T, n int) *household {
	t.Helper()
	h := &household{dir: t.TempDir(), infos: map[string]string{}, keys: map[string]string{}, state: map[string]int{}, total: map[string]Totals{}}
	h.flows = housework()
	e := must(Open(context.Background(), Config{
		Dir: h.dir, Durability: OS, Logger: quiet(), Concurrency: 64, snapshotAfter: 10_000,
		Workflows: slices.Collect(maps.Values(h.flows)), Handlers: map[string]Handler{},
	}))
	if err := e.SetSchedules(context.Background(), []Schedule{rarely}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if i%20 == 17 && n >= 200 {
			h.start(t, e, "foreign", "")
		} else {
			h.live(t, e, i)
		}
	}
	noneIs := func(states ...string) func() bool {
		return func() bool {
			return len(must(e.List(context.Background(), Filter{States: states, Limit: 1})).Runs) == 0
		}
	}
	testwait.Until(t, "archives", func() bool {
		for range 10 {
			h.start(t, e, "quick", "")
		}
		return isArchived(h.dir)
	})
	for range 3 {
		h.lost = append(h.lost, h.start(t, e, "endless", "").ID)
	}
	testwait.Until(t, "attempts are being made", func() bool {
		return len(must(e.List(context.Background(), Filter{States: []string{"running"}, Workflow: "endless"})).Runs) == 3
	})
	testwait.Until(t, "the rest has come to rest", noneIs("queued"))
	testwait.Until(t, "the view is not behind", func() bool { return must(e.Stats(context.Background())).Behind == 0 })
	h.remember(t, e)
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Close(now); err != nil {
		t.Fatal(err)
	}
	return h
}

// isArchived reports whether a snapshot was written after two archives. The runs of the first
// archive are not in that snapshot any more.
func isArchived(dir string) bool {
	archives := must(filepath.Glob(filepath.Join(dir, "blobs", "archive-*"))) // sorted, oldest first
	if len(archives) < 2 {
		return false
	}
	second, _, _ := store.ParseArchiveName(filepath.Base(archives[1]))
	return slices.ContainsFunc(must(filepath.Glob(filepath.Join(dir, "blobs", store.SnapshotPrefix+"*"))), func(path string) bool {
		seq, ok := store.ParseName(filepath.Base(path), store.SnapshotPrefix)
		return ok && seq >= second
	})
}

func housework() map[string]*Workflow {
	fails := func(context.Context, int) (string, error) { return "", errors.New("not today") }
	again := func(ctx context.Context, n int) (string, error) {
		if task, _ := TaskOf(ctx); task.Total == 1 {
			return "", errors.New("not yet")
		}
		return fmt.Sprint("at last ", n), nil
	}
	list := []*Workflow{
		must(NewWorkflow("quick", Step("do", func(_ context.Context, n int) (int, error) { return n + 1, nil }))),
		must(NewWorkflow("doomed", Step("do", fails, Policy("fixed(1s) attempts=1")))),
		must(NewWorkflow("patient", Timeout(72*time.Hour),
			Step("first", func(_ context.Context, n int) (int, error) { return n, nil }),
			Step("second", again, After("first"), Policy("fixed(1h) attempts=3")))),
		must(NewWorkflow("soon", Step("do", again, Policy("fixed(10m) attempts=2")))),
		must(NewWorkflow("endless", Step("do", func(ctx context.Context, _ int) (string, error) {
			if task, _ := TaskOf(ctx); task.Total > 1 {
				return "after all", nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		}))),
		must(NewWorkflow("foreign", Call("do", "unserved", nil))),
	}
	flows := map[string]*Workflow{}
	for _, w := range list {
		flows[w.Name()] = w
	}
	return flows
}

func (h *household) start(t *testing.T, e *Engine, flow, key string, opts ...StartOption) Started {
	t.Helper()
	s, err := e.Start(context.Background(), h.flows[flow], len(h.keys), append(opts, Key(key))...)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		h.keys[key] = s.ID
	}
	return s
}

// live starts the i-th run, and does something with it.
func (h *household) live(t *testing.T, e *Engine, i int) {
	t.Helper()
	ctx, key := context.Background(), ""
	if i%3 == 0 {
		key = fmt.Sprint("key-", i)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	switch i % 20 {
	case 0, 1, 2, 3, 4, 5:
		h.start(t, e, "quick", key)
	case 6, 7, 8, 9, 10:
		h.start(t, e, "patient", key)
	case 11, 12:
		h.start(t, e, "doomed", key)
	case 13:
		s := h.start(t, e, "doomed", key)
		must(s.Wait(ctx))
		must(e.Replay(ctx, s.ID, nil, "test"))
	case 14:
		h.start(t, e, "quick", key, In(24*time.Hour), RunTimeout(time.Hour))
	case 15:
		check(e.Cancel(ctx, h.start(t, e, "quick", key, In(time.Hour)).ID, "test"))
	case 16, 17:
		check(e.Pause(ctx, h.start(t, e, "patient", key).ID, "test"))
	case 18:
		h.soon = append(h.soon, h.start(t, e, "soon", key).ID)
	case 19:
		id := h.start(t, e, "patient", key).ID
		testwait.Until(t, "it waits", func() bool { return must(e.Get(ctx, id)).State == "waiting" })
		check(e.Postpone(ctx, id, time.Now().Add(9*time.Hour), "test"))
	}
}

// remember records the states of all runs and keys.
func (h *household) remember(t *testing.T, e *Engine) {
	t.Helper()
	for page := (Page{Next: "-"}); page.Next != ""; {
		f := Filter{Limit: 500}
		if page.Next != "-" {
			f.After = page.Next
		}
		page = must(e.List(context.Background(), f))
		for _, r := range page.Runs {
			i := must(e.Get(context.Background(), r.ID))
			h.state[i.State]++
			if w := i.Workflow; w != "soon" && w != "endless" && w != "foreign" {
				h.infos[i.ID] = text(i)
			}
		}
	}
	for _, w := range must(e.Stats(context.Background())).Workflows {
		h.total[w.Name] = w.Totals
	}
}

func text(i *Info) string { return string(must(json.Marshal(i))) }

// unpacked opens the folder to which everything was moved, and checks that everything is there and
// continues.
//
// real clock: the next time of a schedule is years ahead
func (h *household) unpacked(t *testing.T, dir string) {
	t.Helper()
	ctx := context.Background()
	e := must(Open(ctx, Config{Dir: dir, Durability: OS, Logger: quiet(), Workflows: slices.Collect(maps.Values(h.flows))}))
	defer e.Close(ctx)
	for id, want := range h.infos {
		if got := text(must(e.Get(ctx, id))); got != want {
			t.Fatalf("run %s is\n%s, was\n%s", id, got, want)
		}
	}
	for key, id := range h.keys {
		if s := h.start(t, e, h.workflowOf(t, e, id), key); !s.Existing || s.ID != id {
			t.Fatalf("a start with the key %q is run %s, existing %v; want %s", key, s.ID, s.Existing, id)
		}
	}
	for _, id := range h.soon {
		if err := e.Postpone(ctx, id, time.Now().Add(50*time.Millisecond), "test"); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range slices.Concat(h.soon, h.lost) {
		if i := must(e.Wait(ctx, id)); i.State != "succeeded" {
			t.Errorf("a run that waited for a little is %s: %s", i.State, i.Error)
		}
	}
	if lost := must(e.Get(ctx, h.lost[0])); lost.Steps[0].Attempts[0].Outcome != "lost" {
		t.Errorf("an attempt of a process that ended is %+v", lost.Steps[0].Attempts[0])
	}
	count := func(states ...string) (n int) {
		return len(must(e.List(ctx, Filter{States: states, Limit: 100_000})).Runs)
	}
	testwait.Until(t, "all are listed", func() bool { return count("dead") == h.state["dead"] && count("paused") == h.state["paused"] })
	if groups := must(e.DeadGroups(ctx, 10)).Groups; len(groups) != 1 || groups[0].Count != h.state["dead"] {
		t.Errorf("DeadGroups() = %+v, want %d runs", groups, h.state["dead"])
	}
	if list := must(e.Schedules(ctx)); len(list) != 1 || list[0].Name != rarely.Name || list[0].Next.Before(time.Now()) {
		t.Errorf("Schedules() = %+v", list)
	}
	for _, w := range must(e.Stats(ctx)).Workflows {
		if was := h.total[w.Name]; w.Totals.Started != was.Started || w.Name == "patient" && w.Totals != was {
			t.Errorf("totals of %s are %+v, were %+v", w.Name, w.Totals, was)
		}
	}
	h.goOn(t, e)
}

func (h *household) workflowOf(t *testing.T, e *Engine, id string) string {
	t.Helper()
	return must(e.Get(context.Background(), id)).Workflow
}

// goOn ends the waits of runs, and retries dead runs.
func (h *household) goOn(t *testing.T, e *Engine) {
	t.Helper()
	ctx := context.Background()
	for _, test := range []struct {
		workflow, state, want string
		do                    func(ctx context.Context, id, by string) error
	}{
		{"patient", "waiting", "succeeded", e.Wake},
		{"quick", "scheduled", "succeeded", e.Wake},
		{"doomed", "dead", "dead", e.Retry},
	} {
		list := must(e.List(ctx, Filter{Workflow: test.workflow, States: []string{test.state}, Limit: 10})).Runs
		for _, r := range list {
			if err := test.do(ctx, r.ID, "test"); err != nil {
				t.Fatal(err)
			}
			if i := must(e.Wait(ctx, r.ID)); i.State != test.want {
				t.Errorf("a run that was %s is %s, want %s: %s", test.state, i.State, test.want, i.Error)
			}
		}
		if len(list) == 0 {
			t.Errorf("no run of %s is %s", test.workflow, test.state)
		}
	}
}

// counted checks the counts that a move returns.
func (h *household) counted(t *testing.T, m move.Moved) {
	t.Helper()
	if !maps.Equal(m.Runs, h.states(t)) || m.Schedules != 1 || m.Keys < len(h.keys) || m.Orphans != len(h.lost) || m.Archived == 0 || m.Stood <= 0 {
		t.Errorf("move.Move() = %+v, want runs %v and %d keys", m, h.states(t), len(h.keys))
	}
}

// states returns the states of all runs, in the words of the log, which does not know
// what stands in a queue.
func (h *household) states(t *testing.T) map[string]int {
	t.Helper()
	want := maps.Clone(h.state)
	want["scheduled"] += want["queued"]
	delete(want, "queued")
	return want
}
