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
	"time"

	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

// callLog notes which steps were called, and fails those whose argument says so.
type callLog struct {
	mu    sync.Mutex
	calls []string
}

func (l *callLog) handle(_ context.Context, t *Task) ([]byte, error) {
	l.mu.Lock()
	l.calls = append(l.calls, t.Step)
	l.mu.Unlock()
	var work string
	if err := json.Unmarshal(t.Args, &work); err != nil {
		return nil, retry.Permanent(err)
	}
	if work == "wrong" {
		return nil, retry.Permanent(errors.New("no such command"))
	}
	results := []string{work}
	for _, step := range t.Before() {
		out, err := t.Output(step)
		if err != nil {
			return nil, retry.Permanent(err)
		}
		var before string
		if err := json.Unmarshal(out, &before); err != nil {
			return nil, retry.Permanent(err)
		}
		results = append(results, before)
	}
	return json.Marshal(strings.Join(results, "-"))
}

// take returns which steps were called since the last time, in the order of their names.
func (l *callLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.calls)
	text := strings.Join(l.calls, " ")
	l.calls = nil
	return text
}

// callStep is a step of these tests.
func callStep(name, work string, after ...string) Part {
	return Call(name, "work", work, After(after...), Policy("fixed(1s) attempts=1"))
}

// shop is a workflow whose last step is wrong: stock and pay succeed, and ship fails.
func shop() []Part {
	return []Part{callStep("stock", "s1"), callStep("pay", "p1", "stock"), callStep("print", "l1", "stock"), callStep("ship", "wrong", "pay", "print")}
}

func TestRetryLatestKeepsTheResultsOfStepsThatAreTheSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		now    []Part
		how    Latest
		calls  string // that the new run makes
		output string
		fails  string
	}{
		{"the step that failed was repaired",
			[]Part{callStep("stock", "s1"), callStep("pay", "p1", "stock"), callStep("print", "l1", "stock"), callStep("ship", "x2", "pay", "print")},
			Latest{}, "ship", "x2-s1-p1-s1-l1-s1", ""},
		{"other policies and another order are no change",
			[]Part{Call("print", "work", "l1", After("stock"), Policy("fixed(9s) attempts=7"), MaxLost(9)), callStep("ship", "x2", "print", "pay"), callStep("pay", "p1", "stock"), callStep("stock", "s1")},
			Latest{}, "ship", "x2-l1-s1-p1-s1-s1", ""},
		{"a step that changed runs again, and those after it",
			[]Part{callStep("stock", "s1"), callStep("pay", "p1", "stock"), callStep("print", "l2", "stock"), callStep("ship", "x2", "pay", "print")},
			Latest{}, "print ship", "x2-s1-p1-s1-l2-s1", ""},
		{"the first step changed",
			[]Part{callStep("stock", "s2"), callStep("pay", "p1", "stock"), callStep("print", "l1", "stock"), callStep("ship", "x2", "pay", "print")},
			Latest{}, "pay print ship stock", "x2-s2-p1-s2-l1-s2", ""},
		{"a new step comes between",
			[]Part{callStep("stock", "s1"), callStep("check", "c1", "stock"), callStep("pay", "p1", "check"), callStep("print", "l1", "stock"), callStep("ship", "x2", "pay", "print")},
			Latest{}, "check pay ship", "", ""},
		{"the step that failed has another name",
			[]Part{callStep("stock", "s1"), callStep("pay", "p1", "stock"), callStep("print", "l1", "stock"), callStep("send", "x2", "pay", "print")},
			Latest{}, "send", "x2-s1-p1-s1-l1-s1", ""},
		{"a step that succeeded has another name",
			[]Part{callStep("stock", "s1"), callStep("charge", "p1", "stock"), callStep("print", "l1", "stock"), callStep("ship", "x2", "charge", "print")},
			Latest{}, "", "", `step pay of run RUN succeeded, and workflow "shop" has no such step now; it may have been renamed or removed: name the step to begin with`},
		{"steps that succeeded were removed",
			[]Part{callStep("stock", "s1"), callStep("ship", "x2", "stock")},
			Latest{}, "", "", `steps pay, print of run RUN succeeded, and workflow "shop" has no such steps now`},
		{"a step that succeeded has another name, and the caller decides",
			[]Part{callStep("stock", "s1"), callStep("charge", "p1", "stock"), callStep("print", "l1", "stock"), callStep("ship", "x2", "charge", "print")},
			Latest{From: "charge"}, "charge ship", "x2-s1-p1-s1-l1-s1", ""},
		{"a step without a result comes before the one to begin with",
			[]Part{callStep("stock", "s1"), callStep("charge", "p1", "stock"), callStep("print", "l1", "stock"), callStep("ship", "x2", "charge", "print")},
			Latest{From: "ship"}, "", "", "step ship needs step charge, which run RUN has not completed: begin with charge"},
		{"steps were removed, and the caller decides",
			[]Part{callStep("stock", "s2"), callStep("ship", "x2", "stock")},
			Latest{From: "ship"}, "ship", "x2-s1", ""}, // the result before the change is kept
		{"an unknown step to begin with", shop(), Latest{From: "fly"}, "", "", `workflow "shop" has no step "fly"; known steps: stock, pay, print, ship`},
		{"nothing is left to run",
			[]Part{callStep("stock", "s1"), callStep("pay", "p1", "stock"), callStep("print", "l1", "stock")},
			Latest{}, "", "", "run RUN has a result of every step of workflow \"shop\", and nothing is left to run"},
		{"another input changes all results",
			[]Part{callStep("stock", "s1"), callStep("pay", "p1", "stock"), callStep("print", "l1", "stock"), callStep("ship", "x2", "pay", "print")},
			Latest{Input: json.RawMessage(`{"id": 2}`)}, "pay print ship stock", "x2-s1-p1-s1-l1-s1", ""},
		{"a step and an input", shop(), Latest{From: "ship", Input: json.RawMessage(`{}`)}, "", "", "can't be combined"},
	} {
		for _, snapshotAfter := range []int64{0, 1} {
			t.Run(fmt.Sprintf("%s/%d", c.name, snapshotAfter), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var log callLog
					store := new(memlog.Store)
					open := func(parts []Part) (*Engine, *Workflow) {
						w := must(NewWorkflow("shop", parts...))
						return must(Open(t.Context(), Config{
							Log: store.Open(), Workflows: []*Workflow{w}, Handlers: map[string]Handler{"work": log.handle}, Logger: quiet(), snapshotAfter: snapshotAfter,
						})), w
					}
					e, w := open(shop())
					first := started(t, e, w, map[string]int{"id": 1}, Key("order-1"))
					if i := waited(t, first); i.State != StateDead || log.take() != "pay print ship stock" {
						t.Fatalf("the first run is %s", i.State)
					}
					synctest.Wait()
					if err := e.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
					e, _ = open(c.now)
					next, err := e.RetryLatest(t.Context(), first.ID, c.how, "me")
					if c.fails != "" {
						if want := strings.ReplaceAll(c.fails, "RUN", first.ID); err == nil || !strings.Contains(err.Error(), want) {
							t.Errorf("the error is %v, want %s", err, want)
						}
						if i := must(e.Get(t.Context(), first.ID)); i.State != StateDead {
							t.Errorf("the run is %s after a refusal", i.State)
						}
						_ = e.Close(t.Context())
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					waited(t, next)
					synctest.Wait()
					if err := e.Close(t.Context()); err != nil { // what is stored is the same
						t.Fatal(err)
					}
					e, _ = open(c.now)
					defer func() { _ = e.Close(context.Background()) }()
					i := must(e.Get(t.Context(), next.ID))
					if calls := log.take(); i.State != StateSucceeded || calls != c.calls {
						t.Errorf("the new run is %s (%s) after calls of %q, want %q", i.State, i.Error, calls, c.calls)
					}
					if want := `"` + c.output + `"`; c.output != "" && string(i.Output) != want {
						t.Errorf("the output is %s, want %s", i.Output, want)
					}
					if i.ReplayOf != first.ID || i.Origin != first.ID || i.OriginKey != "order-1" || i.Source != "me" {
						t.Errorf("the new run is of %s, with the origin %s %q, by %s", i.ReplayOf, i.Origin, i.OriginKey, i.Source)
					}
					if old := must(e.Get(t.Context(), first.ID)); old.State != StateReplaced || old.ReplacedBy != next.ID {
						t.Errorf("the first run is %s by %s, want replaced by %s", old.State, old.ReplacedBy, next.ID)
					}
					if _, err := e.RetryLatest(t.Context(), first.ID, Latest{From: "stock"}, "me"); !errors.Is(err, ErrState) {
						t.Errorf("a replaced run was continued again: %v", err)
					}
				})
			})
		}
	}
}

// TestRetryLatestOfGoFunctions tells versions of a function apart, fills in the input,
// and checks that the steps can read it.
func TestRetryLatestOfGoFunctions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type input struct{ ID, Size int }
		calls := 0
		first := func(_ context.Context, in input) (int, error) { calls++; return in.Size, nil }
		broken := must(NewWorkflow("go", Step("first", first, Version("1")),
			Step("second", func(context.Context, input) (int, error) { return 0, retry.Permanent(errors.New("a mistake")) }, After("first"), Version("1"))))
		e := opened(t, Config{Workflows: []*Workflow{broken}})
		run := started(t, e, broken, map[string]int{"ID": 1})
		waited(t, run)
		second := Step("second", func(ctx context.Context, in input) (int, error) {
			before, err := Result[int](ctx, "first")
			return 10*in.Size + before, err
		}, After("first"), Version("2"))
		fill := PrepareInput(func(given json.RawMessage, _ time.Time) (json.RawMessage, error) {
			all := map[string]int{"Size": 3}
			err := json.Unmarshal(given, &all)
			return must(json.Marshal(all)), err
		})

		type other struct{ ID string }
		if err := e.Register(must(NewWorkflow("go", Step("first", func(context.Context, other) (int, error) { return 0, nil })))); err != nil {
			t.Fatal(err)
		}
		if _, err := e.RetryLatest(t.Context(), run.ID, Latest{}, "me"); err == nil || !strings.Contains(err.Error(), "input: json: cannot unmarshal number") {
			t.Errorf("steps that can't read the input: %v", err)
		}
		if err := e.Register(must(NewWorkflow("go", fill, Step("first", first, Version("1")), second))); err != nil {
			t.Fatal(err)
		}
		next := must(e.RetryLatest(t.Context(), run.ID, Latest{}, "me"))
		if i := waited(t, next); i.State != StateSucceeded || string(i.Output) != "30" || calls != 1 || !workflow.SameJSON(i.Input, []byte(`{"ID": 1, "Size": 3}`)) {
			t.Errorf("the run is %s: %s, with the input %s, after %d calls of the first step", i.State, i.Output, i.Input, calls)
		}
		if err := e.Register(must(NewWorkflow("go", fill, Step("first", first, Version("2")), second))); err != nil {
			t.Fatal(err)
		}
		next = must(e.RetryLatest(t.Context(), next.ID, Latest{}, "me")) // of one that succeeded
		if i := waited(t, next); string(i.Output) != "33" || calls != 2 {
			t.Errorf("the run is %s: %s, after %d calls of the first step", i.State, i.Output, calls)
		}
		if err := e.Replace(nil); err != nil {
			t.Fatal(err)
		}
		if _, err := e.RetryLatest(t.Context(), next.ID, Latest{}, "me"); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), `workflow "go" of run`) {
			t.Errorf("a workflow that is gone: %v", err)
		}
	})
}

// TestReplayPreparesAndChecksTheInput has another input of a run treated like that of a
// start: defaults are filled in, and a type that steps can't read is refused.
func TestReplayPreparesAndChecksTheInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type input struct {
			ID   int
			Size string
			Day  string
		}
		w := must(NewWorkflow("order",
			PrepareInput(func(given json.RawMessage, at time.Time) (json.RawMessage, error) {
				all := map[string]any{"Size": "large", "Day": at.Format(time.DateOnly)}
				err := json.Unmarshal(given, &all)
				return must(json.Marshal(all)), err
			}),
			Step("do", func(_ context.Context, in input) (input, error) {
				if in.ID == 0 {
					return in, retry.Permanent(errors.New("no id"))
				}
				return in, nil
			})))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		run := started(t, e, w, json.RawMessage(`{}`), Key("schedule/nightly/2000-01-02T03:04:05Z"))
		waited(t, run)
		for input, want := range map[string]string{`{"ID": "x"}`: "replay: input: json: cannot unmarshal string", `{"ID":`: "replay: input: not JSON", `7`: "cannot unmarshal"} {
			if _, err := e.Replay(t.Context(), run.ID, json.RawMessage(input), "me"); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the input %s: %v, want %s", input, err, want)
			}
		}
		next := must(e.Replay(t.Context(), run.ID, json.RawMessage(`{"ID": 7}`), "me"))
		if i := waited(t, next); string(i.Output) != `{"ID":7,"Size":"large","Day":"2000-01-02"}` {
			t.Errorf("the run is %s: %s %s", i.State, i.Output, i.Error)
		}
	})
}

// TestRetryLatestInACluster continues runs that another process owns, which does not
// have the current definition itself.
func TestRetryLatestInACluster(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		var log callLog
		handlers := map[string]Handler{"work": log.handle}
		old := must(NewWorkflow("shop", shop()...))
		now := must(NewWorkflow("shop", callStep("stock", "s1"), callStep("pay", "p1", "stock"), callStep("print", "l1", "stock"), callStep("ship", "x2", "pay", "print")))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{old}, Handlers: handlers})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{now}, Handlers: handlers})
		settled(t, a, b)
		for n := range 8 { // in shards of both
			first := started(t, a.Engine, old, n, Key(fmt.Sprint("order-", n)))
			must(b.Wait(t.Context(), first.ID))
			if calls := log.take(); calls != "pay print ship stock" {
				t.Errorf("the first run called %s", calls)
			}
			results := make(chan error, 2)
			var next Started
			for range 2 { // of two at once, one is refused
				go func() {
					started, err := b.RetryLatest(t.Context(), first.ID, Latest{}, "me")
					if err == nil {
						next = started
					}
					results <- err
				}()
			}
			if one, other := <-results, <-results; (one == nil) == (other == nil) || !errors.Is(errors.Join(one, other), ErrState) {
				t.Fatalf("two at once: %v and %v", one, other)
			}
			if i := must(a.Wait(t.Context(), next.ID)); i.State != StateSucceeded || i.OriginKey != fmt.Sprint("order-", n) || log.take() != "ship" {
				t.Errorf("the run is %s: %s", i.State, i.Error)
			}
		}
	})
}

// TestRetryLatestComparesArgumentsByTheFunction leaves the decision to the program.
func TestRetryLatestComparesArgumentsByTheFunction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log callLog
		w := must(NewWorkflow("shop", shop()...))
		e := opened(t, Config{Workflows: []*Workflow{w}, Handlers: map[string]Handler{"work": log.handle}})
		run := started(t, e, w, 1)
		waited(t, run)
		log.take()
		same := func(before, now json.RawMessage) bool { return before[1] == now[1] } // the letter, without the number
		now := must(NewWorkflow("shop", CompareArgs(same), callStep("stock", "s2"), callStep("pay", "p2", "stock"), callStep("print", "x2", "stock"), callStep("ship", "x2", "pay", "print")))
		if err := e.Register(now); err != nil {
			t.Fatal(err)
		}
		if i := waited(t, must(e.RetryLatest(t.Context(), run.ID, Latest{}, "me"))); i.State != StateSucceeded || log.take() != "print ship" {
			t.Errorf("the run is %s: %s", i.State, i.Error)
		}
	})
}
