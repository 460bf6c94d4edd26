package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

// The function gets the same error when it is called again, so a branch on an error is the same.
func TestFlowErrorsAreTheSameInEachCall(t *testing.T) {
	var seen [][]engine.OpError
	w := engine.MustFlow("errors", func(f *engine.Flow, _ int) (string, error) {
		var errs []engine.OpError
		note := func(err error) {
			var op *engine.OpError
			if !errors.As(err, &op) {
				t.Errorf("%v is no OpError", err)
				return
			}
			errs = append(errs, *op)
		}
		failing := func(err error) func(context.Context) (int, error) {
			return func(context.Context) (int, error) { return 0, err }
		}
		once := engine.Policy("fixed(1s) attempts=1")
		_, err := engine.Do(f, "plain", failing(fmt.Errorf("wrapped: %w", errors.New("inside"))), once)
		note(err)
		_, err = engine.Do(f, "coded", failing(engine.Coded("busy", errors.New("later"))), once, engine.ForKey("k"))
		note(err)
		_, err = engine.Do(f, "long-code", failing(engine.Coded(strings.Repeat("é", 1<<20), errors.New("later"))), once)
		note(err)
		_, err = engine.Do(f, "permanent", failing(retry.Permanent(errors.New("never"))))
		note(err)
		_, err = engine.Do(f, "unstorable", func(context.Context) (float64, error) { return math.NaN(), nil })
		note(err)
		_, err = engine.Map(f, "map", []int{1}, func(context.Context, int) (int, error) { return 0, errors.New("item") }, once)
		var m *engine.MapError
		if !errors.As(err, &m) || m.Name != "map" || len(m.Errors) != 1 {
			t.Errorf("got %v", err)
		}
		note(err)
		seen = append(seen, errs)
		return "ok", engine.Sleep(f, "long", day)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		flowRun(t, e, id)
		e.Crash()
		wantRun(t, endOfFlow(t, e, id), "succeeded", "ok")
		want := []engine.OpError{
			{Name: "plain", Code: retry.StopAttempts.String(), Text: "wrapped: inside"},
			{Name: "coded[k]", Code: "busy", Text: "later"},
			{Name: "long-code", Code: strings.Repeat("é", 64), Text: "later"},
			{Name: "permanent", Code: retry.StopPermanent.String(), Text: "never"},
			{Name: "unstorable", Code: retry.StopPermanent.String(), Text: "result of the operation: json: unsupported value: NaN"},
			{Name: "map#0", Code: retry.StopAttempts.String(), Text: "item"},
		}
		if len(seen) != 2 {
			t.Fatalf("the function was called %d times", len(seen))
		}
		for i, errs := range seen {
			if !reflect.DeepEqual(errs, want) {
				t.Errorf("call %d got\n%q, want\n%q", i, errs, want)
			}
		}
	}, w)
}

// An error of the function ends the run. A retry executes the operation again that failed, and no
// other.
func TestFlowRetryOfADeadRun(t *testing.T) {
	tests := []struct {
		name string
		end  func(error) error // makes the error of the function from that of the operation
		want int32             // executions of the failed operation
	}{
		{"the error itself", func(err error) error { return err }, 2},
		{"a wrapped error", func(err error) error { return fmt.Errorf("order: %w", err) }, 2},
		{"another error", func(error) error { return errors.New("order failed") }, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var first, second, handled atomic.Int32
			broken := true
			w := engine.MustFlow("order", func(f *engine.Flow, _ int) (string, error) {
				_, err := engine.Do(f, "handled", func(context.Context) (int, error) {
					return 0, retry.Permanent(fmt.Errorf("failure %d", handled.Add(1)))
				})
				if err == nil {
					return "", errors.New("the operation must fail")
				}
				if _, err := engine.Do(f, "first", func(context.Context) (int32, error) { return first.Add(1), nil }); err != nil {
					return "", err
				}
				_, err = engine.Do(f, "second", func(context.Context) (int32, error) {
					second.Add(1)
					if broken {
						return 0, retry.Permanent(errors.New("no stock"))
					}
					return 2, nil
				})
				if err != nil {
					return "", test.end(err)
				}
				return "ok", nil
			})
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				run := e.Run(w, 1)
				wantRun(t, run, "dead", test.end(errors.New("operation second: no stock")).Error())
				broken = false
				if err := e.Retry(t.Context(), run.ID, "me"); err != nil {
					t.Fatal(err)
				}
				run = endOfFlow(t, e, run.ID)
				wantRun(t, run, "succeeded", "ok")
				if first.Load() != 1 || handled.Load() != 1 || second.Load() != test.want {
					t.Errorf("%d, %d and %d executions", handled.Load(), first.Load(), second.Load())
				}
			}, w)
		})
	}
}

// If the operation that the function called last did not fail, a retry only calls the function.
func TestFlowRetryAfterAnErrorOfTheFunction(t *testing.T) {
	for _, crash := range []bool{false, true} {
		var failed, succeeded atomic.Int32
		broken := true
		w := engine.MustFlow("order", func(f *engine.Flow, _ int) (string, error) {
			_, _ = engine.Do(f, "fails", func(context.Context) (int, error) {
				return 0, retry.Permanent(fmt.Errorf("failure %d", failed.Add(1)))
			})
			if _, err := engine.Do(f, "succeeds", func(context.Context) (int32, error) { return succeeded.Add(1), nil }); err != nil {
				return "", err
			}
			if crash {
				if err := engine.Sleep(f, "long", day); err != nil {
					return "", err
				}
			}
			if broken {
				return "", errors.New("not yet")
			}
			return "ok", nil
		})
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			run := e.Run(w, 1)
			wantRun(t, run, "dead", "not yet")
			broken = false
			if err := e.Retry(t.Context(), run.ID, "me"); err != nil {
				t.Fatal(err)
			}
			if wantRun(t, endOfFlow(t, e, run.ID), "succeeded", "ok"); failed.Load() != 1 || succeeded.Load() != 1 {
				t.Errorf("%d and %d executions, want 1 each", failed.Load(), succeeded.Load())
			}
		}, w)
	}
}

// A retry executes all failed operations again that the error of the function wraps.
func TestFlowRetryOfSeveralFailedOperations(t *testing.T) {
	for name, combine := range map[string]func(a, b, c error) error{
		"joined":  func(a, b, c error) error { return errors.Join(a, b, c) },
		"wrapped": func(a, b, c error) error { return fmt.Errorf("order: %w, %w", a, fmt.Errorf("%w and %w", c, b)) },
	} {
		t.Run(name, func(t *testing.T) {
			var x executions
			broken := true
			w := engine.MustFlow("order", func(f *engine.Flow, _ int) (string, error) {
				op := func(name string, fails bool) (int, error) {
					x.add(name)
					if fails {
						return 0, retry.Permanent(errors.New("broken"))
					}
					return 1, nil
				}
				_, _ = engine.Do(f, "handled", func(context.Context) (int, error) { return op("handled", true) })
				_, a := engine.Do(f, "a", func(context.Context) (int, error) { return op("a", broken) })
				_, b := engine.Map(f, "b", []int{0, 1}, func(_ context.Context, i int) (int, error) { return op(fmt.Sprint("b", i), broken && i == 1) })
				_, c := engine.Do(f, "c", func(context.Context) (int, error) { return op("c", broken) })
				if a != nil || b != nil || c != nil {
					return "", combine(a, b, c)
				}
				return "ok", nil
			})
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				run := e.Run(w, 1)
				wantRun(t, run, "dead", "broken")
				broken = false
				mustDo(t, e.Retry(t.Context(), run.ID, "me"))
				wantRun(t, endOfFlow(t, e, run.ID), "succeeded", "ok")
				if want := map[string]int{"handled": 1, "a": 2, "b0": 1, "b1": 2, "c": 2}; !reflect.DeepEqual(x.n, want) {
					t.Errorf("executions: %v, want %v", x.n, want)
				}
			}, w)
		})
	}
}

func TestFlowRetryOfAFailedMap(t *testing.T) {
	var tries [4]atomic.Int32
	broken := true
	w := engine.MustFlow("map", func(f *engine.Flow, _ int) ([]int, error) {
		return engine.Map(f, "m", []int{0, 1, 2, 3}, func(_ context.Context, i int) (int, error) {
			tries[i].Add(1)
			if i == 1 && broken {
				return 0, retry.Permanent(errors.New("broken"))
			}
			return 10 * i, nil
		}, engine.Parallel(1))
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1)
		wantRun(t, run, "dead", "operation m#1: broken")
		broken = false
		if err := e.Retry(t.Context(), run.ID, "me"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, run.ID), "succeeded", "[0,10,20,30]")
		for i, want := range []int32{1, 2, 1, 1} {
			if tries[i].Load() != want {
				t.Errorf("item %d was executed %d times, want %d", i, tries[i].Load(), want)
			}
		}
	}, w)
}

// A panic follows the policy of the function.
func TestFlowPanicOfTheFunction(t *testing.T) {
	tests := []struct {
		name   string
		panics int32
		state  string
		text   string
		calls  int32
		do     func()
	}{
		{"a panic", 2, "succeeded", "ok", 3, func() { panic("boom") }},
		{"a panic each time", 9, "dead", "panic: boom", 3, func() { panic("boom") }},
		{"Goexit", 2, "succeeded", "ok", 3, runtime.Goexit},
		{"Goexit each time", 9, "dead", "the function ended its goroutine (runtime.Goexit)", 3, runtime.Goexit},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var calls, priced atomic.Int32
			w := engine.MustFlow("panics", func(f *engine.Flow, _ int) (string, error) {
				if _, err := engine.Do(f, "price", func(context.Context) (int32, error) { return priced.Add(1), nil }); err != nil {
					return "", err
				}
				if calls.Add(1) <= test.panics {
					test.do()
				}
				return "ok", nil
			}, engine.Function(engine.Policy("fixed(1m) attempts=3")))
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				begin := time.Now()
				run := e.Run(w, 1)
				wantRun(t, run, test.state, test.text)
				if calls.Load() != test.calls || priced.Load() != 1 || time.Since(begin) < 2*time.Minute {
					t.Errorf("%d calls and %d prices in %v", calls.Load(), priced.Load(), time.Since(begin))
				}
			}, w)
		})
	}
}

// Panics and Goexit of an operation follow the policy of the operation.
func TestFlowPanicOfAnOperation(t *testing.T) {
	var tries atomic.Int32
	var got *engine.OpError
	w := engine.MustFlow("panics", func(f *engine.Flow, _ int) (string, error) {
		_, err := engine.Do(f, "op", func(context.Context) (int, error) {
			if tries.Add(1) == 1 {
				runtime.Goexit()
			}
			panic("boom")
		}, engine.Policy("fixed(1m) attempts=3"))
		if !errors.As(err, &got) {
			t.Errorf("got %v", err)
		}
		return "ok", nil
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1)
		if wantRun(t, run, "succeeded", "ok"); tries.Load() != 3 || !strings.HasPrefix(got.Text, "panic: boom\n") {
			t.Errorf("%d tries, the error is %q", tries.Load(), got.Text)
		}
		if a := operations(run, "do", "op")[0].Attempts; len(a) != 3 || a[0].Error != "the handler ended its goroutine (runtime.Goexit)" {
			t.Errorf("the attempts are %+v", a)
		}
	}, w)
}

func TestFlowInputsAndOutputs(t *testing.T) {
	type in struct{ N int }
	nan := engine.MustFlow("nan", func(*engine.Flow, in) (float64, error) { return math.NaN(), nil })
	large := engine.MustFlow("large", func(*engine.Flow, in) (string, error) { return strings.Repeat("x", 300<<10), nil })
	number := engine.MustFlow("number", func(f *engine.Flow, n int) (int, error) { return n, engine.Sleep(f, "long", day) })
	text := engine.MustFlow("number", func(_ *engine.Flow, n string) (string, error) { return n, nil })
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		wantRun(t, e.Run(nan, in{1}), "dead", "output of the function: json: unsupported value: NaN")
		wantRun(t, e.Run(large, in{1}), "dead", "output of the function: 307202 bytes, at most 262144 can be stored")
		if _, err := e.Start(t.Context(), nan, json.RawMessage(`{"N":"x"}`)); !errors.Is(err, engine.ErrInput) {
			t.Errorf("Start = %v", err)
		}

		// Code with another type of the input: before the first operation the run is dead, after it
		// the run waits for code that fits.
		later := startFlow(t, e, number, 1, engine.In(time.Hour))
		asleep := startFlow(t, e, number, 1)
		flowRun(t, e, asleep)
		if err := e.Register(text); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * day)
		wantRun(t, flowRun(t, e, later), "dead", "input of the run: json: cannot unmarshal number")
		run := flowRun(t, e, asleep)
		wantRun(t, run, engine.StateNeedsHandler, `a stored operation "long"`)
		wantRun(t, run, engine.StateNeedsHandler, "the function returned the error: input of the run: json: cannot unmarshal number")
		if err := e.Register(number); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, asleep), "succeeded", "1")
	}, nan, large, number)
}

// Snooze, Limited, Keep, SaveProgress and heartbeats work in operations as in steps.
func TestFlowOperationsAreLikeSteps(t *testing.T) {
	var tries atomic.Int32
	var tasks []engine.Task
	op := func(attempt func(ctx context.Context, n int32) error, opts ...engine.DoOption) *engine.Workflow {
		return engine.MustFlow("like", func(f *engine.Flow, _ int) (string, error) {
			return engine.Do(f, "op", func(ctx context.Context) (string, error) {
				task, _ := engine.TaskOf(ctx)
				tasks = append(tasks, *task)
				return "ok", attempt(ctx, tries.Add(1))
			}, append(opts, engine.ForKey("k"))...)
		})
	}
	first := func(n int32, err error) error {
		if n == 1 {
			return err
		}
		return nil
	}
	tests := []struct {
		name     string
		w        *engine.Workflow
		state    string
		text     string
		outcomes string
		time     time.Duration
		progress string // of the second attempt
	}{
		{"Snooze does not count", op(func(_ context.Context, n int32) error { return first(n, engine.Snooze(time.Hour, "later")) },
			engine.Policy("fixed(1s) attempts=1")), "succeeded", "ok", "snoozed succeeded", time.Hour, ""},
		{"Limited uses a window", op(func(context.Context, int32) error { return engine.LimitedFor(time.Minute, "quota") },
			engine.MaxWindows(2)), "dead", "operation op[k]: quota", "limited limited failed", 2 * time.Minute, ""},
		{"Keep", op(func(_ context.Context, n int32) error { return first(n, engine.Keep(errors.New("no"), 7)) },
			engine.Policy("fixed(1h) attempts=2")), "succeeded", "ok", "failed succeeded", time.Hour, "7"},
		{"SaveProgress", op(func(ctx context.Context, n int32) error {
			if err := engine.SaveProgress(ctx, int(n)); err != nil {
				return err
			}
			return first(n, errors.New("no"))
		}, engine.Policy("fixed(1h) attempts=2")), "succeeded", "ok", "failed succeeded", time.Hour, "1"},
		{"Permanent", op(func(context.Context, int32) error { return retry.Permanent(errors.New("no")) },
			engine.Policy("fixed(1h) attempts=9")), "dead", "operation op[k]: no", "failed", 0, ""},
		{"a heartbeat timeout", op(func(ctx context.Context, n int32) error {
			if n > 1 {
				return nil
			}
			if err := engine.Heartbeat(ctx); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, engine.HeartbeatTimeout(time.Minute), engine.Policy("fixed(1h) attempts=2")), "succeeded", "ok", "failed succeeded", time.Hour + time.Minute, ""},
		{"an attempt timeout", op(func(ctx context.Context, n int32) error {
			if n > 1 {
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, engine.Policy("fixed(1h) attempts=2 attempt-timeout=1m")), "succeeded", "ok", "failed succeeded", time.Hour + time.Minute, ""},
		{"a total timeout", op(func(context.Context, int32) error { return errors.New("no") },
			engine.Policy("fixed(1h) attempts=9 total-timeout=90m")), "dead", "operation op[k]: no", "failed failed", time.Hour, ""},
		{"a policy as a value", op(func(context.Context, int32) error { return errors.New("no") },
			engine.WithPolicy(retry.Must("fixed(1h) attempts=2").Policy())), "dead", "operation op[k]: no", "failed failed", time.Hour, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tries.Store(0)
			tasks = nil
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				begin := time.Now()
				run := e.Run(test.w, 1, engine.Key("order-1"))
				wantRun(t, run, test.state, test.text)
				if got := outcomesOf(run, "do", "op[k]"); got != test.outcomes || time.Since(begin) < test.time || time.Since(begin) > test.time+30*time.Second {
					t.Errorf("attempts %q in %v, want %q in %v", got, time.Since(begin), test.outcomes, test.time)
				}
				task := tasks[0]
				if task.Step != "op[k]" || task.Run != run.ID || task.Workflow != "like" || task.Key != "order-1" || task.Attempt != 1 || task.Origin != run.ID {
					t.Errorf("the task is %+v", task)
				}
				if len(tasks) > 1 && string(tasks[1].Progress) != test.progress {
					t.Errorf("the second attempt got the progress %s, want %s", tasks[1].Progress, test.progress)
				}
			}, test.w)
		})
	}
}

// The function calls a fixed number of operations. Each of them has its own policy, timeouts and
// attempts, and the run's history shows them like steps.
func TestFlowInfo(t *testing.T) {
	w := engine.MustFlow("info", func(f *engine.Flow, _ int) (string, error) {
		if _, err := engine.Now(f, "begin"); err != nil {
			return "", err
		}
		if _, err := engine.Random(f, "dice"); err != nil {
			return "", err
		}
		engine.SetStatus(f, "packing")
		if _, err := engine.Map(f, "pack", []string{"a", "b"}, func(_ context.Context, s string) (string, error) { return s + s, nil }); err != nil {
			return "", err
		}
		if err := engine.Sleep(f, "rest", time.Hour); err != nil {
			return "", err
		}
		engine.SetStatus(f, "packed")
		return f.Run() + f.Version(), nil
	}, engine.Function(engine.Version("v7")))
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		run := flowRun(t, e, id)
		if run.State != "waiting" || run.Step != "rest" || run.Status != "packing" || run.Version != "v7" || run.Next == nil || time.Until(*run.Next) != time.Hour {
			t.Errorf("the waiting run is %+v", run)
		}
		run = endOfFlow(t, e, id)
		if wantRun(t, run, "succeeded", id+"v7"); run.Status != "packed" || run.Attempts != 2 {
			t.Errorf("status %q, %d attempts", run.Status, run.Attempts)
		}
		var got []string
		for _, s := range run.Steps {
			got = append(got, fmt.Sprintf("%s %s %s", s.Kind, s.Name, s.Status))
		}
		want := "function function succeeded, now begin succeeded, random dice succeeded, map pack succeeded, " +
			"item pack#0 succeeded, item pack#1 succeeded, sleep rest succeeded"
		if strings.Join(got, ", ") != want {
			t.Errorf("the steps are\n%s, want\n%s", strings.Join(got, ", "), want)
		}
		if out := operations(run, "item", "pack#1")[0].Output; string(out) != `"bb"` {
			t.Errorf("the output of an item is %s", out)
		}
	}, w)
}

// The events of operations have their names.
func TestFlowEvents(t *testing.T) {
	var tries atomic.Int32
	w := engine.MustFlow("events", func(f *engine.Flow, _ int) (string, error) {
		_, err := engine.Do(f, "op", func(context.Context) (int32, error) {
			if n := tries.Add(1); n > 1 {
				return n, nil
			}
			return 0, errors.New("no")
		}, engine.ForKey("k"), engine.Policy("fixed(1h) attempts=2"))
		if err != nil {
			return "", err
		}
		_, _ = engine.Do(f, "broken", func(context.Context) (int, error) { return 0, retry.Permanent(errors.New("no")) })
		_, err = engine.Map(f, "m", []int{1}, func(context.Context, int) (int, error) { return 1, nil })
		return "ok", errors.Join(err, engine.Sleep(f, "s", time.Hour))
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		events := e.Events(t.Context(), engine.NewEvents)
		wantRun(t, e.Run(w, 1), "succeeded", "ok")
		var got []string
		for ev := range events {
			if ev.Step != "function" {
				got = append(got, fmt.Sprint(ev.Step, " ", ev.Kind))
			}
			if ev.Step == "" && ev.Kind == retry.Succeeded {
				break
			}
		}
		want := " run-started, op[k] attempt-started, op[k] attempt-failed, op[k] waiting, op[k] attempt-started, op[k] succeeded, " +
			"broken attempt-started, broken attempt-failed, broken gave-up, m#0 attempt-started, m#0 succeeded, s succeeded,  succeeded"
		if strings.Join(got, ", ") != want {
			t.Errorf("the events are\n%s, want\n%s", strings.Join(got, ", "), want)
		}
	}, w)
}

// A dead run of a flow starts its follow-up run, which gets the results of the operations.
func TestFlowOnGiveUp(t *testing.T) {
	inputs := make(chan engine.GaveUp, 9)
	report := engine.MustFlow("report", func(_ *engine.Flow, in engine.GaveUp) (int, error) {
		inputs <- in
		return 0, nil
	})
	w := engine.MustFlow("order", func(f *engine.Flow, _ int) (string, error) {
		if _, err := engine.Do(f, "price", value(7)); err != nil {
			return "", err
		}
		return "", failingOp(f, "pay", errors.New("no money"))
	}, engine.OnGiveUp(report))
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 4711, engine.Key("k"))
		time.Sleep(time.Minute)
		wantRun(t, run, "dead", "operation pay: no money")
		got := []engine.GaveUp{<-inputs}
		if len(inputs) > 0 || got[0].Run != run.ID || got[0].Key != "k" || got[0].Step != "pay" || got[0].Error != "operation pay: no money" ||
			string(got[0].Input) != "4711" || fmt.Sprintf("%s", got[0].Outputs) != "map[price:7]" {
			t.Errorf("the follow-up run got %+v", got)
		}
		if run.Step != "pay" || run.Err() == nil || !errors.Is(run.Err(), engine.ErrDead) {
			t.Errorf("step %q, %v", run.Step, run.Err())
		}
	}, w, report)
}

// failingOp calls an operation that fails for good.
func failingOp(f *engine.Flow, name string, err error) error {
	_, err = engine.Do(f, name, func(context.Context) (int, error) { return 0, retry.Permanent(err) })
	return err
}
