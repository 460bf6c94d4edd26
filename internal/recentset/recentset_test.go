package recentset

import (
	"fmt"
	"testing"
)

func TestTheSetRemembersTheLastOnes(t *testing.T) {
	t.Parallel()
	s := New(3)
	for i := range 10 {
		s.Add(fmt.Sprint(i))
		s.Add(fmt.Sprint(i))
	}
	for i := range 10 {
		if got, want := s.Has(fmt.Sprint(i)), i >= 7; got != want {
			t.Errorf("Has(%d): %t, want %t", i, got, want)
		}
	}
	if len(s.set) != 3 {
		t.Errorf("%d remembered, want 3", len(s.set))
	}
}
