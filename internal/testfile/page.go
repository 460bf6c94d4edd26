package testfile

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/pagepart"
)

// Section compares a generated part of a page with a text; see package pagepart. With -update it writes
// the part.
func Section(t testing.TB, page, name, text string) {
	t.Helper()
	page = filepath.FromSlash(page)
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	changed, got, err := pagepart.Replace(string(data), name, text)
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	if *update && got != text {
		if err := os.WriteFile(page, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		got = text
	}
	if got != text {
		t.Errorf("%s, %s (write it with -update): got\n%s\nwant\n%s", page, name, got, text)
	}
}

var inCode = regexp.MustCompile("`[^`]*`|[|*]")

// escapeCell escapes the characters that have a meaning in a table, and outside of code *.
func escapeCell(text string) string {
	return inCode.ReplaceAllStringFunc(text, func(s string) string {
		if len(s) > 1 {
			return strings.ReplaceAll(s, "|", `\|`)
		}
		return `\` + s
	})
}

// Table returns a table in Markdown. A row whose last cell is empty is an error: the last column has
// the descriptions.
func Table(t testing.TB, head []string, rows [][]string) string {
	t.Helper()
	var b strings.Builder
	line := func(cells []string) {
		for i, c := range cells {
			cells[i] = escapeCell(c)
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	line(head)
	line(strings.Split(strings.Repeat("--- ", len(head)-1)+"---", " "))
	for _, row := range rows {
		if len(row) != len(head) || row[len(row)-1] == "" {
			t.Errorf("%q has no description", row)
		}
		line(row)
	}
	return b.String()
}

// Described is a constant or a field in a Go file.
type Described struct {
	Name  string
	Doc   string // its comment
	Value string // of a constant that is a string literal
}

// Consts returns the constants of the type in a Go file, with the comments behind them. A constant
// without a comment is an error.
func Consts(t testing.TB, file, typeName string) (list []Described) {
	t.Helper()
	for _, decl := range parseGo(t, file).Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		current := ""
		for _, spec := range group.Specs {
			v := spec.(*ast.ValueSpec)
			if id, ok := v.Type.(*ast.Ident); ok {
				current = id.Name
			} else if len(v.Values) > 0 {
				current = ""
			}
			if current == typeName {
				d := described(t, v.Names[0].Name, v.Comment)
				if len(v.Values) > 0 {
					d.Value = literal(v.Values[0])
				}
				list = append(list, d)
			}
		}
	}
	return list
}

// StructFields returns the fields of a struct type in a Go file, with the comments behind them. A
// field without a comment is an error.
func StructFields(t testing.TB, file, typeName string) (list []Described) {
	t.Helper()
	ast.Inspect(parseGo(t, file), func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.Name == typeName {
			for _, f := range spec.Type.(*ast.StructType).Fields.List {
				list = append(list, described(t, f.Names[0].Name, f.Comment))
			}
		}
		return true
	})
	return list
}

func parseGo(t testing.TB, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(file), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func described(t testing.TB, name string, comment *ast.CommentGroup) Described {
	t.Helper()
	d := Described{Name: name, Doc: strings.TrimSpace(comment.Text())}
	if d.Doc == "" {
		t.Errorf("%s has no comment", name)
	}
	return d
}

// literal returns the value of a string literal, else "".
func literal(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		if text, err := strconv.Unquote(lit.Value); err == nil {
			return text
		}
	}
	return ""
}

// Sentence returns a comment with a capital letter and a full stop.
func Sentence(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf("%s%s.", strings.ToUpper(text[:1]), strings.TrimSuffix(text[1:], "."))
}
