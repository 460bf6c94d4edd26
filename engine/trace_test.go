package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// traceKey is the key of a trace in a context.
type traceKey struct{}

// testPropagator propagates the value of traceKey.
type testPropagator struct{}

func (testPropagator) Inject(ctx context.Context) map[string]string {
	if trace, ok := ctx.Value(traceKey{}).(string); ok {
		return map[string]string{"trace": trace, "baggage": strings.Repeat("x", 10_000)}
	}
	return nil
}

func (testPropagator) Extract(ctx context.Context, trace map[string]string) context.Context {
	return context.WithValue(ctx, traceKey{}, fmt.Sprint(trace))
}

func TestTraceContinuesInAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		note := func(ctx context.Context) (int, error) {
			task, _ := engine.TaskOf(ctx)
			trace, _ := ctx.Value(traceKey{}).(string)
			mu.Lock()
			defer mu.Unlock()
			got = append(got, task.Workflow+" "+task.Step+" "+trace)
			return 0, nil
		}
		flow := engine.MustFlow("flow", func(f *engine.Flow, left int) (int, error) {
			if _, err := engine.Do(f, "first", note); err != nil {
				return 0, err
			}
			if err := engine.Sleep(f, "night", time.Hour); err != nil {
				return 0, err
			}
			if _, err := engine.Map(f, "last", []int{1}, func(ctx context.Context, _ int) (int, error) { return note(ctx) }); err != nil {
				return 0, err
			}
			if left > 0 {
				return 0, engine.Again(f, left-1)
			}
			return 0, nil
		})
		tries := 0
		steps := must(engine.NewWorkflow("steps", engine.Step("one", func(ctx context.Context, _ int) (int, error) {
			if tries++; tries == 1 {
				_, _ = note(ctx)
				return 0, errors.New("busy")
			}
			return note(ctx)
		}, engine.Policy("fixed(1h) attempts=3"))))
		var store memlog.Store
		open := func(p engine.Propagator) *engine.Engine {
			return must(engine.Open(context.Background(), engine.Config{
				Log: store.Open(), Workflows: []*engine.Workflow{flow, steps}, Logger: slog.New(slog.DiscardHandler), Propagator: p,
			}))
		}
		e := open(testPropagator{})
		traced := context.WithValue(context.Background(), traceKey{}, "t-1")
		for _, w := range []*engine.Workflow{flow, steps} {
			must(e.Start(traced, w, 1, engine.Source("test"), engine.Key("key of "+w.Name())))
		}
		plain := must(e.Start(context.Background(), flow, 0))
		time.Sleep(time.Minute)
		for _, p := range []engine.Propagator{nil, testPropagator{}} { // the trace is stored, whatever the process in between does
			if err := e.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			e = open(p)
		}
		time.Sleep(3 * time.Hour)
		for _, name := range []string{"flow", "steps"} {
			ids := must(e.Find(context.Background(), "key of "+name, 2))
			if len(ids) != 1 {
				t.Fatalf("the key of %s belongs to the runs %v", name, ids)
			}
			if run := must(e.Get(context.Background(), ids[0])); run.State != "succeeded" || run.Key != "key of "+name {
				t.Errorf("%s is %s and has the key %q: %s", name, run.State, run.Key, run.Error)
			}
		}
		if run := must(e.Get(context.Background(), plain.ID)); run.State != "succeeded" {
			t.Errorf("the run without a trace is %s: %s", run.State, run.Error)
		}
		if err := e.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		// The baggage was too large, and was left out.
		want := []string{
			"flow first ", "flow first map[trace:t-1]", "flow first map[trace:t-1]",
			"flow last#0 ", "flow last#0 map[trace:t-1]", "flow last#0 map[trace:t-1]",
			"steps one map[trace:t-1]", "steps one map[trace:t-1]",
		}
		if !slices.Equal(got, want) {
			t.Errorf("traces of the attempts:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// brokenPropagator panics.
type brokenPropagator struct{}

func (brokenPropagator) Inject(context.Context) map[string]string { panic("no tracer") }
func (brokenPropagator) Extract(context.Context, map[string]string) context.Context {
	panic("no tracer")
}

func TestTraceDoesNotKeepRunsFromStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		e := must(engine.Open(context.Background(), engine.Config{
			Log: new(memlog.Store).Open(), Logger: slog.New(slog.NewTextHandler(&log, nil)), Propagator: brokenPropagator{},
		}))
		w := must(engine.NewWorkflow("job", engine.Step("work", func(context.Context, int) (int, error) { return 1, nil })))
		run := must(must(e.Start(context.Background(), w, 1)).Wait(context.Background()))
		if err := e.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if run.State != "succeeded" || !strings.Contains(log.String(), "no tracer") {
			t.Errorf("%s, log: %s", run.State, log.String())
		}
	})
}
