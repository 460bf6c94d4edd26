package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// coldRuns returns how many runs are cold.
func coldRuns(t *testing.T, e *Engine) (n int) {
	t.Helper()
	if err := e.alone.do(context.Background(), func(*turn) error {
		for _, r := range e.alone.m.All() {
			if r.IsCold() {
				n++
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func TestRunsThatWaitForLongAreNotInMemory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pad := strings.Repeat("x", 200)
	w := must(NewWorkflow("w",
		Step("first", func(_ context.Context, in string) (string, error) { return "first of " + in, nil }),
		Step("second", func(ctx context.Context, in string) (string, error) {
			if task, _ := TaskOf(ctx); task.Total == 1 {
				return "", errors.New("not today")
			}
			return Result[string](ctx, "first")
		}, After("first"), Policy("fixed(1h) attempts=2"))))
	open := func() *Engine {
		return must(Open(t.Context(), Config{Dir: dir, Workflows: []*Workflow{w}, Logger: quiet(), snapshotAfter: 50_000}))
	}
	e := open()
	const n = 500
	ids := map[string]string{}
	for i := range n {
		in := fmt.Sprint(i, pad)
		ids[started(t, e, w, in).ID] = in
	}
	// Something must happen for the next snapshot.
	stir := func() {
		for range 20 {
			started(t, e, w, "stir", In(24*time.Hour))
		}
	}
	until(t, "most runs are cold", func() bool { stir(); return coldRuns(t, e) >= n*9/10 })
	check := func(what string, some int) {
		t.Helper()
		for id, in := range ids {
			if some--; some < 0 {
				break
			}
			i := must(e.Get(t.Context(), id))
			if string(i.Input) != fmt.Sprintf("%q", in) || i.State != "waiting" || len(i.Steps[1].Attempts) != 1 || string(i.Steps[0].Output) != fmt.Sprintf("%q", "first of "+in) {
				t.Fatalf("%s: %+v", what, i)
			}
		}
	}
	check("cold", n)
	if coldRuns(t, e) < n*9/10 {
		t.Error("looking at runs has warmed them")
	}
	// Another snapshot takes them along, and the older ones are deleted.
	first := must(filepath.Glob(filepath.Join(dir, "blobs", "snapshot-*")))
	until(t, "two more snapshots", func() bool {
		stir()
		now := must(filepath.Glob(filepath.Join(dir, "blobs", "snapshot-*")))
		return len(now) == 2 && now[0] != first[0] && now[0] != first[len(first)-1]
	})
	check("moved", n)
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The view is made anew from what is cold.
	for _, f := range must(filepath.Glob(filepath.Join(dir, "view.db*"))) {
		_ = os.Remove(f)
	}
	e = open()
	if got := coldRuns(t, e); got < n/2 {
		t.Errorf("after a restart %d runs are cold", got)
	}
	check("restored", n)
	until(t, "all are listed", func() bool {
		return len(must(e.List(t.Context(), Filter{States: []string{"waiting"}, Limit: 2 * n})).Runs) == n
	})
	for id, in := range ids {
		if err := e.Wake(t.Context(), id, "test"); err != nil {
			t.Fatal(err)
		}
		if i := waited(t, Started{ID: id, e: e}); i.State != "succeeded" || string(i.Output) != fmt.Sprintf("%q", "first of "+in) {
			t.Fatalf("woken: %+v", i)
		}
		delete(ids, id)
		if len(ids) < n-50 {
			break
		}
	}
	check("beside those", n)
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
