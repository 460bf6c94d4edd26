package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
)

// coldRuns returns how many runs are cold.
func coldRuns(t *testing.T, e *Engine) (n int) {
	t.Helper()
	if err := e.shard().Do(context.Background(), func(turn shard.Recorder) error {
		for _, r := range turn.State().All() {
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

// until waits for a condition, in virtual time.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 1000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("did not happen in ten seconds: %s", what)
}

// noUptime replaces the uptime of the machine in a bubble, where virtual time passes.
func noUptime() (time.Duration, string) { return 0, "" }

func TestRunsThatWaitForLongAreNotInMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, runsThatWaitForLong)
}

func runsThatWaitForLong(t *testing.T) {
	t.Helper()
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
		return must(Open(t.Context(), Config{Dir: dir, Workflows: []*Workflow{w}, Logger: quiet(), snapshotAfter: 50_000, uptime: noUptime}))
	}
	e := open()
	const n = 200
	ids := map[string]string{}
	for i := range n {
		in := fmt.Sprint(i, pad)
		ids[started(t, e, w, in).ID] = in
	}
	// One run with a large input is enough log for the next snapshot.
	large := strings.Repeat("x", 60_000)
	grow := func() { started(t, e, w, large, In(24*time.Hour)) }
	until(t, "most runs are cold", func() bool { grow(); return coldRuns(t, e) >= n*9/10 })
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
		grow()
		now := must(filepath.Glob(filepath.Join(dir, "blobs", "snapshot-*")))
		return len(now) >= 2 && !slices.ContainsFunc(now, func(name string) bool { return slices.Contains(first, name) })
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
		if len(ids) < n-20 {
			break
		}
	}
	check("beside those", n)
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
