//go:build unix

package secrets_test

import (
	"path/filepath"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// checkAllOutputs checks every page, every answer of the API, and the output of every command. It
// requests every run from the API, and some runs of each kind from pages and commands.
func (v *fullServer) checkAllOutputs() {
	v.t.Helper()
	dead, good := v.list("state=dead&internal=true"), v.list("state=succeeded&internal=true")
	if len(dead) < 20 || len(good) < 5 {
		v.t.Fatalf("%d runs are dead and %d succeeded", len(dead), len(good))
	}
	pages := clitest.PageRoutes(v.t, "GET")
	if len(pages) < 20 {
		v.t.Fatalf("there are only the pages %q", pages)
	}
	var all, some []string
	seen := map[string]bool{}
	for _, run := range append(dead, good...) {
		all = append(all, run.ID)
		kind, _, _ := strings.Cut(run.Workflow, "-")
		if kind += run.State; !seen[kind] {
			seen[kind] = true
			some = append(some, run.ID)
		}
	}
	for what, text := range map[string]string{
		"the pages": v.pages(v.fill(pages, some)...), "the API": v.pages(v.fill(v.apiRoutes("get"), some)...),
		"all runs": v.pages(v.fill([]string{"/api/v1/runs/{id}"}, all)...),
	} {
		if !strings.Contains(text, "***") {
			v.t.Errorf("%s have no mask", what)
		}
	}
	v.runCommands(some)
}

// values returns the values for each placeholder in the paths of routes.
func (v *fullServer) values(ids []string) map[string][]string {
	return map[string][]string{
		"id": ids, "session": {"kept"}, "provider": {"up", "spare", "open", "gone"}, "notifier": {"ntfy", "slack", "hook", "lost", "mail", "script"},
		"workflow": {"step-ok", "fails", "user"}, "schedule": {"x"}, "job": {"x"}, "call": {"1"},
	}
}

// fill returns the paths of routes with all values filled in.
func (v *fullServer) fill(routes, ids []string) (paths []string) {
	v.t.Helper()
	for _, route := range routes {
		route = strings.TrimSuffix(route, "{$}")
		values := v.values(ids)
		values["action"] = clitest.Actions[strings.Split(route, "/")[1]]
		if strings.Contains(route, "/api/v1/sessions/") {
			values["id"] = values["session"]
		} else if strings.Contains(route, "/api/v1/providers/") {
			values["id"] = values["provider"]
		}
		if strings.Contains(route, "{action}") && len(ids) > 3 {
			values["id"] = ids[len(ids)-3:] // a few runs are enough: pages of actions are alike
		}
		paths = append(paths, clitest.FillIn(v.t, route, values)...)
	}
	for i, path := range paths {
		if path == "/api/v1/events" || strings.HasSuffix(path, "/events") {
			paths[i] += "?after=0&follow=false"
			if path != "/api/v1/events" {
				paths[i] = path + "?follow=false"
			}
		}
		if strings.HasSuffix(path, "/runs") || strings.HasSuffix(path, "/dead") {
			paths = append(paths, path+"?internal=true")
		}
	}
	return paths
}

// apiRoutes returns the paths of the API with this method, from its description.
func (v *fullServer) apiRoutes(method string) (paths []string) {
	v.t.Helper()
	var d struct{ Paths map[string]map[string]any }
	if err := yaml.Unmarshal([]byte(v.pages("/api/openapi.yaml")), &d); err != nil || len(d.Paths) < 20 {
		v.t.Fatalf("%d paths, %v", len(d.Paths), err)
	}
	for path, methods := range d.Paths {
		if methods[method] != nil {
			paths = append(paths, path)
		}
	}
	return append(paths, "/metrics")
}

// runCommands runs every command that prints something about the server.
func (v *fullServer) runCommands(ids []string) {
	v.t.Helper()
	verbs := [][]string{
		{"status"}, {"status", "--json"}, {"runs"}, {"runs", "--internal", "--json"}, {"dead"}, {"dead", "--groups"}, {"dead", "--json"}, {"events"}, {"events", "--json"},
		{"providers"}, {"providers", "--json"}, {"providers", "show", "up"}, {"providers", "show", "spare", "--json"}, {"sessions", "ls"}, {"sessions", "show", "kept"},
		{"sessions", "show", "kept", "--json"}, {"workflows", "--json"}, {"schedules"}, {"health"}, {"backup", filepath.Join(v.dir, "backup")}, {"show", "no-such-run"},
	}
	for _, id := range ids[max(0, len(ids)-2):] {
		verbs = append(verbs, []string{"show", id}, []string{"show", id, "--json"})
	}
	v.runAll(verbs...)
	var all sync.WaitGroup
	defer all.Wait()
	for _, args := range [][]string{
		{"config", "show", "--origin"}, {"config", "show", "--json"}, {"config", "check"}, {"config", "check", "--json"}, {"doctor"}, {"doctor", "--json"}, {"notify", "test", "lost"}, {"notify", "test", "lost", "--json"},
	} {
		all.Go(func() { v.run(append(args, "--config", v.s.File, "--data", v.s.Data)...) })
	}
}
