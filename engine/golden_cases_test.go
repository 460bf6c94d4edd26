package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// goldenCases are the commands of TestStoredBytesStayTheSame.
var goldenCases = []goldenCase{
	{name: "steps", workflows: goldenSteps, run: runGoldenSteps},
	{name: "repeat", workflows: goldenSteps, run: runGoldenRepeats},
	{name: "flow", workflows: goldenFlows, run: runGoldenFlows},
	{name: "signals", workflows: goldenSignals, run: runGoldenSignals},
	{name: "children", workflows: goldenChildren, run: runGoldenChildren, unordered: true},
	{name: "undo", workflows: goldenUndos, run: runGoldenUndos},
	{name: "pauses", workflows: goldenPauses, run: runGoldenPauses},
	{name: "schedules", workflows: goldenSteps, run: runGoldenSchedules},
	{name: "follow-ups", workflows: goldenFollowUps, run: runGoldenFollowUps},
	{name: "limits", config: engine.Config{Concurrency: 3}, workflows: goldenLimits, run: runGoldenLimits},
	{name: "lost", workflows: goldenLost, run: runGoldenLost},
	{name: "retention", config: engine.Config{Retention: 2 * time.Hour, DeadRetention: 5 * time.Hour}, workflows: goldenSteps, run: runGoldenRetention},
	{name: "handlers", workflows: goldenPauses, run: runGoldenHandlers, unordered: true},
}

var errBusy = errors.New("the service is busy")

// work takes a time, or ends with the context. real clock: it is called in a bubble.
func work(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// attempts returns the number of the attempt among all attempts of the step.
func attempts(ctx context.Context) int {
	task, _ := engine.TaskOf(ctx)
	return task.Total
}

// after returns an operation that takes a time and returns a value.
func after[T any](d time.Duration, v T) func(context.Context) (T, error) {
	return func(ctx context.Context) (T, error) { return v, work(ctx, d) }
}

// failing returns an operation that fails for good.
func failing(ctx context.Context) (string, error) {
	return "", errors.Join(work(ctx, 20*time.Millisecond), retry.Permanent(errors.New("out of stock")))
}

const ms = time.Millisecond

func goldenSteps() []*engine.Workflow {
	order := must(engine.NewWorkflow("order",
		engine.Step("charge", func(ctx context.Context, in string) (string, error) {
			if err := work(ctx, 30*ms); err != nil {
				return "", err
			}
			if n := attempts(ctx); n < 3 {
				return "", engine.Keep(errBusy, fmt.Sprint("memo ", n))
			}
			return "charged " + in, nil
		}, engine.Policy("exponential(1s..1m) jitter=full attempts=5")),
		engine.Step("pack", func(ctx context.Context, in string) (string, error) {
			if err := work(ctx, 50*ms); err != nil {
				return "", err
			}
			if err := engine.SaveProgress(ctx, map[string]int{"packed": attempts(ctx)}); err != nil {
				return "", err
			}
			switch attempts(ctx) {
			case 1:
				return "", engine.Snooze(7*time.Second, "the box is missing")
			case 2:
				return "", engine.LimitedFor(11*time.Second, "the quota is used")
			case 3:
				return "", engine.SnoozeUntil(time.Now().Add(13*time.Second), "the shift begins")
			}
			if in == "bad" && attempts(ctx) < 6 {
				return "", retry.Permanent(engine.Coded("broken", errors.New("the item is broken")))
			}
			return engine.Result[string](ctx, "charge")
		}, engine.After("charge"), engine.MaxWindows(2), engine.Policy("fixed(2s) attempts=2")),
		engine.Step("label", func(ctx context.Context, in string) (int, error) { return len(in), work(ctx, 300*ms) }, engine.After("pack")),
		engine.Step("ship", func(ctx context.Context, _ string) (string, error) {
			packed, err := engine.Result[string](ctx, "pack")
			return packed + " and shipped", errors.Join(err, work(ctx, 40*ms))
		}, engine.After("pack", "label"), engine.Version("2"))))
	slow := must(engine.NewWorkflow("slow",
		engine.Step("work", func(ctx context.Context, d time.Duration) (string, error) { return "worked", work(ctx, d) },
			engine.Policy("fixed(1s) attempts=3 attempt-timeout=90s"), engine.HeartbeatTimeout(45*time.Second)),
	))
	return []*engine.Workflow{order, slow}
}

func runGoldenSteps(e *goldenEngine) {
	ctx := e.t.Context()
	good := e.start("order", "4711", engine.Key("order 4711"), engine.Source("shop"))
	e.wait(good, engine.StateSucceeded)
	same := e.start("order", "4712", engine.Key("order 4711"))
	if same != good {
		e.t.Errorf("the key belongs to run %s, want %s", same, good)
	}
	bad := e.start("order", "bad")
	e.wait(bad, engine.StateDead)
	e.check(e.Retry(ctx, bad, "ann"))
	e.wait(bad, engine.StateDead)
	e.check(e.Retry(ctx, bad, "ann"))
	e.wait(bad, engine.StateSucceeded)

	later := e.start("order", "later", engine.At(time.Now().Add(3*time.Hour)))
	delayed := e.start("order", "delayed", engine.In(90*time.Minute+123*ms))
	e.elapse(100 * ms)
	e.check(e.Wake(ctx, later, "ben"))
	e.elapse(40 * ms)
	e.check(e.Postpone(ctx, later, time.Now().Add(2*time.Minute), "ben"))
	e.elapse(2*time.Minute + 700*ms)
	e.check(e.Reset(ctx, later, "ben"))
	e.elapse(3 * time.Second)
	e.check(e.Cancel(ctx, later, "ben"))
	e.wants(later, engine.StateCanceled)
	e.wait(delayed, engine.StateSucceeded)

	timed := e.start("slow", time.Hour, engine.RunTimeout(20*time.Second))
	e.wait(timed, engine.StateDead)
	silent := e.start("slow", time.Hour)
	e.elapse(50 * time.Second)
	e.check(e.Postpone(ctx, silent, time.Now().Add(time.Minute), ""))
	e.elapse(10 * time.Second)
	e.check(e.Cancel(ctx, silent, "ben"))
	e.check(e.Cancel(ctx, timed, "ben"))
	e.wants(timed, engine.StateCanceled)
}

func runGoldenRepeats(e *goldenEngine) {
	ctx := e.t.Context()
	good := e.start("order", "good", engine.Key("k"))
	e.wait(good, engine.StateSucceeded)
	bad := e.start("order", "bad")
	e.wait(bad, engine.StateDead)
	s, err := e.Replay(ctx, bad, json.RawMessage(`"mended"`), "ann")
	e.check(err)
	e.wait(s.ID, engine.StateSucceeded)
	s, err = e.Rerun(ctx, engine.RerunRequest{Run: good, Step: "pack", By: "ann"})
	e.check(err)
	e.wait(s.ID, engine.StateSucceeded)
	bad = e.start("order", "bad")
	e.wait(bad, engine.StateDead)
	s, err = e.RetryLatest(ctx, bad, engine.Latest{}, "ben")
	e.check(err)
	e.wait(s.ID, engine.StateDead)
	s, err = e.RetryLatest(ctx, s.ID, engine.Latest{From: "pack"}, "ben")
	e.check(err)
	e.elapse(time.Hour)
}

// goldenFlows returns flows with each kind of operation that has no other case.
func goldenFlows() []*engine.Workflow {
	trip := engine.MustFlow("trip", func(f *engine.Flow, in string) (string, error) {
		engine.SetStatus(f, "booking")
		if err := engine.SetTag(f, "customer", in); err != nil {
			return "", err
		}
		hotel, err := engine.Do(f, "hotel", func(ctx context.Context) (string, error) {
			if err := work(ctx, 20*ms); err != nil {
				return "", err
			}
			if attempts(ctx) < 3 {
				return "", errBusy
			}
			return "hotel of " + in, nil
		}, engine.Policy("exponential(2s..1m) jitter=full attempts=4"))
		if err != nil {
			return "", err
		}
		if err := engine.Sleep(f, "night", 8*time.Hour); err != nil {
			return "", err
		}
		if _, err := engine.Now(f, "morning"); err != nil {
			return "", err
		}
		seats, err := engine.Map(f, "seats", []int{5, 3, 1, 4, 2}, func(ctx context.Context, n int) (string, error) {
			return fmt.Sprint("seat ", n), work(ctx, time.Duration(n)*17*ms)
		}, engine.Parallel(2))
		if err != nil {
			return "", err
		}
		found, err := engine.Collect(f, "extras", []string{"bike", "boat"}, func(ctx context.Context, what string) (string, error) {
			if what == "boat" {
				return failing(ctx)
			}
			return what, work(ctx, 90*ms)
		})
		if err != nil || found[1].Err == nil {
			return "", fmt.Errorf("extras: %v, %w", found, err)
		}
		if err := engine.Skip(f, "insurance"); err != nil {
			return "", err
		}
		total := 0
		err = engine.Branches(f,
			engine.Branch("food", func(f *engine.Flow) error {
				for i := range 3 {
					n, err := engine.Do(f, "meal", after(70*ms, i), engine.ForKey(fmt.Sprint("meal ", i)))
					if err != nil {
						return err
					}
					total += n
				}
				return nil
			}),
			engine.Branch("drinks", func(f *engine.Flow) error {
				if err := engine.Sleep(f, "thirst", 3*time.Second); err != nil {
					return err
				}
				n, err := engine.Do(f, "drink", after(45*ms, 10))
				total += n
				return err
			}),
			engine.Branch("bill", func(f *engine.Flow) error {
				_, err := engine.Do(f, "pay", after(15*ms, "paid"))
				return err
			}, engine.After("food", "drinks")))
		if err != nil {
			return "", err
		}
		engine.SetStatus(f, "")
		return fmt.Sprintf("%s, %v, %d", hotel, seats, total), nil
	}, engine.Function(engine.Policy("fixed(5s) attempts=2")))
	rounds := engine.MustFlow("rounds", func(f *engine.Flow, n int) (string, error) {
		if _, err := engine.Do(f, "round", after(25*ms, n)); err != nil {
			return "", err
		}
		if n < 3 {
			return "", engine.Again(f, n+1)
		}
		if n > 3 {
			_, err := engine.Do(f, "fail", failing)
			return "", err
		}
		return "three rounds", nil
	})
	return []*engine.Workflow{trip, rounds}
}

func runGoldenFlows(e *goldenEngine) {
	ctx := e.t.Context()
	e.wait(e.start("trip", "ann", engine.Key("trip of ann")), engine.StateSucceeded)
	e.wait(e.start("rounds", 1, engine.Key("rounds")), engine.StateSucceeded)
	dead := e.start("rounds", 4)
	e.wait(dead, engine.StateDead)
	e.check(e.Retry(ctx, dead, "ann"))
	e.wait(dead, engine.StateDead)
	_, err := e.RetryLatest(ctx, dead, engine.Latest{}, "ann")
	e.check(err)
	e.wait(dead, engine.StateDead)
	s, err := e.Replay(ctx, dead, json.RawMessage("3"), "ann")
	e.check(err)
	e.wait(s.ID, engine.StateSucceeded)

	crashed := e.start("trip", "ben")
	e.elapse(30 * ms)
	e.crash()
	e.elapse(time.Minute)
	e.restart(e.workflows...)
	e.check(e.Wake(ctx, crashed, "ben"))
	e.elapse(3 * time.Second)
	e.crash()
	e.wait(crashed, engine.StateSucceeded)
	canceled := e.start("trip", "carl", engine.RunTimeout(time.Hour))
	e.elapse(10 * time.Minute)
	e.check(e.Cancel(ctx, canceled, "carl"))
	expired := e.start("trip", "dora", engine.RunTimeout(time.Hour))
	e.wait(expired, engine.StateDead)
}

func goldenSignals() []*engine.Workflow {
	return []*engine.Workflow{engine.MustFlow("approval", func(f *engine.Flow, in string) (string, error) {
		first, err := engine.Await[string](f, "begin")
		if err != nil {
			return "", err
		}
		second, err := engine.Await[int](f, "amount", engine.Within(time.Hour))
		if errors.Is(err, engine.ErrNoEvent) {
			second, err = -1, nil
		}
		if err != nil {
			return "", err
		}
		a, err := engine.Ask(f, "approve", engine.Question{Text: "Pay " + in + "?", Who: []string{"ann", "ben"}})
		if err != nil {
			return "", err
		}
		b, err := engine.Ask(f, "colour", engine.Question{Text: "Which?", Choices: []string{"red", "blue"}, Default: "blue"}, engine.Within(30*time.Minute))
		if err != nil {
			return "", err
		}
		var last []string
		for i := range 2 {
			v, err := engine.Await[string](f, "more", engine.ForKey(fmt.Sprint(i)))
			if err != nil {
				return "", err
			}
			last = append(last, v)
		}
		return fmt.Sprint(first, second, a.Choice, b.Choice, last), nil
	})}
}

func runGoldenSignals(e *goldenEngine) {
	ctx := e.t.Context()
	run := e.start("approval", "7 EUR", engine.Key("a"))
	e.elapse(time.Second)
	e.check(e.Signal(ctx, run, "more", "kept 1", engine.ID("m1")))
	e.check(e.Signal(ctx, run, "begin", "go", engine.ID("b1"), engine.SentBy("ann")))
	e.check(e.Signal(ctx, run, "begin", "go", engine.ID("b1"), engine.SentBy("ann")))
	if err := e.Signal(ctx, run, "begin", "go", engine.ID("b1"), engine.Once()); !errors.Is(err, engine.ErrSignalUsed) {
		e.t.Errorf("a signal that was sent before: %v", err)
	}
	e.elapse(10 * time.Minute)
	e.crash()
	e.check(e.SignalKey(ctx, engine.RunKey{Workflow: "approval", Key: "a"}, "amount", 7, engine.ID("amount 1")))
	e.elapse(time.Second)
	e.check(e.Answer(ctx, run, "approve", engine.Answer{Choice: engine.Approve, By: "ann", Words: "cheap"}))
	e.elapse(time.Second)
	e.check(e.Answer(ctx, run, "colour", engine.Answer{Choice: "red", By: "ben"}))
	e.elapse(time.Hour)
	e.check(e.Signal(ctx, run, "more", map[string]string{"not": "text"}, engine.ID("m2")))
	e.elapse(time.Minute)
	e.wants(run, engine.StateDead)
	e.check(e.Retry(ctx, run, "ann"))
	e.elapse(time.Minute)

	quiet := e.start("approval", "8 EUR")
	e.check(e.Signal(ctx, quiet, "begin", nil, engine.ID("b2")))
	e.elapse(2 * time.Hour)
	e.check(e.Answer(ctx, quiet, "approve", engine.Answer{Choice: engine.Reject, By: "ben"}))
	e.elapse(time.Hour)
	e.check(e.Signal(ctx, quiet, "more", "x", engine.ID("m3")))
	e.check(e.Signal(ctx, quiet, "more", "y", engine.ID("m4")))
	e.wait(quiet, engine.StateSucceeded)
	open := e.start("approval", "9 EUR")
	e.elapse(time.Minute)
	e.check(e.Cancel(ctx, open, "ann"))
}

func goldenChildren() []*engine.Workflow {
	item := must(engine.NewWorkflow("item", engine.Step("make", func(ctx context.Context, n int) (int, error) {
		if err := work(ctx, time.Duration(n)*100*ms); err != nil {
			return 0, err
		}
		if n == 13 && attempts(ctx) < 3 {
			return 0, retry.Permanent(engine.Coded("unlucky", errors.New("thirteen")))
		}
		return n * n, nil
	}, engine.Policy("fixed(1s) attempts=2"))))
	nested := engine.MustFlow("nested", func(f *engine.Flow, n int) (int, error) {
		return engine.Child[int](f, "inner", item, n)
	})
	parent := engine.MustFlow("parent", func(f *engine.Flow, n int) (string, error) {
		one, err := engine.Child[int](f, "one", nested, n)
		if err != nil {
			return "", err
		}
		many, err := engine.Children[int, int](f, "many", item, []int{4, 2, 3}, engine.Parallel(2))
		if err != nil {
			return "", err
		}
		_, err = engine.Child[int](f, "apart", item, 50, engine.Detached())
		return fmt.Sprint(one, many), err
	})
	return []*engine.Workflow{parent, nested, item}
}

func runGoldenChildren(e *goldenEngine) {
	ctx := e.t.Context()
	e.wait(e.start("parent", 6, engine.Key("good")), engine.StateSucceeded)
	unlucky := e.start("parent", 13)
	e.wait(unlucky, engine.StateDead)
	for range 2 {
		e.check(e.Retry(ctx, unlucky, "ann"))
		e.elapse(10 * time.Second)
	}
	e.wait(unlucky, engine.StateSucceeded)
	canceled := e.start("parent", 40)
	e.elapse(time.Second)
	e.check(e.Cancel(ctx, canceled, "ann"))
	e.elapse(time.Second)
	apart := e.start("parent", 1)
	e.elapse(2 * time.Second)
	e.check(e.Cancel(ctx, apart, "ben"))
	e.elapse(10 * time.Second)
	crashed := e.start("parent", 30)
	e.elapse(time.Second)
	e.crash()
	e.wait(crashed, engine.StateSucceeded)
}

func goldenUndos() []*engine.Workflow {
	undone := func(d time.Duration) func(context.Context, *string) error {
		return func(ctx context.Context, v *string) error { return work(ctx, d) }
	}
	return []*engine.Workflow{engine.MustFlow("saga", func(f *engine.Flow, in string) (string, error) {
		if _, err := engine.DoUndo(f, "flight", after(30*ms, "flight"), undone(25*ms)); err != nil {
			return "", err
		}
		_, err := engine.MapUndo(f, "rooms", []int{3, 1, 2}, func(ctx context.Context, n int) (string, error) {
			return fmt.Sprint("room ", n), work(ctx, time.Duration(n)*21*ms)
		}, func(ctx context.Context, n int, _ *string) error { return work(ctx, time.Duration(n)*19*ms) })
		if err != nil {
			return "", err
		}
		_, err = engine.DoUndo(f, "car", after(10*ms, "car"), func(ctx context.Context, _ *string) error {
			if err := work(ctx, 35*ms); err != nil || in != "stuck" {
				return err
			}
			return errBusy
		}, engine.UndoPolicy("fixed(3s) attempts=2"))
		if err != nil {
			return "", err
		}
		if err := engine.Sleep(f, "travel", time.Hour); err != nil {
			return "", err
		}
		if in != "good" {
			_, err = engine.DoUndo(f, "tickets", failing, undone(5*ms))
		}
		return in, err
	})}
}

func runGoldenUndos(e *goldenEngine) {
	ctx := e.t.Context()
	e.wait(e.start("saga", "good"), engine.StateSucceeded)
	e.wait(e.start("saga", "bad"), engine.StateDead)
	canceled := e.start("saga", "canceled")
	e.elapse(time.Minute)
	e.check(e.Cancel(ctx, canceled, "ann"))
	e.wait(canceled, engine.StateCanceled)
	expired := e.start("saga", "expired", engine.RunTimeout(10*time.Minute))
	e.wait(expired, engine.StateDead)
	stuck := e.start("saga", "stuck")
	e.wait(stuck, engine.StateDead)
	e.check(e.Retry(ctx, stuck, "ben"))
	e.wait(stuck, engine.StateDead)
	e.check(e.Abandon(ctx, stuck, "ben"))
	e.elapse(time.Minute)
	crashed := e.start("saga", "crashed")
	e.elapse(time.Minute)
	e.check(e.Cancel(ctx, crashed, "carl"))
	e.elapse(40 * ms)
	e.crash()
	e.wait(crashed, engine.StateCanceled)
	dead := e.start("saga", "again")
	e.wait(dead, engine.StateDead)
	e.check(e.Retry(ctx, dead, "dora"))
	e.wait(dead, engine.StateDead)
}

func goldenPauses() []*engine.Workflow {
	slow := must(engine.NewWorkflow("slow",
		engine.Step("first", func(ctx context.Context, in string) (string, error) {
			if err := work(ctx, 10*time.Second); err != nil || attempts(ctx) > 1 {
				return in, err
			}
			return "", errBusy
		}, engine.Policy("fixed(1m) attempts=3")),
		engine.Step("second", func(ctx context.Context, in string) (string, error) { return in, work(ctx, 100*ms) }, engine.After("first"))))
	flow := engine.MustFlow("flow", func(f *engine.Flow, in string) (string, error) {
		if _, err := engine.Do(f, "work", after(20*time.Second, in)); err != nil {
			return "", err
		}
		if err := engine.Sleep(f, "rest", 5*time.Minute); err != nil {
			return "", err
		}
		return engine.Await[string](f, "end")
	})
	return []*engine.Workflow{slow, flow}
}

func runGoldenPauses(e *goldenEngine) {
	ctx := e.t.Context()
	steps := e.start("slow", "a")
	flow := e.start("flow", "b")
	e.elapse(3 * time.Second)
	e.check(e.Pause(ctx, steps, "ann"))
	e.elapse(time.Second)
	e.check(e.Pause(ctx, flow, "ann"))
	e.elapse(time.Minute)
	e.wants(steps, engine.StatePaused)
	e.crash()
	e.elapse(3 * time.Second)
	e.check(e.Resume(ctx, steps, "ben"))
	e.elapse(time.Second)
	e.check(e.Resume(ctx, flow, "ben"))
	e.elapse(12 * time.Second)
	e.check(e.PauseWorkflow(ctx, "slow", "carl"))
	e.elapse(time.Second)
	e.check(e.PauseWorkflow(ctx, "flow", "carl"))
	started := e.start("slow", "c")
	e.elapse(10 * time.Minute)
	e.restart(e.workflows...)
	e.elapse(3 * time.Second)
	e.check(e.Signal(ctx, flow, "end", "over", engine.ID("1")))
	e.elapse(time.Minute)
	e.check(e.ResumeWorkflow(ctx, "flow", "dora"))
	e.wait(flow, engine.StateSucceeded)
	e.check(e.ResumeWorkflow(ctx, "slow", "dora"))
	e.wait(started, engine.StateSucceeded)
	e.wait(steps, engine.StateSucceeded)
}

// runGoldenHandlers opens the engine without the workflows of its runs, and with changed ones.
func runGoldenHandlers(e *goldenEngine) {
	steps := e.start("slow", "a")
	e.elapse(777 * ms)
	flow := e.start("flow", "b")
	e.elapse(time.Minute)
	all := e.workflows
	e.restart()
	e.elapse(10 * time.Minute)
	e.wants(steps, engine.StateNeedsHandler)
	e.check(e.Register(all[0]))
	e.elapse(time.Minute)
	e.wants(steps, engine.StateSucceeded)
	e.restart(engine.MustFlow("flow", func(f *engine.Flow, in string) (string, error) {
		return engine.Do(f, "other", after(20*ms, in))
	}))
	e.elapse(time.Minute)
	e.wants(flow, engine.StateNeedsHandler)
	e.restart(engine.MustFlow("flow", func(f *engine.Flow, in string) (string, error) {
		engine.Renamed(f, "work", "labour")
		engine.Removed(f, "rest")
		engine.Added(f, "other")
		in, err := engine.Do(f, "labour", after(ms, in))
		if err != nil {
			return "", err
		}
		return engine.Do(f, "other", after(20*ms, in))
	}))
	e.wait(flow, engine.StateSucceeded)
}

func runGoldenSchedules(e *goldenEngine) {
	ctx := e.t.Context()
	hourly := []engine.Schedule{{Name: "hourly", Workflow: "slow", Cron: "7 * * * *", Input: json.RawMessage("1000")}}
	daily := []engine.Schedule{{Name: "berlin", Workflow: "slow", Cron: "TZ=Europe/Berlin 11 5 * * *", Input: json.RawMessage("2000"), Skip: true}}
	e.check(e.SetSchedules(ctx, hourly))
	e.elapse(2 * time.Hour)
	e.check(e.PauseSchedule(ctx, "hourly", "ann"))
	e.elapse(5 * time.Hour)
	e.check(e.ResumeSchedule(ctx, "hourly", "ann"))
	e.elapse(70 * time.Minute)
	all := e.workflows
	e.restart()
	e.elapse(2 * time.Hour)
	e.restart(all...)
	e.elapse(time.Minute)
	e.check(e.Close(context.Background()))
	e.elapse(30 * time.Hour)
	e.open()
	e.elapse(time.Minute)
	hourly[0].Cron = "9 */2 * * *"
	e.check(e.SetSchedules(ctx, hourly))
	e.elapse(3 * time.Hour)
	e.check(e.SetSchedules(ctx, daily))
	e.elapse(30 * time.Hour)
	e.check(e.Close(context.Background()))
	e.elapse(30 * time.Hour)
	e.open()
	e.elapse(time.Minute)
	e.check(e.SetSchedules(ctx, nil))
	e.elapse(time.Hour)
}

func goldenFollowUps() []*engine.Workflow {
	report := must(engine.NewWorkflow("report", engine.MaxRuns(1), engine.Step("send", func(ctx context.Context, end engine.Ended) (string, error) {
		return end.State, work(ctx, 13*ms)
	})))
	mend := engine.MustFlow("mend", func(f *engine.Flow, g engine.GaveUp) (string, error) {
		return engine.Do(f, "look", after(29*ms, g.Reason))
	})
	job := must(engine.NewWorkflow("job",
		engine.Step("prepare", func(ctx context.Context, in string) (string, error) { return in, work(ctx, 3*ms) }),
		engine.Step("do", func(ctx context.Context, in string) (string, error) {
			if in == "bad" {
				return failing(ctx)
			}
			return in, work(ctx, 7*ms)
		}, engine.After("prepare")), engine.OnEnd(report), engine.OnGiveUp(mend)))
	flow := engine.MustFlow("flow", func(f *engine.Flow, in string) (string, error) {
		if _, err := engine.Do(f, "prepare", after(5*ms, in)); err != nil {
			return "", err
		}
		return engine.Do(f, "fail", failing)
	}, engine.OnGiveUp(mend), engine.OnEnd(report))
	return []*engine.Workflow{job, flow, report, mend}
}

func runGoldenFollowUps(e *goldenEngine) {
	ctx := e.t.Context()
	e.wait(e.start("job", "good", engine.Key("k")), engine.StateSucceeded)
	// The queues of two workflows are served in no particular order.
	e.check(e.PauseWorkflow(ctx, "report", "ann"))
	bad := e.start("job", "bad")
	e.wait(bad, engine.StateDead)
	e.elapse(time.Second)
	e.check(e.ResumeWorkflow(ctx, "report", "ann"))
	e.elapse(time.Second)
	e.check(e.PauseWorkflow(ctx, "report", "ann"))
	e.check(e.Retry(ctx, bad, "ann"))
	e.wait(bad, engine.StateDead)
	e.elapse(time.Second)
	e.wait(e.start("flow", "x"), engine.StateDead)
	e.elapse(time.Second)
	later := e.start("job", "later", engine.In(time.Hour))
	e.check(e.Cancel(ctx, later, "ann"))
	e.elapse(time.Second)
	s, err := e.Replay(ctx, bad, nil, "ben")
	e.check(err)
	e.wait(s.ID, engine.StateDead)
	e.elapse(time.Second)
	e.check(e.ResumeWorkflow(ctx, "report", "ann"))
	e.elapse(time.Second)
}

func goldenLimits() []*engine.Workflow {
	single := must(engine.NewWorkflow("single", engine.MaxRuns(1), engine.Timeout(3*time.Minute),
		engine.Step("do", func(ctx context.Context, d time.Duration) (string, error) { return "done", work(ctx, d) })))
	pair := must(engine.NewWorkflow("pair",
		engine.Step("do", func(ctx context.Context, d time.Duration) (string, error) { return "done", work(ctx, d) }, engine.Concurrency(2))))
	flow := engine.MustFlow("flow", func(f *engine.Flow, d time.Duration) (string, error) {
		return engine.Do(f, "do", after(d, "done"))
	}, engine.MaxRuns(2))
	return []*engine.Workflow{single, pair, flow}
}

func runGoldenLimits(e *goldenEngine) {
	ctx := e.t.Context()
	for _, workflow := range []string{"single", "pair", "flow"} {
		var runs []string
		for i := range 4 {
			runs = append(runs, e.start(workflow, time.Duration(40+3*i)*time.Second))
			e.elapse(100 * ms)
		}
		e.elapse(5 * time.Second)
		e.check(e.Pause(ctx, runs[1], "ann"))
		e.elapse(time.Minute)
		e.check(e.Resume(ctx, runs[1], "ann"))
		e.elapse(10 * time.Minute)
		for i, id := range runs {
			run, err := e.Get(ctx, id)
			if e.check(err); err == nil && !run.Finished() {
				e.t.Errorf("run %d of %s is %s", i, run.Workflow, run.State)
			}
		}
	}
}

// goldenLost returns workflows whose attempts run when the process dies.
func goldenLost() []*engine.Workflow {
	fatal := must(engine.NewWorkflow("fatal", engine.Step("do", func(ctx context.Context, d time.Duration) (string, error) {
		return "done", work(ctx, d)
	}, engine.MaxLost(4), engine.Policy("fixed(1s) attempts=2"))))
	flow := engine.MustFlow("flow", func(f *engine.Flow, d time.Duration) (string, error) {
		return engine.Do(f, "do", after(d, "done"), engine.MaxLost(2))
	})
	return []*engine.Workflow{fatal, flow}
}

func runGoldenLost(e *goldenEngine) {
	first := e.start("fatal", 60*time.Second+333*ms)
	e.elapse(100 * ms)
	second := e.start("fatal", 61*time.Second+777*ms)
	e.elapse(100 * ms)
	flow := e.start("flow", 62*time.Second+999*ms)
	e.elapse(time.Second)
	for range 5 {
		e.crash()
		e.elapse(11*time.Second + 123*ms)
	}
	for _, id := range []string{first, second, flow} {
		_, err := e.Wait(e.t.Context(), id)
		e.check(err)
	}
	released := e.start("fatal", time.Minute)
	e.elapse(time.Second)
	e.restart(e.workflows...)
	e.wait(released, engine.StateSucceeded)
}

func runGoldenRetention(e *goldenEngine) {
	good := e.start("slow", time.Second)
	dead := e.start("slow", time.Hour, engine.RunTimeout(10*time.Second))
	e.wait(good, engine.StateSucceeded)
	e.wait(dead, engine.StateDead)
	for range 12 {
		e.elapse(time.Hour)
		e.start("slow", time.Second)
		e.elapse(time.Minute)
	}
	if _, err := e.Get(e.t.Context(), dead); !errors.Is(err, engine.ErrNotFound) {
		e.t.Errorf("run %s: %v, want none", dead, err)
	}
}
