package strictyaml_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// service is the struct that the table of keys below fills.
type service struct {
	Name    string
	Timeout time.Duration
	Retries int
	Size    int64
	Level   string
	On      bool
}

func serviceKeys(s *service) []strictyaml.Key {
	return []strictyaml.Key{
		{
			Name: "name", Required: true, Doc: "Name of it.", Schema: strictyaml.NameSchema,
			Set: func(at strictyaml.Place) {
				name, _ := at.Text()
				s.Name = "my-" + name
				at.Record(s.Name)
			},
		},
		strictyaml.Duration(&s.Timeout, "timeout", "10s", "Ends a call."),
		strictyaml.IntUpTo(&s.Retries, "retries", "3", 5, "[1-5]", "Further attempts."),
		strictyaml.Size(&s.Size, "size", "", "Largest body."),
		strictyaml.Word(&s.Level, "level", "", []string{"info", "debug"}, "Level of the log."),
		strictyaml.Bool(&s.On, "on", "Whether it runs."),
	}
}

func TestObjectReadsByTheTable(t *testing.T) {
	t.Parallel()
	d := strictyaml.NewDocument("x.yaml", []byte("name: a\nsize: 2KiB\nlevel: debug\non: true\n"))
	var s service
	found, ok := strictyaml.Object(d.Root, serviceKeys(&s))
	want := service{Name: "my-a", Timeout: 10 * time.Second, Retries: 3, Size: 2048, Level: "debug", On: true}
	if !ok || d.Err() != nil || s != want {
		t.Errorf("Object = %+v, %v, %v, want %+v", s, ok, d.Err(), want)
	}
	if len(found) != 4 || found["size"].Path() != "size" || found["timeout"].Node != nil {
		t.Errorf("it has found %v", found)
	}
	var values []string
	for _, v := range d.Values() {
		values = append(values, fmt.Sprintf("%s=%s from %s", v.Path, v.Text, v.Origin))
	}
	if got, want := strings.Join(values, "\n"), "name=my-a from x.yaml:1\ntimeout=10s from default\nretries=3 from default\nsize=2KiB from x.yaml:2\nlevel=debug from x.yaml:3\non=true from x.yaml:4"; got != want {
		t.Errorf("the values are\n%s\nwant\n%s", got, want)
	}
}

func TestObjectRecordsEveryProblem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"- a":                     "x.yaml:1:1: a list, where a map is expected",
		"size: 1kB":               `x.yaml:1:1: "name" is missing`,
		"name: a\nnmae: b":        `x.yaml:2:1: key "nmae" is unknown; did you mean "name"?`,
		"name: a\nname: b":        `x.yaml:2:1: name: key "name" is already set at line 1`,
		"name: a\ntimeout: 5":     `x.yaml:2:10: timeout: "5" has no unit; write 5s for seconds`,
		"name: a\ntimeout: 0s":    `x.yaml:2:10: timeout: "0s": must be above zero`,
		"name: a\nretries: 6":     "x.yaml:2:10: retries: 6 is more than 5",
		"name: a\nretries: -1":    `x.yaml:2:10: retries: "-1" is not a whole number of 1 or more`,
		"name: a\nsize: much":     `x.yaml:2:7: size: "much" is not a size such as 500kB, 64KiB or 1MiB`,
		"name: a\nlevel: loud":    `x.yaml:2:8: level: "loud" is not one of info, debug`,
		"name: a\non: 'true'":     "x.yaml:2:5: on: a text, where true or false is expected",
		"name: a\nlevel:":         `level: the value is missing; write "" for an empty text`,
		"name: [a]\ntimeout: {}":  "timeout: a map, where a text is expected",
		"name: a\n\ttimeout: 10s": "there is a tab in the indent; YAML indents with spaces",
	} {
		d := strictyaml.NewDocument("x.yaml", []byte(text))
		if d.Err() == nil {
			strictyaml.Object(d.Root, serviceKeys(new(service)))
		}
		if err := d.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
}

func TestDescribeMakesTheSchemaOfTheTable(t *testing.T) {
	t.Parallel()
	s := strictyaml.Describe(serviceKeys(new(service)))
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, valid := range map[string]bool{
		`{"name": "a"}`: true,
		`{"name": "a", "timeout": "1m30s", "retries": 5}`:  true,
		`{"timeout": "10s"}`:                               false,
		`{"name": "a", "other": 1}`:                        false,
		`{"name": "a", "timeout": "0s"}`:                   false,
		`{"name": "a", "retries": 6}`:                      false,
		`{"name": "a", "level": "loud"}`:                   false,
		`{"name": "A"}`:                                    false,
		`{"name": "a", "size": "1TB"}`:                     false,
		`{"name": "a", "size": 500, "on": true}`:           true,
		`{"name": "a", "retries": "4", "level": "info"}`:   true,
		`{"name": "a", "retries": "7", "level": "info"}`:   false,
		`{"name": "a", "timeout": "1d12h", "on": false}`:   true,
		`{"name": "a", "timeout": 5}`:                      false,
		`{"name": "a", "timeout": "10s", "size": "64KiB"}`: true,
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if err := resolved.Validate(v); (err == nil) != valid {
			t.Errorf("%s: %v, want valid: %v, by %s", text, err, valid, data)
		}
	}
}

// TestSecretsAreNotRepeated reads a file with a written-out secret. The error must not
// quote it.
func TestSecretsAreNotRepeated(t *testing.T) {
	t.Parallel()
	d := strictyaml.NewDocument("x.yaml", []byte("a: PLANTED-a\nb: [PLANTED-b, \"PLANTED\\x2dc\"]\n"))
	for name, at := range d.Root.Keys(nil) {
		if name == "a" {
			at.Refuse("PLANTED-a", "a secret: PLANTED-a")
			continue
		}
		at.Each(func(at strictyaml.Place) {
			at.Hide()
			at.Bad("%s is wrong", at.Node.Text)
		})
	}
	if err := d.Err(); err == nil || strings.Contains(err.Error(), "PLANTED") || strings.Count(err.Error(), "is wrong") != 2 {
		t.Errorf("the error is\n%v", err)
	}
}

func TestEachNameAcceptsOnlyNames(t *testing.T) {
	t.Parallel()
	d := strictyaml.NewDocument("x.yaml", []byte("a: {one: 1, Two: 2, one: 3}\nb:\nc: 1\n"))
	var got []string
	for _, at := range d.Root.Keys(nil) {
		at.EachName("thing", func(name string, at strictyaml.Place) { got = append(got, at.Path()) })
	}
	if want := "a.one a.Two"; strings.Join(got, " ") != want {
		t.Errorf("it has read %q, want %s", got, want)
	}
	wantErrors(t, d, `a: "Two" is not a valid name for a thing; want 1 to 63 lower-case letters`, `a.one: key "one" is already set at line 1`, "c: a number, where a map of names is expected")
}

func ExampleDocument() {
	d := strictyaml.NewDocument("service.yaml", []byte("name: web\ntimout: 5s\n"))
	var s service
	strictyaml.Object(d.Root, serviceKeys(&s))
	fmt.Println(d.Err())
	// Output:
	// service.yaml:2:1: key "timout" is unknown; did you mean "timeout"?
	// >  2 | timout: 5s
	//        ^
}

func TestUnknownName(t *testing.T) {
	letters := strings.Split("a b c d e f g h i j k l", " ")
	for _, c := range []struct {
		name  string
		known []string
		want  string
	}{
		{"nihgtly", []string{"hourly", "nightly"}, `unknown job "nihgtly"; did you mean "nightly"?`},
		{"backup", []string{"hourly", "nightly"}, `unknown job "backup"; known jobs: hourly, nightly`},
		{"backup", letters, `unknown job "backup"; known jobs: a, b, c, d, e, f, g, h, i, j and 2 more`},
		{"backup", nil, `unknown job "backup"; no jobs are defined`},
	} {
		if got := strictyaml.UnknownName("job", c.name, c.known); got != c.want {
			t.Errorf("UnknownName(%q) = %s, want %s", c.name, got, c.want)
		}
	}
}
