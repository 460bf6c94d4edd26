package machine

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"
)

// frames returns the remaining frames of a snapshot.
func frames(s *Snapshot, b []byte, runs int) []byte {
	for more := true; more; {
		b, more = s.Next(b, runs)
	}
	s.Stop()
	return b
}

// restored checks a snapshot with the log after it against the live state.
func (w *world) restored(data []byte) *Machine {
	w.t.Helper()
	if err := Verify(bytes.NewReader(data)); err != nil {
		w.t.Fatal(err)
	}
	m, err := Restore(bytes.NewReader(data))
	if err != nil {
		w.t.Fatal(err)
	}
	replay(w.t, m, w.log)
	w.check("snapshot and log", m)
	return m
}

// In these tests, all records come after a snapshot has begun.
func TestSnapshotWhileTheMachineGoesOn(t *testing.T) {
	tests := []struct {
		name string
		do   func(w *world, d *Definition, runs []*Run, next func())
	}{
		{"nothing", func(*world, *Definition, []*Run, func()) {}},
		{"a run starts before the first frame", func(w *world, d *Definition, _ []*Run, _ func()) {
			w.start(d, Start{Key: "new"})
		}},
		{"a run starts between frames", func(w *world, d *Definition, _ []*Run, next func()) {
			next()
			next()
			w.start(d, Start{Key: "new"})
		}},
		{"a run fails before its turn", func(w *world, _ *Definition, runs []*Run, next func()) {
			next()
			w.attempt(runs[0])
			w.finish(runs[0], 0, Result{Failed: true})
		}},
		{"a run fails after its turn", func(w *world, _ *Definition, runs []*Run, next func()) {
			next()
			next()
			w.attempt(runs[3])
			w.finish(runs[3], 0, Result{Failed: true})
		}},
		{"a run is forgotten before its turn", func(w *world, _ *Definition, runs []*Run, next func()) {
			next()
			w.do(w.m.Cancel(runs[0].ID, "me", w.now))
			w.forget(runs[0])
		}},
		{"a run is forgotten before the first frame", func(w *world, _ *Definition, runs []*Run, next func()) {
			w.do(w.m.Cancel(runs[3].ID, "me", w.now))
			w.forget(runs[3])
		}},
		{"all are forgotten", func(w *world, _ *Definition, runs []*Run, next func()) {
			next()
			next()
			for _, r := range runs {
				w.do(w.m.Cancel(r.ID, "me", w.now))
				w.forget(r)
			}
		}},
		{"a run by a new definition comes to stand where one was forgotten", func(w *world, _ *Definition, runs []*Run, next func()) {
			next()
			w.start(w.define(steps(t, "new", "x: fixed(1s)")), Start{Key: "new"})
			w.do(w.m.Cancel(runs[0].ID, "me", w.now))
			w.forget(runs[0])
		}},
		{"a dead run is purged and its key used again", func(w *world, d *Definition, runs []*Run, next func()) {
			next()
			w.do(w.m.Expire(runs[0], 0, w.now), nil)
			w.pass(time.Hour)
			rec, _ := w.m.Purge(w.now-sec, w.now-sec, nil)
			w.do(rec, nil)
			w.start(d, Start{Key: "k0"})
		}},
		{"a dead run is purged by the entry that moves it", func(w *world, _ *Definition, runs []*Run, next func()) {
			w.do(w.m.Expire(runs[0], 0, w.now), nil)
			next()
			w.pass(time.Hour)
			w.now += 3600 * sec
			w.emit(Record{Kind: Jumped, At: w.now, Delay: time.Hour})
			rec, _ := w.m.Purge(w.now-sec, w.now-sec, nil)
			w.do(rec, nil)
		}},
		{"a run dies and is retried", func(w *world, _ *Definition, runs []*Run, next func()) {
			w.attempt(runs[1])
			w.do(w.m.Expire(runs[1], 0, w.now), nil)
			next()
			next()
			w.finish(runs[1], 0, Result{Failed: true})
			w.do(w.m.Retry(runs[1].ID, "me", w.now))
			w.attempt(runs[1])
		}},
		{"a run is replaced long after it died", func(w *world, _ *Definition, runs []*Run, next func()) {
			w.do(w.m.Expire(runs[0], 0, w.now), nil)
			w.pass(time.Hour)
			next()
			w.do(w.m.Replace(runs[0].ID, w.id(), w.now))
		}},
		{"a run is canceled and its attempt ends later", func(w *world, _ *Definition, runs []*Run, next func()) {
			w.attempt(runs[0])
			w.do(w.m.Cancel(runs[0].ID, "me", w.now))
			w.pass(time.Hour)
			next()
			w.finish(runs[0], 0, Result{})
		}},
		{"the clock is set", func(w *world, _ *Definition, runs []*Run, next func()) {
			w.attempt(runs[0])
			next()
			next()
			w.jumped(time.Hour)
		}},
		{"a step is parked", func(w *world, _ *Definition, runs []*Run, next func()) {
			w.m.Due(w.now, 9)
			next()
			w.do(Park(runs[0], 0, w.now), nil)
		}},
		{"a schedule is changed", func(w *world, _ *Definition, _ []*Run, next func()) {
			next()
			w.do(Record{Kind: Cron, At: w.now, Text: "c", Due: 7, Data: []byte("new")}, nil)
		}},
	}
	for _, test := range tests {
		for _, at := range []int{1, 100} {
			t.Run(fmt.Sprintf("%s, %d at a time", test.name, at), func(t *testing.T) {
				w := newWorld(t)
				d := w.define(steps(t, "one", "a: fixed(1s) attempts=3", "b needs a: fixed(1s)"))
				w.do(Record{Kind: Opened, At: w.now, Text: "boot"}, nil)
				w.do(Record{Kind: Cron, At: w.now, Text: "c", Due: 5, Data: []byte("x")}, nil)
				var runs []*Run
				for i := range 4 {
					runs = append(runs, w.start(d, Start{Key: fmt.Sprint("k", i), Source: "me", Input: []byte("{}")}))
				}
				w.attempt(runs[2])
				w.emitProgress(runs[2])
				w.finish(runs[2], 0, Result{Output: []byte("1")})
				s := w.m.Snapshot()
				var data []byte
				test.do(w, d, runs, func() { data, _ = s.Next(data, at) })
				data = frames(s, data, at)
				w.restored(data)
				w.pass(time.Hour)
				w.attempt(w.start(d, Start{Key: "after"}))
				m := w.restored(data)
				// A snapshot of the restored state must restore the same state again.
				w.restored(frames(m.Snapshot(), nil, 3))
			})
		}
	}
}

func (w *world) forget(r *Run) {
	w.t.Helper()
	if err := w.m.Forget(r); err != nil {
		w.t.Fatal(err)
	}
	w.gone[r.ID] = true
}

func (w *world) emitProgress(r *Run) {
	w.t.Helper()
	rec, ok := w.m.Report(r.ID, 0, int(r.Steps[0].Attempt), []byte("50"), w.now)
	if !ok {
		w.t.Fatal("Report: there is nothing")
	}
	w.do(rec, nil)
}

func TestAPurgedKeyDoesNotComeBack(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	old := w.start(d, Start{Key: "k"})
	w.do(w.m.Cancel(old.ID, "me", w.now))
	w.pass(time.Hour)
	rec, _ := w.m.Purge(w.now-sec, w.now-sec, nil) // while the run is in memory
	w.do(rec, nil)
	w.restored(frames(w.m.Snapshot(), nil, 1))
	w.start(w.define(d), Start{Key: "k"})
	w.restored(frames(w.m.Snapshot(), nil, 1))
}

// Without a sync after each entry, a log may lose its end although the snapshot includes it. The runs
// in the snapshot then have a later state than the log. They must not skip new entries that get the
// same numbers as the lost ones.
func TestASnapshotThatKnowsMoreThanTheLog(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.define(steps(t, "one", "a: fixed(1s) attempts=9")), Start{})
	s, seq := w.m.Snapshot(), len(w.log)
	for range 3 {
		w.attempt(r)
		w.finish(r, 0, Result{Failed: true})
		w.pass(time.Second)
	}
	data := frames(s, nil, 1)
	w.log = w.log[:seq]
	m, err := Restore(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	w.shadow = nil
	w.crash(m)
	w.do(Record{Kind: Opened, At: w.now}, nil)
	r, _ = w.m.Run(r.ID)
	if w.attempt(r); r.Steps[0].Status != Running || r.Steps[0].Attempt != 4 {
		t.Errorf("an attempt that was begun is %+v", r.Steps[0])
	}
	w.restored(data)
}

func TestFramesAreBounded(t *testing.T) {
	w := newWorld(t)
	w.shadow = nil
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	input := bytes.Repeat([]byte("x"), 500<<10)
	for range 6 {
		w.start(d, Start{Input: input})
	}
	s := w.m.Snapshot()
	var data []byte
	for more := true; more; {
		var part []byte
		if part, more = s.Next(nil, 1<<30); len(part) > fullFrame+1<<20 {
			t.Fatalf("a frame of %d bytes", len(part))
		}
		data = append(data, part...)
	}
	if out, more := s.Next(nil, 1); more || len(out) != 0 {
		t.Errorf("Next after the last = %d bytes, %v", len(out), more)
	}
	m, err := Restore(bytes.NewReader(data))
	if err != nil || m.Len() != 6 {
		t.Errorf("Restore = %v", err)
	}
}

func TestSnapshotsThatAreRefused(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	for range 3 {
		w.start(d, Start{Key: string(rune('a' + w.ids))})
	}
	good := frames(w.m.Snapshot(), nil, 2)
	for i := range good {
		if _, err := Restore(bytes.NewReader(good[:i])); !errors.Is(err, ErrEncoding) {
			t.Fatalf("Restore of %d of %d bytes = %v", i, len(good), err)
		}
		if err := Verify(bytes.NewReader(good[:i])); err == nil {
			t.Fatalf("Verify of %d of %d bytes is no error", i, len(good))
		}
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if m, err := Restore(bytes.NewReader(bad)); err == nil {
			t.Fatalf("Restore with byte %d changed has %d runs", i, m.Len())
		}
	}
	state, run := encodeState(w.m.state), EncodeRun(w.m.all[0], nil)
	newer := append([]byte{Format + 1}, state[1:]...)
	tests := []struct {
		name string
		data []byte
		want error
	}{
		{"a newer format", frame(nil, frameState, newer), ErrFormat},
		{"no state", frame(nil, frameEnd, []byte{0}), ErrEncoding},
		{"a run twice", frame(frame(frame(nil, frameState, state), frameRuns, append(run, run...)), frameEnd, []byte{2}), ErrEncoding},
		{"a run missing", frame(frame(frame(nil, frameState, state), frameRuns, run), frameEnd, []byte{2}), ErrEncoding},
		{"a frame of another kind", frame(frame(frame(nil, frameState, state), 'x', run), frameEnd, []byte{1}), ErrEncoding},
		{"a frame that is too long", append([]byte{frameState}, 0xff, 0xff, 0xff, 0xff, 0xff, 1), ErrEncoding},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := Restore(bytes.NewReader(test.data)); !errors.Is(err, test.want) {
				t.Errorf("Restore = %v, want %v", err, test.want)
			}
		})
	}
}

func TestFramesThatAreRefused(t *testing.T) {
	good := frame(nil, frameRuns, bytes.Repeat([]byte("run"), 50))
	if body, err := Frame(good); err != nil || len(body) != 150 {
		t.Fatalf("Frame has %d bytes, %v; want 150", len(body), err)
	}
	for i := range good {
		if _, err := Frame(good[:i]); !errors.Is(err, ErrEncoding) {
			t.Errorf("Frame of %d of %d bytes = %v", i, len(good), err)
		}
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, err := Frame(bad); !errors.Is(err, ErrEncoding) {
			t.Errorf("Frame with byte %d changed = %v", i, err)
		}
	}
	if _, err := Frame(frame(nil, frameEnd, []byte{1})); !errors.Is(err, ErrEncoding) {
		t.Errorf("Frame of another kind = %v", err)
	}
}

func TestADamagedLengthTakesNoMemory(t *testing.T) {
	data := []byte{frameState, 0x80, 0x80, 0x80, 0x1e, 1, 2, 3} // 60 MB
	bounded(t, len(data), func() {
		if _, err := Restore(bytes.NewReader(data)); !errors.Is(err, ErrEncoding) {
			t.Errorf("Restore = %v", err)
		}
	})
}

// sample returns a machine with runs in many states.
func sample(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	w.do(Record{Kind: Opened, At: w.now, Text: "boot"}, nil)
	d := w.define(steps(t, "fork", "a: fixed(1s) attempts=3", "b needs a: fixed(1s)", "c needs a: fixed(1s)"))
	w.do(Record{Kind: Cron, At: w.now, Text: "c", Due: 5, Data: []byte("x")}, nil)
	for i := range 6 {
		r := w.start(d, Start{Key: fmt.Sprint("k", i), Source: "me", Input: []byte(`{"n":1}`), Timeout: time.Duration(i) * time.Hour})
		if i < 1 {
			continue
		}
		w.attempt(r)
		w.emitProgress(r)
		switch i {
		case 1:
			w.finish(r, 0, Result{Failed: true, Error: "broke"})
		case 2, 3:
			w.finish(r, 0, Result{Output: []byte("1")})
		case 4:
			w.finish(r, 0, Result{Snooze: time.Hour})
		}
		if i == 3 {
			w.do(w.m.Cancel(r.ID, "me", w.now))
		}
	}
	return w
}

func FuzzRestore(f *testing.F) {
	w := sample(f)
	var runs []byte
	for _, r := range w.m.all {
		runs = EncodeRun(r, runs)
	}
	f.Add(encodeState(w.m.state), runs, byte(w.m.Len()))
	f.Add(encodeState(w.m.state), EncodeRun(w.m.all[3], nil), byte(1))
	f.Add(encodeState(newState()), []byte{}, byte(0))
	f.Fuzz(func(t *testing.T, state, runs []byte, n byte) {
		bounded(t, len(state)+len(runs), func() {
			_, _ = Restore(bytes.NewReader(state))
			data := frame(frame(frame(nil, frameState, state), frameRuns, runs), frameEnd, []byte{n & 127})
			m, err := Restore(bytes.NewReader(data))
			if err != nil {
				return
			}
			m.Due(m.Next(), 10)
			again, err := Restore(bytes.NewReader(frames(m.Snapshot(), nil, 2)))
			if err != nil {
				t.Fatalf("Restore of what was restored = %v", err)
			}
			if got, want := dump(again, nil), dump(m, nil); got != want {
				t.Errorf("Restore of what was restored differs\n%s", diff(got, want))
			}
		})
	})
}
