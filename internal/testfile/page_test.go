package testfile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSection(t *testing.T) { // not parallel: it sets the flag
	path := filepath.Join(t.TempDir(), "page.md")
	const page = "# Page\n<!-- begin a -->\nold\n<!-- end a -->\n<!-- begin b -->\n<!-- end b -->\nlast\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(name, text string) bool {
		f := &failures{TB: t}
		Section(f, path, name, text)
		return !f.failed
	}
	if !check("a", "old\n") || check("a", "new\n") || check("b", "new\n") {
		t.Error("the section does not decide")
	}
	*update = true
	written := check("a", "new\n")
	*update = false
	text, err := os.ReadFile(path)
	if want := "# Page\n<!-- begin a -->\nnew\n<!-- end a -->\n<!-- begin b -->\n<!-- end b -->\nlast\n"; !written || string(text) != want {
		t.Errorf("got %q, want %q, %v", text, want, err)
	}
}

func TestDescriptions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.go")
	const source = "package x\n\ntype Kind int\n\nconst (\n\tOne Kind = iota // first\n\tTwo\n)\n\nconst Other = 3 // other\n\nconst Text Word = \"text\" // a text\n\n" +
		"type S struct {\n\tA int // an a\n\tB int\n}\n"
	if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &failures{TB: t}
	if got := Consts(f, path, "Kind"); len(got) != 2 || got[0] != (Described{Name: "One", Doc: "first"}) || !f.failed {
		t.Errorf("constants: %q, failed %t", got, f.failed)
	}
	if got := Consts(t, path, "Word"); len(got) != 1 || got[0] != (Described{Name: "Text", Doc: "a text", Value: "text"}) {
		t.Errorf("texts: %q", got)
	}
	f = &failures{TB: t}
	if got := StructFields(f, path, "S"); len(got) != 2 || got[0] != (Described{Name: "A", Doc: "an a"}) || !f.failed {
		t.Errorf("fields: %q, failed %t", got, f.failed)
	}
	f = &failures{TB: t}
	if got := Table(f, []string{"a", "b"}, [][]string{{"1|2", "x* `y*|`"}}); got != "| a | b |\n| --- | --- |\n| 1\\|2 | x\\* `y*\\|` |\n" || f.failed {
		t.Errorf("table: %q, failed %t", got, f.failed)
	}
	if Table(f, []string{"a", "b"}, [][]string{{"1", ""}}); !f.failed {
		t.Error("a row without a description is accepted")
	}
}
