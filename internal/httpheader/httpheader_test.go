package httpheader_test

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/tideover/tideover/internal/httpheader"
)

func TestFirst(t *testing.T) {
	t.Parallel()
	h := http.Header{"Accept": {"a", "b"}, "Empty": {}}
	for name, want := range map[string]string{"Accept": "a", "accept": "", "Empty": "", "Missing": ""} {
		if got := httpheader.First(h, name); got != want {
			t.Errorf("First(%q) = %q, want %q", name, got, want)
		}
	}
	if got := httpheader.First(nil, "Accept"); got != "" {
		t.Errorf("First of no header = %q", got)
	}
}

func TestIsToken(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"GET", "X-Api-Key", "a", "0", "!#$%&'*+-.^_`|~"} {
		if !httpheader.IsToken(s) {
			t.Errorf("IsToken(%q) = false", s)
		}
	}
	for _, s := range []string{"", " ", "a b", "a:", "a\n", "é", "\xff", "a,b", "(", "\"", "\x00", "\x7f"} {
		if httpheader.IsToken(s) {
			t.Errorf("IsToken(%q) = true", s)
		}
	}
}

func FuzzIsToken(f *testing.F) {
	f.Add("X-Api-Key")
	f.Add("a\n")
	form := regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := httpheader.IsToken(s), form.MatchString(s); got != want {
			t.Errorf("IsToken(%q) = %v, want %v", s, got, want)
		}
	})
}
