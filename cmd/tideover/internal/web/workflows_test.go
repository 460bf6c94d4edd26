package web

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/testwait"
)

// defaults is the default input of the workflow "report" of newWorkflowSite.
const defaults = `{"count": 3, "dry": true, "name": "daily", "tags": ["a", "b"], "token": "s3cret"}`

// newWorkflowSite returns a site with a workflow that has a default input, as those of the
// configuration have. The pages do not show the text s3cret.
func newWorkflowSite(t *testing.T) *testSite {
	t.Helper()
	b := newTestSite(t, func(o *setup) {
		o.actor = "alice"
		o.Redact = func(s string) string { return strings.ReplaceAll(s, "s3cret", "…") }
	})
	report, err := engine.NewWorkflow("report", engine.Call("say", "none", nil), engine.PrepareInput(func(given json.RawMessage, _ time.Time) (json.RawMessage, error) {
		input := map[string]any{}
		for _, text := range []string{defaults, string(given)} {
			if text != "" {
				if err := json.Unmarshal([]byte(text), &input); err != nil {
					return nil, err
				}
			}
		}
		return json.Marshal(input)
	}))
	if err == nil {
		err = b.e.Register(report)
	}
	if err == nil {
		err = b.e.SetSchedules(t.Context(), []engine.Schedule{{Name: "nightly", Workflow: "quick", Cron: "0 3 * * *", Input: json.RawMessage(`{"name":"night"}`)}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWorkflowsPage(t *testing.T) {
	t.Parallel()
	b := newWorkflowSite(t)
	has(t, "before any run", b.page("/workflows"), `href="/workflows/order"`, "3 steps", `href="/workflows/order/start"`, `aria-current="page">Workflows</a>`)
	b.dead(1, job{Error: "418 teapot"})
	for range 3 {
		b.until(b.start("quick", job{}), "succeeded")
	}
	testwait.Until(t, "the figures are there", func() bool { return strings.Contains(b.page("/workflows"), "75 %") })
	has(t, "the live part", b.message("/live/workflows"), "75 %")
	body := b.page("/workflows/quick")
	has(t, "the page of a workflow", body, "75 %", "418 teapot", "nightly", "0 3 * * *", `href="/runs?workflow=quick"`, "/schedules/nightly/pause")
	hasNot(t, "a workflow with one step", body, "<svg")
	has(t, "a workflow with three steps", b.page("/workflows/order"), `<svg`, `<title id="graph-title">`, "3 steps. Each arrow", `href="#def-1"`, `id="def-1"`, `class="edge"`)
	if a := b.request("GET", "/workflows/nothing", nil); a.status != http.StatusNotFound || !strings.Contains(a.body, "unknown workflow") {
		t.Errorf("an unknown workflow: %d", a.status)
	}
}

func TestRunPageHasAGraph(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	id := b.start("order", job{})
	b.until(id, "succeeded")
	has(t, "a run", b.page("/runs/"+id), `class="node succeeded" href="#step-2"`, "3 steps: 3 succeeded.", "✓ succeeded")
	wait := b.start("order", job{Hold: true})
	b.until(wait, "running")
	has(t, "a run that has begun", b.page("/runs/"+wait), `class="node running"`, `class="node not-begun"`, "1 running, 2 not begun")
	one := b.start("quick", job{})
	b.until(one, "succeeded")
	hasNot(t, "a run with one step", b.page("/runs/"+one), "graph-section")
}

func TestStartForm(t *testing.T) {
	t.Parallel()
	b := newWorkflowSite(t)
	const form = "/workflows/report/start"
	body := b.page(form)
	has(t, "the form", body, `<label for="start-0">count</label>`, `name="input.count" value="3" inputmode="decimal"`, `<input type="checkbox" id="start-1" name="input.dry" value="true" checked>`,
		`name="input.name" value="daily"`, `name="input.tags"`, "&#34;a&#34;", "Secrets in the default input are hidden", `href="/workflows/report/start?json"`)
	hasNot(t, "the form", body, "s3cret")
	same := url.Values{"input.count": {"3"}, "input.dry": {"true"}, "input.name": {"daily"}, "input.tags": {"[\n  \"a\",\n  \"b\"\n]"}, "input.token": {"…"}, "key": {""}}
	change := func(name, value string) url.Values {
		v := url.Values{}
		for k, list := range same {
			v[k] = list
		}
		if v.Set(name, value); value == "" && name == "input.dry" {
			v.Del(name)
		}
		return v
	}
	start := func(path string, v url.Values) *engine.Info {
		t.Helper()
		a := b.request("POST", path, v)
		id, ok := strings.CutPrefix(strings.TrimSuffix(a.to, "?did=start"), "/runs/")
		if !ok || a.status != http.StatusSeeOther {
			t.Fatalf("POST %s %v: %d %q\n%s", path, v, a.status, a.to, a.body)
		}
		return must(b.e.Get(t.Context(), id))
	}
	i := start(form, same)
	var input, want any
	if json.Unmarshal(i.Input, &input) != nil || json.Unmarshal([]byte(defaults), &want) != nil || !reflect.DeepEqual(input, want) {
		t.Errorf("the input is %s, want %s", i.Input, defaults)
	}
	if i.Source != "alice" {
		t.Errorf("the run was started by %q", i.Source)
	}
	for _, tt := range []struct{ name, value, want string }{
		{"input.count", "4.5", `"count":4.5`}, {"input.dry", "", `"dry":false`}, {"input.name", "x \"y\"", `"name":"x \"y\""`}, {"input.tags", "{\"a\": 1}", `"tags":{"a":1}`}, {"input.token", "new", `"token":"new"`},
	} {
		if i := start(form, change(tt.name, tt.value)); !strings.Contains(string(i.Input), tt.want) || tt.name != "input.token" && !strings.Contains(string(i.Input), "s3cret") {
			t.Errorf("%s=%s: the input is %s", tt.name, tt.value, i.Input)
		}
	}
	for _, tt := range []struct{ name, value, want string }{
		{"input.count", "four", `id="start-0-problem">&#34;four&#34; is not a number`}, {"input.tags", "[1,", `id="start-3-problem">is not JSON: line 1`}, {"input.tags", "", "is empty"},
		{"input.tags", `{"a":1,"a":2}`, "gives &#34;a&#34; twice"}, {"key", "a\nb", `id="start-key-problem"`},
	} {
		a := b.request("POST", form, change(tt.name, tt.value))
		if a.status != http.StatusUnprocessableEntity || !strings.Contains(a.body, tt.want) || !strings.Contains(a.body, `aria-invalid="true"`) || !strings.Contains(a.body, "was not started") {
			t.Errorf("%s=%q: %d, want %s in\n%s", tt.name, tt.value, a.status, tt.want, a.body)
		}
	}
	if i := start(form+"?json", url.Values{"input": {`{"name": "json"}`}}); !strings.Contains(string(i.Input), `"name":"json"`) {
		t.Errorf("as JSON: %s", i.Input)
	}
	if a := b.request("POST", form+"?json", url.Values{"input": {"{"}}); a.status != http.StatusUnprocessableEntity || !strings.Contains(a.body, "is not JSON") {
		t.Errorf("wrong JSON: %d", a.status)
	}
	first := start(form, change("key", "k1"))
	if a := b.request("POST", form, change("key", "k1")); a.to != "/runs/"+first.ID+"?did=existing" {
		t.Errorf("a key that exists: %d %s", a.status, a.to)
	}
	other := change("key", "k1")
	other.Set("input.count", "5")
	a := b.request("POST", form, other)
	if a.to != "/runs/"+first.ID+"?did=differs" {
		t.Errorf("a key that exists, with another input: %d %s", a.status, a.to)
	}
	has(t, "the run", b.page(a.to), "No run was started: this run has the same key, but another input.")
	for _, path := range []string{"/workflows/nothing/start", "/workflows/session.x/start"} {
		if a := b.request("POST", path, nil); a.status != http.StatusNotFound {
			t.Errorf("POST %s: %d", path, a.status)
		}
	}
}

// A workflow of Go functions has a field for each field of its input type.
func TestStartFormOfAType(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	has(t, "the form", b.page("/workflows/quick/start"), `name="input.fail" value="" inputmode="decimal"`, `type="checkbox" id="start-`, `name="input.hold"`, `name="input.error"`)
	a := b.request("POST", "/workflows/quick/start", url.Values{"input.name": {"x"}, "input.fail": {"1"}})
	id := strings.TrimSuffix(strings.TrimPrefix(a.to, "/runs/"), "?did=start")
	if i := must(b.e.Get(t.Context(), id)); string(i.Input) != `{"fail":1,"name":"x"}` {
		t.Errorf("the input is %s", i.Input)
	}
	has(t, "the page of the run", b.page(a.to), "Started.")
	a = b.request("POST", "/workflows/quick/start", url.Values{"input.fail": {"1.5"}})
	if a.status != http.StatusUnprocessableEntity || !strings.Contains(a.body, "want int, but it is number 1.5") {
		t.Errorf("a number that is not whole: %d\n%s", a.status, a.body)
	}
}

func TestSchedulesPage(t *testing.T) {
	t.Parallel()
	b := newWorkflowSite(t)
	has(t, "/schedules", b.page("/schedules"), "nightly", "0 3 * * *", `href="/schedules/nightly/run"`, `href="/schedules/nightly/pause"`, `href="/workflows/quick"`)
	has(t, "the question", b.page("/schedules/nightly/pause"), "Pause schedule nightly?")
	if a := b.request("POST", "/schedules/nightly/pause", nil); a.to != "/schedules?did=pause" {
		t.Fatalf("pause: %d %s\n%s", a.status, a.to, a.body)
	}
	body := b.page("/schedules?did=pause")
	has(t, "a paused schedule", body, "Paused. The schedule starts no run", "by alice", `href="/schedules/nightly/resume"`)
	hasNot(t, "a paused schedule", body, "nightly/pause", "due now")
	has(t, "the workflow of a paused schedule", b.page("/workflows"), `class="state paused"`)
	hasNot(t, "the overview", b.page("/overview"), "d-nightly")
	if a := b.request("POST", "/schedules/nightly/resume", nil); a.to != "/schedules?did=resume" {
		t.Errorf("resume: %d %s", a.status, a.to)
	}
	a := b.request("POST", "/schedules/nightly/run", nil)
	id := strings.TrimSuffix(strings.TrimPrefix(a.to, "/runs/"), "?did=start")
	if i := must(b.e.Get(t.Context(), id)); i.Workflow != "quick" || string(i.Input) != `{"name":"night"}` || i.Source != "alice" {
		t.Errorf("run now: %+v", i)
	}
	for _, path := range []string{"/schedules/nothing/pause", "/schedules/nightly/nothing"} {
		if a := b.request("POST", path, nil); a.status != http.StatusNotFound {
			t.Errorf("POST %s: %d", path, a.status)
		}
	}
}

func TestPauseOnTheWorkflowPages(t *testing.T) {
	t.Parallel()
	b := newWorkflowSite(t)
	for _, path := range []string{"/workflows", "/workflows/quick"} {
		has(t, path, b.page(path), `href="/workflows/quick/pause"`)
		hasNot(t, path, b.page(path), "quick/resume")
	}
	has(t, "the question", b.page("/workflows/quick/pause"), "Pause workflow quick?", "also after a restart")
	if a := b.request("POST", "/workflows/quick/pause", nil); a.to != "/workflows/quick?did=pause" {
		t.Fatalf("pause: %d %s\n%s", a.status, a.to, a.body)
	}
	if p := must(b.e.PausedWorkflows(t.Context()))["quick"]; p.By != "alice" {
		t.Errorf("paused: %+v", p)
	}
	run := must(b.e.StartRegistered(t.Context(), must2(b.e.Workflow("quick")), json.RawMessage(`{"name":"x"}`)))
	body := b.page("/workflows/quick?did=pause")
	has(t, "the page of a paused workflow", body, "Paused. No attempt of its runs begins", `class="state paused"`, ", by <span class=\"text\">alice</span>", `href="/workflows/quick/resume"`)
	hasNot(t, "the page of a paused workflow", body, "quick/pause")
	has(t, "the list", b.page("/workflows"), `class="state paused"`, `href="/workflows/quick/resume"`)
	has(t, "its run", b.page("/runs/"+run.ID), "Waits: the workflow is paused since", "alice")
	must(b.e.List(t.Context(), engine.Filter{Fresh: true})) // until lists have the run
	has(t, "the list of runs", b.page("/runs"), "workflow paused")
	if a := b.request("POST", "/workflows/quick/resume", nil); a.to != "/workflows/quick?did=resume" {
		t.Errorf("resume: %d %s", a.status, a.to)
	}
	hasNot(t, "its run after that", b.page("/runs/"+run.ID), "workflow is paused")
	for _, path := range []string{"/workflows/nothing/pause", "/workflows/quick/nothing"} {
		if a := b.request("POST", path, nil); a.status != http.StatusNotFound {
			t.Errorf("POST %s: %d", path, a.status)
		}
		if a := b.request("GET", path, nil); a.status != http.StatusNotFound {
			t.Errorf("GET %s: %d", path, a.status)
		}
	}
}

func must2[T any](v T, ok bool) T {
	if !ok {
		panic("not found")
	}
	return v
}

// A form that is too large is answered with 413, as by the API.
func TestStartFormIsLimited(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	if a := b.request("POST", "/workflows/quick/start", url.Values{"input.name": {strings.Repeat("x", pages.MaxBody+1)}}); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d, want 413", a.status)
	}
}
