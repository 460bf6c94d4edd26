package config

import (
	"slices"
	"strings"
	"testing"
)

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
