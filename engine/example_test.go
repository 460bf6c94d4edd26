package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

// open returns an engine with a log in memory. A program sets Dir instead of Log.
func open(workflows ...*engine.Workflow) *engine.Engine {
	e, err := engine.Open(context.Background(), engine.Config{
		Log: new(memlog.Store).Open(), Workflows: workflows, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	return e
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

type Order struct{ Item string }

func Example() {
	charge := func(_ context.Context, o Order) (string, error) { return "receipt for a " + o.Item, nil }
	ship := func(ctx context.Context, o Order) (string, error) {
		receipt, err := engine.Result[string](ctx, "charge")
		return "a " + o.Item + ", with a " + receipt, err
	}
	order := must(engine.NewWorkflow("order",
		engine.Step("charge", charge, engine.Policy("exponential(1s..60s) jitter=0.5..1.5 attempts=5")),
		engine.Step("ship", ship, engine.After("charge"), engine.Policy("fixed(2s) attempts=3"))))

	dir := must(os.MkdirTemp("", "engine"))
	defer os.RemoveAll(dir)
	ctx := context.Background()
	eng := must(engine.Open(ctx, engine.Config{Dir: dir, Workflows: []*engine.Workflow{order}}))
	defer eng.Close(ctx)

	run := must(eng.Start(ctx, order, Order{"lamp"}, engine.Key("order-4711")))
	again := must(eng.Start(ctx, order, Order{"lamp"}, engine.Key("order-4711")))
	info := must(run.Wait(ctx))
	fmt.Println(info.State, string(info.Output))
	fmt.Println("same run:", run.ID == again.ID)
	// Output:
	// succeeded "a lamp, with a receipt for a lamp"
	// same run: true
}

func ExampleEngine_Retry() {
	ready := false
	w := must(engine.NewWorkflow("job", engine.Step("work", func(context.Context, any) (string, error) {
		if !ready {
			return "", retry.Permanent(errors.New("no such table"))
		}
		return "done", nil
	})))
	e := open(w)
	defer e.Close(context.Background())
	ctx := context.Background()

	run := must(e.Start(ctx, w, nil))
	info := must(run.Wait(ctx))
	fmt.Println(info.State, info.Reason, info.Error)
	ready = true
	fmt.Println(e.Retry(ctx, run.ID, "me"))
	fmt.Println(must(run.Wait(ctx)).State)
	// Output:
	// dead permanent no such table
	// <nil>
	// succeeded
}

func ExampleOutput() {
	w := must(engine.NewWorkflow("halve", engine.Step("halve", func(_ context.Context, n int) (int, error) {
		if n%2 != 0 {
			return 0, retry.Permanent(fmt.Errorf("%d is odd", n))
		}
		return n / 2, nil
	})))
	e := open(w)
	defer e.Close(context.Background())
	for _, n := range []int{42, 43} {
		run := must(e.Start(context.Background(), w, n))
		info := must(run.Wait(context.Background())) // also of a run that is dead
		half, err := engine.Output[int](info)
		fmt.Println(half, errors.Is(err, engine.ErrDead), info.State)
	}
	// Output:
	// 21 false succeeded
	// 0 true dead
}

func ExampleSnooze() {
	w := must(engine.NewWorkflow("poll", engine.Step("look", func(ctx context.Context, _ any) (string, error) {
		if t, _ := engine.TaskOf(ctx); t.Total < 3 {
			return "", engine.Snooze(time.Millisecond, "the report is not there yet")
		}
		return "here it is", nil
	}, engine.Policy("fixed(1s) attempts=1"))))
	e := open(w)
	defer e.Close(context.Background())

	info := must(must(e.Start(context.Background(), w, nil)).Wait(context.Background()))
	fmt.Println(info.State, "after", info.Attempts, "looks,", info.Steps[0].Spent, "attempts spent")
	// Output:
	// succeeded after 3 looks, 0 attempts spent
}

// A handler that knows when a quota is renewed returns Limited: that uses a window instead of an
// attempt.
func ExampleLimitedFor() {
	w := must(engine.NewWorkflow("agent", engine.Step("work", func(ctx context.Context, _ any) (string, error) {
		if t, _ := engine.TaskOf(ctx); t.Windows < 2 {
			return "", engine.LimitedFor(time.Millisecond, "quota used up")
		}
		return "done", nil
	}, engine.Policy("fixed(1s) attempts=2"), engine.MaxWindows(5))))
	e := open(w)
	defer e.Close(context.Background())

	info := must(must(e.Start(context.Background(), w, nil)).Wait(context.Background()))
	s := info.Steps[0]
	fmt.Println(info.State, "after", s.Windows, "of", s.MaxWindows, "windows and", s.Spent, "failures")
	// Output:
	// succeeded after 2 of 5 windows and 0 failures
}

func ExampleKeep() {
	w := must(engine.NewWorkflow("import", engine.Step("work", func(ctx context.Context, _ any) (int, error) {
		t, _ := engine.TaskOf(ctx)
		if len(t.Progress) == 0 {
			return 0, engine.Keep(errors.New("connection lost"), map[string]int{"rows": 1200})
		}
		fmt.Printf("going on after %s\n", t.Progress)
		return 2000, nil
	}, engine.Policy("fixed(1ms) attempts=3"))))
	e := open(w)
	defer e.Close(context.Background())

	info := must(must(e.Start(context.Background(), w, nil)).Wait(context.Background()))
	fmt.Println(info.State, string(info.Output))
	// Output:
	// going on after {"rows":1200}
	// succeeded 2000
}

func ExampleOnGiveUp() {
	told := make(chan string, 1)
	alarm := must(engine.NewWorkflow("alarm", engine.Step("tell", func(_ context.Context, g engine.GaveUp) (any, error) {
		told <- fmt.Sprintf("%s gave up at %s: %s", g.Workflow, g.Step, g.Error)
		return nil, nil
	})))
	job := must(engine.NewWorkflow("job", engine.OnGiveUp(alarm), engine.Step("work",
		func(context.Context, any) (any, error) { return nil, errors.New("oops") }, engine.Policy("fixed(1ms) attempts=2"))))
	e := open(job, alarm)
	defer e.Close(context.Background())

	must(e.Start(context.Background(), job, nil))
	fmt.Println(<-told)
	// Output:
	// job gave up at work: oops
}

func ExampleOnEnd() {
	told := make(chan string, 1)
	tell := must(engine.NewWorkflow("tell", engine.Step("tell", func(_ context.Context, d engine.Ended) (any, error) {
		told <- fmt.Sprintf("%s of %s: %s", d.Workflow, d.Key, d.State)
		return nil, nil
	})))
	job := must(engine.NewWorkflow("job", engine.OnEnd(tell), engine.Step("work",
		func(context.Context, any) (any, error) { return nil, nil })))
	e := open(job)
	defer e.Close(context.Background())

	must(e.Start(context.Background(), job, nil, engine.Key("monday")))
	fmt.Println(<-told)
	run := must(e.Start(context.Background(), job, nil, engine.Key("tuesday"), engine.In(time.Hour)))
	if err := e.Cancel(context.Background(), run.ID, "me"); err != nil {
		panic(err)
	}
	fmt.Println(<-told)
	// Output:
	// job of monday: succeeded
	// job of tuesday: canceled
}

func ExampleEngine_Pause() {
	begun, release := make(chan struct{}, 2), make(chan struct{})
	w := must(engine.NewWorkflow("job", engine.Step("work", func(ctx context.Context, _ any) (string, error) {
		begun <- struct{}{}
		select {
		case <-release:
			return "done", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})))
	e := open(w)
	defer e.Close(context.Background())
	ctx := context.Background()

	run := must(e.Start(ctx, w, nil))
	<-begun
	fmt.Println(e.Pause(ctx, run.ID, "me"))
	for must(e.Get(ctx, run.ID)).State != "paused" {
		time.Sleep(time.Millisecond) // real clock: it polls, without a limit
	}
	fmt.Println(e.Resume(ctx, run.ID, "me"))
	<-begun
	close(release)
	fmt.Println(must(run.Wait(ctx)).State)
	// Output:
	// <nil>
	// <nil>
	// succeeded
}

func ExampleNewFlow() {
	count := func(_ context.Context, item string) (int, error) { return len(item), nil }
	stock := engine.MustFlow("stock", func(f *engine.Flow, items []string) (int, error) {
		counts, err := engine.Map(f, "count", items, count, engine.Parallel(2), engine.Policy("fixed(1s) attempts=3"))
		sum := 0
		for _, n := range counts {
			sum += n
		}
		return sum, err
	})
	ctx := context.Background()
	eng := open()
	defer eng.Close(ctx)
	run := must(must(eng.Start(ctx, stock, []string{"lamp", "chair"})).Wait(ctx))
	fmt.Println(must(engine.Output[int](run)))
	// Output: 9
}

func ExampleAwait() {
	order := engine.MustFlow("order", func(f *engine.Flow, _ string) (string, error) {
		amount, err := engine.Await[int](f, "paid", engine.Within(48*time.Hour))
		if errors.Is(err, engine.ErrNoEvent) {
			return "not paid in time", nil
		}
		return fmt.Sprintf("%d EUR", amount), err
	})
	ctx := context.Background()
	eng := open()
	defer eng.Close(ctx)
	s := must(eng.Start(ctx, order, "4711"))
	if err := eng.Signal(ctx, s.ID, "paid", 30); err != nil {
		panic(err)
	}
	fmt.Println(must(engine.Output[string](must(s.Wait(ctx)))))
	// Output: 30 EUR
}

func ExampleAttempts() {
	often := engine.Attempts(engine.Policy("fixed(1s) attempts=9"), engine.MaxLost(5))
	one := func(context.Context) (int, error) { return 1, nil }
	each := func(_ context.Context, n int) (int, error) { return n * n, nil }
	squares := engine.MustFlow("squares", func(f *engine.Flow, _ int) ([]int, error) {
		first, err := engine.Do(f, "one", one, often)
		if err != nil {
			return nil, err
		}
		return engine.Map(f, "square", []int{first, 2, 3}, each, often, engine.Parallel(3))
	})
	ctx := context.Background()
	eng := open()
	defer eng.Close(ctx)
	fmt.Println(must(engine.Output[[]int](must(must(eng.Start(ctx, squares, 0)).Wait(ctx)))))
	// Output: [1 4 9]
}

func ExampleEngine_Operator() {
	ctx := context.Background()
	eng := open()
	defer eng.Close(ctx)
	stats, shards, err := eng.Operator().OwnStats(ctx)
	fmt.Println(stats.Running, shards, err)
	// Output: 0 1 <nil>
}
