package pagepart_test

import (
	"testing"

	"github.com/tideover/tideover/internal/pagepart"
)

func TestWithout(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want, err string }{
		{"a\n<!-- begin x -->\nb\n<!-- end x -->\nc\n", "a\nc\n", ""},
		{"<!-- a comment -->\n", "<!-- a comment -->\n", ""},
		{"<!-- begin x -->\n", "", `the part "x" has no end`},
		{"<!-- begin x -->\n<!-- begin y -->\n", "", `the part "y" begins inside the part "x"`},
		{"<!-- begin x -->\n<!-- end y -->\n", "", `the part "y" ends inside the part "x"`},
		{"<!-- end x -->\n", "", `the part "x" ends inside the part ""`},
	} {
		got, err := pagepart.Without(tt.text)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("Without(%q) = %q, %v, want %q, %q", tt.text, got, err, tt.want, tt.err)
		}
	}
}
