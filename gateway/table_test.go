package gateway

import (
	"fmt"
	"testing"
)

func TestProvidersThatAreGoneAreKnownForAWhile(t *testing.T) {
	t.Parallel()
	with := func(name string) *table {
		return &table{names: []string{name}, providers: map[string]*provider{name: {spec: Spec{Name: name}}}}
	}
	now := with("p0")
	for i := 1; i <= maxGone+5; i++ {
		next := with(fmt.Sprint("p", i))
		next.remember(now)
		now = next
	}
	if n := len(now.gone); n != maxGone {
		t.Errorf("%d are kept, want %d", n, maxGone)
	}
	for name, known := range map[string]bool{"p105": true, "p104": true, "p5": true, "p4": false, "unknown": false} {
		if p := now.known(name); (p != nil) != known || p != nil && p.spec.Name != name {
			t.Errorf("known(%s) = %+v", name, p)
		}
	}
	back := with("p104")
	back.remember(now)
	if p := back.known("p104"); p != back.providers["p104"] {
		t.Error("the old one is asked, not that which came back")
	}
}
