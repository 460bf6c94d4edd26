package machine

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
)

func (w *world) jumped(by time.Duration) {
	w.t.Helper()
	w.now += int64(by)
	w.do(Record{Kind: Jumped, At: w.now, Delay: by}, nil)
	w.check("after a jump", w.shadow)
}

func TestJumpedMovesWhatIsMeasuredByElapsedTime(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		w := newWorld(t)
		d := steps(t, "one", "a: fixed(10s) attempts=5", "b needs a: fixed(1s)")
		d.Timeout = 10 * time.Minute
		w.define(d)
		waits := w.start(d, Start{})
		runs := w.start(d, Start{})
		snoozes := w.start(d, Start{})
		due := w.start(d, Start{})
		later := w.start(d, Start{At: w.now + 2*3600*sec})
		delayed := w.start(d, Start{In: time.Minute})
		w.attempt(waits) // which takes all that are due out of the timers
		w.attempt(runs)
		w.attempt(snoozes)
		w.finish(waits, 0, Result{Failed: true})
		w.finish(snoozes, 0, Result{Snooze: time.Minute})
		began, start := w.now, later.Steps[0].At
		w.jumped(by)
		shift := began + int64(by)
		if got := waits.Steps[0]; got.At != shift+10*sec || got.First != shift || waits.Deadline != shift+600*sec {
			t.Errorf("by %v: the wait of a failure is %+v, deadline %d", by, got, waits.Deadline)
		}
		if got := snoozes.Steps[0]; got.At != shift+60*sec {
			t.Errorf("by %v: the wait of a handler is %+v", by, got)
		}
		if got := runs.Steps[0]; got.At != shift || got.First != shift {
			t.Errorf("by %v: the attempt is %+v", by, got)
		}
		if got := due.Steps[0]; got.At != shift {
			t.Errorf("by %v: what was due is due no more, %+v", by, got)
		}
		if got := delayed.Steps[0]; got.At != shift+60*sec || delayed.Deadline != shift+660*sec {
			t.Errorf("by %v: the start after a minute is %+v, its deadline %d", by, got, delayed.Deadline)
		}
		if got := later.Steps[0]; got.At != start || later.Deadline != start+600*sec {
			t.Errorf("by %v: the start by the calendar is %d, want %d, and its deadline %d", by, got.At, start, later.Deadline)
		}
	}
}

func TestWhatWasDueIsDueAfterTheClockWentBack(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.define(steps(t, "one", "a: fixed(1s)", "b needs a: fixed(1s)")), Start{})
	w.crash(nil) // it stands in the timers again
	w.jumped(-time.Hour)
	r, _ = w.m.Run(r.ID)
	if w.attempt(r); r.Steps[0].Status != Running {
		t.Fatalf("a start without a delay is %+v", r.Steps[0])
	}
	w.finish(r, 0, Result{})
	w.crash(nil)
	w.jumped(-time.Hour)
	r, _ = w.m.Run(r.ID)
	if w.attempt(r); r.Steps[1].Status != Running {
		t.Errorf("a step that has what it needs is %+v", r.Steps[1])
	}
}

func TestAScheduledRunHasAllItsTime(t *testing.T) {
	tests := []struct {
		name string
		by   time.Duration
		want time.Duration // deadline, from the new now
	}{
		{"the clock goes back", -time.Hour, 3*time.Hour + 10*time.Minute},
		{"the clock goes forward, to before the start", time.Hour, time.Hour + 10*time.Minute},
		{"the clock goes forward, past the start", 5 * time.Hour, 10 * time.Minute},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			d := w.define(steps(t, "one", "a: fixed(1s)"))
			r := w.start(d, Start{At: w.now + 2*3600*sec, Timeout: 10 * time.Minute})
			w.jumped(test.by)
			if got := time.Duration(r.Deadline - w.now); got != test.want {
				t.Errorf("its time is over after %v, want %v", got, test.want)
			}
		})
	}
}

func TestJumpedDoesNotOverflow(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s) attempts=3"))
	r := w.start(d, Start{Timeout: math.MaxInt64})
	w.attempt(r)
	w.finish(r, 0, Result{Snooze: math.MaxInt64})
	w.jumped(time.Hour)
	if r.Deadline != math.MaxInt64 || r.Steps[0].At != math.MaxInt64 {
		t.Errorf("deadline %d, wait until %d", r.Deadline, r.Steps[0].At)
	}
	if expired, _ := w.m.Due(w.now, 9); len(expired) != 0 || r.Steps[0].queued {
		t.Errorf("Due = %v", expired)
	}
}

func TestParkedAndUnparked(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.define(steps(t, "one", "a: fixed(1s)")), Start{})
	w.m.Due(w.now, 9)
	w.do(Park(r, 0, w.now), nil)
	if r.State() != StateNeedsHandler || w.m.ParkedHandlers()["work"] != 1 || w.m.Waiting() != 0 {
		t.Fatalf("parked: %v, %v, %d timers", r.State(), w.m.ParkedHandlers(), w.m.Waiting())
	}
	// In a replay the timer of a step is still set when the step is parked.
	w.crash(nil)
	w.check("after a crash", w.shadow)
	w.pass(time.Hour)
	r, _ = w.m.Run(r.ID)
	if w.m.Due(w.now, 9); r.Steps[0].queued {
		t.Fatal("a parked step stands in a queue after a crash")
	}
	w.m.Parked("work", func(run *Run, step int) {
		if run != r || step != 0 {
			t.Errorf("Parked yields %v %d", run.ID, step)
		}
	})
	w.jumped(-2 * time.Hour)
	w.do(Unpark(r, 0, w.now), nil)
	if w.attempt(r); r.State() != StateRunning || len(w.m.ParkedHandlers()) != 0 {
		t.Errorf("unparked: %v, %v", r.State(), w.m.ParkedHandlers())
	}
}

func TestAParkedStepDoesNotWaitForTheClock(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.define(steps(t, "one", "a: fixed(1s)")), Start{Timeout: time.Minute})
	w.m.Due(w.now, 9)
	w.do(Park(r, 0, w.now), nil)
	w.jumped(-time.Hour)
	w.pass(time.Minute)
	expired, _ := w.m.Due(w.now, 9)
	for _, run := range expired {
		w.do(w.m.Expire(run, 0, w.now), nil)
	}
	w.do(w.m.Retry(r.ID, "me", w.now))
	if w.attempt(r); r.State() != StateRunning {
		t.Errorf("after a retry the run is %v until %v", r.State(), time.Duration(r.Next()-w.now))
	}
}

func TestPurge(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	end := func(key string, c Result) *Run {
		r := w.start(d, Start{Key: key})
		w.attempt(r)
		w.finish(r, 0, c)
		return r
	}
	done, dead, replaced := end("done", Result{}), end("dead", Result{Failed: true}), end("replaced", Result{Failed: true})
	w.do(w.m.Replace(replaced.ID, w.id(), w.now))
	waits := w.start(d, Start{Key: "waits", At: w.now + 1e6*sec})
	if _, ok := w.m.Purge(w.now, w.now, nil); ok {
		t.Error("Purge of what ended now, before now")
	}
	purge := func(ended, dead time.Duration) {
		t.Helper()
		rec, ok := w.m.Purge(w.now-int64(ended), w.now-int64(dead), nil)
		if !ok {
			t.Fatalf("Purge(%v, %v): there is nothing", ended, dead)
		}
		w.do(rec, nil)
		w.check("after a purge", w.shadow, replayed(t, w.log))
	}
	has := func(keys ...string) {
		t.Helper()
		for _, k := range keys {
			if _, _, ok := w.m.Keyed(k); !ok {
				t.Errorf("key %q is gone", k)
			}
		}
		if len(w.m.keys) != len(keys) {
			t.Errorf("keys %v, want %v", w.m.keys, keys)
		}
	}
	if err := w.m.Forget(done); err != nil {
		t.Fatal(err)
	}
	w.gone[done.ID] = true
	has("done", "dead", "replaced", "waits")
	w.pass(time.Hour)
	purge(time.Minute, 2*time.Hour)
	has("dead", "waits")
	purge(time.Minute, time.Minute)
	has("waits")
	if ids := w.m.TakePurged(); len(ids) != 1 || ids[0] != dead.ID || w.m.TakePurged() != nil {
		t.Errorf("TakePurged = %v", ids)
	}
	if _, there := w.m.Run(dead.ID); there || w.m.Len() != 2 {
		t.Errorf("%d runs in memory", w.m.Len())
	}
	if err := w.m.Forget(replaced); err != nil {
		t.Fatal(err)
	}
	w.gone[replaced.ID] = true
	w.do(w.m.Cancel(waits.ID, "me", w.now))
	w.pass(time.Hour)
	purge(time.Minute, time.Minute)
	if _, _, err := w.m.Start(&Start{Hash: d.Hash(), ID: w.id()}, w.now); err == nil {
		t.Error("Start by a definition that was not used for long")
	}
	if rec, ok := w.m.Define(d, w.now); !ok {
		t.Error("Define stores it again")
	} else {
		w.do(rec, nil)
	}
	w.start(d, Start{Key: "done"})
	w.check("at the end", w.shadow, replayed(t, w.log))
}

// Purging a definition must not depend on which finished runs are in memory: a replay may have fewer
// of them, and would lack the definition of a later run.
func TestPurgeOfADefinitionIsTheSameInReplay(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	r := w.start(d, Start{})
	w.attempt(r)
	w.finish(r, 0, Result{})
	w.pass(time.Hour)
	rec, _ := w.m.Purge(w.now-sec, w.now-sec, nil)
	w.do(rec, nil) // the run is still in memory
	if rec, ok := w.m.Define(d, w.now); ok {
		w.do(rec, nil)
	}
	w.start(d, Start{})

	m := New()
	for i, entry := range w.log {
		if err := m.applyEntry(uint64(i)+1, entry); err != nil {
			t.Fatalf("entry %d: %v", i+1, err)
		}
		for _, r := range m.TakeChanged() {
			if r.Seen(); r.Finished() {
				if err := m.Forget(r); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := legal(m); err != nil {
		t.Error(err)
	}
}

// Definitions are purged even if no run has a key or is dead, once.
func TestPurgeOfDefinitionsThatNoRunUses(t *testing.T) {
	w := newWorld(t)
	run := w.start(w.define(flowOf(t, "code")), Start{})
	w.attempt(run)
	for _, policy := range []string{"fixed(1s)", "fixed(2s)", "fixed(3s)"} {
		op := w.define(&Definition{Name: "code", Op: true, Steps: steps(t, "", Operation+": "+policy).Steps})
		w.do(CallOp(run, &OpCall{Name: "do:" + policy, Def: op}, w.now), nil)
	}
	succeed := func(n int) {
		w.emit(BeginAttempt(run, n, w.now))
		rec, _ := w.m.Finish(&Result{Run: run.ID, Step: n, Attempt: 1, Output: []byte("1")}, w.now, 0)
		w.do(rec, nil)
	}
	w.m.Due(w.now, 10)
	succeed(1)
	succeed(2)
	w.pass(time.Hour)
	purge := func() (ok bool) {
		rec, ok := w.m.Purge(w.now-60*sec, w.now-60*sec, nil)
		if ok {
			w.do(rec, nil)
			w.check("after a purge", w.shadow, replayed(t, w.log))
		}
		return ok
	}
	if !purge() || len(w.m.used) != 1 || purge() {
		t.Errorf("%d definitions are stored, want that of the run", len(w.m.used))
	}

	// The run still has the operation whose definition was purged.
	succeed(3)
	w.finish(run, 0, Result{Output: []byte("1")})
	if err := w.m.Forget(run); err != nil {
		t.Fatal(err)
	}
	w.gone[run.ID] = true
	w.pass(time.Hour)
	if !purge() || len(w.m.defs) != 0 || purge() {
		t.Errorf("%d definitions are in memory after the last run", len(w.m.defs))
	}
}

func TestADefinitionIsKeptAsLongAsItsFinishedRuns(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	r := w.start(d, Start{})
	w.attempt(r)
	w.pass(1000 * time.Hour)
	w.finish(r, 0, Result{})
	data := EncodeRun(r, nil)
	if err := w.m.Forget(r); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Hour)
	rec, _ := w.m.Purge(w.now-2*3600*sec, w.now-2*3600*sec, nil)
	w.do(rec, nil)
	if _, err := w.m.Decode(data); err != nil {
		t.Errorf("Decode of a run that ended an hour ago, by what is kept for two: %v", err)
	}
}

func TestForgetForTheSecondTime(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	r, other := w.start(d, Start{}), w.start(d, Start{})
	w.do(w.m.Cancel(r.ID, "me", w.now))
	for range 2 {
		if err := w.m.Forget(r); err != nil {
			t.Error(err)
		}
	}
	if err := legal(w.m); err != nil || w.m.All()[0] != other {
		t.Errorf("%d runs, %v", w.m.Len(), err)
	}
}

func TestApplyRefuses(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	r := w.start(d, Start{})
	tests := []struct {
		name string
		rec  Record
	}{
		{"what happens to a run that there is not", Record{Kind: Begun, Run: w.id()}},
		{"what happens to a step that there is not", Record{Kind: Begun, Run: r.ID, Step: 1}},
		{"a run that starts twice", Record{Kind: Started, Run: r.ID, Hash: d.Hash()}},
		{"a run without a definition", Record{Kind: Started, Run: w.id(), Hash: Hash{1}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := w.m.Apply(&test.rec); !errors.Is(err, ErrEncoding) {
				t.Errorf("Apply(%+v) = %v", test.rec, err)
			}
		})
	}
	if err := w.m.Apply(&Record{Kind: Defined, Data: []byte(`{"name":"x"}`)}); err == nil {
		t.Error("Apply of a definition without steps")
	}
}

func TestSchedules(t *testing.T) {
	w := newWorld(t)
	w.do(Record{Kind: Cron, At: w.now, Text: "nightly", Due: 5, Data: []byte("x")}, nil)
	w.do(Record{Kind: Cron, At: w.now, Text: "hourly", Due: 6, Data: []byte{}}, nil)
	w.do(Record{Kind: Cron, At: w.now, Text: "nightly", Due: 7, Data: []byte("y")}, nil)
	if s := w.m.Schedules(); len(s) != 2 || s["nightly"].Due != 7 || string(s["nightly"].Data) != "y" {
		t.Errorf("Schedules = %+v", s)
	}
	w.do(Record{Kind: Cron, At: w.now, Text: "hourly"}, nil)
	if s := w.m.Schedules(); len(s) != 1 {
		t.Errorf("Schedules = %+v", s)
	}
	w.check("at the end", w.shadow)
}

func TestSnoozeDoesNotSpendTheTotalTimeout(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.define(steps(t, "one", "a: fixed(1s) attempts=3 total-timeout=1m")), Start{})
	w.attempt(r)
	w.finish(r, 0, Result{Snooze: time.Hour})
	w.pass(time.Hour)
	w.attempt(r)
	if rec := w.finish(r, 0, Result{Failed: true}); rec.Reason != 0 {
		t.Errorf("the first failure ends the step: %v", rec.Reason)
	}
	w.pass(30 * time.Second)
	w.attempt(r)
	w.pass(30 * time.Second)
	if rec := w.finish(r, 0, Result{Failed: true}); rec.Reason != retry.StopTotalTimeout {
		t.Errorf("a failure a minute after the first attempt that counts: %v", rec.Reason)
	}
}
