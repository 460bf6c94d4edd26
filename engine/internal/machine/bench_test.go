package machine

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
)

// BenchmarkRun measures a run of one step from its start to its end.
func BenchmarkRun(b *testing.B) {
	w := newWorld(b)
	d := w.define(steps(b, "one", "a: fixed(1s) attempts=3"))
	m, input, output := w.m, bytes.Repeat([]byte("x"), 200), []byte("1")
	seq, now := m.Seq(), w.now
	apply := func(rec *Record) {
		if err := m.Apply(rec); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		seq++
		now += 1e6
		m.Begin(seq, Header{At: now})
		id := NewID(now, uint64(i), uint64(i))
		rec, _, err := m.Start(&Start{ID: id, Hash: d.Hash(), Input: input}, now)
		if err != nil {
			b.Fatal(err)
		}
		apply(&rec)
		m.Due(now, 10)
		r, step, _ := m.Busy()[0].First(orBegun(true))
		begun := BeginAttempt(r, step, now)
		apply(&begun)
		done, _ := m.Finish(&Result{Run: id, Attempt: 1, Output: output}, now, 0)
		apply(&done)
		for _, r := range m.TakeChanged() {
			r.Seen()
		}
		if err := m.Forget(r); err != nil {
			b.Fatal(err)
		}
	}
}

// waiting returns a machine with this many runs that wait after a failure.
func waiting(b testing.TB, n int) *Machine {
	b.Helper()
	w := newWorld(b)
	d := w.define(steps(b, "one", "a: exponential(1m..1h) jitter=full attempts=30"))
	m, now := w.m, w.now
	apply := func(rec *Record) {
		if err := m.Apply(rec); err != nil {
			b.Fatal(err)
		}
	}
	input := bytes.Repeat([]byte("x"), 200)
	for i := range n {
		m.Begin(m.Seq()+1, Header{At: now})
		now += 1e6
		rec, _, err := m.Start(&Start{ID: NewID(now, uint64(i), uint64(i)), Hash: d.Hash(), Input: input}, now)
		if err != nil {
			b.Fatal(err)
		}
		apply(&rec)
		r := m.byID(rec.Run)
		begun := BeginAttempt(r, 0, now)
		apply(&begun)
		failed, _ := m.Finish(&Result{Run: r.ID, Attempt: 1, Failed: true, Error: "connection refused"}, now, w.rng.Uint64())
		apply(&failed)
	}
	for _, r := range m.TakeChanged() {
		r.Seen()
	}
	return m
}

// sleeping returns a machine with this many runs of a flow that wait in a sleep, after three
// operations with results of 100 bytes.
func sleeping(b testing.TB, n int) *Machine {
	b.Helper()
	w := newWorld(b)
	function := &Definition{Name: "flow", Flow: true, Steps: []Step{{Name: Function, Handler: "flow:flow", Policy: retry.Policy{Attempts: 1}}}}
	call := &Definition{Name: "flow", Op: true, Steps: []Step{{Name: "call", Handler: "operation", Policy: retry.Policy{Attempts: 1}}}}
	for _, d := range []*Definition{function, call} {
		if err := d.Prepare(); err != nil {
			b.Fatal(err)
		}
		w.define(d)
	}
	m, now := w.m, w.now
	apply := func(rec Record) {
		if err := m.Apply(&rec); err != nil {
			b.Fatal(err)
		}
	}
	input, output := bytes.Repeat([]byte("x"), 200), bytes.Repeat([]byte("y"), 100)
	for i := range n {
		m.Begin(m.Seq()+1, Header{At: now})
		now += 1e6
		rec, _, err := m.Start(&Start{ID: NewID(now, uint64(i), uint64(i)), Hash: function.Hash(), Input: input}, now)
		if err != nil {
			b.Fatal(err)
		}
		apply(rec)
		r := m.byID(rec.Run)
		apply(BeginAttempt(r, 0, now))
		for _, name := range []string{"do:price", "do:reserve", "do:charge"} {
			called := CallOp(r, &OpCall{Name: name, Def: call}, now)
			apply(called)
			apply(BeginAttempt(r, called.Step, now))
			done, _ := m.Finish(&Result{Run: r.ID, Step: called.Step, Attempt: 1, Output: output}, now, 0)
			apply(done)
		}
		apply(CallOp(r, &OpCall{Name: "sleep:cool-down", Due: now + int64(10*time.Hour)}, now))
		apply(Suspend(r, 1, now))
	}
	for _, r := range m.TakeChanged() {
		r.Seen()
	}
	return m
}

// heap returns the bytes in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// BenchmarkMemory measures the memory of a run that waits: as it is after its last record, restored
// from a snapshot, and restored without its cold parts.
func BenchmarkMemory(b *testing.B) {
	const n = 200_000
	for name, fill := range map[string]func(testing.TB, int) *Machine{"retrying": waiting, "sleeping": sleeping} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				m := fill(b, n)
				used := heap() - before
				now := m.at
				data := frames(m.Snapshot(), nil, 1000)
				b.ReportMetric(float64(used)/n, "B/run")
				b.ReportMetric(float64(len(data))/n, "B/stored-run")
				measure := func(metric string, restore func() (*Machine, error)) {
					before := heap() // without the machine, which is not used any more
					again, err := restore()
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(heap()-before)/n, metric)
					runtime.KeepAlive(again)
				}
				measure("B/restored-run", func() (*Machine, error) { return Restore(bytes.NewReader(data)) })
				measure("B/cold-run", func() (*Machine, error) { return RestoreAt(bytes.NewReader(data), now, true) })
				runtime.KeepAlive(data)
			}
		})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	m := waiting(b, 100_000)
	buf := make([]byte, 0, 8<<20)
	b.ReportAllocs()
	var size int
	var longest time.Duration
	for b.Loop() {
		size = 0
		s := m.Snapshot()
		for more := true; more; {
			begin := time.Now()
			buf, more = s.Next(buf[:0], 1000)
			longest = max(longest, time.Since(begin))
			size += len(buf)
		}
		s.Stop()
	}
	b.ReportMetric(float64(size)/100_000, "B/run")
	b.ReportMetric(float64(longest.Microseconds()), "µs/longest-frame")
}

func BenchmarkRestore(b *testing.B) {
	for name, fill := range map[string]func(testing.TB, int) *Machine{"retrying": waiting, "sleeping": sleeping} {
		b.Run(name, func(b *testing.B) {
			m := fill(b, 100_000)
			data := frames(m.Snapshot(), nil, 1000)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := RestoreAt(bytes.NewReader(data), m.at, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDue(b *testing.B) {
	data := frames(waiting(b, 100_000).Snapshot(), nil, 1000)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		m, err := Restore(bytes.NewReader(data))
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		b.StartTimer()
		m.Due(1<<62, 1<<30)
		if m.Waiting() != 0 {
			b.Fatal(fmt.Sprint(m.Waiting(), " timers are left"))
		}
	}
}
