package oneline_test

import (
	"errors"
	"testing"

	"github.com/tideover/tideover/internal/oneline"
)

func TestError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("one"), "one"},
		{errors.Join(errors.New("one"), errors.New("two"), errors.New("three")), "one; two; three"},
		{errors.New("ends\n"), "ends; "},
	} {
		if got := oneline.Error(c.err); got != c.want {
			t.Errorf("Error(%q) = %q, want %q", c.err, got, c.want)
		}
		if got := oneline.Text(c.err.Error()); got != c.want {
			t.Errorf("Text(%q) = %q, want %q", c.err, got, c.want)
		}
	}
}
