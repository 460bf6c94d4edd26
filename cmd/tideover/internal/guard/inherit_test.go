package guard

import "testing"

func TestInherit(t *testing.T) {
	t.Parallel()
	i := Inherit{"A", "B_*"}
	for name, want := range map[string]bool{"A": true, "AB": false, "B_": true, "B_C": true, "B": false, "": false} {
		if got := i.Has(name); got != want {
			t.Errorf("%q has %q: %v, want %v", i, name, got, want)
		}
	}
	if !InheritAll.Has("X") || Inherit(nil).Has("X") {
		t.Error("all has everything, and nothing has nothing")
	}
}
