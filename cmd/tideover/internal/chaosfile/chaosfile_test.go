package chaosfile

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tideover/tideover/chaos"
	"github.com/tideover/tideover/limit"
)

// specs are texts of specs that together use every feature of a rule.
var specs = []string{
	"*: 200",
	"seed=7; *: 503=20% reset=1%",
	"/v1/messages: 429(retry-after=2)x2,200; *: delay=50ms..200ms fail=20%",
	`header(x-name="a b"): 200(body="say \"hi\"; (or not), \u00e9")`,
	"*: 200(cut=50%),200(stream=openai events=5 every=20ms) cycle",
	"*: per=x-request-id delay=p50:100ms..p99:2s body=64KiB",
	"*: body=echo concurrent=4 rate=100/min service=50ms+10ms over=429(retry-after=due)",
	"*: down 30s every 5m from 10s as refuse down from 1m to 1m30s as 429(retry-after=rfc850:due)",
}

// format writes the spec as YAML, each rule as a map.
func format(s chaos.Spec) string {
	var b strings.Builder
	if s.Seed != 0 {
		fmt.Fprintf(&b, "seed: %d\n", s.Seed)
	}
	b.WriteString("rules:\n")
	for _, r := range s.Rules {
		fmt.Fprintf(&b, "  - match: %q\n    cycle: %t\n", r.Match.String(), r.Cycle)
		list(&b, "script", r.Script)
		for name, text := range map[string]string{"per": r.Per, "delay": r.Delay.String(), "body": r.Body.String(), "service": r.Service.String()} {
			if text != "" {
				fmt.Fprintf(&b, "    %s: %q\n", name, text)
			}
		}
		if r.Concurrent != 0 {
			fmt.Fprintf(&b, "    concurrent: %d\n", r.Concurrent)
		}
		if r.Rate != (limit.Frequency{}) {
			fmt.Fprintf(&b, "    rate: %s\n", r.Rate)
		}
		if r.Over.Status != 0 || r.Over.Act != "" {
			fmt.Fprintf(&b, "    over: %q\n", r.Over.String())
		}
		list(&b, "random", r.Random)
		list(&b, "down", r.Down)
	}
	return b.String()
}

func list[T fmt.Stringer](b *strings.Builder, name string, values []T) {
	if len(values) > 0 {
		fmt.Fprintf(b, "    %s:\n", name)
	}
	for _, v := range values {
		fmt.Fprintf(b, "      - %q\n", v.String())
	}
}

func TestTheTextAndYAMLSayTheSame(t *testing.T) {
	t.Parallel()
	for _, text := range specs {
		want := chaos.MustParse(text)
		got, err := Parse([]byte(format(want)))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q as YAML is %v, %v\n%s", text, got, err, format(want))
		}
	}
}

func TestParseAsGoesByTheContentType(t *testing.T) {
	t.Parallel()
	for kind, text := range map[string]string{
		"application/yaml": "rules: [504]", "application/json": `{"rules": [504]}`, "": "504", "application/x-www-form-urlencoded": "504",
	} {
		if s, err := ParseAs(kind, []byte(text)); err != nil || s.String() != "*: 504" {
			t.Errorf("ParseAs(%q, %q) = %q, %v", kind, text, s, err)
		}
	}
}

func TestParse(t *testing.T) {
	const text = `
seed: 7
rules:
  - match: POST /v1/messages
    script: [429(retry-after=2)x2, 200]
    random: [fail=20%, reset=1%]
    delay: 50ms..200ms
    concurrent: 4
    over: 429
    down: 30s every 5m as 503
  - match: /v1
    script: 503,200
    cycle: true
  - "/a: 503"
  - script: 404
`
	s, err := Parse([]byte(text))
	want := "seed=7; POST /v1/messages: 429(retry-after=2)x2,200 delay=50ms..200ms concurrent=4 over=429 fail=20% reset=1% down 30s every 5m; /v1: 503,200 cycle; /a: 503; *: 404"
	if err != nil || s.String() != want {
		t.Errorf("Parse = %q, %v, want %q", s, err, want)
	}
	for text, want := range map[string]string{
		"":                               "want one YAML document",
		"- 503":                          "want a map of keys and values",
		"rule: 503":                      `line 1: key "rule" is unknown; want seed or rules`,
		"rules: [{scrpt: 503}]":          `rule 1: line 1: key "scrpt" is unknown; want match, script`,
		"rules: [{script: 5O3}]":         `"5O3" is no answer`,
		"rules: [{cycle: maybe}]":        `"maybe" is not true or false`,
		"rules: [{delay: {a: b}}]":       "is not a text",
		"rules: [{delay: [1s, 2s]}]":     "delay: want one value",
		"rules: [{random: [fail]}]":      `"fail" is not an answer with its share`,
		"rules: [{down: 1s every 2s x}]": `unexpected "x"`,
		"seed: -1\nrules: [200]":         `seed: "-1" is not a whole number`,
		"rules: [200]\nrules: [503]":     "already defined",
		"rules: [200, 503]":              "no request reaches this rule",
		"rules:\n  - match: *\n":         "chaos:",
		"rules: []":                      "the spec has no rule",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want %q in it", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range specs {
		f.Add(format(chaos.MustParse(text)))
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse([]byte(text))
		if err != nil {
			return
		}
		if again, err := chaos.Parse(s.String()); err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("Parse(%q) prints %q, which is %v, %v", text, s, again, err)
		}
	})
}
