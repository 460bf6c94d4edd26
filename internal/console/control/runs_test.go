package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// newTestEngine returns an engine with the workflows "echo", which succeeds, and
// "fail", which dies at once.
func newTestEngine(t *testing.T) *engine.Engine {
	t.Helper()
	echo, err := engine.NewWorkflow("echo", engine.Step("say", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil }))
	if err != nil {
		t.Fatal(err)
	}
	fail, err := engine.NewWorkflow("fail", engine.Step("do", func(context.Context, json.RawMessage) (string, error) {
		return "", retry.Permanent(errors.New("no such order"))
	}))
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), engine.Config{Dir: t.TempDir(), Durability: engine.OS, Workflows: []*engine.Workflow{echo, fail}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// start starts a run and waits for its end.
func start(t *testing.T, r *Runs, workflow string) *engine.Info {
	t.Helper()
	s, err := r.Start(t.Context(), Start{Workflow: workflow}, "tester")
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.Wait(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestOperationsOnRuns(t *testing.T) {
	t.Parallel()
	r := New(newTestEngine(t)).Runs
	done, dead := start(t, r, "echo"), start(t, r, "fail")
	ctx := t.Context()
	for _, c := range []struct {
		name string
		do   func() error
		want Code
	}{
		{"start without a workflow", func() error { _, err := r.Start(ctx, Start{}, "x"); return err }, CodeBadRequest},
		{"start of an unknown workflow", func() error { _, err := r.Start(ctx, Start{Workflow: "order"}, "x"); return err }, CodeBadRequest},
		{"start of an internal workflow", func() error { _, err := r.Start(ctx, Start{Workflow: "notify.phone"}, "x"); return err }, CodeState},
		{"start with a key that is no text", func() error { _, err := r.Start(ctx, Start{Workflow: "echo", Key: "a\x00"}, "x"); return err }, CodeBadRequest},
		{"an unknown run", func() error { _, err := r.Lookup(ctx, "order/4711"); return err }, CodeNotFound},
		{"cancel a run that has ended", func() error { return r.Cancel(ctx, done.ID, "x") }, CodeState},
		{"retry a run that has succeeded", func() error { return r.Retry(ctx, done.ID, "x") }, CodeState},
		{"rerun from an unknown step", func() error { _, err := r.Rerun(ctx, engine.RerunRequest{Run: done.ID, Step: "pack"}); return err }, CodeBadRequest},
		{"list in an unknown state", func() error { return (&Filter{States: []string{"sick"}}).Validate() }, CodeBadRequest},
		{"list of an unknown workflow", func() error { _, err := r.ListOf(ctx, Filter{Workflow: "order"}); return err }, CodeNotFound},
		{"list with a wrong cursor", func() error { _, err := r.List(ctx, Filter{After: "nonsense"}); return err }, CodeBadRequest},
		{"result of a dead run", func() error { _, _, err := Result(dead); return err }, CodeDead},
	} {
		err := c.do()
		if err == nil || AsError(err).Code != c.want {
			t.Errorf("%s: %v, want the code %s", c.name, err, c.want)
		}
	}
	again, err := r.Replay(ctx, done.ID, json.RawMessage(`"again"`), "x")
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.Wait(ctx, again.ID)
	if err != nil || string(info.Output) != `"again"` || info.ReplayOf != done.ID {
		t.Errorf("the replay: %+v, %v", info, err)
	}
}

func TestOperationsOnManyRuns(t *testing.T) {
	t.Parallel()
	r := New(newTestEngine(t)).Runs
	var ids []string
	for range 3 {
		ids = append(ids, start(t, r, "fail").ID)
	}
	b := Bulk{Filter: &Filter{Workflow: "fail"}, Limit: 2}
	if err := b.Validate(BulkRetry); err != nil || !slices.Equal(b.Filter.States, []string{"dead"}) {
		t.Fatalf("Validate: %v, states %q", err, b.Filter.States)
	}
	done, err := r.Bulk(t.Context(), BulkRetry, b, "x")
	if err != nil || done.Matched != 2 || done.Done != 2 || done.Next == "" {
		t.Errorf("Bulk = %+v, %v, want 2 of 3", done, err)
	}
	for _, id := range ids { // wait until the runs are dead again
		if _, err := r.Wait(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	job := r.StartBulk(t.Context(), BulkCancel, nil, Filter{Workflow: "fail", States: []string{"dead"}, Fresh: true}, "x")
	<-job.Done()
	if err := job.Err(); err != nil || job.Progress() != (BulkResult{Done: 3}) {
		t.Errorf("a job for a filter: %+v, %v, want 3", job.Progress(), err)
	}
	job = r.StartBulk(t.Context(), BulkRetry, ids, Filter{}, "x")
	<-job.Done()
	if err := job.Err(); err != nil || job.Progress() != (BulkResult{Refused: int64(len(ids))}) {
		t.Errorf("a job for runs that are canceled: %+v, %v, want all refused", job.Progress(), err)
	}
	for name, c := range map[string]struct {
		bulk   Bulk
		action BulkAction
	}{
		"nothing":                       {Bulk{Limit: 1}, BulkRetry},
		"ids and a filter":              {Bulk{IDs: []string{"a"}, Filter: new(Filter), Limit: 1}, BulkRetry},
		"too many ids":                  {Bulk{IDs: []string{"a", "b"}, Limit: 1}, BulkRetry},
		"an empty id":                   {Bulk{IDs: []string{""}, Limit: 1}, BulkRetry},
		"a limit that is too high":      {Bulk{IDs: []string{"a"}, Limit: MaxBulk + 1}, BulkRetry},
		"retry of runs that are queued": {Bulk{Filter: &Filter{States: []string{"queued"}}, Limit: 1}, BulkRetry},
		"cancel of runs that are over":  {Bulk{Filter: &Filter{States: []string{"succeeded"}}, Limit: 1}, BulkCancel},
	} {
		if err := c.bulk.Validate(c.action); err == nil || AsError(err).Code != CodeBadRequest {
			t.Errorf("%s: %v, want the code %s", name, err, CodeBadRequest)
		}
	}
}

// A change that fails for a reason other than the state of the run is an error of the job, which
// continues with the other runs.
func TestABulkJobTellsRefusalsFromFailures(t *testing.T) {
	t.Parallel()
	j := new(BulkJob)
	results := map[string]error{
		"a": nil, "b": engine.ErrState, "c": engine.ErrNotFound, "d": engine.ErrAway, "e": context.DeadlineExceeded, "f": errors.New("disk full"), "g": nil,
	}
	if err := j.add(t.Context(), slices.Sorted(maps.Keys(results)), func(id string) error { return results[id] }); err != nil {
		t.Fatal(err)
	}
	if got, want := j.Progress(), (BulkResult{Done: 2, Refused: 2, Failed: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := j.Err(); err == nil || !strings.HasPrefix(err.Error(), "3 runs not changed, the first because: ") {
		t.Errorf("Err = %v", err)
	}
	j = new(BulkJob)
	j.missed([]int{4, 2})
	j.missed([]int{2})
	if err := j.Err(); !errors.Is(err, engine.ErrAway) || err.Error() != "the runs of the shards 2, 4 were not changed: did not answer" {
		t.Errorf("Err = %v", err)
	}
}
