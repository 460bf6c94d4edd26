package template_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/secret"
)

var (
	fields  = template.Fields{First: []string{"input", "steps", "run"}}
	secrets = secret.Resolver{LookupEnv: func(name string) (string, bool) { return "{{ .input }} ${env:" + name + "}", name == "KEY" }}
)

func scope() *template.Scope {
	steps := map[string]any{"fetch": map[string]any{"stdout": "page", "exit": 0}}
	return &template.Scope{
		Root:  map[string]any{"input": map[string]any{"x": "1", "list": []any{"a"}, "n": 2.5}, "steps": steps, "run": map[string]any{"id": "r1"}},
		Steps: steps, Secrets: secrets,
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"plain":                             "plain",
		"{{ .input.x }}-{{ .run.id }}":      "1-r1",
		`{{ (step "fetch").stdout }}`:       "page",
		"{{ .steps.fetch.exit }}":           "0",
		"{{ json .input.list }}":            `["a"]`,
		`{{ default "y" .input.x }}`:        "1",
		"{{ .input.n }}":                    "2.5",
		"a ${env:KEY} b":                    "a {{ .input }} ${env:KEY} b", // the inserted values are not parsed again
		"$${env:KEY}":                       "${env:KEY}",
		"{{/* }} */}}z":                     "z",
		`{{ "}}" }}`:                        "}}",
		"{{ upper .run.id | printf `%q` }}": `"R1"`,
	} {
		text, err := template.Parse(src, template.WithRefs, fields)
		if err != nil {
			t.Errorf("Parse(%q): %v", src, err)
			continue
		}
		if got, err := text.Render(scope()); err != nil || got != want {
			t.Errorf("%q renders as %q, %v, want %q", src, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		src  string
		mode template.RefMode
		want string
	}{
		{"{{ .inptu }}", template.WithRefs, "there is no .inptu here; want .input, .steps, .run"},
		{"{{ .run.name }}", template.WithRefs, "there is no .run.name; want id, workflow"},
		{"{{ .steps.a.out }}", template.WithRefs, `step "a" has no "out"; want stdout`},
		{"{{ .steps.a-b.stdout }}", template.WithRefs, `for a step whose id has a hyphen write (step "a-b").stdout`},
		{"${env:", template.WithRefs, "has no closing brace; write $${ for a literal ${"},
		{"${HOME}", template.WithRefs, "write $${ for a literal ${"},
		{"${env:KEY}", template.WithoutRefs, "can't be used here, where others could read it"},
		{"{{ `${env:KEY}` }}", template.WithRefs, "a reference can't be inside {{ }}"},
		{`{{ define "x" }}{{ end }}`, template.WithRefs, "define and block are not supported"},
		{"{{ printText 1 }}", template.WithRefs, `function "printText" not defined`},
		{"secretRef", template.WithRefs, "can't be used in a text"},
	} {
		if _, err := template.Parse(c.src, c.mode, fields); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Parse(%q) = %v, want %q in it", c.src, err, c.want)
		}
	}
	if text, err := template.Parse("echo ${HOME}", template.WithoutRefs, fields); err != nil || text.Literal() != "echo ${HOME}" {
		t.Errorf("a script: %v, %v", text, err)
	}
}

func TestForeignTextsAndSteps(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"plain":                   "false []",
		"{{ .run.id }}":           "false []",
		"{{ .run.key }}":          "true []",
		"{{ .input.x }}":          "true []",
		"{{ .steps.b.exit }}":     "false [b]",
		`{{ (step "a").stdout }}`: "true [a]",
		"{{ range .input.list }}{{ . }}{{ end }}": "true []",
	} {
		text, err := template.Parse(src, template.WithRefs, fields)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(text.Foreign(), text.Steps()); got != want {
			t.Errorf("%q: %s, want %s", src, got, want)
		}
	}
}

func TestErrorsOfRendering(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"{{ .input.y }}":          `map has no entry for key "y"`,
		"{{ .input.list }}":       ".input.list is a map or a list; write it with json",
		`{{ (step "b").stdout }}`: `step "b" is not in needs`,
		"${env:OTHER}":            "OTHER",
	} {
		text, err := template.Parse(src, template.WithRefs, fields)
		if err != nil {
			t.Fatal(err)
		}
		_, err = text.Render(scope())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", src, err, want)
		}
		if missing := strings.HasPrefix(src, "$"); missing != errors.Is(err, secret.ErrUnavailable) {
			t.Errorf("%q: %v is ErrUnavailable: %v", src, err, !missing)
		}
	}
}

func TestReaderRefusesSecretsInTheFile(t *testing.T) {
	t.Parallel()
	d := strictyaml.NewDocument("x.yaml", []byte("token: PLANTED\napi-key: ${env:KEY}\nmissing: ${env:NONE}\ntitle: '{{ .input }}'\n"))
	r := template.Reader{Secrets: secrets}
	for name, at := range d.Root.Keys(nil) {
		switch name {
		case "title":
			r.Open(at)
		default:
			if s := r.Secret(at); (s != nil) != (name == "api-key") {
				t.Errorf("%s is read as %v", name, s)
			}
		}
	}
	err := d.Err()
	for _, want := range []string{"token: a secret must not be in the file; write a reference", "missing: ", "title: templates can't be used here"} {
		if err == nil || strings.Contains(err.Error(), "PLANTED") || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is\n%v\nwant %q in it", err, want)
		}
	}
}

func TestURLSecret(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://a.example/x?y=1":                       "",
		"https://me:hush@a.example":                     "hush",
		"https://me:${env:KEY}@a.example":               "",
		"https://a.example?api_key=hush":                "hush",
		"https://a.example?api_key={{ .input.k }}":      "",
		"https://a.example?token=${env:KEY}&x=2#token=": "",
	} {
		if got, found := template.URLSecret(url); got != want || found != (want != "") {
			t.Errorf("URLSecret(%q) = %q, %v, want %q", url, got, found, want)
		}
	}
}

func ExampleText_Render() {
	text, err := template.Parse("Bearer ${env:TOKEN} for {{ .input.user }}", template.WithRefs, template.Fields{First: []string{"input"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	secrets := secret.Resolver{LookupEnv: func(string) (string, bool) { return "t0ken", true }}
	fmt.Println(text.Render(&template.Scope{Root: map[string]any{"input": map[string]any{"user": "ann"}}, Secrets: secrets}))
	// Output: Bearer t0ken for ann <nil>
}
