//go:build unix

package clitest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
)

// Actions has the values of the placeholder {action}, by the first word of the path.
var Actions = map[string][]string{
	"runs": {"cancel", "retry", "wake", "rerun", "replay", "latest", "answer"}, "bulk": {"retry", "latest", "cancel"}, "providers": {"open", "close", "reset", "drain"},
	"sessions": {"pause", "resume", "wake", "stop", "reset"}, "schedules": {"run", "pause", "resume"}, "workflows": {"pause", "resume"},
}

var brace = regexp.MustCompile(`\{(\w+)\}`)

// FillIn returns the paths of a route: one for each value of its placeholders.
func FillIn(t *testing.T, route string, values map[string][]string) (paths []string) {
	t.Helper()
	m := brace.FindStringSubmatch(route)
	if m == nil {
		return []string{route}
	}
	if len(values[m[1]]) == 0 {
		t.Fatalf("%s: no values for the placeholder %s", route, m[0])
	}
	for _, value := range values[m[1]] {
		paths = append(paths, FillIn(t, strings.Replace(route, m[0], value, 1), values)...)
	}
	return paths
}

var handled = regexp.MustCompile(`h\.(?:mux\.Handle|mux\.HandleFunc|Handle|handleQuestion)\("([A-Z]+) (/[^"]*)",`)

var added = regexp.MustCompile(`h\.(Live|Form)\("(/[^"]*)",`)

// PageRoutes returns the paths of all pages with this method, from the source of the pages.
func PageRoutes(t *testing.T, method string) (paths []string) {
	t.Helper()
	for _, folder := range []string{"internal/console/pages", "cmd/tideover/internal/web"} {
		text, err := os.ReadFile(testfile.Repository(t, append(strings.Split(folder, "/"), "site.go")...))
		if err != nil {
			t.Fatal(err)
		}
		before := len(paths)
		for _, m := range handled.FindAllStringSubmatch(string(text), -1) {
			if m[1] == method && m[2] != "/static/" {
				paths = append(paths, m[2])
			}
		}
		for _, m := range added.FindAllStringSubmatch(string(text), -1) {
			switch {
			case method == "GET" && m[1] == "Live":
				paths = append(paths, m[2], "/live"+m[2])
			case method == "GET" || method == "POST" && m[1] == "Form":
				paths = append(paths, m[2])
			}
		}
		if len(paths) == before && (method == "GET" || method == "POST") {
			t.Fatalf("%s/site.go has no routes of %s", folder, method)
		}
	}
	return paths
}
