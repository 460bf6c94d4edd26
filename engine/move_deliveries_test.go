package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// deliveries has workflows that count their runs and steps.
type deliveries struct {
	wait, narrow, report *Workflow

	mu        sync.Mutex
	now, most int               // runs of narrow
	reports   int               // runs of report
	done      map[int]time.Time // when runs of wait went on, by their input
}

func newDeliveries() *deliveries {
	r := &deliveries{done: map[int]time.Time{}}
	r.wait = must(NewWorkflow("wait", Step("do", func(ctx context.Context, n int) (int, error) {
		if task, _ := TaskOf(ctx); task.Total == 1 {
			return 0, errors.New("not yet")
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done[n] = time.Now()
		return n, nil
	}, Policy("fixed(1h) attempts=2"))))
	r.narrow = must(NewWorkflow("narrow", MaxRuns(2), Step("do", func(context.Context, int) (int, error) {
		r.count(1)
		time.Sleep(time.Second)
		r.count(-1)
		return 0, nil
	})))
	r.report = must(NewWorkflow("report", Step("do", func(context.Context, int) (int, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reports++
		return 0, nil
	})))
	return r
}

func (r *deliveries) count(by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now += by
	r.most = max(r.most, r.now)
}

func (r *deliveries) open(t *testing.T, log journal.Log) *Engine {
	t.Helper()
	return must(Open(t.Context(), Config{Log: log, Workflows: []*Workflow{r.wait, r.narrow, r.report}, Logger: quiet()}))
}

func (r *deliveries) went(n int) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[n]
}

func (r *deliveries) counts() (most, reports int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most, r.reports
}

// begin starts some of each, by key, and returns their ids.
func (r *deliveries) begin(t *testing.T, e *Engine) map[string]string {
	t.Helper()
	if err := e.SetSchedules(t.Context(), []Schedule{{Name: "s", Workflow: "report", Cron: "30 * * * *", Input: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for i := range 40 {
		key := fmt.Sprint("wait ", i)
		ids[key] = started(t, e, r.wait, i, Key(key)).ID
	}
	for i := range 10 {
		key := fmt.Sprint("narrow ", i)
		ids[key] = started(t, e, r.narrow, i, Key(key), In(90*time.Minute)).ID
	}
	return ids
}

// known checks that keys are those of the runs.
func (r *deliveries) known(t *testing.T, ids map[string]string, e *Engine) {
	t.Helper()
	for key, id := range ids {
		w := r.wait
		if strings.HasPrefix(key, "narrow") {
			w = r.narrow
		}
		if s := started(t, e, w, 0, Key(key)); !s.Existing || s.ID != id {
			t.Fatalf("a start with the key %q is run %s, existing %v; want %s", key, s.ID, s.Existing, id)
		}
	}
}

func ended(t *testing.T, engines ...*Engine) {
	t.Helper()
	for _, e := range engines {
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
