package steps

import (
	"strings"
	"testing"
)

func TestWhetherAResultIsWhole(t *testing.T) {
	t.Parallel()
	escapes := strings.Repeat("\x01", maxResult)
	for _, c := range []struct {
		name      string
		kept      result
		whole     bool
		truncated bool // StepResult.Truncated
	}{
		{"all of it", result{Stdout: "a", Stderr: "b", Whole: true}, true, false},
		{"more on stderr than is kept", result{Stdout: "a", Truncated: true, Whole: true}, true, true},
		{"more on stdout than is kept", result{Stdout: "a", Truncated: true}, false, true},
		{"a stderr that is too large as JSON", result{Stdout: "a", Stderr: escapes, Whole: true}, true, true},
		{"a stdout that is too large as JSON", result{Stdout: escapes, Whole: true}, false, true},
		{"the body of a response", result{Stdout: "a", Status: 200}, true, false},
		{"a part of one", result{Stdout: "a", Status: 200, Truncated: true}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			kept, err := c.kept.encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, whole, ok := Text(kept); whole != c.whole || !ok {
				t.Errorf("Text = %v, %v, want %v", whole, ok, c.whole)
			}
			if seen, err := stepResult(kept); err != nil || seen.Truncated != c.truncated {
				t.Errorf("templates see %v, %v, want %v", seen.Truncated, err, c.truncated)
			}
		})
	}
}

func TestOldResultsMeanWhatTheyMeant(t *testing.T) {
	t.Parallel()
	for kept, want := range map[string]bool{`{"stdout":"a"}`: true, `{"stdout":"a","truncated":true}`: false} {
		if text, whole, ok := Text([]byte(kept)); text != "a" || whole != want || !ok {
			t.Errorf("Text(%s) = %q, %v, %v, want %v", kept, text, whole, ok, want)
		}
	}
	if got, err := (result{Stdout: "a", Whole: true}).encode(); err != nil || string(got) != `{"stdout":"a"}` {
		t.Errorf("a whole result is kept as %s, %v", got, err)
	}
}
