package config

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// A step that was stored by an earlier release inherits everything, as it did when its run began.
func TestAStoredStepOfAnEarlierReleaseInheritsAll(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"id":"a","policy":"task","base":"/","run":["x"],"output_limit":0}`:                       true,
		`{"id":"a","policy":"task","base":"/","run":["x"],"output_limit":0,"env_inherit":[]}`:      false,
		`{"id":"a","policy":"task","base":"/","run":["x"],"output_limit":0,"env_inherit":["ANY"]}`: true,
	} {
		s := new(Step)
		if err := json.Unmarshal([]byte(text), s); err != nil {
			t.Fatal(err)
		}
		if got := s.Inherit.Has("ANY"); got != want {
			t.Errorf("%s inherits ANY: %v, want %v", text, got, want)
		}
	}
	old, now := `{"id":"a","policy":"task","base":"/","run":["x"],"output_limit":0}`, `{"id":"a","policy":"task","base":"/","run":["x"],"output_limit":0,"env_inherit":[]}`
	if !SameWork(json.RawMessage(old), json.RawMessage(now)) {
		t.Error("a step that was stored by an earlier release does other work")
	}
}

func TestInherit(t *testing.T) {
	t.Parallel()
	i := Inherit{"A", "B_*"}
	for name, want := range map[string]bool{"A": true, "AB": false, "B_": true, "B_C": true, "B": false, "": false} {
		if got := i.Has(name); got != want {
			t.Errorf("%q has %q: %v, want %v", i, name, got, want)
		}
	}
	if !InheritAll.Has("X") || Inherit(nil).Has("X") {
		t.Error("all has everything, and nothing has nothing")
	}
}

func TestVariablesOfAScript(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"":                              "",
		"echo $A ${B} ${C:-x} ${#D}":    "A B C D",
		"echo $1 $@ $$ $? ${1} $(date)": "",
		`echo \$A "$B" '$C'`:            "B C",
		"x=1; y+=2; echo $x $y":         "",
		"for f in *; do echo $f; done":  "",
		"read -r a b; echo $a $b":       "",
		"export A; echo $A":             "",
		"{{ $x := 1 }}{{ $x }} $Y":      "Y",
		"A=$B cmd":                      "B",
	} {
		if got := strings.Join(variablesOf(script), " "); got != want {
			t.Errorf("variablesOf(%q) = %q, want %q", script, got, want)
		}
	}
	if !slices.IsSorted(variablesOf("$c $b $a")) {
		t.Error("they are not sorted")
	}
}
