package machine

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/retry"
)

const sec = int64(time.Second)

func TestStart(t *testing.T) {
	w := newWorld(t)
	one := w.define(steps(t, "one", "a: fixed(1s) attempts=2"))
	timed := steps(t, "timed", "a: fixed(1s)", "b needs a: fixed(1s)")
	timed.Timeout = time.Minute
	w.define(timed)
	live := w.start(one, Start{Key: "live"})
	done := w.start(one, Start{Key: "done"})
	w.attempt(done)
	w.finish(done, 0, Result{Output: []byte("1")})
	if err := w.m.Forget(done); err != nil {
		t.Fatal(err)
	}
	id := w.id()
	tests := []struct {
		name     string
		start    Start
		want     Record
		existing ID
		err      error
	}{
		{"without anything", Start{Hash: one.Hash()}, Record{}, ID{}, nil},
		{"a key that is known returns the run that has it", Start{Hash: one.Hash(), Key: "live"}, Record{}, live.ID, nil},
		{"also when that run is forgotten", Start{Hash: one.Hash(), Key: "done"}, Record{}, done.ID, nil},
		{"a key of another workflow is a conflict", Start{Hash: timed.Hash(), Key: "live"}, Record{}, ID{}, ErrConflict},
		{"also when that run is forgotten, of another workflow", Start{Hash: timed.Hash(), Key: "done"}, Record{}, ID{}, ErrConflict},
		{"a time in the future delays", Start{Hash: one.Hash(), At: w.now + sec}, Record{Due: w.now + sec}, ID{}, nil},
		{"a time in the past is now", Start{Hash: one.Hash(), At: w.now - sec}, Record{}, ID{}, nil},
		{"the definition's timeout", Start{Hash: timed.Hash()}, Record{Deadline: w.now + 60*sec}, ID{}, nil},
		{"a timeout of its own", Start{Hash: timed.Hash(), Timeout: time.Second}, Record{Deadline: w.now + sec}, ID{}, nil},
		{"the time begins with a delayed start", Start{Hash: timed.Hash(), At: w.now + sec}, Record{Due: w.now + sec, Deadline: w.now + 61*sec}, ID{}, nil},
		{"a timeout beyond all times does not overflow", Start{Hash: one.Hash(), Timeout: math.MaxInt64}, Record{Deadline: math.MaxInt64}, ID{}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.start.ID = id
			rec, existing, err := w.m.Start(&test.start, w.now)
			if existing != test.existing || !errors.Is(err, test.err) {
				t.Fatalf("Start(%+v) = %v, %v, want %v, %v", test.start, existing, err, test.existing, test.err)
			}
			if !existing.IsZero() || err != nil {
				return
			}
			if rec.Kind != Started || rec.Run != id || rec.At != w.now || rec.Due != test.want.Due || rec.Deadline != test.want.Deadline {
				t.Errorf("Start(%+v) = %+v, want due %d, deadline %d", test.start, rec, test.want.Due, test.want.Deadline)
			}
		})
	}
}

func TestStartIsRefused(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)", "b: fixed(1s)"))
	tests := []struct {
		name  string
		start Start
	}{
		{"without its definition", Start{Hash: Hash{1}}},
		{"when nothing is left to do", Start{Hash: d.Hash(), Outputs: [][]byte{[]byte("1"), []byte("2")}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.start.ID = w.id()
			if rec, _, err := w.m.Start(&test.start, w.now); err == nil {
				t.Errorf("Start(%+v) = %+v, want an error", test.start, rec)
			}
		})
	}
}

func TestASourceCannotChangeTheKey(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	r := w.start(d, Start{Key: "k\x00ey", Source: "so\x00urce"})
	if id, _, ok := w.m.Keyed("k\x00ey"); !ok || id != r.ID || r.Key != "k\x00ey" {
		t.Errorf("the run has the key %q, of source %q", r.Key, r.Source())
	}
}

func TestAttemptDeadline(t *testing.T) {
	tests := []struct {
		name    string
		policy  string
		timeout time.Duration // of the run
		after   time.Duration // of the first attempt, which fails
		want    time.Duration // from the attempt; 0 means none
	}{
		{"no limit at all", "fixed(1s) attempts=3", 0, time.Second, 0},
		{"the attempt's is first", "fixed(1s) attempts=3 attempt-timeout=2s total-timeout=1m", time.Hour, time.Second, 2 * time.Second},
		{"the step's is first", "fixed(1s) attempts=3 attempt-timeout=2m total-timeout=1m", time.Hour, 10 * time.Second, 50 * time.Second},
		{"the run's is first", "fixed(1s) attempts=3 attempt-timeout=2m total-timeout=3m", time.Minute, 10 * time.Second, 50 * time.Second},
		{"only the attempt has one", "fixed(1s) attempts=3 attempt-timeout=2s", 0, time.Second, 2 * time.Second},
		{"only the step has one", "fixed(1s) attempts=3 total-timeout=1m", 0, 20 * time.Second, 40 * time.Second},
		{"only the run has one", "fixed(1s) attempts=3", time.Minute, 20 * time.Second, 40 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			r := w.start(w.define(steps(t, "one", "a: "+test.policy)), Start{Timeout: test.timeout})
			w.attempt(r)
			w.finish(r, 0, Result{Failed: true})
			w.pass(test.after)
			rec := BeginAttempt(r, 0, w.now)
			got := time.Duration(0)
			if rec.Deadline != 0 {
				got = time.Duration(rec.Deadline - w.now)
			}
			if got != test.want || rec.Attempt != 2 || rec.Kind != Begun {
				t.Errorf("Attempt = %+v, ends after %v, want %v", rec, got, test.want)
			}
		})
	}
}

func TestFinish(t *testing.T) {
	const policy = "exponential(1s..1m) attempts=3 server-wait=10s"
	tests := []struct {
		name   string
		result Result
		want   Record
		status Status
		out    Outcome
	}{
		{"a success", Result{Output: []byte("7")}, Record{Kind: Done, Data: []byte("7"), Ends: Succeeded}, Complete, Succeeded},
		{"a success without output has null", Result{}, Record{Kind: Done, Data: []byte("null"), Ends: Succeeded}, Complete, Succeeded},
		{"a failure waits by the policy", Result{Failed: true, Error: "x"},
			Record{Kind: Failed, Text: "x", Delay: time.Second, Prev: time.Second, Due: epoch + sec}, Waiting, Undecided},
		{"a failure for good", Result{Failed: true, Outcome: retry.Outcome{Class: retry.ClassPermanent}},
			Record{Kind: Failed, Reason: retry.StopPermanent, Ends: Dead}, Exhausted, Dead},
		{"a stuck attempt", Result{Failed: true, Outcome: retry.Outcome{Class: retry.ClassStuck}},
			Record{Kind: Failed, Reason: retry.StopStuck, Ends: Dead}, Exhausted, Dead},
		{"a canceled attempt", Result{Failed: true, Outcome: retry.Outcome{Class: retry.ClassCanceled}},
			Record{Kind: Failed, Reason: retry.StopCanceled, Ends: Dead}, Exhausted, Dead},
		{"a final failure", Result{Failed: true, Outcome: retry.Outcome{Final: true}},
			Record{Kind: Failed, Reason: retry.StopPermanent, Ends: Dead}, Exhausted, Dead},
		{"a server that asks for too much", Result{Failed: true, Outcome: retry.Outcome{After: time.Minute}},
			Record{Kind: Failed, Reason: retry.StopServerWait, Ends: Dead}, Exhausted, Dead},
		{"a delay of the failure's own", Result{Failed: true, Outcome: retry.Outcome{Delay: 3 * time.Second}},
			Record{Kind: Failed, Delay: 3 * time.Second, By: retry.BySchedule, Due: epoch + 3*sec}, Waiting, Undecided},
		{"not yet", Result{Snooze: time.Hour, Error: "not yet", Failed: true},
			Record{Kind: Snoozed, Text: "not yet", Delay: time.Hour, By: retry.ByHandler, Due: epoch + 3600*sec}, Waiting, Undecided},
		{"not in all eternity", Result{Snooze: math.MaxInt64},
			Record{Kind: Snoozed, Delay: math.MaxInt64, By: retry.ByHandler, Due: math.MaxInt64}, Waiting, Undecided},
		{"the process ends in order", Result{Release: true, Error: "bye", Failed: true}, Record{Kind: Released, Text: "bye"}, Waiting, Undecided},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			r := w.start(w.define(steps(t, "one", "a: "+policy)), Start{})
			w.attempt(r)
			got := w.finish(r, 0, test.result)
			want := test.want
			want.Run, want.At, want.Attempt = r.ID, w.now, 1
			if !equal(&got, &want) {
				t.Errorf("Finish(%+v)\n got %+v\nwant %+v", test.result, got, want)
			}
			if r.Steps[0].Status != test.status || r.Outcome != test.out {
				t.Errorf("step is %v and the run %v, want %v and %d", r.Steps[0].Status, r.State(), test.status, test.out)
			}
			w.check("after it", w.shadow)
		})
	}
}

func TestFinishOfWhatIsNotRunning(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.define(steps(t, "one", "a: fixed(1s) attempts=9")), Start{})
	w.attempt(r)
	w.finish(r, 0, Result{Failed: true})
	w.pass(time.Second)
	w.attempt(r) // 2
	tests := []struct {
		name   string
		result Result
	}{
		{"an attempt that was given up", Result{Run: r.ID, Attempt: 1}},
		{"one that has not begun", Result{Run: r.ID, Attempt: 3}},
		{"no attempt at all", Result{Run: r.ID}},
		{"a step that there is not", Result{Run: r.ID, Step: 1, Attempt: 2}},
		{"a run that there is not", Result{Run: w.id(), Attempt: 2}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if rec, ok := w.m.Finish(&test.result, w.now, 0); ok {
				t.Errorf("Finish(%+v) = %+v, want nothing", test.result, rec)
			}
			c := test.result
			if rec, ok := w.m.Report(c.Run, c.Step, c.Attempt, nil, w.now); ok {
				t.Errorf("Report(%+v) = %+v, want nothing", c, rec)
			}
		})
	}
}

func TestLateResults(t *testing.T) {
	tests := []struct {
		name   string
		result Result
		text   string
	}{
		{"a success is dropped", Result{Output: []byte("1")}, "succeeded too late; the result is dropped"},
		{"a failure", Result{Failed: true, Error: "broke"}, "broke"},
		{"a snooze", Result{Snooze: 1, Error: "later"}, "later"},
		{"a release", Result{Release: true, Error: "bye"}, "bye"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			r := w.start(w.define(steps(t, "one", "a: fixed(1s) attempts=9")), Start{Key: "k"})
			w.attempt(r)
			w.do(w.m.Cancel(r.ID, "me", w.now))
			if r.Closed() || r.State() != StateCanceled {
				t.Fatalf("canceled in an attempt: closed %v, %v", r.Closed(), r.State())
			}
			w.pass(time.Second)
			if rec := w.finish(r, 0, test.result); rec.Kind != Late || rec.Text != test.text || rec.Ends != Undecided {
				t.Errorf("Finish = %+v, want late %q", rec, test.text)
			}
			if !r.Finished() || r.Output(0) != nil {
				t.Errorf("finished %v, output %q", r.Finished(), r.Output(0))
			}
			w.check("after it", w.shadow)
		})
	}
}

func TestAFailingRunWaitsForItsBranches(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "fork",
		"a: fixed(1s)", "b: fixed(1s) attempts=5", "c: fixed(1m) attempts=5", "d needs b: fixed(1s)", "e needs a,d: fixed(1s)"))
	r := w.start(d, Start{})
	w.attempt(r)
	w.finish(r, 2, Result{Failed: true}) // c waits
	if rec := w.finish(r, 0, Result{Failed: true, Error: "for good"}); rec.Ends != Undecided || rec.Reason != retry.StopAttempts {
		t.Fatalf("Finish = %+v, want no outcome while b runs", rec)
	}
	if !r.Failing || r.State() != StateRunning || w.m.Waiting() != 0 {
		t.Fatalf("failing %v, %v, %d timers", r.Failing, r.State(), w.m.Waiting())
	}
	w.pass(time.Hour)
	if w.attempt(r); r.running != 1 {
		t.Fatalf("%d attempts while it fails, want that of b alone", r.running)
	}
	if rec := w.finish(r, 1, Result{Output: []byte("1")}); rec.Ends != Dead {
		t.Fatalf("Finish = %+v, want it to end the run", rec)
	}
	if r.Outcome != Dead || r.Reason != retry.StopAttempts || !r.Closed() || r.Finished() {
		t.Errorf("outcome %d by %v, closed %v", r.Outcome, r.Reason, r.Closed())
	}
	if got := []Status{r.Steps[0].Status, r.Steps[1].Status, r.Steps[2].Status, r.Steps[3].Status, r.Steps[4].Status}; !slices.Equal(got, []Status{Exhausted, Complete, Waiting, Waiting, Blocked}) {
		t.Errorf("steps are %v", got)
	}
	w.do(w.m.Retry(r.ID, "me", w.now))
	for range 9 {
		w.attempt(r)
		for i := range r.Steps {
			if r.Steps[i].Status == Running {
				w.finish(r, i, Result{Output: []byte("2")})
			}
		}
	}
	if r.Outcome != Succeeded || string(r.Output(1)) != "1" || string(r.Result()) != `{"c":2,"e":2}` {
		t.Errorf("outcome %d, result %s", r.Outcome, r.Result())
	}
	w.check("at the end", w.shadow)
}

func TestLose(t *testing.T) {
	w := newWorld(t)
	d := steps(t, "one", "a: fixed(1s) attempts=5 total-timeout=1m")
	d.Steps[0].MaxLost = 2
	r := w.start(w.define(d), Start{})
	lose := func(alone bool, ends Outcome, why retry.Reason, wait time.Duration) {
		t.Helper()
		w.attempt(r)
		w.pass(time.Hour) // the process was away
		w.crash(nil)
		r, _ = w.m.Run(r.ID)
		rec := LoseAttempt(r, 0, w.now, alone)
		if rec.Ends != ends || rec.Reason != why || rec.Delay != wait || why == 0 && rec.Due != w.now+int64(wait) {
			t.Fatalf("Lose = %+v, want the end %d by %v, or a wait of %v", rec, ends, why, wait)
		}
		w.do(rec, nil)
		w.pass(wait)
	}
	lose(false, Undecided, 0, time.Second)
	lose(true, Undecided, 0, 2*time.Second)
	w.attempt(r)
	if got := r.Steps[0]; got.Spent != 0 || got.Lost != 2 || got.Attempt != 3 || got.First != w.now {
		t.Errorf("after two lost attempts: %+v, want none spent, and the total timeout to begin now", got)
	}
	w.finish(r, 0, Result{Failed: true}) // one that counts
	w.pass(time.Second)
	lose(false, Undecided, 0, time.Second)
	lose(false, Undecided, 0, 2*time.Second)
	for wait := 4 * time.Second; wait < time.Minute; wait *= 2 {
		lose(false, Undecided, 0, wait) // others ran beside it
	}
	lose(false, Undecided, 0, time.Minute)
	lose(false, Undecided, 0, time.Minute)
	lose(true, Dead, retry.StopLost, 0)
	if r.Reason != retry.StopLost || r.Steps[0].Spent != 1 {
		t.Errorf("reason %v, %+v", r.Reason, r.Steps[0])
	}
	w.check("at the end", w.shadow)
}

// A step with a MaxLost of 0 gives up at the first loss, even if other attempts ran beside it.
func TestLoseOfAStepThatIsNeverRepeated(t *testing.T) {
	w := newWorld(t)
	d := steps(t, "one", "a: fixed(1s)")
	d.Steps[0].MaxLost = 0
	r := w.start(w.define(d), Start{})
	w.attempt(r)
	if rec := LoseAttempt(r, 0, w.now, false); rec.Reason != retry.StopLost || rec.Ends != Dead {
		t.Errorf("Lose = %+v, want that the run is dead", rec)
	}
}

func TestRetry(t *testing.T) {
	w := newWorld(t)
	d := steps(t, "two", "a: fixed(1s) attempts=2 total-timeout=1m", "b: fixed(20s) attempts=3 total-timeout=1m")
	d.Timeout = 5 * time.Minute
	r := w.start(w.define(d), Start{})
	if _, err := w.m.Retry(r.ID, "me", w.now); !errors.Is(err, ErrState) {
		t.Fatalf("Retry of one that goes on = %v", err)
	}
	if _, err := w.m.Retry(w.id(), "me", w.now); !errors.Is(err, ErrUnknown) {
		t.Fatalf("Retry of nothing = %v", err)
	}
	w.attempt(r)
	w.finish(r, 1, Result{Failed: true}) // b waits for 20 s
	w.finish(r, 0, Result{Failed: true})
	w.pass(time.Second)
	w.attempt(r)
	if w.finish(r, 0, Result{Failed: true}); r.Outcome != Dead {
		t.Fatalf("the run is %v", r.State())
	}
	w.pass(time.Hour)
	w.do(w.m.Retry(r.ID, "me", w.now))
	if r.Outcome != Undecided || r.Failing || r.Reason != 0 || r.Ended != 0 || r.Deadline != w.now+300*sec {
		t.Errorf("after a retry: %s", dumpRun(r))
	}
	w.attempt(r)
	a, b := r.Steps[0], r.Steps[1]
	if a.Spent != 0 || a.Attempt != 3 || a.First != w.now {
		t.Errorf("the step that failed for good begins anew, got %+v", a)
	}
	if b.Spent != 1 || b.Attempt != 2 || b.First != w.now {
		t.Errorf("the step that waited goes on, and the time it was dead does not count, got %+v", b)
	}
	for i := range r.Steps {
		w.finish(r, i, Result{})
	}
	if r.Outcome != Succeeded || w.m.workflows["two"].Totals != (info.Totals{Started: 1, Succeeded: 1, Dead: 1, Attempts: 5, Failures: 3}) {
		t.Errorf("outcome %d, totals %+v", r.Outcome, w.m.workflows["two"].Totals)
	}
	w.check("at the end", w.shadow)
}

func TestRetryWaitsForAttemptsToEnd(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.define(steps(t, "one", "a: fixed(1s) attempts=3")), Start{Timeout: time.Second})
	w.attempt(r)
	w.pass(time.Second)
	expired, _ := w.m.Due(w.now, 10)
	if len(expired) != 1 || expired[0] != r {
		t.Fatalf("Due = %v, want the run", expired)
	}
	w.do(w.m.Expire(r, 0, w.now), nil)
	if _, err := w.m.Retry(r.ID, "me", w.now); !errors.Is(err, ErrState) || r.Reason != retry.StopTimeout {
		t.Fatalf("Retry while an attempt runs = %v, reason %v", err, r.Reason)
	}
	w.finish(r, 0, Result{})
	w.do(w.m.Retry(r.ID, "me", w.now))
	if r.Deadline != w.now+sec || r.State() != StateWaiting {
		t.Errorf("it has its own second again: deadline %d at %d, %v", r.Deadline, w.now, r.State())
	}
}

func TestWake(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "two", "a: fixed(1m) attempts=2", "b: fixed(1m) attempts=2", "c needs a: fixed(1s)"))
	delayed := w.start(d, Start{At: w.now + 3600*sec})
	recs, err := w.m.Wake(delayed.ID, "me", w.now)
	if err != nil || len(recs) != 2 || recs[0].By != retry.ByHuman || recs[0].Text != "me" {
		t.Fatalf("Wake of a delayed start = %+v, %v", recs, err)
	}
	r := w.start(d, Start{})
	if _, err := w.m.Wake(r.ID, "me", w.now); !errors.Is(err, ErrState) {
		t.Errorf("Wake of one that is due = %v", err)
	}
	if _, err := w.m.Wake(w.id(), "me", w.now); !errors.Is(err, ErrUnknown) {
		t.Errorf("Wake of nothing = %v", err)
	}
	w.attempt(r)
	w.finish(r, 0, Result{Failed: true})
	recs, err = w.m.Wake(r.ID, "me", w.now)
	if err != nil || len(recs) != 1 || recs[0].Step != 0 {
		t.Fatalf("Wake = %+v, %v", recs, err)
	}
	w.do(recs[0], nil)
	if w.attempt(r); r.Steps[0].Status != Running || r.Steps[0].Attempt != 2 || r.Steps[0].Spent != 1 {
		t.Errorf("woken step: %+v", r.Steps[0])
	}
	w.check("after it", w.shadow)
}

func TestCancel(t *testing.T) {
	policy := "a: fixed(1s) attempts=2"
	tests := []struct {
		name    string
		prepare func(*world, *Run)
		err     error
		closed  bool
	}{
		{"one that waits", func(*world, *Run) {}, nil, true},
		{"one that stands in a queue", func(w *world, _ *Run) { w.m.Due(w.now, 9) }, nil, true},
		{"one that runs", func(w *world, r *Run) { w.attempt(r) }, nil, false},
		{"one that succeeded", func(w *world, r *Run) { w.attempt(r); w.finish(r, 0, Result{}) }, ErrState, true},
		{"one that is canceled", func(w *world, r *Run) { w.do(w.m.Cancel(r.ID, "", w.now)) }, ErrState, true},
		{"one that is dead, and will not be put back to work then", func(w *world, r *Run) {
			w.attempt(r)
			w.finish(r, 0, Result{Failed: true, Outcome: retry.Outcome{Final: true}})
		}, nil, true},
		{"one that is dead and has an attempt left", func(w *world, r *Run) {
			w.attempt(r)
			w.do(w.m.Expire(r, 0, w.now), nil)
		}, nil, false},
		{"one that is replaced", func(w *world, r *Run) {
			w.do(w.m.Expire(r, 0, w.now), nil)
			w.do(w.m.Replace(r.ID, w.id(), w.now))
		}, ErrState, true},
		{"one that is parked", func(w *world, r *Run) {
			w.m.Due(w.now, 9)
			w.do(Park(r, 0, w.now), nil)
		}, nil, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			r := w.start(w.define(steps(t, "one", policy)), Start{Key: "k"})
			test.prepare(w, r)
			rec, err := w.m.Cancel(r.ID, "me", w.now)
			if !errors.Is(err, test.err) {
				t.Fatalf("Cancel = %+v, %v, want %v", rec, err, test.err)
			}
			if err != nil {
				return
			}
			w.do(rec, nil)
			if r.Outcome != Canceled || r.Closed() != test.closed || w.m.Waiting() != 0 || len(w.m.parked) != 0 {
				t.Errorf("after it: %s, %d timers, %d parked", dumpRun(r), w.m.Waiting(), len(w.m.parked))
			}
			if _, err := w.m.Retry(r.ID, "me", w.now); !errors.Is(err, ErrState) {
				t.Errorf("Retry of a canceled run = %v", err)
			}
			w.check("after it", w.shadow)
		})
	}
}

func TestReplace(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.define(steps(t, "one", "a: fixed(1s)")), Start{Key: "k"})
	by := w.id()
	if _, err := w.m.Replace(r.ID, by, w.now); !errors.Is(err, ErrState) {
		t.Errorf("Replace of one that goes on = %v", err)
	}
	if _, err := w.m.Replace(w.id(), by, w.now); !errors.Is(err, ErrUnknown) {
		t.Errorf("Replace of nothing = %v", err)
	}
	w.attempt(r)
	w.finish(r, 0, Result{Failed: true})
	if err := w.m.Forget(r); err == nil {
		t.Error("Forget of a dead run: it can be retried")
	}
	w.do(w.m.Replace(r.ID, by, w.now))
	if !r.Finished() || r.ReplacedBy() != by {
		t.Errorf("replaced by %v, finished %v", r.ReplacedBy(), r.Finished())
	}
	if _, err := w.m.Replace(r.ID, by, w.now); !errors.Is(err, ErrState) {
		t.Errorf("Replace for the second time = %v", err)
	}
	if _, err := w.m.Retry(r.ID, "me", w.now); !errors.Is(err, ErrState) {
		t.Errorf("Retry of a replaced run = %v", err)
	}
	w.check("after it", w.shadow)
}

// equal reports whether two records have the same content.
func equal(a, b *Record) bool {
	return slices.Equal(a.append(nil, 0), b.append(nil, 0)) && (a.Data == nil) == (b.Data == nil)
}
