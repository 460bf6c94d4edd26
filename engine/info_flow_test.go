package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

// opNamed returns the operation with a name; nil if it is not listed.
func opNamed(run *engine.Info, name string) *engine.StepInfo {
	i := slices.IndexFunc(run.Steps, func(s engine.StepInfo) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &run.Steps[i]
}

// real clock: enginetest.Test runs the function in a bubble
func TestInfoOfAFlow(t *testing.T) {
	w := engine.MustFlow("order", func(f *engine.Flow, _ int) (int, error) {
		if _, err := engine.Do(f, "price", func(context.Context) (int, error) { return 7, nil }); err != nil {
			return 0, err
		}
		_, err := engine.Collect(f, "hold", []int{1, 2, 3, 4}, func(_ context.Context, i int) (int, error) {
			switch i {
			case 2:
				return 0, retry.Permanent(engine.Coded("gone", errors.New("no longer sold")))
			case 4:
				return 0, errors.New("busy")
			}
			return i, nil
		}, engine.ForKey("a#b"), engine.Policy("fixed(1h) attempts=2"), engine.Parallel(2))
		if err != nil {
			return 0, err
		}
		return 1, engine.Sleep(f, "rest", time.Hour)
	}, engine.Function(engine.Version("v2")))
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		started := must(e.Start(t.Context(), w, 1))
		time.Sleep(time.Minute)
		run := must(e.Get(t.Context(), started.ID))
		hold := opNamed(run, "hold[a#b]")
		if hold == nil || hold.Kind != "map" || hold.Status != "running" || hold.Output != nil || *hold.Items != (engine.OpCounts{Total: 4, Succeeded: 2, Failed: 1, Waiting: 1}) {
			t.Fatalf("the map while an item waits: %+v", hold)
		}
		if run.Step != "hold[a#b]#3" || run.Version != "v2" || *run.Operations != (engine.OpCounts{Total: 6, Succeeded: 4, Failed: 1, Waiting: 1}) {
			t.Errorf("step %q, version %q, operations %+v", run.Step, run.Version, run.Operations)
		}
		e.Crash(w)
		time.Sleep(90 * time.Minute)
		run = must(e.Get(t.Context(), started.ID)) // in the sleep: the items with a # in the key of their map are known again
		if hold := opNamed(run, "hold[a#b]"); hold.Status != "failed" || hold.Items.Failed != 2 {
			t.Errorf("the map after its last item failed: %+v", hold)
		}
		failed := opNamed(run, "hold[a#b]#1")
		if failed == nil || failed.Kind != "item" || failed.Status != "failed" || failed.Code != "gone" || failed.Error != "no longer sold" || failed.Ended == nil || failed.Called == nil {
			t.Errorf("the failed item: %+v", failed)
		}
		if rest := opNamed(run, "rest"); rest == nil || rest.Status != "waiting" || rest.Next == nil || run.State != "waiting" {
			t.Errorf("the run is %s, the sleep %+v", run.State, rest)
		}
		if err := e.Cancel(t.Context(), started.ID, "test"); err != nil {
			t.Fatal(err)
		}
		run = must(e.Get(t.Context(), started.ID))
		if rest := opNamed(run, "rest"); rest.Status != "canceled" || run.Operations.Canceled != 1 {
			t.Errorf("after Cancel: %+v, operations %+v", rest, run.Operations)
		}
	}, w)
}

// real clock: enginetest.Test runs the function in a bubble
func TestInfoOfAContinuedRun(t *testing.T) {
	w := engine.MustFlow("chain", func(f *engine.Flow, left int) (int, error) {
		if left > 0 {
			return 0, engine.Again(f, left-1)
		}
		return 1, nil
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		first := must(e.Start(t.Context(), w, 1))
		time.Sleep(time.Minute)
		run := must(e.Get(t.Context(), first.ID))
		if next := must(e.Get(t.Context(), run.ContinuedBy)); next.ContinuedBy != "" || run.ReplacedBy != "" {
			t.Errorf("continued by %q, replaced by %q; the next is continued by %q", run.ContinuedBy, run.ReplacedBy, next.ContinuedBy)
		}
		for _, i := range must(e.List(t.Context(), engine.Filter{})).Runs {
			if i.ReplacedBy != "" || (i.ContinuedBy != "") != (i.ID == first.ID) {
				t.Errorf("the list: run %s is continued by %q, replaced by %q", i.ID, i.ContinuedBy, i.ReplacedBy)
			}
		}
	}, w)
}

// real clock: enginetest.Test runs the function in a bubble
func TestInfoOfALargeFlowIsSmall(t *testing.T) {
	const items, size = 15_000, 2000
	result := strings.Repeat("x", size)
	large := make([]int, items)
	for i := range large {
		large[i] = i
	}
	w := engine.MustFlow("large", func(f *engine.Flow, _ int) (int, error) {
		if _, err := engine.Do(f, "before", func(context.Context) (int, error) { return 7, nil }); err != nil {
			return 0, err
		}
		_, err := engine.Collect(f, "all", large, func(_ context.Context, i int) (string, error) {
			if i%20 == 3 {
				return "", retry.Permanent(fmt.Errorf("item %d: %s", i, strings.Repeat("e", 500)))
			}
			return result, nil
		}, engine.Parallel(1000))
		if err != nil {
			return 0, err
		}
		return 1, engine.Sleep(f, "rest", time.Hour)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		started := must(e.Start(t.Context(), w, 1))
		time.Sleep(time.Minute)
		run := must(e.Get(t.Context(), started.ID))
		text := must(json.Marshal(run))
		if len(text) > 3<<20 {
			t.Errorf("the run has %d bytes of JSON", len(text))
		}
		if n := len(run.Steps); n != 1001 {
			t.Errorf("%d steps are listed", n)
		}
		all := opNamed(run, "all")
		want := engine.OpCounts{Total: items, Succeeded: items - items/20, Failed: items / 20}
		if all == nil || all.Items.Total != want.Total || all.Items.Succeeded != want.Succeeded || all.Items.Failed != want.Failed {
			t.Fatalf("the map: %+v", all)
		}
		listed, outputs, left := engine.OpCounts{}, 0, 0
		for _, s := range run.Steps {
			if s.Kind == "item" && s.Status == "failed" {
				listed.Failed++
			}
			if s.Kind == "item" {
				listed.Total++
			}
			outputs += len(s.Output)
			left += s.OutputSize
			if s.Kind == "item" && s.Status == "succeeded" && (s.Output == nil) != (s.OutputSize == size+2) {
				t.Fatalf("item %s has %d bytes of output, and left out %d", s.Name, len(s.Output), s.OutputSize)
			}
		}
		if listed.Failed != 250 || all.Items.Omitted != items-listed.Total || run.Operations.Omitted != all.Items.Omitted || outputs > 256<<10 || outputs < 200<<10 || left == 0 {
			t.Errorf("listed %+v, omitted %d and %d, %d bytes of outputs, %d left out", listed, all.Items.Omitted, run.Operations.Omitted, outputs, left)
		}
		for _, name := range []string{"function", "before", "rest", "all#0", fmt.Sprint("all#", items-1)} {
			if opNamed(run, name) == nil {
				t.Errorf("%s is not listed", name)
			}
		}
	}, w)
}
