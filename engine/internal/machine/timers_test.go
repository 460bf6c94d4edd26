package machine

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTimers(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 1))
		runs := make([]*Run, 50)
		for i := range runs {
			runs[i] = &Run{timer: noTimer, Steps: make([]StepState, 3)}
			for k := range runs[i].Steps {
				runs[i].Steps[k].timer = noTimer
			}
		}
		type of struct {
			run  *Run
			step int32
		}
		var h timers
		want := map[of]int64{}
		for range 2000 {
			o := of{runs[rng.IntN(len(runs))], int32(rng.IntN(4)) - 1}
			switch p := rng.IntN(100); {
			case p < 55:
				want[o] = rng.Int64N(1000)
				h.set(o.run, o.step, want[o])
			case p < 80:
				delete(want, o)
				h.unset(o.run, o.step)
			case p < 98:
				if first, ok := h.first(); ok {
					for _, due := range want {
						if due < first.due {
							t.Fatalf("seed %d: first is due %d, another %d", seed, first.due, due)
						}
					}
					delete(want, of{first.run, first.step})
					h.unset(first.run, first.step)
				}
			default:
				for i := range h.heap {
					t := &h.heap[i]
					t.due = rng.Int64N(1000)
					want[of{t.run, t.step}] = t.due
				}
				h.rebuild()
			}
			if len(h.heap) != len(want) {
				t.Fatalf("seed %d: %d timers, want %d", seed, len(h.heap), len(want))
			}
			for i := range h.heap {
				if e := &h.heap[i]; want[of{e.run, e.step}] != e.due || int(*e.index()) != i || i > 0 && h.heap[(i-1)/4].due > e.due {
					t.Fatalf("seed %d: timer %d is %+v", seed, i, e)
				}
			}
		}
		var order []int64
		for first, ok := h.first(); ok; first, ok = h.first() {
			order = append(order, first.due)
			h.unset(first.run, first.step)
		}
		if !slices.IsSorted(order) {
			t.Fatalf("seed %d: %v", seed, order)
		}
	}
}

func TestDueTakesAtMostSoMany(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	for range 10 {
		w.start(d, Start{Timeout: 1})
	}
	w.pass(1)
	var expired []*Run
	for n := 20; n > 0; n -= 3 {
		if w.m.Waiting() != n {
			t.Fatalf("%d timers, want %d", w.m.Waiting(), n)
		}
		more, _ := w.m.Due(w.now, 3)
		expired = append(expired, more...)
	}
	if len(expired) != 10 || w.m.Waiting() != 0 || w.m.Workflows()["one"].Counts[StateQueued] != 10 {
		t.Errorf("%d expired, %d timers, counts %v", len(expired), w.m.Waiting(), w.m.Workflows()["one"].Counts)
	}
	if w.m.Next() != 1<<63-1 {
		t.Errorf("Next = %d without timers", w.m.Next())
	}
}
