package machine

import (
	"testing"
	"time"
)

func TestALimitOnRunsDoesNotBlockARunWithinIt(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "fork", "a: fixed(1s)", "b: fixed(1s)", "c needs a,b: fixed(1s)"))
	first, second := w.start(d, Start{}), w.start(d, Start{})
	begin := func() (n int) {
		w.m.Due(w.now, 100)
		for _, q := range w.m.Busy() {
			for {
				r, step, ok := q.First(orBegun(q.Workflow.Active < 1))
				if !ok {
					break
				}
				w.emit(BeginAttempt(r, step, w.now))
				n++
			}
		}
		w.commit()
		return n
	}
	if n := begin(); n != 2 || first.Steps[1].Status != Running {
		t.Fatalf("%d attempts, and b of the first run is %v: it waits for itself", n, first.Steps[1].Status)
	}
	for i := range 2 {
		w.finish(first, i, Result{})
	}
	if n := begin(); n != 1 || first.Steps[2].Status != Running {
		t.Fatalf("%d attempts, c is %v", n, first.Steps[2].Status)
	}
	w.finish(first, 2, Result{})
	if n := begin(); n != 2 || second.running != 2 {
		t.Fatalf("%d attempts of the second run", n)
	}
	w.check("at the end", w.shadow)
}

// orBegun allows a step to begin if may is true, or if its run has begun.
func orBegun(may bool) func(*Run) bool { return func(r *Run) bool { return may || r.HasPlace() } }

func TestRunsThatHaveBegunGoFirst(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s) attempts=3"))
	old := w.start(d, Start{})
	w.attempt(old)
	w.finish(old, 0, Result{Failed: true})
	fresh := w.start(d, Start{})
	w.m.Due(w.now, 100)
	w.pass(time.Second)
	w.m.Due(w.now, 100)
	q := w.m.Busy()[0]
	if r, _, ok := q.First(orBegun(false)); !ok || r != old || q.Len() < 2 {
		t.Fatalf("First(false) = %v, %v of %d", r, ok, q.Len())
	}
	w.do(w.m.Cancel(old.ID, "me", w.now))
	if r, _, ok := q.First(orBegun(false)); ok {
		t.Fatalf("First(false) = %v, want nothing", r.ID)
	}
	if r, _, ok := q.First(orBegun(true)); !ok || r != fresh {
		t.Fatalf("First(true) = %v, %v", r, ok)
	}
	w.attempt(fresh)
	if _, _, ok := q.First(orBegun(true)); ok || len(w.m.Busy()) != 0 {
		t.Error("an empty queue is busy")
	}
}

// A queue may be blocked for as long as its limit is reached.
func TestABlockedQueueLetsGoOfRunsThatLeftIt(t *testing.T) {
	const n = 10_000
	w := newWorld(t)
	w.shadow = nil
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	for range n {
		r := w.start(d, Start{})
		w.m.Due(w.now, 10)
		w.do(w.m.Cancel(r.ID, "me", w.now))
		if err := w.m.Forget(r); err != nil {
			t.Fatal(err)
		}
	}
	w.m.TakeChanged()
	if q := w.m.Workflows()["one"].queues["a"]; q.Len() > 200 || cap(q.all.fresh.list) > 1024 {
		t.Errorf("%d places of runs that were forgotten, in an array of %d", q.Len(), cap(q.all.fresh.list))
	}
}

func TestFifo(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	var f fifo
	var want []*Run
	for i := range 5000 {
		r := &Run{Def: d, Steps: []StepState{{queued: w.rng.IntN(4) > 0}}}
		f.push(stepRef{r, 0})
		if r.Steps[0].queued {
			want = append(want, r)
		}
		if i%3 == 0 {
			got, _, ok := f.next(false, false)
			if len(want) == 0 {
				if ok {
					t.Fatal("next of a queue that all have left")
				}
				continue
			}
			if got != want[0] {
				t.Fatalf("next %d is another one", i)
			}
			f.pop()
			want = want[1:]
		}
		if i%700 == 0 {
			if f.compact(); f.len() != len(want) {
				t.Fatalf("%d after compact, want %d", f.len(), len(want))
			}
		}
	}
	for _, r := range want {
		if got, _, _ := f.next(false, false); got != r {
			t.Fatal("next is another one")
		}
		f.pop()
	}
	if _, _, ok := f.next(false, false); ok || f.len() != 0 || f.list != nil {
		t.Errorf("an empty queue has %d, in an array of %d", f.len(), cap(f.list))
	}
}
