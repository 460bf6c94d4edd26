package secret_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/secret"
)

func TestUnquoted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"EOF":                           "EOF",
		`malformed "a" and "b\"c\\" x`:  `malformed "…" and "…" x`,
		`it does not "end`:              `it does not "…"`,
		`nothing ""`:                    `nothing "…"`,
		"a line \"one\ntwo\" and more":  `a line "…" and more`,
		fmt.Sprintf("%q", `\" "quoted`): `"…"`,
	} {
		if got := secret.Unquoted(text); got != want {
			t.Errorf("Unquoted(%q) = %q, want %q", text, got, want)
		}
	}
}

func FuzzUnquoted(f *testing.F) {
	f.Add("before ", `hush"\`, " after")
	f.Fuzz(func(t *testing.T, before, hidden, after string) {
		if strings.Contains(before+after, `"`) || len(hidden) < 4 || strings.Contains(before+after, hidden) {
			return
		}
		if got := secret.Unquoted(before + fmt.Sprintf("%q", hidden) + after); got != before+`"…"`+after {
			t.Errorf("%q, %q, %q: %q", before, hidden, after, got)
		}
	})
}
