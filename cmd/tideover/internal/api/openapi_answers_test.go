//go:build unix

package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
)

// listedIn returns the known names in the hint of a response. unknown reports whether the response
// rejects an unknown field or parameter.
func listedIn(t *testing.T, a *answered) (names []string, unknown bool) {
	t.Helper()
	if a.status != http.StatusBadRequest {
		return nil, false
	}
	p := a.problem(t)
	if p.Field != "nonsense" {
		return nil, false
	}
	if list, ok := strings.CutPrefix(p.Hint, "want one of "); ok {
		names = strings.Split(list, ", ")
	}
	slices.Sort(names)
	return names, true
}

// TestTheDescriptionHasEveryParameter sends an unknown parameter to each route, and compares the
// names in the hint with the description.
func TestTheDescriptionHasEveryParameter(t *testing.T) {
	t.Parallel()
	f := serve(t, func(f *fixture, _ *engine.Config) { f.providers = &fleet{list: []gateway.Status{rich()}} })
	d := document(t)
	queries, bodies := 0, 0
	for path, operations := range d.Paths {
		for method, o := range operations {
			at, method := strings.ReplaceAll(path, "{id}", "x"), strings.ToUpper(method)
			if names, unknown := listedIn(t, f.ask(false, method, at+"?nonsense=1", "")); unknown {
				queries++
				if got := d.parameters(&o, "query"); !slices.Equal(got, names) {
					t.Errorf("%s %s: described are %v, and there are %v", method, path, got, names)
				}
			} else if len(d.parameters(&o, "query")) > 0 {
				t.Errorf("%s %s did not say which parameters there are", method, path)
			}
			if (method == http.MethodPost) != (o.RequestBody != nil) {
				t.Errorf("%s %s: has a body, or has none", method, path)
			}
			if o.RequestBody == nil {
				continue
			}
			if len(o.RequestBody.Content["application/json"].Schema) == 0 {
				continue // any JSON
			}
			schema, _ := o.RequestBody.Content["application/json"].Schema["$ref"].(string)
			names, unknown := listedIn(t, f.ask(false, method, at, `{"nonsense": 1}`))
			if got := d.properties(reference{schema}.name()); !unknown || !slices.Equal(got, names) {
				t.Errorf("%s %s: the body has %v, and there are %v", method, path, got, names)
			}
			bodies++
		}
	}
	if queries < 10 || bodies < 15 {
		t.Errorf("only %d queries and %d bodies were compared", queries, bodies)
	}
}

// TestAnswersAreAsDescribed sends a request to every route. The validator of the test server
// compares the responses with the description.
func TestAnswersAreAsDescribed(t *testing.T) {
	t.Parallel()
	k := keep(t, map[string]string{"todo": limited})
	fleet := &fleet{list: []gateway.Status{rich(), {Name: "plain", State: gateway.Up, Breaker: "closed"}}}
	k.close()
	k.providers = fleet
	k.listen("127.0.0.1:0")
	if err := k.engine.SetSchedules(t.Context(), []engine.Schedule{{Name: "nightly", Workflow: "echo", Cron: "0 3 * * *", Input: json.RawMessage(`{"a": 1}`)}}); err != nil {
		t.Fatal(err)
	}
	k.until("todo", "waiting")
	good, bad := k.start("flaky", `{"fail": 2, "text": "x"}`), k.start("never", `{"fail": 9, "text": "y"}`)
	worse, waiting := k.start("never", `{"fail": 9, "text": "z"}`), k.start("later", `{"fail": 1, "text": "w"}`)
	for _, id := range []string{good, bad, worse} {
		k.over(id)
	}
	k.listed("dead", 2)
	k.keepOutput(good, "do", 1, "stdout\n", "stderr")
	asked := map[string]bool{}
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "healthz", "", 200},
		{"GET", "openapi.yaml", "", 200},
		{"GET", "status", "", 200},
		{"GET", "cluster", "", 404},
		{"GET", "doctor", "", 200},
		{"GET", "workflows", "", 200},
		{"GET", "charts", "", 200},
		{"GET", "charts?range=day&workflow=echo", "", 200},
		{"GET", "charts?range=year", "", 400},
		{"GET", "charts?workflow=notify.phone", "", 400},
		{"GET", "charts?workflow=(other)", "", 200},
		{"GET", "charts?workflow=ecko", "", 404},
		{"GET", "schedules", "", 200},
		{"POST", "workflows/two/pause", "", 200},
		{"GET", "workflows", "", 200},
		{"GET", "status", "", 200},
		{"POST", "workflows/two/resume", "{}", 200},
		{"POST", "workflows/toe/pause", "", 404},
		{"POST", "workflows/notify.x/pause", "", 409},
		{"POST", "schedules/nightly/pause", "", 200},
		{"GET", "schedules", "", 200},
		{"POST", "schedules/nightly/resume", "{}", 200},
		{"POST", "schedules/nightly/run", "", 201},
		{"POST", "schedules/weekly/run", "", 404},
		{"GET", "dead", "", 200},
		{"GET", "events?follow=false&after=0", "", 200},
		{"POST", "backup", `{"dir": "` + t.TempDir() + `/copy"}`, 200},
		{"GET", "runs?internal=true", "", 200},
		{"POST", "runs", `{"workflow": "echo", "input": {"a": 1}, "key": "k", "in": "1h"}`, 201},
		{"POST", "runs", `{"workflow": "echo", "input": {"a": 1}, "key": "k", "in": "1h"}`, 200},
		{"GET", "runs/" + good, "", 200},
		{"GET", "runs/" + bad, "", 200},
		{"GET", "runs/" + good + "/history", "", 200},
		{"GET", "runs/" + waiting + "/history", "", 200},
		{"GET", "runs/" + good + "/result", "", 200},
		{"GET", "runs/" + bad + "/result", "", 409},
		{"GET", "runs/" + waiting + "/result", "", 202},
		{"GET", "runs/" + good + "/events", "", 200},
		{"GET", "runs/" + good + "/output?step=do&attempt=1", "", 200},
		{"GET", "runs/" + good + "/output?step=do&attempt=1&download=true", "", 200},
		{"GET", "runs/" + bad + "/output", "", 404},
		{"POST", "runs/" + waiting + "/wake", "", 200},
		{"POST", "runs/" + waiting + "/signals/go", `{"a": 1}`, 409}, // its workflow is not code
		{"POST", "workflows/echo/keys/k/signals/go", "", 409},
		{"POST", "runs/" + waiting + "/answers/go", `{"choice": "approve"}`, 409},
		{"POST", "runs/" + waiting + "/callbacks/go", "", 409},
		{"POST", "/callbacks/forged", "", 403},
		{"POST", "runs/" + bad + "/retry", "{}", 200},
		{"POST", "runs/" + worse + "/replay", `{"input": {"fail": 0, "text": "z"}}`, 201},
		{"POST", "runs/" + good + "/rerun", `{"step": "do"}`, 201},
		{"POST", "runs/" + worse + "/retry", "{}", 409},
		{"POST", "runs/" + worse + "/retry-latest", "{}", 409},
		{"POST", "runs/" + good + "/retry-latest", `{"from": "do"}`, 201},
		{"POST", "runs/retry", `{"ids": ["` + good + `"]}`, 200},
		{"POST", "runs/cancel", `{"filter": {"workflow": "echo"}}`, 200},
		{"POST", "runs/k/cancel", "", 409},
		{"POST", "runs/k/abandon", "", 409},
		{"POST", "runs/k/undo", "", 409},
		{"GET", "sessions", "", 200},
		{"GET", "sessions/todo", "", 200},
		{"GET", "sessions/todo/output", "", 200},
		{"POST", "sessions/todo/pause", `{"tonight": true}`, 200},
		{"POST", "sessions/todo/pause", "", 200},
		{"POST", "sessions/todo/resume", "", 200},
		{"POST", "sessions/todo/wake", "", 200},
		{"POST", "sessions/todo/retry-now", "", 200},
		{"POST", "sessions/todo/reset", "", 200},
		{"POST", "sessions/todo/limit", `{"reason": "rate-limit", "line": "x"}`, 409}, // the session has no terminal
		{"POST", "sessions/todo/stop", "{}", 200},
		{"GET", "providers", "", 200},
		{"GET", "providers/claude", "", 200},
		{"POST", "providers/claude/open", "", 200},
		{"POST", "providers/claude/close", "", 200},
		{"POST", "providers/plain/reset", "", 200},
		{"POST", "providers/plain/drain", "", 200},
		{"GET", "requests?provider=claude&outcome=failed&status=5xx&min_duration=1s&limit=5", "", 200},
		{"GET", "requests/4711", "", 200},
		{"GET", "requests/4712", "", 404},
	} {
		switch tt.path { // these requests need a state that is reached only after a while
		case "runs/cancel":
			k.listed("scheduled", 1)
		case "sessions/todo/wake", "sessions/todo/retry-now":
			k.until("todo", "waiting")
		}
		if a := k.ask(false, tt.method, Prefix+tt.path, tt.body); a.status != tt.status {
			t.Errorf("%s %s is answered with %d, want %d: %s", tt.method, tt.path, a.status, tt.status, a.text)
		}
		path, _, _ := strings.Cut(tt.path, "?")
		for _, r := range new(router).routes() {
			if _, ok := r.match(path); ok && r.method == tt.method {
				asked[r.method+r.path] = true
				break
			}
		}
	}
	for _, r := range new(router).routes() {
		if !asked[r.method+r.path] {
			t.Errorf("no test requested %s %s", r.method, r.path)
		}
	}
	if a := k.ask(true, "GET", "/api/openapi.yaml", "", "Authorization", "Bearer "+token); a.text != openapi {
		t.Errorf("/api/openapi.yaml is %d %.60q", a.status, a.text)
	}
	if a := k.ask(true, "GET", "/api/openapi.yaml", ""); a.status != http.StatusUnauthorized {
		t.Errorf("without a token it is %d", a.status)
	}
}
