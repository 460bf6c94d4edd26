package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/engine"
)

// newOutputService returns the service of an engine with the workflow w. Operations store outputs by
// the function say.
func newOutputService(t *testing.T, w func(say func(context.Context, string)) *engine.Workflow) (*Service, *engine.Engine) {
	t.Helper()
	store := output.New(output.Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	say := func(ctx context.Context, text string) {
		task, _ := engine.TaskOf(ctx)
		if err := store.Append(&output.Record{
			Attempt: output.Attempt{Run: task.Run, Step: task.Step, Operation: task.Operation, Number: task.Total}, Ended: time.Now(),
			Streams: []output.Stream{{Name: "stdout", Size: int64(len(text)), Head: []byte(text)}},
		}); err != nil {
			t.Error(err)
		}
	}
	e, err := engine.Open(t.Context(), engine.Config{Dir: t.TempDir(), Durability: engine.OS, Workflows: []*engine.Workflow{w(say)}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(e.Close(context.Background()), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return New(Config{Engine: e, Outputs: store, Logger: slog.New(slog.DiscardHandler)}), e
}

// wantOutput checks the text of an output, or its error.
func wantOutput(t *testing.T, s *Service, q OutputQuery, want string) {
	t.Helper()
	o, err := s.Outputs.Get(t.Context(), q)
	got := fmt.Sprint(err)
	if err == nil {
		got = o.Streams[0].Head
	}
	if !strings.Contains(got, want) {
		t.Errorf("%+v: %s, want %s", q, got, want)
	}
}

// TestOutputAfterARetry asks for the outputs of an operation that a retry of the run has called again.
func TestOutputAfterARetry(t *testing.T) {
	t.Parallel()
	var works atomic.Bool
	s, e := newOutputService(t, func(say func(context.Context, string)) *engine.Workflow {
		return engine.MustFlow("w", func(f *engine.Flow, _ int) (int, error) {
			return engine.Do(f, "call", func(ctx context.Context) (int, error) {
				task, _ := engine.TaskOf(ctx)
				say(ctx, fmt.Sprintf("works: %v, attempt %d", works.Load(), task.Total))
				if !works.Load() {
					return 0, errors.New("no")
				}
				return 1, nil
			}, engine.Policy("fixed(1ns) attempts=2"))
		})
	})
	w, _ := e.Workflow("w")
	started, err := e.Start(t.Context(), w, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Wait(t.Context(), started.ID); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, s, OutputQuery{Run: started.ID}, "works: false, attempt 2")
	works.Store(true)
	if err := e.Retry(t.Context(), started.ID, "tester"); err != nil {
		t.Fatal(err)
	}
	run, err := e.Wait(t.Context(), started.ID)
	if err != nil {
		t.Fatal(err)
	}
	first := run.Steps[1].Number
	for _, c := range []struct {
		q    OutputQuery
		want string
	}{
		{OutputQuery{}, "works: true, attempt 1"},
		{OutputQuery{Step: "call"}, "works: true, attempt 1"},
		{OutputQuery{Step: "call", Attempt: 1}, "works: true, attempt 1"},
		{OutputQuery{Step: "call", Attempt: 2}, "works: false, attempt 2"},
		{OutputQuery{Step: "call", Operation: first}, "works: false, attempt 2"},
		{OutputQuery{Step: "call", Operation: first, Attempt: 1}, "works: false, attempt 1"},
		{OutputQuery{Step: "call", Operation: 99}, "step call has no operation 99"},
	} {
		c.q.Run = started.ID
		wantOutput(t, s, c.q, c.want)
	}
	ends := s.Outputs.Ends(run, 100)
	if len(ends) != 3 {
		t.Errorf("the ends of %d outputs, want 3: %v", len(ends), ends)
	}
}

// TestOutputOfAnUnlistedItem asks for the output of an item that is not listed, because there are
// many.
func TestOutputOfAnUnlistedItem(t *testing.T) {
	t.Parallel()
	s, e := newOutputService(t, func(say func(context.Context, string)) *engine.Workflow {
		return engine.MustFlow("w", func(f *engine.Flow, n int) (int, error) {
			_, err := engine.Map(f, "each", make([]int, n), func(ctx context.Context, _ int) (int, error) {
				task, _ := engine.TaskOf(ctx)
				say(ctx, "output of "+task.Step)
				return 1, nil
			})
			return 1, err
		})
	})
	w, _ := e.Workflow("w")
	started, err := e.Start(t.Context(), w, 1500)
	if err != nil {
		t.Fatal(err)
	}
	run, err := e.Wait(t.Context(), started.ID)
	if err != nil || run.Operations.Omitted == 0 {
		t.Fatal(run, err)
	}
	for step, want := range map[string]string{
		"each#0": "output of each#0", "each#750": "output of each#750", "each#1499": "output of each#1499",
		"each#1500": "no output of step each#1500 is stored", "other#1": `has no step "other#1"`,
	} {
		wantOutput(t, s, OutputQuery{Run: started.ID, Step: step}, want)
	}
	wantOutput(t, s, OutputQuery{Run: started.ID, Step: "each#750", Attempt: 1}, "output of each#750")
	wantOutput(t, s, OutputQuery{Run: started.ID, Step: "each#750", Attempt: 2}, "no output of attempt 2 of step each#750 is stored")
}
