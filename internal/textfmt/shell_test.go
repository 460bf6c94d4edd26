package textfmt_test

import (
	"testing"

	"github.com/tideover/tideover/internal/textfmt"
)

func TestShellWords(t *testing.T) {
	t.Parallel()
	got := textfmt.ShellWords([]string{"env", "A=b", "", "it's", "a b", "$HOME", "é"})
	if want := `env A=b '' 'it'\''s' 'a b' '$HOME' 'é'`; got != want {
		t.Errorf("ShellWords = %s, want %s", got, want)
	}
}
