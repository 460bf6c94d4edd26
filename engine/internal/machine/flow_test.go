package machine

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
)

// flowOf returns the definition of a flow.
func flowOf(t testing.TB, name string) *Definition {
	t.Helper()
	p, err := retry.Parse("fixed(1s) attempts=2")
	if err != nil {
		t.Fatal(err)
	}
	return &Definition{Name: name, Flow: true, Steps: []Step{{Name: Function, Handler: "flow:" + name, Policy: p, MaxLost: 3}}}
}

// formats returns the format of each entry since n.
func (w *world) formats(n int) (list []byte) {
	for _, entry := range w.log[n:] {
		list = append(list, entry[0])
	}
	return list
}

func snapshotFormat(t *testing.T, m *Machine) byte {
	t.Helper()
	s := m.Snapshot()
	defer s.Stop()
	data := frames(s, nil, 10)
	if _, err := Restore(bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	return s.m.format()
}

// Entries and snapshots without flows can be read by the release before flows, and others can't.
func TestFlowFormat(t *testing.T) {
	w := newWorld(t)
	plain := w.define(steps(t, "plain", "a: fixed(1s)"))
	r := w.start(plain, Start{})
	w.attempt(r)
	w.finish(r, 0, Result{Output: []byte("1")})
	if got := w.formats(0); bytes.ContainsFunc(got, func(b rune) bool { return b != FirstFormat }) || snapshotFormat(t, w.m) != FirstFormat {
		t.Errorf("formats without flows are %v and %d", got, snapshotFormat(t, w.m))
	}

	n := len(w.log)
	d := w.define(flowOf(t, "code"))
	run := w.start(d, Start{})
	if got := w.formats(n); !bytes.Equal(got, []byte{flowFormat, flowFormat}) || snapshotFormat(t, w.m) != flowFormat {
		t.Errorf("the definition and the start of a flow have the formats %v, a snapshot %d", got, snapshotFormat(t, w.m))
	}
	w.attempt(run)
	n = len(w.log)
	w.do(CallOp(run, &OpCall{Name: "sleep:s", Due: w.now + 3600*sec}, w.now), nil)
	w.do(Describe(run, "asleep", "", w.now), nil)
	w.do(Suspend(run, 1, w.now), nil)
	if got := w.formats(n); !bytes.Equal(got, []byte{flowFormat, flowFormat, flowFormat}) {
		t.Errorf("records of flows have the formats %v", got)
	}
	n = len(w.log)
	other := w.start(plain, Start{})
	w.attempt(other)
	if got := w.formats(n); !bytes.Equal(got, []byte{FirstFormat, FirstFormat}) {
		t.Errorf("records of other workflows have the formats %v", got)
	}
	w.check("at the end", w.shadow, replayed(t, w.log))
}

// A workflow that starts a flow when it ends can't be read by the release before flows.
func TestFlowFormatOfAFollowUp(t *testing.T) {
	w := newWorld(t)
	d := steps(t, "plain", "a: fixed(1s)")
	d.OnEnd = flowOf(t, "code")
	w.define(d)
	if got := w.formats(0); !bytes.Equal(got, []byte{flowFormat}) || snapshotFormat(t, w.m) != flowFormat {
		t.Errorf("the formats are %v and %d", got, snapshotFormat(t, w.m))
	}
}

// A release that does not know a format refuses it by name.
func TestFlowFormatIsRefusedByName(t *testing.T) {
	var e Entry
	e.Reset(epoch, 1)
	e.Add(&Record{Kind: Called, At: epoch, Run: ID{1}, Step: 1})
	if e.data[0] != flowFormat {
		t.Errorf("the entry has format %d", e.data[0])
	}
	newer := bytes.Clone(e.data)
	newer[0] = Format + 1
	_, err := ReadEntry(summed(newer), func(Header, *Record) error { return nil })
	if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), fmt.Sprintf("entry has format %d, this version knows formats up to %d", Format+1, Format)) {
		t.Errorf("ReadEntry = %v", err)
	}
	state := encodeState(New().state)
	state[0] = Format + 1
	if _, err := Restore(bytes.NewReader(frame(nil, frameState, state))); !errors.Is(err, ErrFormat) {
		t.Errorf("Restore = %v", err)
	}
}

// A sleep keeps its length when the clock is set.
func TestFlowSleepWhenTheClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{24 * time.Hour, -24 * time.Hour, 10 * time.Minute} {
		w := newWorld(t)
		run := w.start(w.define(flowOf(t, "code")), Start{})
		w.attempt(run)
		w.do(CallOp(run, &OpCall{Name: "sleep:s", Due: w.now + 3600*sec}, w.now), nil)
		w.do(Suspend(run, 1, w.now), nil)
		w.pass(20 * time.Minute)
		w.now += int64(by)
		w.do(Record{Kind: Jumped, At: w.now, Delay: by}, nil)
		w.pass(39 * time.Minute)
		if _, slept := w.m.Due(w.now, 10); len(slept) > 0 {
			t.Errorf("the sleep ends early when the clock is set by %v", by)
		}
		w.pass(time.Minute)
		_, slept := w.m.Due(w.now, 10)
		if len(slept) != 1 {
			t.Fatalf("the sleep does not end when the clock is set by %v", by)
		}
		w.do(w.m.Slept(run, slept[0].Number, w.now), nil)
		if w.m.Due(w.now, 10); !run.InQueue(0) {
			t.Error("the function is not called again")
		}
		w.check("at the end", w.shadow, replayed(t, w.log))
	}
}

// A suspended function whose queued call is postponed is not called early.
func TestFlowPostponedWhileItsFunctionIsDue(t *testing.T) {
	w := newWorld(t)
	run := w.start(w.define(flowOf(t, "code")), Start{})
	w.attempt(run)
	op := w.define(&Definition{Name: "code", Op: true, Steps: steps(t, "", "op: fixed(1s)").Steps})
	w.do(CallOp(run, &OpCall{Name: "do:op", Def: op}, w.now), nil)
	w.m.Due(w.now, 10)
	w.emit(BeginAttempt(run, 1, w.now))
	rec, _ := w.m.Finish(&Result{Run: run.ID, Step: 1, Attempt: 1, Snooze: time.Minute}, w.now, 0)
	w.do(rec, nil)
	w.do(Suspend(run, 1, w.now), nil)
	w.pass(time.Minute)
	if w.m.Due(w.now, 10); !run.InQueue(0) || run.State() != StateQueued {
		t.Fatalf("the function is not due: %s", run.State())
	}
	recs, err := w.m.Postpone(run.ID, w.now+3600*sec, "me", w.now)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range recs {
		w.do(rec, nil)
	}
	if run.InQueue(0) || run.State() != StateWaiting {
		t.Errorf("the run is %s", run.State())
	}
	w.pass(time.Hour)
	if w.m.Due(w.now, 10); !run.InQueue(0) {
		t.Error("the function is not due after an hour")
	}
	w.check("at the end", w.shadow, replayed(t, w.log))
}

func TestCopyOfAColdFlowHasMemoryOfItsOwn(t *testing.T) {
	warm := sleeping(t, 3)
	data := frames(warm.Snapshot(), nil, 1000)
	m, err := RestoreAt(bytes.NewReader(data), warm.at, true)
	if err != nil {
		t.Fatal(err)
	}
	parts := bodies(t, data)
	var buf []byte
	m.Cold(func(frame uint32) ([]byte, error) { buf = append(buf[:0], parts[frame]...); return buf, nil })
	r := m.byID(warm.all[0].ID)
	c, err := m.Copy(r)
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(c.Flow().Results())
	clear(buf) // Load reads another frame into this memory
	if !bytes.Equal(before, c.Flow().Results()) {
		t.Errorf("the copy changed: %d bytes", len(before))
	}
}
