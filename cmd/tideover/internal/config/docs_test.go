package config_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/testfile"
)

const (
	filePage = "../../../../docs/serve-file.md"
	keysPage = "../../../../docs/keys.md"
)

// mapSchema is the schema of a map with fixed keys.
type mapSchema struct {
	path string // such as workflows.NAME.steps[].http
	*jsonschema.Schema
}

// mapsIn returns the maps with fixed keys in a schema, in the order of the file.
func mapsIn(path string, s *jsonschema.Schema) (list []mapSchema) {
	if s == nil {
		return nil
	}
	if len(s.Properties) > 0 {
		list = append(list, mapSchema{path, s})
	}
	for _, name := range s.PropertyOrder {
		list = append(list, mapsIn(strings.TrimPrefix(path+"."+name, "."), s.Properties[name])...)
	}
	list = append(list, mapsIn(path+".NAME", s.AdditionalProperties)...)
	list = append(list, mapsIn(path+"[]", s.Items)...)
	for _, form := range s.AnyOf {
		list = append(list, mapsIn(path, form)...)
	}
	return list
}

// mapAt returns the map with this path.
func mapAt(t *testing.T, path string) *jsonschema.Schema {
	t.Helper()
	for _, m := range mapsIn("", config.FileSchema()) {
		if m.path == path {
			return m.Schema
		}
	}
	t.Fatalf("the file has no map %s", path)
	return nil
}

// defaultOf returns the default of a key for a table, and its description without the sentence about
// the default.
func defaultOf(key *jsonschema.Schema, required bool) (value, doc string) {
	doc, value, _ = strings.Cut(key.Description, " Default: ")
	value, rest, _ := strings.Cut(value, ". ")
	value = strings.TrimSuffix(value, ".")
	if rest != "" {
		doc += " " + rest
	}
	if key.Default != nil {
		var text any
		_ = json.Unmarshal(key.Default, &text)
		value = fmt.Sprintf("`%v`", text)
	}
	if required {
		value = "required"
	}
	return value, doc
}

// keyTable returns the table of the keys of a map for which include returns true.
func keyTable(t *testing.T, s *jsonschema.Schema, include func(name string) bool) string {
	t.Helper()
	var rows [][]string
	for _, name := range s.PropertyOrder {
		if include == nil || include(name) {
			value, doc := defaultOf(s.Properties[name], slices.Contains(s.Required, name))
			rows = append(rows, []string{"`" + name + "`", value, doc})
		}
	}
	return testfile.Table(t, []string{"key", "default", "meaning"}, rows)
}

// docs/keys.md has every key of the file.
func TestThePageHasAllKeys(t *testing.T) {
	var b strings.Builder
	seen := map[string]string{} // paths of maps by their tables
	for _, m := range mapsIn("", config.FileSchema()) {
		heading := "`" + m.path + "`"
		if m.path == "" {
			heading = "Sections of the file"
		}
		fmt.Fprintf(&b, "\n## %s\n\n", heading)
		table := keyTable(t, m.Schema, nil)
		if same := seen[table]; same != "" {
			fmt.Fprintf(&b, "The same keys as `%s`.\n", same)
			continue
		}
		seen[table] = m.path
		b.WriteString(table)
	}
	testfile.Section(t, keysPage, "all keys", b.String()+"\n")
}

// docs/serve-file.md has the keys of workflows and their steps.
func TestThePageHasTheKeysOfSteps(t *testing.T) {
	const workflow, step = "workflows.NAME", "workflows.NAME.steps[]"
	isKind := func(name string) bool { return slices.Contains(config.StepKinds, name) }
	for name, path := range map[string]string{
		"keys of a workflow": workflow, "keys of schedule": workflow + ".schedule", "keys of http": step + ".http",
		"keys of wait-for": step + ".wait-for", "keys of approve": step + ".approve",
	} {
		testfile.Section(t, filePage, name, keyTable(t, mapAt(t, path), nil))
	}

	s := mapAt(t, step)
	results := resultsByKind(t)
	var kinds, others [][]string
	for _, name := range s.PropertyOrder {
		value, doc := defaultOf(s.Properties[name], slices.Contains(s.Required, name))
		if isKind(name) {
			kinds = append(kinds, []string{"`" + name + "`", strings.Join(results[name], ", "), doc})
			continue
		}
		needs := config.StepKeyNeeds(name)
		if needs == "" {
			needs = "every step"
		}
		others = append(others, []string{"`" + name + "`", needs, value, doc})
	}
	slices.SortStableFunc(kinds, func(a, b []string) int {
		return slices.Index(config.StepKinds, strings.Trim(a[0], "`")) - slices.Index(config.StepKinds, strings.Trim(b[0], "`"))
	})
	testfile.Section(t, filePage, "kinds of steps", testfile.Table(t, []string{"key", "its result, as `.steps.ID.…`", "what the step does"}, kinds))
	testfile.Section(t, filePage, "keys of a step", testfile.Table(t, []string{"key", "with", "default", "meaning"}, others))
}

// kindExamples has a step of each kind.
var kindExamples = map[string]string{
	"run": "[true]", "http": "{get: 'https://example.com'}", "sleep": "1h", "wait-for": "paid", "approve": "Deploy?", "workflow": "other",
}

// resultsByKind returns the fields of the results of each kind of step.
func resultsByKind(t *testing.T) map[string][]string {
	t.Helper()
	text := "version: 1\nworkflows:\n  other: {steps: [{id: a, run: [true]}]}\n  all:\n    steps:\n"
	for _, kind := range config.StepKinds {
		if kindExamples[kind] == "" {
			t.Fatalf("kindExamples has no %s", kind)
		}
		text += fmt.Sprintf("      - {id: %s, %s: %s}\n", kind, kind, kindExamples[kind])
	}
	cfg, err := config.Load(config.Source{Path: "tideover.yaml", Data: []byte(text), Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, w := range cfg.Workflows {
		for _, s := range w.Steps {
			if w.Name == "all" {
				all[s.ID] = s.ResultFields()
			}
		}
	}
	return all
}

// docs/serve-file.md has everything that templates can use.
func TestThePageHasTheVariablesOfTemplates(t *testing.T) {
	places := []struct {
		name   string
		fields template.Fields
	}{
		{"step", steps.StepFields},
		{"form", steps.FlowFields},
		{"env", steps.EnvFields},
		{"input", steps.InputFields},
		{"step with `for-each`", template.Fields{First: config.ItemFields}},
		{"`undo`", template.Fields{First: config.UndoFields}},
	}
	where := func(root, field string) string {
		var list []string
		for _, p := range places {
			if slices.Contains(p.fields.First, root) && (root != "run" || field == "" || p.fields.Run == nil || slices.Contains(p.fields.Run, field)) {
				list = append(list, p.name)
			}
		}
		if len(list) == 0 {
			t.Errorf("no text can use .%s %s", root, field)
		}
		return strings.Join(list, ", ")
	}
	var rows [][]string
	for _, v := range template.Variables() {
		switch {
		case len(v.Fields) == 0 || v.Name == "result":
			rows = append(rows, []string{"`." + v.Name + "`", where(v.Name, ""), v.Doc})
		default:
			for _, f := range v.Fields {
				rows = append(rows, []string{"`." + v.Name + "." + f.Name + "`", where(v.Name, f.Name), f.Doc})
			}
		}
	}
	testfile.Section(t, filePage, "variables of templates", testfile.Table(t, []string{"variable", "in", "meaning"}, rows))

	results := resultsByKind(t)
	rows = nil
	for _, v := range template.Results() {
		var kinds []string
		for _, kind := range config.StepKinds {
			if slices.Contains(results[kind], v.Name) {
				kinds = append(kinds, "`"+kind+"`")
			}
		}
		if v.Name == "skipped" {
			kinds = []string{"steps with `when`"}
		}
		rows = append(rows, []string{"`" + v.Name + "`", strings.Join(kinds, ", "), v.Doc})
		if len(kinds) == 0 {
			t.Errorf("no step has the result %s", v.Name)
		}
	}
	testfile.Section(t, filePage, "results of steps", testfile.Table(t, []string{"field", "of", "meaning"}, rows))
	for kind, fields := range results {
		for _, f := range fields {
			if !slices.ContainsFunc(template.Results(), func(v template.Variable) bool { return v.Name == f }) {
				t.Errorf("%s has the result %s, which no template can use", kind, f)
			}
		}
	}

	rows = nil
	for _, f := range template.Functions() {
		rows = append(rows, []string{"`" + f.Name + "`", f.Doc})
	}
	testfile.Section(t, filePage, "functions of templates", testfile.Table(t, []string{"function", "value"}, rows))
}

// docs/nip90.md has the fields of a job.
func TestThePageHasTheFieldsOfJobs(t *testing.T) {
	var rows [][]string
	for _, v := range nip90.JobVariables() {
		rows = append(rows, []string{"`.input." + v.Name + "`", v.Doc})
	}
	testfile.Section(t, "../../../../docs/nip90.md", "fields of a job", testfile.Table(t, []string{"variable", "meaning"}, rows))
}
