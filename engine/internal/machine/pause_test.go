package machine

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

// halt pauses or resumes a workflow.
func (w *world) halt(name string, pause bool) {
	w.t.Helper()
	rec, ok := w.m.Halt(name, "ann", pause, w.now)
	if !ok {
		w.t.Fatalf("Halt(%q, %v) changes nothing", name, pause)
	}
	w.do(rec, nil)
}

// dispatch begins an attempt of each step that can begin, and returns their runs in the order of the
// queues.
func (w *world) dispatch() (runs []*Run) {
	w.t.Helper()
	w.m.Due(w.now, 1<<30)
	for _, q := range slices.Clone(w.m.Busy()) {
		for r, step, ok := q.First(orBegun(true)); ok; r, step, ok = q.First(orBegun(true)) {
			runs = append(runs, r)
			w.emit(BeginAttempt(r, step, w.now))
		}
	}
	if w.open {
		w.commit()
	}
	return runs
}

func TestAPausedWorkflowKeepsItsQueue(t *testing.T) {
	w := newWorld(t)
	d, other := w.define(steps(t, "one", "a: fixed(1s)")), w.define(steps(t, "two", "a: fixed(1s)"))
	w.halt("one", true)
	if _, ok := w.m.Halt("one", "bob", true, w.now); ok {
		t.Error("a second pause changes something")
	}
	var queued []*Run
	for range 5 {
		queued = append(queued, w.start(d, Start{}))
		w.pass(time.Second)
	}
	free := w.start(other, Start{})
	if got := w.dispatch(); !slices.Equal(got, []*Run{free}) {
		t.Errorf("%d steps can begin", len(got))
	}
	if p := queued[0].Pause(); p == nil || p.By != "ann" || p.At != epoch || free.Pause() != nil {
		t.Errorf("Pause() = %+v and %+v", p, free.Pause())
	}
	w.check("while it is paused", w.shadow, replayed(t, w.log), w.restored(frames(w.m.Snapshot(), nil, 2)))
	w.halt("one", false)
	if _, ok := w.m.Halt("one", "bob", false, w.now); ok {
		t.Error("a second resume changes something")
	}
	if got := w.dispatch(); !slices.Equal(got, queued) {
		t.Errorf("the runs begin in another order: %v, want %v", got, queued)
	}
	w.check("at the end", w.shadow, replayed(t, w.log))
}

// A suspect begins only when its workflow is resumed.
func TestASuspectOfAPausedWorkflowWaits(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	r := w.start(d, Start{})
	w.attempt(r)
	w.do(LoseAttempt(r, 0, w.now, false), nil)
	w.halt("one", true)
	w.pass(time.Hour)
	w.m.Due(w.now, 10)
	for r := range w.m.Suspects() {
		t.Errorf("run %s can begin", r.ID)
	}
	w.halt("one", false)
	n := 0
	for range w.m.Suspects() {
		n++
	}
	if n != 1 {
		t.Errorf("%d suspects can begin after that", n)
	}
}

// An older program reads everything except the pause itself, and can read the shard again when the
// workflow is resumed and a snapshot was written.
func TestPauseFormat(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	w.halt("one", true)
	w.start(d, Start{})
	if got := w.formats(0); !bytes.Equal(got, []byte{FirstFormat, PauseFormat, FirstFormat}) || snapshotFormat(t, w.m) != PauseFormat {
		t.Errorf("the formats are %v and %d", got, snapshotFormat(t, w.m))
	}
	w.halt("one", false)
	if got := w.formats(3); !bytes.Equal(got, []byte{PauseFormat}) || snapshotFormat(t, w.m) != FirstFormat {
		t.Errorf("after the pause the formats are %v and %d", got, snapshotFormat(t, w.m))
	}
}

func TestPausesAreInAllShards(t *testing.T) {
	w := newWorld(t)
	w.define(steps(t, "one", "a: fixed(1s)"))
	w.halt("one", true)
	l := NewLayout(3, w.m)
	parts, err := l.Distribute(w.m)
	if err != nil {
		t.Fatal(err)
	}
	for n, p := range parts {
		if w := p.Workflows()["one"]; w == nil || w.Pause == nil || w.Pause.By != "ann" {
			t.Errorf("shard %d: %+v", n, w)
		}
		if err := l.Check(n, p); err != nil {
			t.Error(err)
		}
	}
	back := NewLayout(1, parts...)
	all, err := back.Distribute(parts...)
	if err != nil || all[0].Workflows()["one"].Pause == nil {
		t.Errorf("in one shard: %+v, %v", all[0].Workflows()["one"], err)
	}
	all[0].Workflows()["one"].Pause = nil
	if err := back.Check(0, all[0]); err == nil || !strings.Contains(err.Error(), "paused workflows") {
		t.Errorf("Check of a shard without the pause = %v", err)
	}
}
