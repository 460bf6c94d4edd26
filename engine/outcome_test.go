package engine

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

func TestTheErrorOfARun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		info Info
		is   error
		want string
	}{
		{"succeeded", Info{ID: "r", State: StateSucceeded}, nil, ""},
		{"not over", Info{ID: "r", State: StateWaiting, Error: "once"}, nil, ""},
		{"dead", Info{ID: "r", State: StateDead, Step: "ship", Reason: "attempts", Error: "no truck"}, ErrDead, "run r: the run is dead, in step ship (attempts): no truck"},
		{"canceled", Info{ID: "r", State: StateCanceled, Step: "ship"}, ErrCanceled, "run r: the run was canceled"},
		{"replaced", Info{ID: "r", State: StateReplaced, ReplacedBy: "q"}, ErrReplaced, "run r: the run is dead, and was replaced by q"},
	} {
		err := c.info.Err()
		if !errors.Is(err, c.is) || err != nil && err.Error() != c.want {
			t.Errorf("%s: Err() = %v, want %q", c.name, err, c.want)
		}
	}
}

func TestTheOutputOfARun(t *testing.T) {
	t.Parallel()
	if got, err := Output[int](&Info{State: StateSucceeded, Output: []byte("42")}); got != 42 || err != nil {
		t.Errorf("Output = %v, %v", got, err)
	}
	if got, err := Output[*int](&Info{State: StateSucceeded}); got != nil || err != nil {
		t.Errorf("Output of nothing = %v, %v", got, err)
	}
	for want, i := range map[string]*Info{
		"cannot unmarshal":       {State: StateSucceeded, Output: []byte(`"x"`)},
		"the run is dead":        {State: StateDead},
		"no output yet: it is q": {State: "q"},
	} {
		if _, err := Output[int](i); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Output(%+v): %v, want %q in it", i, err, want)
		}
	}
}

// A run that dies because of lost attempts is reported like every other, although the engine finds
// that out while it is being opened.
func TestARunThatDiesAtTheStartIsToldOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var mu sync.Mutex
		var kinds, seen []string
		hang := func(ctx context.Context, _ int) (int, error) {
			task, _ := TaskOf(ctx)
			mu.Lock()
			seen = append(seen, strings.Repeat("|", task.Attempt)+strings.Repeat("+", task.Total))
			mu.Unlock()
			<-ctx.Done()
			return 0, ctx.Err()
		}
		w := one(t, hang, Policy("fixed(1s) attempts=2"), MaxLost(1))
		var logged strings.Builder
		killed, kill := context.WithCancel(context.Background())
		kill()
		var id string
		for n := range 3 {
			e := must(Open(t.Context(), Config{
				Log: store.Open(), Workflows: []*Workflow{w}, Logger: slog.New(slog.NewTextHandler(&logged, nil)), Observer: func(ev retry.Event) {
					mu.Lock()
					defer mu.Unlock()
					kinds = append(kinds, ev.Kind.String())
				},
			}))
			if n == 0 {
				id = started(t, e, w, 1).ID
			}
			time.Sleep(time.Second) // the wait after a lost attempt
			synctest.Wait()
			_ = e.Close(killed)
			synctest.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		text := strings.Join(kinds, " ")
		if strings.Count(text, "attempt-lost") != 2 || !strings.Contains(text, "gave-up") {
			t.Errorf("told was %s", text)
		}
		if !strings.Contains(logged.String(), "runs="+id) {
			t.Errorf("logged was %s", logged.String())
		}
		if got := strings.Join(seen, " "); got != "|+ |++" {
			t.Errorf("attempts and totals were %s, want that lost ones do not count", got)
		}
	})
}

// The wait after a failure begins at its record: this is never before the attempt, or the call of a function,
// has ended, although many ends are handled in one turn.
func TestAWaitBeginsAfterTheFailure(t *testing.T) {
	t.Parallel()
	const runs = 5000
	var returned sync.Map // the last time of a run's code, by run
	fail := func(run string) error {
		returned.Store(run, time.Now())
		return errors.New("no truck")
	}
	policy := Policy("fixed(1h) attempts=2")
	step := must(NewWorkflow("step", Step("fail", func(ctx context.Context, _ int) (int, error) {
		task, _ := TaskOf(ctx)
		return 0, fail(task.Run)
	}, policy)))
	function := MustFlow("function", func(f *Flow, _ int) (int, error) { return 0, fail(f.Run()) }, Function(policy))
	e := must(Open(t.Context(), Config{Log: new(memlog.Store).Open(), Workflows: []*Workflow{step, function}, Logger: quiet()}))
	defer e.Close(context.Background())
	var starts sync.WaitGroup
	for i := range runs {
		starts.Go(func() { must(e.Start(t.Context(), []*Workflow{step, function}[i%2], i)) })
	}
	starts.Wait()
	for run, at := range returned.Range {
		var first AttemptInfo
		testwait.Until(t, "the failure is recorded", func() bool {
			first = must(e.Get(t.Context(), run.(string))).Steps[0].Attempts[0]
			return first.Ended != nil
		})
		if first.Ended.Before(at.(time.Time)) {
			t.Errorf("a failure is recorded at %v, and its code returned at %v", first.Ended, at)
		}
	}
}
