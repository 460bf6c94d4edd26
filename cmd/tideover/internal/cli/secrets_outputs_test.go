//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
)

// checkAllOutputs checks every page, every answer of the API, and the output of every command. It
// requests every run from the API, and some runs of each kind from pages and commands.
func (v *fullServer) checkAllOutputs() {
	v.t.Helper()
	dead, good := v.list("state=dead&internal=true"), v.list("state=succeeded&internal=true")
	if len(dead) < 20 || len(good) < 5 {
		v.t.Fatalf("%d runs are dead and %d succeeded", len(dead), len(good))
	}
	pages := pageRoutes(v.t, "GET")
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

// actions has the values of the placeholder {action}, by the first word of the path.
var actions = map[string][]string{
	"runs": {"cancel", "retry", "wake", "rerun", "replay", "latest", "answer"}, "bulk": {"retry", "latest", "cancel"}, "providers": {"open", "close", "reset", "drain"},
	"sessions": {"pause", "resume", "wake", "stop", "reset"}, "schedules": {"run", "pause", "resume"}, "workflows": {"pause", "resume"},
}

var brace = regexp.MustCompile(`\{(\w+)\}`)

// fill returns the paths of routes with all values filled in.
func (v *fullServer) fill(routes, ids []string) (paths []string) {
	v.t.Helper()
	for _, route := range routes {
		route = strings.TrimSuffix(route, "{$}")
		values := v.values(ids)
		values["action"] = actions[strings.Split(route, "/")[1]]
		if strings.Contains(route, "/api/v1/sessions/") {
			values["id"] = values["session"]
		} else if strings.Contains(route, "/api/v1/providers/") {
			values["id"] = values["provider"]
		}
		if strings.Contains(route, "{action}") && len(ids) > 3 {
			values["id"] = ids[len(ids)-3:] // a few runs are enough: pages of actions are alike
		}
		paths = append(paths, fillIn(v.t, route, values)...)
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

func fillIn(t *testing.T, route string, values map[string][]string) (paths []string) {
	t.Helper()
	m := brace.FindStringSubmatch(route)
	if m == nil {
		return []string{route}
	}
	if len(values[m[1]]) == 0 {
		t.Fatalf("%s: no values for the placeholder %s", route, m[0])
	}
	for _, value := range values[m[1]] {
		paths = append(paths, fillIn(t, strings.Replace(route, m[0], value, 1), values)...)
	}
	return paths
}

// handled matches the registration of one path, added that of a page with its stream (live) or of a
// question with its action (form).
var (
	handled = regexp.MustCompile(`mux\.Handle(?:Func)?\("([A-Z]+) (/[^"]*)"`)
	added   = regexp.MustCompile(`h\.(live|form)\("(/[^"]*)"`)
)

// pageRoutes returns the paths of all pages with this method, from the source of the web page.
func pageRoutes(t *testing.T, method string) (paths []string) {
	t.Helper()
	text, err := os.ReadFile("../web/site.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range handled.FindAllStringSubmatch(string(text), -1) {
		if m[1] == method && m[2] != "/static/" {
			paths = append(paths, m[2])
		}
	}
	for _, m := range added.FindAllStringSubmatch(string(text), -1) {
		switch {
		case method == "GET" && m[1] == "live":
			paths = append(paths, m[2], "/live"+m[2])
		case method == "GET" || method == "POST" && m[1] == "form":
			paths = append(paths, m[2])
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
		all.Go(func() { v.run(append(args, "--config", v.s.file, "--data", v.s.data)...) })
	}
}
