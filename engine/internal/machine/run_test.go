package machine

import (
	"testing"
	"time"
)

func TestStates(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "w", "a: fixed(1s) attempts=2", "b needs a: fixed(1s)"))
	r := w.start(d, Start{At: w.now + sec})
	is := func(want State, next int64) {
		t.Helper()
		if r.State() != want || r.Next() != next || w.m.Workflows()["w"].Counts[want] != 1 {
			t.Fatalf("the run is %v until %d, want %v until %d; counts %v", r.State(), r.Next(), want, next, w.m.Workflows()["w"].Counts)
		}
	}
	is(StateScheduled, w.now+sec)
	w.pass(time.Second)
	w.m.Due(w.now, 9)
	is(StateQueued, w.now)
	w.attempt(r)
	is(StateRunning, 0)
	w.finish(r, 0, Result{Failed: true})
	is(StateWaiting, w.now+sec)
	w.pass(time.Second)
	w.m.Due(w.now, 9)
	is(StateQueued, w.now)
	w.do(Park(r, 0, w.now), nil)
	is(StateNeedsHandler, 0)
	w.do(Unpark(r, 0, w.now), nil)
	is(StateWaiting, w.now)
	w.attempt(r)
	w.finish(r, 0, Result{Failed: true})
	is(StateDead, 0)
	w.do(w.m.Retry(r.ID, "me", w.now))
	is(StateWaiting, w.now)
	w.attempt(r)
	w.finish(r, 0, Result{})
	is(StateWaiting, w.now)
	w.attempt(r)
	w.finish(r, 1, Result{Output: []byte("2")})
	is(StateSucceeded, 0)
	if string(r.Result()) != "2" || r.Attempts() != 4 {
		t.Errorf("result %s after %d attempts", r.Result(), r.Attempts())
	}
	w.check("at the end", w.shadow)
}

func TestARepetitionTakesOutputsOver(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "w", "a: fixed(1s)", "b needs a: fixed(1s)", "c: fixed(1s)"))
	previous, first := w.id(), w.id()
	r := w.start(d, Start{
		Previous: previous, Origin: first, OriginKey: "order\x004711", Source: "me", Outputs: [][]byte{[]byte("1"), nil, {}},
	})
	if id, key, known := Origin(r); id != first || key != "order\x004711" || !known {
		t.Errorf("Origin() = %v, %q, %v", id, key, known)
	}
	if r.Previous() != previous || r.Source() != "me" || string(r.Output(0)) != "1" || r.Output(1) != nil || len(r.Outputs()) != 3 {
		t.Errorf("repetition: %s", dumpRun(r))
	}
	w.attempt(r)
	if r.running != 1 || r.Steps[1].Status != Running {
		t.Fatalf("%d attempts, b is %v", r.running, r.Steps[1].Status)
	}
	w.finish(r, 1, Result{Output: []byte("2")})
	if r.Outcome != Succeeded || string(r.Result()) != `{"b":2,"c":null}` {
		t.Errorf("outcome %d, result %s", r.Outcome, r.Result())
	}
	w.check("at the end", w.shadow)
}

func TestTheOriginOfARun(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "w", "a: fixed(1s)"))
	first := w.start(d, Start{Key: "k"})
	if id, key, known := Origin(first); id != first.ID || key != "k" || !known {
		t.Errorf("of a run that repeats no other: %v, %q, %v", id, key, known)
	}
	// Earlier versions stored only the previous run.
	old := w.start(d, Start{Previous: first.ID})
	if id, key, known := Origin(old); id != first.ID || key != "" || known {
		t.Errorf("of a run without a stored origin: %v, %q, %v", id, key, known)
	}
	w.check("at the end", w.shadow)
}

func TestTheReaderOfChanges(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "w", "a: fixed(1s)"))
	r := w.start(d, Start{})
	w.m.Due(w.now, 9)
	if got := w.m.TakeChanged(); len(got) != 1 || got[0] != r || !r.Dirty() || w.m.Behind() != 0 {
		t.Fatalf("TakeChanged = %v, dirty %v", got, r.Dirty())
	}
	w.attempt(r) // before it was seen
	if w.m.Behind() != 0 {
		t.Error("a run that was not seen changed twice")
	}
	r.Seen()
	w.finish(r, 0, Result{})
	if w.m.Behind() != 1 || !r.Dirty() {
		t.Error("a run that was seen has changed, and is not among the changed")
	}
}
