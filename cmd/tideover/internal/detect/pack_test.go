package detect

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// noon is the current time of the tests.
var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

func builtin(t testing.TB, name string) *Pack {
	t.Helper()
	p, err := Builtin(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// stopOf returns the verdict of a detector on one piece of output.
func stopOf(t testing.TB, pack, output string, code int) Stop {
	t.Helper()
	d := New(builtin(t, pack), Options{Location: time.UTC, At: noon})
	_, _ = d.Stream().Write([]byte(strings.TrimSuffix(output, "\n") + "\n"))
	return d.Stop(code)
}

func TestEveryExampleIsMatchedByItsRule(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		for _, r := range builtin(t, name).Spec().Rules {
			if len(r.Examples) == 0 {
				t.Errorf("rule %s of %s has no example", r.ID, name)
			}
			for _, example := range r.Examples {
				d := New(builtin(t, name), Options{Location: time.UTC, At: noon, Explain: true})
				d.open = r.MovedOn
				_, _ = d.Stream().Write([]byte(example + "\n"))
				stop, findings := d.Explain(1)
				if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Rule == r.ID && f.Matched }) {
					t.Errorf("%s: %q is found as %+v, want rule %s", name, example, findings, r.ID)
				}
				if !r.Alive && !r.MovedOn && (stop.Reason != r.Reason || stop.Terminal != (r.Terminal || r.Reason == Terminal)) {
					t.Errorf("%s: %q gives %+v, want reason %s", name, example, stop, r.Reason)
				}
				if stop.Note != "" && !r.Alive && !strings.Contains(example, "Jul 10th") {
					t.Errorf("%s: %q: %s", name, example, stop.Note)
				}
			}
		}
	}
}

func TestMistakesInAPackAreNamed(t *testing.T) {
	t.Parallel()
	rule := func(fields string) string { return "rules: [{id: r1, " + fields + "}]" }
	for name, tc := range map[string]struct{ text, want string }{
		"an unknown key":                 {"ruls: []", `unknown field "ruls"`},
		"another name":                   {"name: other", `the file has another name: "other"`},
		"not YAML":                       {"rules: [", "pack mine: "},
		"an unknown base":                {"extends: claude", `extends: pack "claude" is unknown (did you mean "claude-code"?); the packs are claude-code, `},
		"no id":                          {"rules: [{line: x, literals: [xxx], reason: rate-limit}]", "rule rules[0]: id is missing"},
		"an id twice":                    {"rules: [{id: a, line: x, literals: [xxx], reason: terminal}, {id: a, line: x, literals: [xxx], reason: terminal}]", "rule a: id: another rule has the same id"},
		"no kind":                        {rule("literals: [xxx], reason: terminal"), "pack mine: rule r1: 0 of event, header and line are given"},
		"two kinds":                      {rule("line: x, header: y, literals: [xxx], reason: terminal"), "2 of event, header and line"},
		"no literals":                    {rule("line: x, reason: terminal"), "rule r1: literals are missing"},
		"a short literal":                {rule("line: x, literals: [ab], reason: terminal"), `literals[0]: "ab"`},
		"capitals in a literal":          {rule("line: x, literals: [ABC], reason: terminal"), "not in lower case"},
		"a bad expression":               {rule("line: '(', literals: [xxx], reason: terminal"), "rule r1: line: "},
		"an unknown group":               {rule("line: '(?P<when>x)', literals: [xxx], reason: terminal"), `the group "when"`},
		"no reason":                      {rule("line: x, literals: [xxx]"), "rule r1: reason is missing"},
		"an unknown reason":              {rule("line: x, literals: [xxx], reason: tired"), `reason "tired" is unknown`},
		"a reason that only a code has":  {rule("line: x, literals: [xxx], reason: completed"), "reason: completed is not allowed in a rule"},
		"alive and terminal":             {rule("line: x, literals: [xxx], reason: terminal, alive: true"), "alive: "},
		"terminal and a wait":            {rule("line: x, literals: [xxx], reason: terminal, for: 5s"), "terminal: "},
		"a bad wait":                     {rule("line: x, literals: [xxx], reason: rate-limit, for: soon"), `for: "soon"`},
		"no wait":                        {rule("line: x, literals: [xxx], reason: rate-limit, for: 0s"), "for: 0 is too short"},
		"until of a line":                {rule("line: x, literals: [xxx], reason: rate-limit, until: [{path: a, as: epoch}]"), "until: only an event"},
		"an unknown form":                {rule("event: {a: b}, literals: [xxx], reason: rate-limit, until: [{path: a, as: sundial}]"), `until[0].as: "sundial"`},
		"a bad path":                     {rule("event: {a..b: c}, literals: [xxx], reason: rate-limit"), `"a..b" is not a path`},
		"any depth inside a path":        {rule("event: {a.**.b: c}, literals: [xxx], reason: rate-limit"), "** is allowed only"},
		"a map as a value":               {rule("event: {a: {b: c}}, literals: [xxx], reason: rate-limit"), "event.a: "},
		"a bad header":                   {rule("header: a b, reason: rate-limit"), `header: "a b"`},
		"an exit code out of range":      {"exit-codes: {256: {reason: crashed}}", "exit-codes.256: "},
		"an exit code without a reason":  {"exit-codes: {3: {meaning: x}}", "exit-codes.3: "},
		"a message without a text":       {"messages: [{event: {a: b}, literals: [xxx]}]", "messages[0]: text: "},
		"a message without its literals": {"messages: [{event: {a: b}, text: c}]", "messages[0]: literals are missing"},
		"an unknown word":                {rule("line: '^back at {clock}$', literals: [back], reason: rate-limit"), `rule r1: line: {clock} is unknown; the words are {lead}, {end}, `},
		"a word that is misspelt":        {rule("line: '^back in {durations}$', literals: [back], reason: rate-limit"), "{durations} is unknown (did you mean {duration}?)"},
		"an example of something else":   {rule("line: '^back in {duration}$', literals: [back], reason: rate-limit, examples: [back in 5s, back soon]"), `rule r1: examples[1]: the rule does not match "back soon"`},
		"an example of another event":    {rule("event: {a: b}, literals: [xxx], reason: rate-limit, examples: ['{\"a\":\"c\",\"xxx\":1}']"), `rule r1: examples[0]: the rule does not match`},
		"an example without a literal":   {rule("line: '^back$', literals: [xxx], reason: rate-limit, examples: [back]"), `examples[0]`},
		"a context of an event":          {rule("event: {a: b}, literals: [xxx], context: [yyy], reason: rate-limit"), "context: only allowed for a line"},
		"capitals in a context":          {rule("line: x, literals: [xxx], context: [ABC], reason: rate-limit"), `context[0]: "ABC" is not in lower case`},
		"a time of day with a date":      {rule("line: x, literals: [xxx], reason: rate-limit, at: Nov 20 at 3pm"), "at: \"Nov 20 at 3pm\" contains a date"},
		"a time of day that is none":     {rule("line: x, literals: [xxx], reason: rate-limit, at: soon"), "at: \"soon\" is not a time"},
		"a time of day and a wait":       {rule("line: x, literals: [xxx], reason: rate-limit, at: '15:00', for: 5s"), "at: can't be used with for"},
		"a time of day, and never":       {rule("line: x, literals: [xxx], reason: terminal, at: '15:00'"), "terminal: can't be used with for"},
		"a crash that is no fallback":    {rule("line: x, literals: [xxx], reason: crashed"), "reason: crashed needs fallback: true"},
		"a fallback that is alive":       {rule("line: x, literals: [xxx], alive: true, fallback: true"), "fallback: can't be used"},
		"moved on with a reason":         {rule("line: x, literals: [xxx], moved-on: true, reason: rate-limit"), "moved-on: "},
		"a file that is too large":       {strings.Repeat("#", maxPack+1), "want at most 262144 bytes"},
	} {
		if _, err := Parse("mine", []byte(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, tc.want)
		}
	}
}

func TestAnErrorShowsTheLine(t *testing.T) {
	t.Parallel()
	_, err := Parse("mine", []byte("name: mine\nrules:\n  - id: a\n    lien: x\n"))
	if err == nil || !strings.Contains(err.Error(), ">  4 |     lien: x") || !strings.Contains(err.Error(), "^") {
		t.Errorf("error %v, want line 4 and a caret", err)
	}
}

func TestAUsersRulesComeFirst(t *testing.T) {
	t.Parallel()
	p, err := Parse("claude-code", []byte(`
extends: claude-code
exit-codes: {7: {reason: terminal, meaning: out of paper}}
rules:
  - {id: mine, line: '^5-hour limit reached', literals: [limit reached], reason: context-full}
  - {id: limit-event, line: '^never$', literals: [never], reason: rate-limit}
`))
	if err != nil {
		t.Fatal(err)
	}
	for output, want := range map[string]Stop{
		"5-hour limit reached · resets 3pm": {Reason: ContextFull, Pack: "claude-code", Rule: "mine"},
		rejected:                            {Reason: Terminal, Pack: "claude-code"}, // by the code: the rule is replaced
		"429 Too Many Requests":             {Reason: RateLimit, Pack: "generic", Rule: "limit"},
	} {
		d := New(p, Options{At: noon})
		_, _ = d.Stream().Write([]byte(output))
		if got := d.Stop(7); got.Reason != want.Reason || got.Pack != want.Pack || got.Rule != want.Rule {
			t.Errorf("%q: %+v, want %+v", output, got, want)
		}
	}
}

func TestAPackMayBeStoredAsJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(Spec{Name: "mine", Extends: "gemini", ExitCodes: map[int]Exit{7: {Terminal, "x"}}, Rules: []Rule{{
		ID: "big", Event: map[string]any{"code": 12345678, "fatal": true, "kind": []any{"a", 1}}, Literals: []string{"code"}, Reason: RateLimit, For: "5s",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	var spec Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	pack, err := Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	d := New(pack, Options{Location: time.UTC, At: noon})
	_, _ = d.Stream().Write([]byte(`{"code":12345678,"fatal":true,"kind":1}`))
	if got := d.Stop(7); got.Rule != "big" || !got.Until.Equal(in(5*time.Second)) {
		t.Errorf("Stop = %+v, want rule big and 5 seconds", got)
	}
}

func TestReasonsHaveNames(t *testing.T) {
	t.Parallel()
	for r := Unknown; r <= Crashed; r++ {
		if got, err := ParseReason(r.String()); err != nil || got != r {
			t.Errorf("ParseReason(%q) = %v, %v, want %v", r, got, err, r)
		}
	}
	if _, err := ParseReason("Reason(9)"); err == nil || Reason(9).String() != "Reason(9)" {
		t.Errorf("reason 9 is %q and parses with %v", Reason(9), err)
	}
}

// The configuration passes its packs as JSON on one line, so errors must name the path and not the line.
func TestMistakesInJSONAreNamedInWords(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"a misspelt key":     {`{"rules":[{"id":"a"},{"id":"b"},{"id":"c","reson":"terminal"}]}`, `pack mine: rules[2].reson: unknown key: did you mean "reason"?`},
		"an unknown key":     {`{"zzz":1}`, `pack mine: zzz: unknown key: want one of description, exit-codes, extends, messages, name, rules`},
		"two mistakes":       {`{"rules":[{"zzz":1}],"messages":{}}`, "pack mine: messages: want a list\nrules[0].zzz: unknown key: want one of alive, "},
		"an unknown reason":  {`{"rules":[{"reason":"tired"}]}`, `pack mine: rules[0].reason: reason "tired" is unknown: want one of `},
		"a text for a list":  {`{"rules":[{"literals":"abc"}]}`, `pack mine: rules[0].literals: want a list`},
		"a list for a text":  {`{"rules":[{"line":["abc"]}]}`, `pack mine: rules[0].line: want a string`},
		"a text for a truth": {`{"rules":[{"alive":"yes"}]}`, `pack mine: rules[0].alive: want true or false`},
		"a text for a rule":  {`{"rules":["x"]}`, `pack mine: rules[0]: want keys and values`},
		"a word for a code":  {`{"exit-codes":{"x":{"reason":"terminal"}}}`, `pack mine: exit-codes.x: want a number`},
		"a deep one":         {`{"rules":[{"until":[{"paths":"a"}]}]}`, `pack mine: rules[0].until[0].paths: unknown key: did you mean "path"?`},
		"no object":          {`[]`, `pack mine: want keys and values`},
		"what Compile finds": {`{"rules":[{"id":"a","line":"{clock}","literals":["abc"],"reason":"rate-limit"}]}`, `pack mine: rule a: line: {clock} is unknown`},
	} {
		if _, err := Parse("mine", []byte(tc.text)); err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "^") {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
	}
	p, err := Parse("mine", []byte(`{"extends":"generic","exit-codes":{"7":{"reason":"terminal","meaning":"x"}},"rules":[{"id":"a","event":{"code":429},"literals":[429],"reason":"rate-limit","for":"5s","until":null}]}`))
	if err != nil {
		t.Fatal(err)
	}
	d := New(p, Options{Location: time.UTC, At: noon})
	_, _ = d.Stream().Write([]byte(`{"code":429}`))
	if got := d.Stop(7); got.Rule != "a" || !got.Until.Equal(in(5*time.Second)) {
		t.Errorf("Stop = %+v, want rule a and 5 seconds", got)
	}
}

func TestBracesOfTheExpressionStay(t *testing.T) {
	t.Parallel()
	for pattern, line := range map[string]string{`^x{2,3}\p{Greek}\x{62}$`: "xxαb", `^\{name\} and \{name} abc$`: "{name} and {name} abc"} {
		_, err := Compile(Spec{Name: "mine", Rules: []Rule{{ID: "a", Line: pattern, Literals: []string{strings.ToLower(line)}, Reason: RateLimit, Examples: []string{line}}}})
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

func TestBuiltInPacksAreMadeOnce(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		a, err1 := Builtin(name)
		b, err2 := Builtin(name)
		if err1 != nil || err2 != nil || a != b {
			t.Errorf("Builtin(%q) = %p, %v, then %p, %v", name, a, err1, b, err2)
		}
	}
}

func TestAPackIsReadFromAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for file, tc := range map[string]struct{ text, want string }{
		"oracle.yaml": {"extends: generic\n", "oracle"},
		"a.b.yml":     {"name: delphi\n", "delphi"},
		"bad.yaml":    {"ruls: []\n", `pack bad: [1:1] unknown field "ruls"`},
		"large.yaml":  {strings.Repeat("#", 2*maxPack), "pack large: the file is too long"},
	} {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := Load(path)
		if err == nil && p.Name() != tc.want || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("Load(%s) = %v, %v, want %s", file, p, err, tc.want)
		}
	}
	if _, err := Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want that there is no such file", err)
	}
}

// parseAny is Parse with the name in the text.
func parseAny(text []byte) (*Pack, error) {
	spec, err := decodeSpec(text)
	if err != nil {
		return nil, err
	}
	return Compile(spec)
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{ // short, so that the fuzzer needs little time to minimise its findings
		"name: a\nextends: generic\nexit-codes: {7: {reason: terminal, meaning: x}}\n",
		"name: a\nmessages: [{event: {type: b}, text: c.d, literals: [xxx]}]\n",
		"name: a\nrules: [{id: b, line: '^x {duration}{end}', literals: [xxx], reason: rate-limit, examples: [xxx]}]\n",
		`{"name":"a","rules":[{"id":"b","event":{"**.c":[1,true,"d"]},"literals":["xxx"],"reason":"rate-limit","until":[{"path":"e.*","as":"epoch"}],"for":"5s"}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parseAny(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(p.Spec())
		if err != nil {
			return // a value that only YAML has, such as a map with numbers
		}
		if _, err := Parse(p.Name(), again); err != nil {
			t.Fatalf("%q is a pack, and as JSON it is not: %v\n%s", text, err, again)
		}
	})
}
