package machine

import (
	"bytes"
	"slices"
	"testing"
	"time"
)

// lost gives the runs lost attempts, and lets their delays pass.
func (w *world) lost(losses map[*Run]int) {
	w.t.Helper()
	for r, n := range losses {
		for range n {
			w.pass(time.Hour)
			w.attempt(r)
			w.do(LoseAttempt(r, 0, w.now, false), nil)
		}
	}
	w.pass(time.Hour)
	w.m.Due(w.now, 1<<30)
}

func TestSuspectsWithTheFewestLossesComeFirst(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	var runs []*Run
	losses := map[*Run]int{}
	for i := range 8 {
		r := w.start(d, Start{})
		runs = append(runs, r)
		losses[r] = 7 - i // the last one is no suspect
	}
	w.lost(losses)
	var got []int
	isolated := 0
	for r, step := range w.m.Suspects() {
		if NeedsIsolation(r, step) {
			isolated++
		} else {
			got = append(got, Losses(r, step))
		}
	}
	if !slices.Equal(got, []int{1, 2}) || isolated != 5 {
		t.Errorf("suspects with %v losses, and %d that have to run alone", got, isolated)
	}
	if r, _, ok := w.m.Busy()[0].First(orBegun(true)); !ok || r != runs[7] {
		t.Errorf("the queue has %v, want the run that is no suspect", r)
	}
	if err := legal(w.m); err != nil {
		t.Error(err)
	}
}

func TestASuspectThatIsResetIsNoSuspect(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.define(steps(t, "one", "a: fixed(1s)")), Start{})
	w.lost(map[*Run]int{r: 3})
	rec, err := w.m.Forgive(r.ID, "operator", w.now)
	w.do(rec, err)
	for range w.m.Suspects() {
		t.Error("it is a suspect")
	}
	if got, _, ok := w.m.Busy()[0].First(orBegun(true)); !ok || got != r || NeedsIsolation(r, 0) {
		t.Errorf("the queue has %v, want the run", got)
	}
	w.check("at the end", w.shadow)
}

func TestIsolationGrows(t *testing.T) {
	w := newWorld(t)
	d := steps(t, "one", "a: fixed(1s)")
	d.Steps[0].MaxLost = 1
	r := w.start(w.define(d), Start{})
	for i, want := range []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second} {
		if w.lost(map[*Run]int{r: min(i, 1)}); NeedsIsolation(r, 0) != (i > 0) || i > 0 && Isolation(r, 0) != want {
			t.Errorf("after %d losses it has to run alone: %v, for %v", i, NeedsIsolation(r, 0), Isolation(r, 0))
		}
	}
	r.Steps[0].Lost = 1<<16 - 1
	if got := Isolation(r, 0); got <= 0 || got > 24*time.Hour {
		t.Errorf("Isolation after the most losses that are counted is %v", got)
	}
}

// An attempt ran alone only if it began alone, and the log has no entry after the end of its
// isolation. This is known after a restart too, also from a snapshot.
func TestRanAlone(t *testing.T) {
	for _, c := range []struct {
		name     string
		isolated time.Duration
		later    time.Duration // the last entry
		want     bool
	}{
		{"not isolated", 0, 0, false},
		{"no later entry", 10 * time.Second, 0, true},
		{"an entry before the end", 10 * time.Second, 9 * time.Second, true},
		{"an entry at the end", 10 * time.Second, 10 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			d := w.define(steps(t, "one", "a: fixed(1s)"))
			r := w.start(d, Start{})
			w.m.Due(w.now, 1)
			rec := BeginAttempt(r, 0, w.now)
			rec.Delay = c.isolated
			w.do(rec, nil)
			w.pass(c.later)
			w.start(d, Start{})
			restored, err := Restore(bytes.NewReader(frames(w.m.Snapshot(), nil, 10)))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range []*Machine{w.m, w.shadow, replayed(t, w.log), restored} {
				r, _ := m.Run(r.ID)
				if got := m.RanAlone(r, 0); got != c.want {
					t.Errorf("RanAlone = %v, want %v", got, c.want)
				}
			}
		})
	}
}
