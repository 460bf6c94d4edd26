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

	templatesPage = "../../../../docs/templates.md"
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

// keyRows returns the rows of the table of the keys of a map: name, default and meaning. The page
// explains once what a reference is.
func keyRows(s *jsonschema.Schema) (rows [][]string) {
	for _, name := range s.PropertyOrder {
		value, doc := defaultOf(s.Properties[name], slices.Contains(s.Required, name))
		rows = append(rows, []string{"`" + name + "`", value, strings.Replace(doc, ": ${env:NAME} or ${file:path}", "", 1)})
	}
	return rows
}

// mergeRows joins consecutive rows that differ only in the name.
func mergeRows(rows [][]string) (merged [][]string) {
	for _, row := range rows {
		if last := len(merged) - 1; last >= 0 && slices.Equal(merged[last][1:], row[1:]) {
			merged[last][0] += ", " + row[0]
			continue
		}
		merged = append(merged, slices.Clone(row))
	}
	return merged
}

// sectionOf returns a link to the section of a map.
func sectionOf(path string) string {
	anchor := strings.Map(func(r rune) rune {
		if strings.ContainsRune(".[]", r) {
			return -1
		}
		return r
	}, strings.ToLower(path))
	return "[`" + path + "`](#" + anchor + ")"
}

// pageMap is a section of docs/keys.md.
type pageMap struct {
	path string
	rows [][]string
	same []string // other maps with the same keys
}

// pageMaps returns the sections: one for all maps that have the same keys, named after the least
// nested one.
func pageMaps() (list []*pageMap) {
	byTable := map[string]*pageMap{}
	for _, m := range mapsIn("", config.FileSchema()) {
		rows := keyRows(m.Schema)
		table := fmt.Sprint(rows)
		p := byTable[table]
		switch {
		case p == nil:
			p = &pageMap{path: m.path, rows: rows}
			byTable[table] = p
			list = append(list, p)
		case strings.Count(m.path, ".") < strings.Count(p.path, "."):
			p.same = append(p.same, p.path)
			p.path = m.path
			list = append(slices.DeleteFunc(list, func(other *pageMap) bool { return other == p }), p)
		default:
			p.same = append(p.same, m.path)
		}
	}
	return list
}

// cutShared replaces the rows that an earlier section has by one that links to it. Sections with less
// than four rows in common are left alone.
func cutShared(p *pageMap, earlier []*pageMap) (rows [][]string) {
	for _, e := range earlier {
		var names []string
		rows = nil
		for _, row := range p.rows {
			if slices.ContainsFunc(e.rows, func(other []string) bool { return slices.Equal(row, other) }) {
				names = append(names, row[0])
			} else {
				rows = append(rows, row)
			}
		}
		if len(names) >= 4 {
			return append(rows, []string{strings.Join(names, ", "), "", "As in " + sectionOf(e.path) + "."})
		}
	}
	return p.rows
}

// docs/keys.md has every key of the file, and says each once.
func TestThePageHasAllKeys(t *testing.T) {
	const step = "workflows.NAME.steps[]"
	var b strings.Builder
	var earlier []*pageMap
	for _, p := range pageMaps() {
		if p.path == "" {
			b.WriteString("\n## Sections of the file\n\n")
		} else {
			fmt.Fprintf(&b, "\n## `%s`\n\n", p.path)
		}
		if len(p.same) > 0 {
			fmt.Fprintf(&b, "Also the keys of\n`%s`.\n\n", strings.Join(p.same, "`,\n`"))
		}
		rows := cutShared(p, earlier)
		head := []string{"key", "default", "meaning"}
		if p.path == step {
			head, rows = slices.Insert(head, 1, "with"), slices.Clone(rows)
			for i, row := range rows {
				needs := config.StepKeyNeeds(strings.Trim(row[0], "`"))
				rows[i] = slices.Insert(slices.Clone(row), 1, needs)
			}
		}
		b.WriteString(testfile.Table(t, head, mergeRows(rows)))
		earlier = append(earlier, p)
	}
	testfile.Section(t, keysPage, "all keys", b.String()+"\n")
}

// docs/serve-file.md has the kinds of steps.
func TestThePageHasTheKindsOfSteps(t *testing.T) {
	s := mapAt(t, "workflows.NAME.steps[]")
	results := resultsByKind(t)
	var kinds [][]string
	for _, name := range config.StepKinds {
		_, doc := defaultOf(s.Properties[name], false)
		kinds = append(kinds, []string{"`" + name + "`", strings.Join(results[name], ", "), doc})
	}
	testfile.Section(t, filePage, "kinds of steps", testfile.Table(t, []string{"key", "its result, as `.steps.ID.…`", "what the step does"}, kinds))
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

// docs/templates.md has everything that templates can use.
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
	testfile.Section(t, templatesPage, "variables of templates", testfile.Table(t, []string{"variable", "in", "meaning"}, rows))

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
	testfile.Section(t, templatesPage, "results of steps", testfile.Table(t, []string{"field", "of", "meaning"}, rows))
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
	testfile.Section(t, templatesPage, "functions of templates", testfile.Table(t, []string{"function", "value"}, rows))
}

// docs/nip90.md has the fields of a job.
func TestThePageHasTheFieldsOfJobs(t *testing.T) {
	var rows [][]string
	for _, v := range nip90.JobVariables() {
		rows = append(rows, []string{"`.input." + v.Name + "`", v.Doc})
	}
	testfile.Section(t, "../../../../docs/nip90.md", "fields of a job", testfile.Table(t, []string{"variable", "meaning"}, rows))
}
