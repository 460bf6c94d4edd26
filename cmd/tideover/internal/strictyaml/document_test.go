package strictyaml_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

func TestDocument(t *testing.T) {
	t.Parallel()
	d := strictyaml.NewDocument("x.yaml", []byte("a: 1s\nb: [2, 3.5]\nc: true\nd: &anchor {e: text}\nd2: *anchor\na: 2s\nf: 1\ng:\n"))
	var got []string
	for name, p := range d.Root.Keys([]string{"a", "b", "c", "d", "d2", "g"}) {
		got = append(got, name+" at "+p.Path())
		switch name {
		case "a":
			v, ok := p.Duration()
			got = append(got, fmt.Sprint(v, ok))
		case "b":
			items, ok := p.Items()
			n, whole := items[0].Whole()
			f, number := items[1].Number()
			got = append(got, fmt.Sprint(items[1].Path(), " ", ok, n, whole, f, number))
		case "c":
			v, ok := p.Truth()
			got = append(got, fmt.Sprint(v, ok))
		case "g":
			got = append(got, fmt.Sprint(p.Empty(), p.IsMap(), p.IsList()))
			p.Missing("g.h").Bad("is missing, as %s know", "we")
		default:
			for _, v := range p.Keys(nil) {
				s, _ := v.Text()
				got = append(got, fmt.Sprint(v.Path(), "=", s))
			}
		}
	}
	if want := "a at a|1s true|b at b|b[1] true 2 true 3.5 true|c at c|true true|d at d|d.e=text|d2 at d2|d2.e=text|g at g|true false false"; strings.Join(got, "|") != want {
		t.Errorf("read %s, want %s", strings.Join(got, "|"), want)
	}
	wantErrors(t, d, `x.yaml:6:1: a: key "a" is already set at line 1`, `x.yaml:7:1: key "f" is unknown`, "g.h: is missing, as we know")
}

func TestDocumentRefuses(t *testing.T) {
	t.Parallel()
	d := strictyaml.NewDocument("x.yaml", []byte("a: 5\nb: x\nc: 1.5\nd: 1\ne: [1]\nf: {}\n"))
	for name, p := range d.Root.Keys(nil) {
		switch name {
		case "a":
			p.Duration()
			p.Items()
		case "b":
			p.Number()
		case "c":
			p.Whole()
		case "d":
			p.Truth()
		case "e":
			p.Text()
		case "f":
			p.Duration()
		}
	}
	wantErrors(t, d, `a: "5" has no unit; write 5s for seconds`, "a: a number, where a list is expected", `b: "x" is not a number`,
		`c: "1.5" is not a whole number`, "d: a number, where true or false is expected", "e: a list, where a text is expected", "f: a map, where a text is expected")
	if err := strictyaml.NewDocument("x.yaml", []byte("a: [")).Err(); err == nil || !strings.HasPrefix(err.Error(), "x.yaml:1:") {
		t.Errorf("half a list: %v", err)
	}
	if d := strictyaml.NewDocument("x.yaml", nil); !d.Root.Empty() || d.Err() != nil {
		t.Errorf("an empty file: %v", d.Err())
	}
}

func wantErrors(t *testing.T, d *strictyaml.Document, parts ...string) {
	t.Helper()
	err := d.Err()
	if err == nil {
		t.Fatal("there is no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("errors are\n%v\nwant %q in them", err, part)
		}
	}
}
