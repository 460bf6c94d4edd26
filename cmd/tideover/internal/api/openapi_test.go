package api

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testfile"
)

// The parts of openapi.yaml that tests read.
type (
	described struct {
		Paths      map[string]map[string]operation `json:"paths"`
		Components struct {
			Schemas    map[string]map[string]any `json:"schemas"`
			Parameters map[string]parameter      `json:"parameters"`
			Responses  map[string]response       `json:"responses"`
		} `json:"components"`
	}
	operation struct {
		ID          string              `json:"operationId"`
		Parameters  []reference         `json:"parameters"`
		RequestBody *response           `json:"requestBody"`
		Responses   map[string]response `json:"responses"`
	}
	parameter struct{ Name, In string }
	reference struct {
		Ref string `json:"$ref"`
	}
	response struct {
		reference
		Description string `json:"description"`
		Content     map[string]struct {
			Schema map[string]any `json:"schema"`
		} `json:"content"`
	}
)

// name returns the last part of a reference, which is the name of the component.
func (r reference) name() string { return r.Ref[strings.LastIndex(r.Ref, "/")+1:] }

// document returns the parsed openapi.yaml.
func document(t *testing.T) *described {
	t.Helper()
	d, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// parsed parses openapi.yaml at the first call, since that is slow with the race detector. Tests must
// not change the result.
var parsed = sync.OnceValues(func() (*described, error) {
	text, err := yaml.YAMLToJSON([]byte(openapi))
	if err != nil {
		return nil, err
	}
	d := new(described)
	return d, json.Unmarshal(text, d)
})

// parameters returns the names of the parameters of an operation in one part of the request, such as
// "query".
func (d *described) parameters(o *operation, in string) (names []string) {
	for _, r := range o.Parameters {
		if p := d.Components.Parameters[r.name()]; p.In == in {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// properties returns the names of the properties of a schema.
func (d *described) properties(schema string) []string {
	properties, _ := d.Components.Schemas[schema]["properties"].(map[string]any)
	return slices.Sorted(maps.Keys(properties))
}

// required returns the names of the required properties of a schema.
func (d *described) required(schema string) (names []string) {
	list, _ := d.Components.Schemas[schema]["required"].([]any)
	for _, name := range list {
		names = append(names, name.(string))
	}
	slices.Sort(names)
	return names
}

// enum returns the possible values of a property; those of the schema itself if property is "".
func (d *described) enum(schema, property string) (words []string) {
	s := d.Components.Schemas[schema]
	if property != "" {
		s, _ = s["properties"].(map[string]any)[property].(map[string]any)
	}
	list, _ := s["enum"].([]any)
	for _, word := range list {
		words = append(words, word.(string))
	}
	return words
}

// pattern returns the path of the route in openapi.yaml.
func (t *route) pattern() string {
	if strings.HasPrefix(t.path, "/") {
		return t.path
	}
	return Prefix + t.path
}

func TestTheDescriptionHasEveryRouteAndNoOther(t *testing.T) {
	t.Parallel()
	want := []string{"GET /healthz", "GET /api/openapi.yaml"}
	for _, r := range new(router).routes() {
		want = append(want, r.method+" "+r.pattern())
	}
	var got, ids []string
	for path, operations := range document(t).Paths {
		for method, o := range operations {
			got = append(got, strings.ToUpper(method)+" "+path)
			ids = append(ids, o.ID)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("openapi.yaml describes\n%s\nand the server has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != len(got) {
		t.Errorf("%d operations have %d different ids", len(got), n)
	}
}

func TestTheDescriptionInTheDocsIsTheSame(t *testing.T) {
	t.Parallel()
	const file = "../../../../docs/openapi.yaml"
	if testfile.Update() {
		if err := os.WriteFile(file, []byte(openapi), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != openapi {
		t.Errorf("docs/openapi.yaml is not internal/api/openapi.yaml, run go test ./internal/api -update: %v", err)
	}
}

var (
	codeSpan    = regexp.MustCompile("`([^`]+)`")
	placeholder = regexp.MustCompile(`\{[^}]*\}`)
)

// routesOfTable returns the routes that the table "Requests" of docs/api.md names, without the
// names of placeholders. In a row such as "`POST /runs/{id}/cancel`, `retry`", the second word
// replaces the last part of the path before it.
func routesOfTable(t *testing.T) (routes []string) {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## Requests\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		var method, path string
		for _, m := range codeSpan.FindAllStringSubmatch(strings.Split(line, " | ")[0], -1) {
			span, _, _ := strings.Cut(m[1], "?")
			span = placeholder.ReplaceAllString(span, "{}")
			switch first, rest, ok := strings.Cut(span, " /"); {
			case span == "{}": // the fields of the body
				continue
			case ok:
				method, path = first, rest
			case strings.HasPrefix(span, "/"):
				path = span[1:]
			default:
				path = path[:strings.LastIndex(path, "/")+1] + span
			}
			routes = append(routes, method+" "+path)
		}
	}
	return routes
}

func TestThePageOfTheAPIHasEveryRouteAndNoOther(t *testing.T) {
	t.Parallel()
	var want []string
	for _, r := range new(router).routes() {
		switch {
		case strings.HasPrefix(r.path, "/"): // not below Prefix
		case r.path == "openapi.yaml": // the text above the table has its address
		case r.path == "sessions/{id}/retry-now": // a former name
		default:
			want = append(want, r.method+" "+placeholder.ReplaceAllString(r.path, "{}"))
		}
	}
	got := routesOfTable(t)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the table of docs/api.md has\n%s\nand the server has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// constants returns the values of the constants in a Go file whose names begin with the prefix.
func constants(t *testing.T, file, prefix string) (values []string) {
	t.Helper()
	tree, err := parser.ParseFile(gotoken.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, prefix) && len(spec.Values) == 1 {
			if text, ok := spec.Values[0].(*ast.BasicLit); ok {
				value, _ := strconv.Unquote(text.Value)
				values = append(values, value)
			}
		}
		return true
	})
	return values
}

// eventKinds returns the kinds, the reasons and the fields in the schema of events.
func eventKinds(t *testing.T) (kinds, reasons, fields []string) {
	t.Helper()
	text, err := os.ReadFile("../../../../retry/testdata/event.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties map[string]struct{ Enum []string }
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	return schema.Properties["kind"].Enum, schema.Properties["reason"].Enum, slices.Sorted(maps.Keys(schema.Properties))
}

func TestTheDescriptionHasEveryWord(t *testing.T) {
	t.Parallel()
	d := document(t)
	kinds, reasons, fields := eventKinds(t)
	for _, tt := range []struct {
		what      string
		got, want []string
	}{
		{"codes of problems", d.enum("Problem", "code"), constants(t, "../../../../internal/console/control/errors.go", "Code")},
		{"states of runs", d.enum("State", ""), control.States()},
		{"states of sessions", d.enum("Session", "state"), session.States},
		{"states of providers", d.enum("Provider", "state"), gateway.States},
		{"outcomes of requests", d.enum("Request", "outcome"), gateway.Outcomes},
		{"kinds of events", d.enum("Kind", ""), kinds},
		{"reasons of events", d.enum("Event", "reason"), reasons},
		{"fields of events", d.properties("Event"), slices.Sorted(slices.Values(append(fields, "seq", "message", "member")))},
	} {
		if len(tt.want) == 0 || !slices.Equal(tt.got, tt.want) {
			t.Errorf("openapi.yaml has the %s\n%v\nand there are\n%v", tt.what, tt.got, tt.want)
		}
	}
	// The description of a response names the codes that have its status.
	for _, code := range d.enum("Problem", "code") {
		found := false
		for _, r := range d.Components.Responses {
			found = found || regexp.MustCompile(`\b`+code+`[,;):]|\b`+code+` `).MatchString(r.Description)
		}
		if !found && code != string(control.CodeMethod) {
			t.Errorf("no response says that it is %s", code)
		}
	}
}

func TestEveryReferenceOfTheDescriptionLeadsSomewhere(t *testing.T) {
	t.Parallel()
	d := document(t)
	used := map[string]bool{"Event": true, "Missed": true} // used only in streams
	for line := range strings.Lines(openapi) {
		for rest := line; ; {
			_, after, ok := strings.Cut(rest, "'#/components/")
			if !ok {
				break
			}
			place, more, _ := strings.Cut(after, "'")
			rest = more
			kind, name, _ := strings.Cut(place, "/")
			_, schema := d.Components.Schemas[name]
			_, param := d.Components.Parameters[name]
			_, resp := d.Components.Responses[name]
			if !map[string]bool{"schemas": schema, "parameters": param, "responses": resp}[kind] {
				t.Errorf("there is no %s", place)
			}
			used[name] = true
		}
	}
	for _, names := range [][]string{slices.Collect(maps.Keys(d.Components.Schemas)), slices.Collect(maps.Keys(d.Components.Parameters)), slices.Collect(maps.Keys(d.Components.Responses))} {
		for _, name := range names {
			if !used[name] {
				t.Errorf("nothing refers to %s", name)
			}
		}
	}
}
