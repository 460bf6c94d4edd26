package account

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A user of the account without a pass records a limit, which holds back those that ask.
func TestALimitIsRecordedWithoutAPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := gate(t, t.TempDir())
		if l := g.Limit(); l != nil {
			t.Fatalf("at first: %+v", l)
		}
		key := Asker{ID: "gateway/p/k", Name: "key k of provider p"}
		first, recorded := g.RecordLimit(key, Reset{In: 2 * time.Hour}, "429")
		if !recorded || first.Left != 2*time.Hour || !strings.Contains(first.Why, "reported by key k of provider p: 429") {
			t.Fatalf("recorded %v: %+v", recorded, first)
		}
		wantHeld(t, g, "session", 2*time.Hour+90*time.Second)
		before, err := os.Stat(g.path)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		for _, in := range []time.Duration{2 * time.Hour, time.Hour, 0, 1000 * 24 * time.Hour} {
			if known, again := g.RecordLimit(key, Reset{In: in}, "429"); again || known.Serial != first.Serial {
				t.Errorf("the end in %v is a new one: %+v", in, known)
			}
		}
		if after, err := os.Stat(g.path); err != nil || !os.SameFile(before, after) {
			t.Errorf("the file was written although nothing had changed: %v", err)
		}
		later, recorded := g.RecordLimit(key, Reset{At: time.Now().Add(3 * time.Hour)}, "429")
		if !recorded || later.Serial <= first.Serial || later.Left != 3*time.Hour {
			t.Errorf("a later end: %v, %+v", recorded, later)
		}
		g.EndLimit(first.Serial)
		if l := g.Limit(); l == nil || l.Serial != later.Serial {
			t.Errorf("the end of the first limit ended the second one: %+v", l)
		}
		g.EndLimit(later.Serial)
		if l := g.Limit(); l != nil {
			t.Errorf("after its end: %+v", l)
		}
		enter(t, g, "session").Leave()

		// A limit without a stated end is known, too, and can be ended.
		enter(t, g, "one").Limited(Reset{}, "limit", time.Minute)
		l := g.Limit()
		if l == nil || l.Left != 0 {
			t.Fatalf("a limit without a stated end: %+v", l)
		}
		g.EndLimit(l.Serial)
		enter(t, g, "two").Leave()
	})
}
