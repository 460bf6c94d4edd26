package textfmt_test

import (
	"testing"

	"github.com/tideover/tideover/internal/textfmt"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"waiting", "running", "dead", "needs-handler"}
	for word, want := range map[string]string{
		"waitng": "waiting", "WAITING": "waiting", "runing": "running", "daed": "dead", "needs_handler": "needs-handler",
		"frobnicate": "", "d": "", "": "",
	} {
		if got := textfmt.Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestShellWords(t *testing.T) {
	t.Parallel()
	got := textfmt.ShellWords([]string{"env", "A=b", "", "it's", "a b", "$HOME", "é"})
	if want := `env A=b '' 'it'\''s' 'a b' '$HOME' 'é'`; got != want {
		t.Errorf("ShellWords = %s, want %s", got, want)
	}
}
