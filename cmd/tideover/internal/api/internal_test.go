package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

// own returns an option of serve that adds workflows with these names, whose runs always fail.
func own(names ...string) func(*fixture, *engine.Config) {
	return func(f *fixture, cfg *engine.Config) {
		for _, name := range names {
			w, err := engine.NewWorkflow(name, engine.Step("do", func(context.Context, json.RawMessage) (string, error) { return "", errors.New("gone") },
				engine.Policy("fixed(0s) attempts=1")))
			if err != nil {
				f.t.Fatal(err)
			}
			cfg.Workflows = append(cfg.Workflows, w)
		}
	}
}

// begin starts a run directly in the engine, as the server does for internal workflows.
func (f *fixture) begin(workflow, input string) string {
	f.t.Helper()
	w, ok := f.engine.Workflow(workflow)
	if !ok {
		f.t.Fatalf("no workflow %s", workflow)
	}
	run, err := f.engine.Start(f.t.Context(), w, json.RawMessage(input))
	if err != nil {
		f.t.Fatal(err)
	}
	f.over(run.ID)
	return run.ID
}

func TestInternalWorkflowsCanNotBeStarted(t *testing.T) {
	t.Parallel()
	f := serve(t, own("session.todo", "notify.hook", "never.on-give-up"))
	for name, want := range map[string]string{
		"session.todo": "session.todo is a session; use tideover sessions", "notify.hook": "notify.hook sends messages",
		"never.on-give-up": "is started when a run gives up",
	} {
		got := f.ask(false, "POST", Prefix+"runs", `{"workflow": "`+name+`"}`)
		if p := got.problem(t); got.status != http.StatusConflict || p.Code != control.CodeState || !strings.Contains(p.Message, want) {
			t.Errorf("start %s: %d %s", name, got.status, got.text)
		}
		id := f.begin(name, `{}`)
		for _, again := range []string{"replay", "rerun", "retry-latest"} {
			body := map[string]string{"replay": `{}`, "rerun": `{"step": "do"}`, "retry-latest": `{}`}[again]
			got := f.ask(false, "POST", Prefix+"runs/"+id+"/"+again, body)
			if p := got.problem(t); got.status != http.StatusConflict || !strings.Contains(p.Message, want) {
				t.Errorf("%s %s: %d %s", again, name, got.status, got.text)
			}
		}
		if _, err := f.client().Retry(t.Context(), id); err != nil {
			t.Errorf("retry of a dead run of %s: %v", name, err)
		}
		f.over(id)
	}
}

func TestInternalRunsAreListedOnRequest(t *testing.T) {
	t.Parallel()
	f := serve(t, own("session.todo", "notify.hook", "perm.on-give-up"))
	for _, name := range []string{"session.todo", "notify.hook", "perm.on-give-up", "perm"} {
		f.begin(name, `{"text": "exit code 4"}`)
	}
	f.listed("dead", 4)
	c := f.client()
	for _, tt := range []struct {
		name string
		f    control.Filter
		want int
	}{
		{"by default", control.Filter{}, 1}, {"dead", control.Filter{States: []string{"dead"}}, 1}, {"on request", control.Filter{Internal: true}, 4},
		{"by name", control.Filter{Workflow: "notify.hook"}, 1},
	} {
		if page, err := c.List(t.Context(), tt.f); err != nil || len(page.Runs) != tt.want {
			t.Errorf("%s: %d runs, %v; want %d", tt.name, len(page.Runs), err, tt.want)
		}
	}
	for internal, want := range map[bool]int{false: 1, true: 4} {
		if dead, err := c.Dead(t.Context(), 0, internal); err != nil || len(dead.Groups) != want {
			t.Errorf("groups: %d, %v; want %d", len(dead.Groups), err, want)
		}
	}
	if dead, _ := c.Dead(t.Context(), 0, false); len(dead.Groups) == 1 && dead.Groups[0].Pattern != "exit code 4" {
		t.Errorf("pattern %q", dead.Groups[0].Pattern)
	}
	flows, err := c.Workflows(t.Context())
	if err != nil || slices.ContainsFunc(flows.Workflows, func(w control.Workflow) bool { return control.Internal(w.Name) }) {
		t.Errorf("workflows: %v, %v", flows, err)
	}
	if got := f.ask(false, "GET", Prefix+"workflows?internal=1", ""); !strings.Contains(got.text, "session.todo") {
		t.Errorf("workflows on request: %s", got.text)
	}
	if got := f.ask(false, "POST", Prefix+"runs/retry", `{"filter": {"internal": true}}`); got.status != http.StatusBadRequest {
		t.Errorf("a filter that restricts nothing: %d %s", got.status, got.text)
	}
	d, err := c.RetryMany(t.Context(), control.Bulk{Filter: &control.Filter{States: []string{"dead"}}})
	if err != nil || d.Matched != 1 {
		t.Errorf("retry of all dead: %+v, %v; want one", d, err)
	}
}

func TestAWorkflowThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	f := serve(t)
	for _, got := range []*answered{
		f.ask(false, "GET", Prefix+"runs?workflow=nope", ""),
		f.ask(false, "POST", Prefix+"runs/retry", `{"filter": {"workflow": "nope"}}`),
	} {
		if p := got.problem(t); got.status != http.StatusNotFound || p.Message != `unknown workflow "nope"` || !strings.Contains(p.Hint, "echo") {
			t.Errorf("%d %s", got.status, got.text)
		}
	}
	if got := f.ask(false, "GET", Prefix+"runs?workflow=echo", ""); got.status != http.StatusOK {
		t.Errorf("one without runs: %d %s", got.status, got.text)
	}
}

func TestARunThatWasReplacedSaysByWhich(t *testing.T) {
	t.Parallel()
	f := serve(t)
	id := f.start("perm", `{"text": "gone"}`)
	f.over(id)
	next, err := f.client().Replay(t.Context(), id, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.over(next.ID)
	for path, body := range map[string]string{"rerun": `{"step": "do"}`, "replay": `{}`, "retry-latest": `{}`, "retry": `{}`} {
		got := f.ask(false, "POST", Prefix+"runs/"+id+"/"+path, body)
		if p := got.problem(t); got.status != http.StatusConflict || p.Message != "run "+id+" was replaced by "+next.ID {
			t.Errorf("%s: %d %s", path, got.status, got.text)
		}
	}
}
