package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

// payments is a fake server that makes one payment for each idempotency key.
type payments struct {
	mu   sync.Mutex
	seen []string // one for each call
}

func (p *payments) pay(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, key)
}

// charges returns how many payments were made.
func (p *payments) charges() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(slices.Compact(slices.Sorted(slices.Values(p.seen))))
}

// paying returns a workflow that pays and then fails, unless its input is true.
func paying(t *testing.T, p *payments, parts ...Part) *Workflow {
	t.Helper()
	pay := func(ctx context.Context, succeeds bool) (string, error) {
		task, _ := TaskOf(ctx)
		p.pay(task.Origin + "/" + task.OriginKey + "/" + task.Step)
		if !succeeds {
			return "", retry.Permanent(errors.New("the answer was lost"))
		}
		return task.Origin, nil
	}
	return must(NewWorkflow("order", append(parts, Step("prepare", func(context.Context, bool) (int, error) { return 1, nil }),
		Step("pay", pay, After("prepare"), Policy("fixed(1s) attempts=1")))...))
}

// TestTheOriginSurvivesReplays repeats a dead run in all ways there are, with
// restarts between them, and pays once.
func TestTheOriginSurvivesReplays(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]int64{"from the log": 0, "from snapshots": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { originSurvives(t, after) })
		})
	}
}

func originSurvives(t *testing.T, snapshotAfter int64) {
	t.Helper()
	var p payments
	var ends, deaths []string
	var mu sync.Mutex
	note := func(list *[]string) func(context.Context, map[string]any) (int, error) {
		return func(_ context.Context, in map[string]any) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			*list = append(*list, fmt.Sprint(in["origin"], "/", in["origin_key"]))
			return 0, nil
		}
	}
	w := paying(t, &p, OnEnd(must(NewWorkflow("end", Step("note", note(&ends))))), OnGiveUp(must(NewWorkflow("death", Step("note", note(&deaths))))))
	store := new(memlog.Store)
	e := must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet(), snapshotAfter: snapshotAfter}))
	restart := func() {
		synctest.Wait()
		if err := e.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		e = must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet(), snapshotAfter: snapshotAfter}))
	}
	defer func() { _ = e.Close(context.Background()) }()

	first := started(t, e, w, false, Key("order-4711"))
	if i := waited(t, first); i.State != StateDead || i.Origin != "" || i.OriginKey != "" {
		t.Fatalf("the first run is %s, with the origin %q %q", i.State, i.Origin, i.OriginKey)
	}
	last := first.ID
	for n, repeat := range []func() (Started, error){
		func() (Started, error) { return e.Replay(t.Context(), last, nil, "me") },
		func() (Started, error) { return e.Replay(t.Context(), last, json.RawMessage("false "), "me") },
		func() (Started, error) { return e.Rerun(t.Context(), RerunRequest{Run: last, Step: "pay", By: "me"}) },
		func() (Started, error) { return e.Replay(t.Context(), last, json.RawMessage("true"), "me") },
		func() (Started, error) { return e.Rerun(t.Context(), RerunRequest{Run: last, Step: "pay", By: "me"}) }, // of one that has succeeded
	} {
		restart()
		next := must(repeat())
		i := waited(t, next)
		if want := [...]string{StateDead, StateSucceeded}[n/3]; i.State != want {
			t.Fatalf("repetition %d is %s: %s", n, i.State, i.Error)
		}
		if i.ReplayOf != last || i.Origin != first.ID || i.OriginKey != "order-4711" {
			t.Errorf("repetition %d is of %s, its origin is %s %q; want %s, %s", n, i.ReplayOf, i.Origin, i.OriginKey, last, first.ID)
		}
		if n == 1 {
			if err := e.Retry(t.Context(), next.ID, "me"); err != nil {
				t.Fatal(err)
			}
			waited(t, next)
		}
		last = next.ID
	}
	synctest.Wait()
	if n := p.charges(); n != 1 || len(p.seen) != 7 {
		t.Errorf("%d payments by %d calls: %q", n, len(p.seen), p.seen)
	}
	mu.Lock()
	defer mu.Unlock()
	want := first.ID + "/order-4711"
	if n := len(ends); n != 6 || slices.Contains(ends[1:], "<nil>/<nil>") || ends[n-1] != want {
		t.Errorf("what was started by the ends saw %q", ends)
	}
	if n := len(deaths); n != 5 || deaths[0] != "<nil>/<nil>" || deaths[n-1] != want {
		t.Errorf("what was started by the deaths saw %q", deaths)
	}
}

// TestTheOriginOfRunsOfAnEarlierVersion repeats runs that were stored by a version which kept only
// the previous run: the origin is the oldest run of the chain that is still stored.
func TestTheOriginOfRunsOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p payments
		w := paying(t, &p)
		e := opened(t, Config{Workflows: []*Workflow{w}})
		first := started(t, e, w, false, Key("order-4711"))
		waited(t, first)
		last := first.ID
		for range 2 {
			// As that version did it.
			old := &machine.Start{Input: []byte("false"), Previous: must(machine.ParseID(last)), Hash: w.core.Def.Hash()}
			if err := e.shard().Do(t.Context(), func(t shard.Recorder) error { _, _, err := t.StartRun(old, w.core.Def); return err }); err != nil {
				t.Fatal(err)
			}
			i := must(e.Wait(t.Context(), old.ID.String()))
			if i.ReplayOf != last || i.Origin != last || i.OriginKey != "" {
				t.Errorf("a run of an earlier version is of %s, its origin %s %q; want %s", i.ReplayOf, i.Origin, i.OriginKey, last)
			}
			last = i.ID
		}
		next := must(e.Replay(t.Context(), last, nil, "me"))
		if i := waited(t, next); i.Origin != first.ID || i.OriginKey != "order-4711" {
			t.Errorf("the origin is %s %q, want %s", i.Origin, i.OriginKey, first.ID)
		}
		if seen := p.seen[len(p.seen)-1]; !strings.HasPrefix(seen, first.ID+"/order-4711/") {
			t.Errorf("the handler saw %s", seen)
		}
	})
}

// TestTheOriginSurvivesInACluster replays runs by processes that do not own them.
func TestTheOriginSurvivesInACluster(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		var p payments
		w := paying(t, &p)
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		for n := range 8 { // in shards of both
			key := fmt.Sprint("order-", n)
			first := started(t, a.Engine, w, false, Key(key))
			must(b.Wait(t.Context(), first.ID))
			second := must(b.Replay(t.Context(), first.ID, nil, "me"))
			must(a.Wait(t.Context(), second.ID))
			third := must(a.Rerun(t.Context(), RerunRequest{Run: second.ID, Step: "pay", By: "me"}))
			if i := must(b.Wait(t.Context(), third.ID)); i.Origin != first.ID || i.OriginKey != key {
				t.Errorf("the origin is %s %q, want %s %q", i.Origin, i.OriginKey, first.ID, key)
			}
		}
		if n := p.charges(); n != 8 {
			t.Errorf("%d payments for 8 orders", n)
		}
	})
}
