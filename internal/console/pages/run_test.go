package pages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/console/pagetest"
	"github.com/tideover/tideover/retry"
)

// renderRun returns the page of a run.
func renderRun(t *testing.T, i *engine.Info, all bool, now time.Time) string {
	t.Helper()
	body, err := New(Options{}).render("run", newRunPart(i, 0, all, now).Data)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// newTestEngine returns an engine in which a run of the workflow "quick" has succeeded.
func newTestEngine(t *testing.T) *engine.Engine {
	t.Helper()
	quick, err := engine.NewWorkflow("quick", engine.Step("call", func(context.Context, json.RawMessage) (string, error) { return "done", nil }))
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), engine.Config{Dir: t.TempDir(), Durability: engine.OS, Workflows: []*engine.Workflow{quick}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	run, err := e.Start(t.Context(), quick, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.List(t.Context(), engine.Filter{Fresh: true}); err != nil { // until lists have the run
		t.Fatal(err)
	}
	return e
}

// The page of a run with many steps has those that have just ended.
func TestRunPageOfManySteps(t *testing.T) {
	t.Parallel()
	i := &engine.Info{ID: "x", Workflow: "w", State: "running", Created: time.Now(), Steps: []engine.StepInfo{{Name: "steps", Kind: "function"}}}
	for n := range 150 {
		name := fmt.Sprintf("step-%03d", n)
		i.Declared = append(i.Declared, engine.DeclaredOp{Name: name, Kind: "run"})
		if status := "succeeded"; n <= 60 {
			if n == 60 {
				status = "running"
			}
			i.Steps = append(i.Steps, engine.StepInfo{Name: name, Kind: "do", Number: n + 1, Status: status, Called: &i.Created})
		}
	}
	body := renderRun(t, i, false, time.Now())
	table := body[strings.Index(body, `<table class="ops"`):]
	pagetest.Has(t, "the page", body, "Show all: 50 rows not shown", "150 steps: 60 succeeded, 1 running, 89 not begun")
	pagetest.Has(t, "the table", table, "step-000", "step-059", "step-060", "step-099")
	pagetest.HasNot(t, "the table", table, "step-100", "step-149")
}

func TestARunPageSaysWhichAttemptsAreNotKept(t *testing.T) {
	t.Parallel()
	now := time.Now()
	i := &engine.Info{ID: "r", Workflow: "w", State: "dead", Created: now, Omitted: 300, Notes: []engine.Note{{At: now, What: "started"}}, Steps: []engine.StepInfo{
		{Name: "long", Status: "canceled", Omitted: 140, Attempts: []engine.AttemptInfo{
			{Number: 1, Started: now, Ended: &now, Outcome: "failed"}, {Number: 142, Omitted: 140, Started: now, Ended: &now, Outcome: "failed"},
		}},
	}}
	body := renderRun(t, i, true, now)
	pagetest.Has(t, "the page", body, "Not shown: 140 attempts of this step", `id="s0-a142-omitted"`, "140 attempts not shown", "300 entries in the middle of the history are not kept", "canceled")
	pagetest.HasNot(t, "the page", body, `id="s0-a1-omitted"`)
}

func TestAThousandAttempts(t *testing.T) {
	t.Parallel()
	now := time.Now()
	i := &engine.Info{ID: "x", State: "dead", Created: now.Add(-time.Hour), Ended: &now, Steps: []engine.StepInfo{{Name: "call", Status: "failed", Policy: "fixed(1s) attempts=1000", Spent: 1000}}}
	for n := range 1000 {
		at := i.Created.Add(time.Duration(n) * time.Second)
		i.Steps[0].Attempts = append(i.Steps[0].Attempts, engine.AttemptInfo{Number: n + 1, Started: at, Ended: &at, Outcome: "failed", Error: "the other side is down"})
	}
	render := func(all bool) string {
		body := renderRun(t, i, all, now)
		pagetest.Audit(t, "the page", body)
		return body
	}
	body := render(false)
	if n := strings.Count(body, `id="s0-a`); n != shownAttempts {
		t.Errorf("shows %d attempts, want %d", n, shownAttempts)
	}
	pagetest.Has(t, "the page", body, "Show all: 975 earlier attempts", "/runs/x?all#step-0", `id="s0-a1000"`)
	if n := len(body); n > 400<<10 {
		t.Errorf("the page has %d bytes", n)
	}
	all := render(true)
	if n := strings.Count(all, `id="s0-a`); n != 1000 {
		t.Errorf("shows %d attempts, want all", n)
	}
	pagetest.Has(t, "the page of all", all, "/live/runs/x?all")
}

func TestPercentiles(t *testing.T) {
	t.Parallel()
	var list []time.Duration
	for i := range 100 {
		list = append(list, time.Duration(100-i))
	}
	if got := newPercentiles(list); got != (percentiles{100, 50, 95}) {
		t.Errorf("1 to 100: %+v", got)
	}
	if got := newPercentiles([]time.Duration{7}); got != (percentiles{1, 7, 7}) {
		t.Errorf("one: %+v", got)
	}
	if got := newPercentiles(nil); got != (percentiles{}) {
		t.Errorf("none: %+v", got)
	}
}

// The runs of a workflow are read once, whatever the number of its schedules.
func TestLastRunsOfSchedules(t *testing.T) {
	t.Parallel()
	list := []engine.Schedule{{Name: "a", Workflow: "x"}, {Name: "b", Workflow: "x"}, {Name: "c", Workflow: "y"}, {Name: "d", Workflow: "x"}}
	var read []string
	got, err := lastRuns(list, func(workflow string) ([]Row, error) {
		read = append(read, workflow)
		return []Row{{Info: engine.Info{ID: "1", Key: "schedule/b/2"}}, {Info: engine.Info{ID: "2", Key: "schedule/a/2"}}, {Info: engine.Info{ID: "3", Key: "schedule/a/1"}}}, nil
	})
	if err != nil || strings.Join(read, " ") != "x y" {
		t.Errorf("read %q, %v", read, err)
	}
	if got["a"].ID != "2" || got["b"].ID != "1" || got["c"] != nil || got["d"] != nil {
		t.Errorf("got %+v", got)
	}
	failure := errors.New("no answer")
	if _, err := lastRuns(list, func(string) ([]Row, error) { return nil, failure }); !errors.Is(err, failure) {
		t.Errorf("the error is %v", err)
	}
}

// The figures of a workflow are read again only if a run has ended.
func TestFiguresOfAWorkflowAreCached(t *testing.T) {
	t.Parallel()
	h := New(Options{Control: control.New(newTestEngine(t))})
	totals := engine.Totals{Succeeded: 1}
	first, err := (workflowsPage{Data: h.Data, ended: &h.ended}).endedRuns(t.Context(), "quick", totals)
	if err != nil || first.Took.N != 1 {
		t.Fatalf("got %+v, %v", first, err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if again, err := (workflowsPage{Data: h.Data, ended: &h.ended}).endedRuns(canceled, "quick", totals); err != nil || again != first {
		t.Errorf("the second time: %+v, %v", again, err)
	}
	if _, err := (workflowsPage{Data: h.Data, ended: &h.ended}).endedRuns(canceled, "quick", engine.Totals{Succeeded: 2}); err == nil {
		t.Error("it was not read again")
	}
}

// Of many operations, the table has those that have failed or have not ended, then the last ones that
// have ended, then the next steps.
func TestRowsOfManySteps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n            int
		states, want string // a letter for each operation
	}{
		{6, "ssssssrbbbbbb", "123456"},
		{6, "ssssssssrbbbb", "345678"},
		{6, "fssrbbbbbbbbb", "012345"},
		{6, "fsfsssksrssss", "028abc"},
		{3, "ffffff", "345"},
		{3, "bbbbbb", "012"},
		{9, "sb", "01"},
	} {
		states := map[rune]string{'s': "succeeded", 'k': "skipped", 'r': "running", 'f': "failed", 'b': control.StepNotBegun}
		var ops []control.Operation
		for i, letter := range c.states {
			ops = append(ops, control.Operation{StepInfo: &engine.StepInfo{Status: states[letter]}, Label: fmt.Sprintf("%x", i)})
		}
		got := ""
		for _, o := range latestOps(ops, c.n) {
			got += o.Label
		}
		if got != c.want {
			t.Errorf("%d of %s: %s, want %s", c.n, c.states, got, c.want)
		}
	}
}

func TestFieldsOfAType(t *testing.T) {
	t.Parallel()
	type inner struct{ A int }
	type all struct {
		inner
		Text  string
		Skip  string `json:"-"`
		At    time.Time
		List  []int   `json:"list,omitempty"`
		Deep  *inner  `json:"deep"`
		Ratio float32 `json:"ratio"`
		On    *bool
	}
	var got []string
	for _, f := range fieldsOfType(reflect.TypeFor[*all]()) {
		got = append(got, f.Label+" "+f.Kind)
	}
	if text := strings.Join(got, ", "); text != "A number, Text text, At json, list json, deep json, ratio number, On bool" {
		t.Errorf("fieldsOfType() = %s", text)
	}
	if list := fieldsOfType(reflect.TypeFor[json.RawMessage]()); list != nil {
		t.Errorf("any JSON: %+v", list)
	}
}

func TestWhyARunGaveUp(t *testing.T) {
	t.Parallel()
	attempts := retry.StopAttempts.String()
	for _, c := range []struct {
		policy string
		from   int // index of the first attempt
		reason string
		want   string
	}{
		{"fixed(1s) attempts=1", 1, attempts, "the policy allows one attempt"},
		{"fixed(1s) attempts=1", 0, attempts, "the policy allows one attempt"}, // the run was retried
		{"fixed(1s) attempts=2", 0, attempts, "attempts used up"},
		{"", 1, attempts, "the policy allows one attempt"}, // an operation
		{"fixed(1s) attempts=1", 1, "undo", InWords("undo")},
	} {
		list := []engine.AttemptInfo{{Number: 1, Outcome: "failed"}, {Number: 2, Outcome: "failed", Reason: c.reason}}
		i := &engine.Info{State: "dead", Reason: c.reason, Steps: []engine.StepInfo{{Name: "first", Policy: "fixed(1s) attempts=3"}, {Name: "pay", Policy: c.policy, Attempts: list[c.from:]}}}
		if got := whyDead(i); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.policy, c.reason, got, c.want)
		}
		if got := NewStep(&i.Steps[1], 0, true).Attempts[len(list[c.from:])-1].Why; got != c.want {
			t.Errorf("%s, %s: the attempt says %q, want %q", c.policy, c.reason, got, c.want)
		}
	}
}

// A wait has two lengths: the planned one, and the time until the next attempt began.
func TestTimeUntilTheNextAttempt(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 2, 5, 3, 0, 0, 0, time.UTC)
	wait := &engine.WaitInfo{Delay: time.Millisecond, Until: start.Add(time.Millisecond), By: "policy"}
	s := &engine.StepInfo{Name: "load", Attempts: []engine.AttemptInfo{
		{Number: 1, Started: start, Ended: &start, Outcome: "failed", Wait: wait},
		{Number: 2, Started: start.Add(36 * time.Millisecond), Ended: &start, Outcome: "failed", Wait: wait},
	}}
	if list := NewStep(s, 0, true).Attempts; list[0].Idle != 36*time.Millisecond || list[1].Idle != 0 {
		t.Errorf("%v and %v until the next attempt, want 36ms and 0", list[0].Idle, list[1].Idle)
	}
}
