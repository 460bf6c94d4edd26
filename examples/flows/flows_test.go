package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// example returns a workflow of this folder, and the input of its i-th run.
func example(name string, i int) (*engine.Workflow, any) {
	p := programs(&service{calls: io.Discard}, 0)[name]
	return p.workflow, p.input(i)
}

func TestLoop(t *testing.T) {
	t.Parallel()
	w, in := example("loop", 0)
	run := enginetest.Run(t, w, in)
	r, err := engine.Output[Receipt](run)
	if err != nil || len(r.Held) != 40 || r.Held[39] != "reserve article-39 (attempt 1)" || !strings.HasPrefix(r.Shipment, "ship 40 articles of order-0") {
		t.Errorf("%+v, %v", r, err)
	}
	if run.Status != "reserving 40 of 40" || run.Steps[40].Name != "reserve[article-39]" {
		t.Errorf("status %q, operations %v", run.Status, operationsOf(run))
	}
}

func TestBranch(t *testing.T) {
	t.Parallel()
	for i, want := range []struct{ output, operations string }{
		{"decline application-0: the income is too low (attempt 1)", "score review decline"},
		{"approve application-1 (attempt 1)", "score review approve"},
		{"approve application-2 (attempt 1)", "score approve"},
	} {
		w, in := example("branch", i)
		run := enginetest.Run(t, w, in)
		if out, err := engine.Output[string](run); err != nil || out != want.output {
			t.Errorf("%d: %q, %v, want %q", i, out, err, want.output)
		}
		if got := strings.Join(operationsOf(run), " "); got != want.operations {
			t.Errorf("%d: operations %s, want %s", i, got, want.operations)
		}
		if waits := enginetest.Waits(run, "score"); len(waits) != 1 || waits[0] != time.Minute {
			t.Errorf("%d: waits %v", i, waits)
		}
	}
}

func TestFanout(t *testing.T) {
	t.Parallel()
	w, in := example("fanout", 0)
	run := enginetest.Run(t, w, in)
	if out, err := engine.Output[string](run); err != nil || out != "1000 invoices for month-0: 599500 (attempt 1)" {
		t.Errorf("%q, %v", out, err)
	}
	if n := run.Operations; n.Total != 1002 || n.Succeeded != 1002 { // the map itself, its items, and the report
		t.Errorf("operations: %+v", n)
	}
}

func TestParcel(t *testing.T) {
	t.Parallel()
	w, in := example("parcel", 0)
	run := enginetest.Run(t, w, in)
	out, err := engine.Output[string](run)
	if took := run.Ended.Sub(run.Created); err != nil || out != "ship order-0 (attempt 1)" || took < 8*time.Hour || took > 8*time.Hour+time.Minute {
		t.Errorf("%q after %v, %v", out, took, err)
	}
	if got := strings.Join(operationsOf(run), " "); got != "pack paint pack#0 pack#1 pack#2 bill ship" {
		t.Errorf("operations %s", got)
	}
}

func TestSleep(t *testing.T) {
	t.Parallel()
	w, in := example("sleep", 0)
	run := enginetest.Run(t, w, in)
	out, err := engine.Output[string](run)
	if took := run.Ended.Sub(run.Created); err != nil || out != "remind user-0 (attempt 1)" || took < 72*time.Hour || took > 73*time.Hour {
		t.Errorf("%q after %v, %v", out, took, err)
	}
	if run.Status != "trial until 2000-01-04" || len(run.Steps[0].Attempts) != 2 {
		t.Errorf("status %q, the function was called %d times", run.Status, len(run.Steps[0].Attempts))
	}
}

func TestNamed(t *testing.T) {
	t.Parallel()
	w, in := example("named", 0)
	run := enginetest.Run(t, w, in)
	if out, err := engine.Output[int](run); err != nil || out != 100 {
		t.Errorf("%d parts, %v", out, err)
	}
	for n, name := range operationsOf(run) {
		if name != fmt.Sprintf("part-%02d", n) {
			t.Errorf("operation %d is %s", n, name)
		}
	}
}

// A meter of ten days has eleven runs. All have the key of the first, which leads to the one that
// is not over.
//
// real clock: enginetest.Test runs the function in a bubble
func TestEndless(t *testing.T) {
	t.Parallel()
	w, in := example("endless", 0)
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		t.Helper()
		first, err := e.Start(t.Context(), w, in, engine.Key("meter"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(240*time.Hour + 30*time.Minute)
		ids, err := e.Find(t.Context(), "meter", 2)
		if err != nil || len(ids) != 1 || ids[0] == first.ID {
			t.Fatalf("the key leads to %v, %v", ids, err)
		}
		run, err := e.Get(t.Context(), ids[0])
		if err != nil || run.State != engine.StateWaiting {
			t.Fatalf("%+v, %v", run, err)
		}
		var m Meter
		if err := json.Unmarshal(run.Input, &m); err != nil || m.Hour != 240 || m.Sum != 240 {
			t.Errorf("the last run begins with %+v, %v", m, err)
		}
		if err := e.Cancel(t.Context(), run.ID, "the test"); err != nil {
			t.Error(err)
		}
		if run, err := first.Wait(t.Context()); err != nil || run.State != engine.StateCanceled {
			t.Errorf("the end is %+v, %v", run, err)
		}
	}, w)
}

// Receipts come before the run waits for them, twice and after days; the manager approves, or does
// not answer in two days. The engine dies twice.
//
// real clock: enginetest.Test runs the function in a bubble
func TestApproval(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer engine.Answer
		want   string
		after  time.Duration // from the last receipt to the end
	}{
		{engine.Answer{Choice: engine.Approve, By: "ada"}, "pay 66 for journey-0 (attempt 1)", time.Hour},
		{engine.Answer{Choice: engine.Reject, By: "ada", Words: "too much"}, "refuse journey-0: too much (attempt 1)", time.Hour},
		{engine.Answer{}, "refuse journey-0: no answer (attempt 1)", 48 * time.Hour},
	} {
		w, in := example("approval", 0)
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			t.Helper()
			s, err := e.Start(t.Context(), w, in)
			if err != nil {
				t.Fatal(err)
			}
			send := func(n int) {
				t.Helper()
				if err := e.Signal(t.Context(), s.ID, "receipt", n, engine.ID(strconv.Itoa(n))); err != nil {
					t.Fatal(err)
				}
			}
			for n := range 6 {
				send(n)
				send(n)
			}
			time.Sleep(24 * time.Hour)
			e.Crash()
			for n := range 12 {
				send(n)
			}
			time.Sleep(time.Hour)
			e.Crash()
			last := time.Now().Add(-time.Hour)
			if c.answer.Choice != "" {
				if err := e.Answer(t.Context(), s.ID, "manager", c.answer); err != nil {
					t.Fatal(err)
				}
			}
			run, err := e.Wait(t.Context(), s.ID)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := engine.Output[string](run); err != nil || out != c.want {
				t.Errorf("%q, %v, want %q", out, err, c.want)
			}
			if took := run.Ended.Sub(last); took < c.after || took > c.after+time.Minute {
				t.Errorf("it ended %v after the last receipt, want %v", took, c.after)
			}
		}, w)
	}
}

func TestChildren(t *testing.T) {
	t.Parallel()
	w, in := example("children", 0)
	run := enginetest.Run(t, w, in)
	if out, err := engine.Output[string](run); err != nil || out != "report on product-0: 32 stars in 8 countries (attempt 1)" {
		t.Errorf("%q, %v", out, err)
	}
	if s := run.Steps[1]; s.Kind != "children" || s.Items.Succeeded != 8 || run.Steps[2].Child == "" {
		t.Errorf("%+v", run.Steps[:3])
	}
}

func TestTrip(t *testing.T) {
	t.Parallel()
	w, in := example("trip", 0)
	if out, err := engine.Output[string](enginetest.Run(t, w, in)); err != nil || out != "book hotel in city-0 (attempt 1)" {
		t.Errorf("%q, %v", out, err)
	}
	w, in = example("trip", 1)
	run := enginetest.Run(t, w, in)
	if got := strings.Join(operationsOf(run), " "); run.Error != "no car is left" || got != "hotel flight flight#0 flight#1 flight#0 flight#1 hotel" {
		t.Errorf("%s, operations %s", run.Error, got)
	}
}

// Each workflow survives a crash in the middle, in virtual time.
//
// real clock: enginetest.Test runs the function in a bubble
func TestCrashes(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{
		"loop": 41 * time.Millisecond, "branch": time.Minute + time.Millisecond, "fanout": 41 * time.Millisecond,
		"parcel": time.Hour, "sleep": time.Hour, "named": 101 * time.Millisecond,
	} {
		w, in := example(name, 1)
		without := enginetest.Run(t, w, in)
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			t.Helper()
			s, err := e.Start(t.Context(), w, in)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(after)
			e.Crash()
			run, err := e.Wait(t.Context(), s.ID)
			if err != nil || run.State != engine.StateSucceeded || run.Operations.Total != without.Operations.Total {
				t.Errorf("%s: %+v, %v", name, run, err)
			}
			if len(run.Steps[0].Attempts) < 2 {
				t.Errorf("%s: the crash was not in the middle", name)
			}
		}, w)
	}
}

// operationsOf returns the names of the operations of a run, in the order of their calls.
func operationsOf(run *engine.Info) (names []string) {
	for _, s := range run.Steps[1:] {
		if s.Kind == "do" || s.Kind == "map" || s.Kind == "item" || s.Kind == "undo" {
			names = append(names, s.Name)
		}
	}
	return names
}
