package option

import (
	"errors"
	"testing"
)

func TestApply(t *testing.T) {
	type settings struct{ n int }
	type option func(*settings) error
	add := func(s *settings) { s.n++ }
	var s settings
	err := Apply(&s, []option{Given(true, "WithOne", add), nil, Given(false, "WithNone", add), Given(true, "WithTwo", add)})
	if want := "option: nil\nWithNone: nil"; err == nil || err.Error() != want || s.n != 2 {
		t.Errorf("Apply: %v, %d applied, want %q and 2", err, s.n, want)
	}
	if err := Apply(&s, []option{func(*settings) error { return errors.ErrUnsupported }}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Apply: %v, want %v", err, errors.ErrUnsupported)
	}
}
