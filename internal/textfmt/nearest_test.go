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
