package steps_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// A request that is sent again after its undo has another idempotency key, so that the other system
// does not drop it. All attempts of one execution have the same key.
func TestKeyAfterAnUndo(t *testing.T) {
	flows(t, `
workflows:
  order:
    steps:
      - id: reserve
        http: {provider: api, post: /reserve}
        undo: {http: {provider: api, delete: /reserve}}
        policy: fixed(1s) attempts=2
      - {id: charge, needs: [reserve], http: {provider: api, post: /charge}, policy: fixed(1s) attempts=2}
`, func(t *testing.T, e *enginetest.Engine, a *api) {
		a.fails["/charge"], a.fails["/reserve"] = 4, 1
		id := start(t, e, "order", `{}`)
		run := ended(t, e, id, engine.StateDead, `step "charge": status 503`)
		if run.Reason != "attempts" {
			t.Errorf("the reason is %s", run.Reason)
		}
		for range 2 {
			if err := e.Retry(t.Context(), id, "tester"); err != nil {
				t.Fatal(err)
			}
			if run, err := e.Wait(t.Context(), id); err != nil {
				t.Fatal(run, err)
			}
		}
		ended(t, e, id, engine.StateSucceeded, "/charge")
		want := map[string]int{
			"reserve": 2, "undo:reserve": 1, "reserve/2": 1, "undo:reserve/2": 1, "reserve/3": 1,
			"charge": 5, // it may have been done in any of these attempts
		}
		got := map[string]int{}
		for key, n := range a.keys {
			got[strings.TrimPrefix(key, id+"/")] = n
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the keys are %v, want %v", got, want)
		}
	})
}

// A skipped step is listed, and so are the items of a loop. A skipped loop has the value of an
// empty one.
func TestSkippedSteps(t *testing.T) {
	flows(t, `
workflows:
  w:
    steps:
      - {id: a, when: "{{ .input.yes }}", `+get("/a")+`}
      - {id: b, needs: [a], when: "{{ .input.yes }}", for-each: [1, 2], `+get("/b")+`}
      - {id: c, needs: [a], for-each: [x, {n: 5}], `+get("/c")+`}
`, func(t *testing.T, e *enginetest.Engine, a *api) {
		run := ended(t, e, start(t, e, "w", `{"yes": false}`), engine.StateSucceeded, `"b":[]`)
		var got []string
		for _, s := range run.Steps[1:] {
			got = append(got, s.Kind+" "+s.Name+" "+s.Status+" "+s.Item)
		}
		slices.Sort(got)
		want := []string{`item c#0 succeeded x`, `item c#1 succeeded {"n":5}`, "map c succeeded ", "skip a skipped ", "skip b skipped "}
		if !slices.Equal(got, want) {
			t.Errorf("the operations are %q, want %q", got, want)
		}
		if got := fmt.Sprint(run.Declared); got != "[{a http []} {b http [a]} {c http [a]}]" {
			t.Errorf("declared are %s", got)
		}
	})
}

// A step is skipped in one execution of a run and executed in the next.
func TestSkippedBeforeARetry(t *testing.T) {
	flows(t, `
workflows:
  w:
    steps:
      - {id: count, http: {provider: api, post: /count}, undo: {http: {provider: api, delete: /count}}}
      - {id: b, needs: [count], when: "{{ eq .steps.count.status 201 }}", `+get("/b")+`}
      - {id: c, needs: [b], `+get("/c")+`, policy: fixed(1s) attempts=1}
`, func(t *testing.T, e *enginetest.Engine, a *api) {
		a.fails["/c"] = 1
		id := start(t, e, "w", `{}`)
		ended(t, e, id, engine.StateDead, `step "c"`)
		a.created("/count")
		if err := e.Retry(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		ended(t, e, id, engine.StateSucceeded, "/c")
		wantCalls(t, a, "POST /count, GET /c, DELETE /count, POST /count, GET /b, GET /c")
	})
}

// The error of a template names its step once.
func TestErrorOfATemplateNamesTheStepOnce(t *testing.T) {
	flows(t, `
workflows:
  one: {steps: [{id: a, when: "{{ not .input.no }}", `+get("/{{ .input.missing }}")+`}]}
  many: {steps: [{id: a, for-each: [1, 2], `+get("/{{ .input.missing }}")+`}]}
`, func(t *testing.T, e *enginetest.Engine, a *api) {
		for workflow, want := range map[string]string{"one": `step "a": http.get: `, "many": `item 0: http.get: `} {
			run := ended(t, e, start(t, e, workflow, `{"no": false}`), engine.StateDead, want)
			if strings.Count(run.Error, `step "a": `) != 1 {
				t.Errorf("%s: %s", workflow, run.Error)
			}
		}
	})
}
