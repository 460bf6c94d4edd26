package tideover_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheGlossaryNamesWhatExists checks every name in the tables of docs/glossary.md: Go
// identifiers in the sources, YAML keys in the schema of the configuration, JSON fields in
// docs/openapi.yaml, and metrics in docs/metrics.md. Other tests compare these three files
// with the program.
func TestTheGlossaryNamesWhatExists(t *testing.T) {
	t.Parallel()
	known := []map[string]bool{goNames(t), yamlKeys(t), jsonFields(t), metricNames(t)}
	columns := []string{"Go", "YAML", "JSON", "metric"}
	name := regexp.MustCompile("`([^`]+)`")
	terms := map[string]bool{}
	count := make([]int, len(columns))
	for line := range strings.Lines(readText(t, "docs/glossary.md")) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		term := strings.TrimSpace(cells[0])
		if len(cells) != 6 || term == "term" || strings.HasPrefix(term, "---") {
			continue
		}
		if terms[term] {
			t.Errorf("the term %q is explained twice", term)
		}
		terms[term] = true
		for i, column := range columns {
			for _, m := range name.FindAllStringSubmatch(cells[i+2], -1) {
				count[i]++
				if !known[i][m[1]] {
					t.Errorf("%s: there is no %s name %s", term, column, m[1])
				}
			}
		}
	}
	for i, column := range columns {
		if count[i] < 20 {
			t.Errorf("the glossary has %d names in the column %s", count[i], column)
		}
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// goNames returns the exported names of all packages that are not internal: package.Name,
// package.Type.Field and package.Type.Method.
func goNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case "internal", "testdata", "node_modules", "suites", "bench", "examples":
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			addGoNames(names, file.Name.Name+".", decl)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func addGoNames(names map[string]bool, prefix string, decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv != nil {
			prefix += receiver(decl.Recv.List[0].Type) + "."
		}
		names[prefix+decl.Name.Name] = true
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					names[prefix+name.Name] = true
				}
			case *ast.TypeSpec:
				names[prefix+spec.Name.Name] = true
				if fields, ok := spec.Type.(*ast.StructType); ok {
					for _, field := range fields.Fields.List {
						for _, name := range field.Names {
							names[prefix+spec.Name.Name+"."+name.Name] = true
						}
					}
				}
			}
		}
	}
}

// receiver returns the name of the type of a method's receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// schemaNode is the part of a JSON schema that has keys.
type schemaNode struct {
	Properties           map[string]schemaNode `json:"properties"`
	PatternProperties    map[string]schemaNode `json:"patternProperties"`
	AdditionalProperties json.RawMessage       `json:"additionalProperties"`
	Items                *schemaNode           `json:"items"`
	OneOf, AnyOf         []schemaNode
}

// keys returns the paths of all keys below the node: * stands for a name that users
// choose, [] for an entry of a list.
func (n *schemaNode) keys(path string) map[string]bool {
	all := map[string]bool{}
	below := func(path string, nodes ...schemaNode) {
		for _, node := range nodes {
			maps.Copy(all, node.keys(path))
		}
	}
	join := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	for name, node := range n.Properties {
		all[join(name)] = true
		below(join(name), node)
	}
	for _, node := range n.PatternProperties {
		below(join("*"), node)
	}
	var more schemaNode
	if json.Unmarshal(n.AdditionalProperties, &more) == nil { // otherwise it is a boolean
		below(join("*"), more)
	}
	if n.Items != nil {
		below(path+"[]", *n.Items)
	}
	below(path, n.OneOf...)
	below(path, n.AnyOf...)
	return all
}

func yamlKeys(t *testing.T) map[string]bool {
	t.Helper()
	var schema schemaNode
	if err := json.Unmarshal([]byte(readText(t, "cmd/tideover/internal/config/testdata/schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	return schema.keys("")
}

// jsonFields returns the fields of the API's objects: Schema.field.
func jsonFields(t *testing.T) map[string]bool {
	t.Helper()
	_, schemas, ok := strings.Cut(readText(t, "docs/openapi.yaml"), "\n  schemas:\n")
	if !ok {
		t.Fatal("docs/openapi.yaml has no schemas")
	}
	schema := regexp.MustCompile(`^    ([A-Z]\w*):`)
	field := regexp.MustCompile(`^        ([a-z]\w*):`)
	fields := map[string]bool{}
	name, inProperties := "", false
	for line := range strings.Lines(schemas) {
		if m := schema.FindStringSubmatch(line); m != nil {
			name, inProperties = m[1], false
		} else if strings.HasPrefix(line, "      ") && line[6] != ' ' {
			inProperties = strings.HasPrefix(line, "      properties:")
		} else if m := field.FindStringSubmatch(line); m != nil && inProperties {
			fields[name+"."+m[1]] = true
		}
	}
	return fields
}

func metricNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| `(tideover_\\w+)` \\|")
	for _, m := range row.FindAllStringSubmatch(readText(t, "docs/metrics.md"), -1) {
		names[m[1]] = true
	}
	return names
}
