package enginetest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

// executed counts what the workflows of this file have executed.
type executed struct{ count atomic.Int32 }

// do calls an operation with this name.
func (x *executed) do(f *engine.Flow, name string) error {
	_, err := engine.Do(f, name, func(context.Context) (string, error) { x.count.Add(1); return name, nil })
	return err
}

// ops calls operations one after the other. "sleep" and "await" are others than Do.
func (x *executed) ops(f *engine.Flow, names ...string) (err error) {
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "sleep"):
			err = engine.Sleep(f, name, 48*time.Hour)
		case strings.HasPrefix(name, "await"):
			_, err = engine.Await[int](f, name)
		default:
			err = x.do(f, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// flow returns a workflow that calls these operations.
func (x *executed) flow(names ...string) *engine.Workflow {
	return engine.MustFlow("order", func(f *engine.Flow, _ int) (int, error) { return 1, x.ops(f, names...) })
}

// historyOf starts a run of the first workflow, calls then, and returns the history of the run.
func historyOf(t *testing.T, then func(e *enginetest.Engine, id string) error, workflows ...*engine.Workflow) (h enginetest.History) {
	t.Helper()
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		s, err := e.Start(t.Context(), workflows[0], 1)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if then != nil {
			if err := then(e, s.ID); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		h.Name = s.ID
		if h.Data, err = e.History(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
	}, workflows...)
	return h
}

const day = 24 * time.Hour

// real clock: enginetest.Test runs the functions in a bubble
func TestReplay(t *testing.T) {
	t.Parallel()
	var x executed
	wait := func(d time.Duration) func(*enginetest.Engine, string) error {
		return func(*enginetest.Engine, string) error { time.Sleep(d); return nil }
	}
	ctx := context.Background() // t.Context is not one of the bubbles
	flow := func(do func(f *engine.Flow) error) *engine.Workflow {
		return engine.MustFlow("order", func(f *engine.Flow, _ int) (int, error) { return 1, do(f) })
	}
	fails := func(f *engine.Flow, name string) error {
		_, err := engine.Do(f, name, func(context.Context) (int, error) { x.count.Add(1); return 0, retry.Permanent(errors.New("broken")) })
		return err
	}
	child := engine.MustFlow("child", func(f *engine.Flow, _ int) (int, error) { return 1, x.ops(f, "sleep") })
	withChild := func(f *engine.Flow, w *engine.Workflow) error {
		_, err := engine.Child[int](f, "part", w, 1)
		return err
	}
	undoable := func(f *engine.Flow, name string) error {
		_, err := engine.DoUndo(f, name, func(context.Context) (int, error) { x.count.Add(1); return 1, nil },
			func(context.Context, *int) error { x.count.Add(1); return nil })
		return err
	}
	branches := func(f *engine.Flow, a, b []string) error {
		return engine.Branches(f, engine.Branch("a", func(f *engine.Flow) error { return x.ops(f, a...) }),
			engine.Branch("b", func(f *engine.Flow) error { return x.ops(f, b...) }))
	}
	mapped := func(f *engine.Flow, items ...int) error {
		_, err := engine.Map(f, "each", items, func(ctx context.Context, i int) (int, error) {
			if x.count.Add(1); i == 2 {
				<-ctx.Done()
			}
			return i, ctx.Err()
		})
		return err
	}
	again := func(first func(*engine.Flow, string) error) *engine.Workflow {
		return engine.MustFlow("order", func(f *engine.Flow, round int) (int, error) {
			if err := first(f, "a"); err != nil || round > 1 {
				return round, err
			}
			return 0, engine.Again(f, round+1)
		})
	}
	for _, tt := range []struct {
		name   string
		before *engine.Workflow
		then   func(e *enginetest.Engine, id string) error
		after  *engine.Workflow
		parked string // part of the reason
		next   string
		err    string // part of the error
	}{
		{name: "the same code, of a run that has ended", before: x.flow("price", "ship"), after: x.flow("price", "ship")},
		{name: "more code at the end of a run that has ended", before: x.flow("price"), after: x.flow("price", "ship"), next: "ship"},
		{name: "a renamed operation of a run that has ended", before: x.flow("price", "ship"), after: x.flow("quote", "ship"),
			parked: `the run has a stored operation "price" that the function did not call before the new operation "quote": deploy code`},
		{name: "a removed operation of a run that has ended", before: x.flow("price", "ship"), after: x.flow("price"),
			parked: `the run has a stored operation "ship" that the function did not call: deploy code`},
		{name: "the words for a removed and a renamed operation", before: x.flow("price", "audit", "ship"), after: flow(func(f *engine.Flow) error {
			engine.Removed(f, "audit")
			engine.Renamed(f, "price", "quote")
			return x.ops(f, "quote", "ship")
		})},
		{name: "the word for an added operation", before: x.flow("price", "ship"), after: flow(func(f *engine.Flow) error {
			engine.Added(f, "stock")
			return x.ops(f, "stock", "price", "ship")
		}), next: "stock"},
		{name: "a sleep that has not ended", before: x.flow("price", "sleep", "ship"), after: x.flow("price", "sleep", "ship"), next: "ship"},
		{name: "a removed operation before a sleep", before: x.flow("price", "sleep", "ship"), after: x.flow("sleep", "ship"), parked: `"price" that the function did not call before the new operation "ship"`},
		{name: "a removed sleep", before: x.flow("price", "sleep", "ship"), then: wait(day), after: x.flow("price", "ship"), parked: `"sleep" that the function did not call before`},
		{name: "a wait for a signal", before: x.flow("price", "await", "ship"), after: x.flow("price", "await"), next: "await"},
		{name: "a wait for a signal of another name", before: x.flow("price", "await-a"), after: x.flow("price", "await-b"), parked: `"await-a" that the function did not call before the new operation "await-b"`},
		{name: "a signal that has come", before: x.flow("await", "sleep"), then: func(e *enginetest.Engine, id string) error { return e.Signal(ctx, id, "await", 7) }, after: x.flow("await", "sleep")},
		{name: "an operation that waits for its next attempt", before: flow(func(f *engine.Flow) error {
			_, err := engine.Do(f, "call", func(context.Context) (int, error) { x.count.Add(1); return 0, errors.New("no") }, engine.Policy("fixed(1h) attempts=9"))
			return err
		}), after: x.flow("call"), next: "call"},
		{name: "an operation that runs", before: flow(func(f *engine.Flow) error { return mapped(f, 1, 2, 3) }), after: flow(func(f *engine.Flow) error { return mapped(f, 1, 2, 3) }), next: "each"},
		{name: "other items", before: flow(func(f *engine.Flow) error { return mapped(f, 1, 2, 3) }), after: flow(func(f *engine.Flow) error { return mapped(f, 1, 2) }), parked: "operation each: has 2 items"},
		{name: "a dead run", before: flow(func(f *engine.Flow) error { return fails(f, "charge") }), after: flow(func(f *engine.Flow) error { return fails(f, "charge") }), err: "charge: broken"},
		{name: "a renamed operation of a dead run", before: flow(func(f *engine.Flow) error { return fails(f, "charge") }), after: flow(func(f *engine.Flow) error { return fails(f, "bill") }), parked: `"charge" that the function did not call`},
		{name: "a run that was retried", before: flow(func(f *engine.Flow) error {
			if fails(f, "charge") != nil {
				return errors.Join(x.do(f, "apologize"), fails(f, "charge-again"))
			}
			return nil
		}), then: func(e *enginetest.Engine, id string) error { return e.Retry(ctx, id, "tester") }, after: flow(func(f *engine.Flow) error { return fails(f, "charge") }), parked: `"apologize"`},
		{name: "a child", before: flow(func(f *engine.Flow) error { return withChild(f, child) }), after: flow(func(f *engine.Flow) error { return withChild(f, child) }), next: "part"},
		{name: "a child that has ended", before: flow(func(f *engine.Flow) error { return withChild(f, child) }), then: wait(3 * day), after: flow(func(f *engine.Flow) error { return errors.Join(withChild(f, child), x.do(f, "ship")) }), next: "ship"},
		{name: "a new child", before: x.flow("price", "sleep"), after: flow(func(f *engine.Flow) error { return errors.Join(x.ops(f, "price"), withChild(f, child)) }), parked: `"sleep" that the function did not call before the new operation "part"`},
		{name: "operations that are to be undone", before: flow(func(f *engine.Flow) error { return errors.Join(undoable(f, "hold"), x.ops(f, "sleep")) }),
			then: wait(3 * day), after: flow(func(f *engine.Flow) error {
				return errors.Join(undoable(f, "hold"), x.ops(f, "sleep"), errors.New("late"))
			}), next: "undo:hold"},
		{name: "operations that were undone", before: flow(func(f *engine.Flow) error { return errors.Join(undoable(f, "hold"), fails(f, "charge")) }),
			after: flow(func(f *engine.Flow) error { return errors.Join(undoable(f, "hold"), fails(f, "charge")) })},
		{name: "operations that were undone after a cancellation", before: flow(func(f *engine.Flow) error { return errors.Join(undoable(f, "hold"), x.ops(f, "await")) }),
			then:  func(e *enginetest.Engine, id string) error { return e.Cancel(ctx, id, "tester") },
			after: flow(func(f *engine.Flow) error { return errors.Join(undoable(f, "hold"), x.ops(f, "await")) })},
		{name: "an operation that can't be undone any more", before: flow(func(f *engine.Flow) error { return errors.Join(undoable(f, "hold"), fails(f, "charge")) }),
			after: flow(func(f *engine.Flow) error { return errors.Join(x.do(f, "hold"), fails(f, "charge")) }), parked: "the function knows how to undo only 0 of them"},
		{name: "branches", before: flow(func(f *engine.Flow) error { return branches(f, []string{"a", "await", "c"}, []string{"b", "sleep"}) }),
			after: flow(func(f *engine.Flow) error { return branches(f, []string{"a", "await"}, []string{"b", "sleep", "d"}) }), next: "await"},
		{name: "an operation that is missing in another branch", before: flow(func(f *engine.Flow) error { return branches(f, []string{"a", "sleep-a"}, []string{"b", "sleep-b"}) }),
			after: flow(func(f *engine.Flow) error { return branches(f, []string{"a", "sleep-a"}, []string{"sleep-b", "d"}) }), parked: `"b" that the function did not call before the new operation "d"`},
		{name: "a run that begins again", before: again(x.do), after: again(x.do)},
		{name: "open undos of a run that begins again", before: again(undoable), after: again(undoable), parked: "again: the run has called operations that can be undone"},
		{name: "another type of the result", before: x.flow("price", "sleep"), after: flow(func(f *engine.Flow) error {
			_, err := engine.Do(f, "price", func(context.Context) (int, error) { return 0, nil })
			return err
		}), parked: `the function returned the error: operation price`},
		{name: "steps instead of a function", before: x.flow("price", "sleep"), after: steps("order", "price"), parked: `step "function" waits for the handler "flow:order"`},
		{name: "a step that is not there any more", before: steps("order", "price", "wait"), after: steps("order", "price", "ship"), parked: `step "wait" waits for the handler`},
		{name: "the same steps", before: steps("order", "price", "wait"), after: steps("order", "price", "wait", "ship"), next: "wait"},
		{name: "steps of a run that has ended", before: steps("order", "price"), after: steps("order", "ship")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := historyOf(t, tt.then, tt.before, child)
			before := x.count.Load()
			got, err := h.Replay(t, tt.after)
			if err != nil {
				t.Fatal(err)
			}
			if got.Run != h.Name || got.Workflow != "order" || (got.Parked == "") != (tt.parked == "") || !strings.Contains(got.Parked, tt.parked) ||
				strings.Join(got.Next, " ") != tt.next && tt.parked == "" || (got.Error == "") != (tt.err == "") || !strings.Contains(got.Error, tt.err) {
				t.Errorf("Replay returned %+v; want parked %q, next %q, error %q", got, tt.parked, tt.next, tt.err)
			}
			if n := x.count.Load() - before; n != 0 {
				t.Errorf("Replay has executed %d operations", n)
			}
		})
	}
}

// steps returns a workflow of steps, one after the other. The step wait fails until the policy has an end.
func steps(name string, list ...string) *engine.Workflow {
	var parts []engine.Part
	for i, s := range list {
		opts := []engine.StepOption{engine.Policy("fixed(1h) attempts=9")}
		if i > 0 {
			opts = append(opts, engine.After(list[i-1]))
		}
		parts = append(parts, engine.Step(s, func(context.Context, json.RawMessage) (int, error) {
			if s == "wait" {
				return 0, errors.New("not yet")
			}
			return 1, nil
		}, opts...))
	}
	w, err := engine.NewWorkflow(name, parts...)
	if err != nil {
		panic(err)
	}
	return w
}

func TestReplayOfFiles(t *testing.T) {
	t.Parallel()
	var x executed
	dir := t.TempDir()
	a, b := historyOf(t, nil, x.flow("price", "ship")), historyOf(t, nil, x.flow("price", "ship", "await"))
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, a.Data, "", "\t"); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "two.json"), pretty.String()+"\n"+string(b.Data)+"\n")
	write(t, filepath.Join(dir, "one.json"), string(b.Data))
	got := enginetest.Replay(t, enginetest.Histories(t, filepath.Join(dir, "*.json")), x.flow("price", "ship", "await", "late"))
	if len(got) != 3 || got[0].Run != b.Name || !slices.Equal(got[0].Next, []string{"await"}) {
		t.Errorf("%+v", got)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestHistoriesThatCanNotBeReplayed(t *testing.T) {
	t.Parallel()
	var x executed
	h := historyOf(t, nil, x.flow("price"))
	edit := func(key string, value any) []byte {
		var fields map[string]any
		if err := json.Unmarshal(h.Data, &fields); err != nil {
			t.Fatal(err)
		}
		fields[key] = value
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	panics := engine.MustFlow("order", func(*engine.Flow, int) (int, error) { panic("a bug") })
	blocks := engine.MustFlow("order", func(*engine.Flow, int) (int, error) { return <-make(chan int), nil })
	other := engine.MustFlow("other", func(*engine.Flow, int) (int, error) { return 1, nil })
	for name, tt := range map[string]struct {
		data []byte
		w    *engine.Workflow
		want string
	}{
		"not JSON":            {[]byte("state: dead"), x.flow("price"), "file.json: not the history of a run: invalid character"},
		"the output of show":  {[]byte(`{"id": "1", "workflow": "order"}`), x.flow("price"), "file.json: not the history of a run: it has no format or no run: write it by tideover show RUN --history"},
		"a newer format":      {edit("format", 2), x.flow("price"), "has format 2, and this version knows 1: use a newer version"},
		"another run":         {edit("run", "x"), x.flow("price"), "run x: the history is damaged: its data is that of run " + h.Name},
		"no data":             {edit("data", ""), x.flow("price"), "the history is damaged"},
		"another workflow":    {h.Data, other, "file.json: run " + h.Name + ": it is a run of workflow order, which is none of the replayed ones"},
		"a function's panic":  {h.Data, panics, "the function of order can't be replayed: panic: a bug"},
		"a blocked function":  {h.Data, blocks, "the function of order can't be replayed: it has neither called an operation nor returned for 1m"},
		"a flow made of data": {dataFlow(t), other, "workflow data is described by data, which its runs keep: there is no code to replay"},
	} {
		_, err := enginetest.History{Name: "file.json", Data: tt.data}.Replay(t, tt.w)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %s", name, err, tt.want)
		}
	}
}

// dataFlow returns the history of a run of a flow that is described by data.
func dataFlow(t *testing.T) (data []byte) {
	t.Helper()
	w, err := engine.NewWorkflow("data", engine.CallFunction("steps", "the description"))
	if err != nil {
		t.Fatal(err)
	}
	enginetest.TestConfig(t, engine.Config{Functions: map[string]engine.FlowFunc{
		"steps": func(*engine.Flow, json.RawMessage) ([]byte, error) { return nil, nil },
	}}, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1)
		if data, err = e.History(t.Context(), run.ID); err != nil {
			t.Fatal(err)
		}
	})
	if bytes.Contains(decoded(t, data), []byte("the description")) {
		t.Error("the history has the arguments of a step")
	}
	return data
}

// decoded returns the data of a history.
func decoded(t *testing.T, history []byte) []byte {
	t.Helper()
	var fields struct{ Data []byte }
	if err := json.Unmarshal(history, &fields); err != nil {
		t.Fatal(err)
	}
	return fields.Data
}

// A damaged history is an error, and nothing else.
func TestDamagedHistories(t *testing.T) {
	t.Parallel()
	var x executed
	h := historyOf(t, nil, x.flow("price", "sleep", "await"))
	random := rand.New(rand.NewPCG(1, 7))
	refused := 0
	for n := range 300 {
		text := slices.Clone(h.Data)
		data := decoded(t, text)
		switch n % 3 {
		case 0: // of the text
			text[random.IntN(len(text))] ^= 1 << random.IntN(8)
		case 1: // of the text
			text = text[:random.IntN(len(text))]
		case 2: // of the data
			damaged := slices.Clone(data)
			damaged[random.IntN(len(data))] ^= 1 << random.IntN(8)
			text = bytes.Replace(text, encoded(t, data), encoded(t, damaged), 1)
		}
		got, err := enginetest.History{Name: fmt.Sprintf("damage %d", n), Data: text}.Replay(t, x.flow("price", "sleep", "await"))
		switch {
		case err != nil:
			refused++
			if !strings.HasPrefix(err.Error(), fmt.Sprintf("damage %d: ", n)) {
				t.Errorf("damage %d: %v", n, err)
			}
		case !slices.Equal(got.Next, []string{"await"}): // for example the state, which is for people, is another one
			t.Errorf("damage %d: %+v", n, got)
		}
	}
	if refused < 200 {
		t.Errorf("%d of 300 damages were found", refused)
	}
}

func encoded(t *testing.T, data []byte) []byte {
	t.Helper()
	text, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
