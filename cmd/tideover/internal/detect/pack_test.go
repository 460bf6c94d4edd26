package detect

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"
)

// noon is when the tests take place.
var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// built has the built-in packs, which take milliseconds to make.
var built = sync.OnceValues(func() (map[string]*Pack, error) {
	packs := map[string]*Pack{}
	for _, name := range Names() {
		p, err := Builtin(name)
		if err != nil {
			return nil, err
		}
		packs[name] = p
	}
	return packs, nil
})

func builtin(t testing.TB, name string) *Pack {
	t.Helper()
	packs, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return packs[name]
}

// stopOf feeds a detector with one piece of output.
func stopOf(t testing.TB, pack, output string, code int) Stop {
	t.Helper()
	d := New(builtin(t, pack), Options{Location: time.UTC, At: noon})
	_, _ = d.Stream().Write([]byte(output))
	return d.Stop(code, false)
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
				_, _ = d.Stream().Write([]byte(example + "\n"))
				stop, findings := d.Explain(1, false)
				if len(findings) == 0 || findings[0].Rule != r.ID || !findings[0].Matched {
					t.Errorf("%s: %q is found as %+v, want rule %s", name, example, findings, r.ID)
				}
				if !r.Alive && (stop.Reason != r.Reason || stop.Terminal != (r.Terminal || r.Reason == Terminal)) {
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
		"another name":                   {"name: other", `name: the file says "other"`},
		"not YAML":                       {"rules: [", "pack mine: "},
		"an unknown base":                {"extends: claude", `extends: pack "claude" is unknown (did you mean "claude-code"?); the packs are claude-code, `},
		"no id":                          {"rules: [{line: x, literals: [xxx], reason: rate-limit}]", "rule rules[0]: id: missing"},
		"an id twice":                    {"rules: [{id: a, line: x, literals: [xxx], reason: terminal}, {id: a, line: x, literals: [xxx], reason: terminal}]", "rule a: id: another rule has it"},
		"no kind":                        {rule("literals: [xxx], reason: terminal"), "pack mine: rule r1: 0 of event, header and line are given"},
		"two kinds":                      {rule("line: x, header: y, literals: [xxx], reason: terminal"), "2 of event, header and line"},
		"no literals":                    {rule("line: x, reason: terminal"), "rule r1: literals: missing"},
		"a short literal":                {rule("line: x, literals: [ab], reason: terminal"), `literals[0]: "ab"`},
		"capitals in a literal":          {rule("line: x, literals: [ABC], reason: terminal"), "not in lower case"},
		"a bad expression":               {rule("line: '(', literals: [xxx], reason: terminal"), "rule r1: line: "},
		"an unknown group":               {rule("line: '(?P<when>x)', literals: [xxx], reason: terminal"), `the group "when"`},
		"no reason":                      {rule("line: x, literals: [xxx]"), "rule r1: reason: missing"},
		"an unknown reason":              {rule("line: x, literals: [xxx], reason: tired"), `reason "tired" is unknown`},
		"a reason that only a code has":  {rule("line: x, literals: [xxx], reason: completed"), "reason: completed is not for a rule"},
		"alive and terminal":             {rule("line: x, literals: [xxx], reason: terminal, alive: true"), "alive: "},
		"terminal and a wait":            {rule("line: x, literals: [xxx], reason: terminal, for: 5s"), "terminal: "},
		"a bad wait":                     {rule("line: x, literals: [xxx], reason: rate-limit, for: soon"), `for: "soon"`},
		"no wait":                        {rule("line: x, literals: [xxx], reason: rate-limit, for: 0s"), "for: 0 is no wait"},
		"until of a line":                {rule("line: x, literals: [xxx], reason: rate-limit, until: [{path: a, as: epoch}]"), "until: only an event"},
		"an unknown form":                {rule("event: {a: b}, literals: [xxx], reason: rate-limit, until: [{path: a, as: sundial}]"), `until[0].as: "sundial"`},
		"a bad path":                     {rule("event: {a..b: c}, literals: [xxx], reason: rate-limit"), `"a..b" is not a path`},
		"any depth inside a path":        {rule("event: {a.**.b: c}, literals: [xxx], reason: rate-limit"), "has ** where"},
		"a map as a value":               {rule("event: {a: {b: c}}, literals: [xxx], reason: rate-limit"), "event.a: "},
		"a bad header":                   {rule("header: a b, reason: rate-limit"), `header: "a b"`},
		"an exit code out of range":      {"exit-codes: {256: {reason: crashed}}", "exit-codes.256: "},
		"an exit code without a reason":  {"exit-codes: {3: {meaning: x}}", "exit-codes.3: "},
		"a message without a text":       {"messages: [{event: {a: b}, literals: [xxx]}]", "messages[0]: text: "},
		"a message without its literals": {"messages: [{event: {a: b}, text: c}]", "messages[0]: literals: missing"},
		"a file that is too large":       {strings.Repeat("#", maxPack+1), "at most 262144 are read"},
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
  - {id: limit-epoch, line: '^never$', literals: [never], reason: rate-limit}
`))
	if err != nil {
		t.Fatal(err)
	}
	for output, want := range map[string]Stop{
		"5-hour limit reached · resets 3pm":        {Reason: ContextFull, Pack: "claude-code", Rule: "mine"},
		"Claude AI usage limit reached|1794747600": {Reason: Terminal, Pack: "claude-code"}, // by the code: the rule is replaced
		"429 Too Many Requests":                    {Reason: RateLimit, Pack: "generic", Rule: "limited"},
	} {
		d := New(p, Options{At: noon})
		_, _ = d.Stream().Write([]byte(output))
		if got := d.Stop(7, false); got.Reason != want.Reason || got.Pack != want.Pack || got.Rule != want.Rule {
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
	if got := d.Stop(7, false); got.Rule != "big" || !got.Until.Equal(in(5*time.Second)) {
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
