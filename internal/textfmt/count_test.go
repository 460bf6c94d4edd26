package textfmt_test

import (
	"testing"

	"github.com/tideover/tideover/internal/textfmt"
)

func TestPlural(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{-1: "-1 runs", 0: "0 runs", 1: "1 run", 2: "2 runs", 1234: "1234 runs"} {
		if got := textfmt.Plural(n, "run"); got != want {
			t.Errorf("Plural(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int]string{0: "0 retries", 1: "1 retry", 2: "2 retries"} {
		if got := textfmt.PluralOf(n, "retry", "retries"); got != want {
			t.Errorf("PluralOf(%d) = %q, want %q", n, got, want)
		}
	}
}
