package breaker_test

import (
	"testing"
	"time"

	"github.com/tideover/tideover/breaker"
)

// halfOpen returns a breaker whose open time is over at 5 s.
func halfOpen(t *testing.T, c breaker.Config, opts ...breaker.Option) *breaker.Breaker {
	t.Helper()
	c.FailureRate, c.ConsecutiveFailures, c.Open = breaker.Off, 1, fiveSeconds
	b := breaker.Must(c, opts...)
	call(t, b, 0, breaker.Failure)
	return b
}

func TestOneProbeAtATime(t *testing.T) {
	t.Parallel()
	b := halfOpen(t, breaker.Config{})
	p := allow(t, b, 5*sec)
	if e := refuse(t, b, 6*sec); e.State != breaker.HalfOpen || e.For != 29*sec {
		t.Errorf("the second probe was refused with %+v, want State half-open and For 29s", e)
	}
	p.DoneAt(6*sec, breaker.Success)
	wantState(t, b, 6*sec, breaker.Closed)
}

// Another probe starts when a probe hangs. Two other libraries wait for it for ever.
func TestAHungProbeExpiresAndMakesRoomForAnother(t *testing.T) {
	t.Parallel()
	b := halfOpen(t, breaker.Config{ProbeTimeout: 10 * sec})
	_ = allow(t, b, 5*sec) // never reports
	if e := refuse(t, b, 15*sec-1); e.For != 1 {
		t.Errorf("refused just before the timeout for %v, want 1ns", e.For)
	}
	call(t, b, 15*sec, breaker.Success)
	wantState(t, b, 15*sec, breaker.Closed)
}

func TestAProbeLongerThanItsTimeoutStillCloses(t *testing.T) {
	t.Parallel()
	b := halfOpen(t, breaker.Config{ProbeTimeout: sec})
	first := allow(t, b, 5*sec)
	for i := range 50 {
		_ = allow(t, b, time.Duration(6+i)*sec)
	}
	first.DoneAt(60*sec, breaker.Success)
	wantState(t, b, 60*sec, breaker.Closed)
}

func TestLostProbesDoNotUseUpMemory(t *testing.T) {
	t.Parallel()
	b := halfOpen(t, breaker.Config{ProbeTimeout: 1})
	forgotten := allow(t, b, 5*sec)
	last := forgotten
	for i := range 1000 {
		last = allow(t, b, 5*sec+time.Duration(i)+1)
	}
	forgotten.DoneAt(6*sec, breaker.Failure)
	wantState(t, b, 6*sec, breaker.HalfOpen)
	last.DoneAt(6*sec, breaker.Success)
	wantState(t, b, 6*sec, breaker.Closed)
}

func TestACanceledProbeMakesRoomAndCountsNothing(t *testing.T) {
	t.Parallel()
	b := halfOpen(t, breaker.Config{})
	for range 10 {
		call(t, b, 5*sec, breaker.Canceled)
	}
	wantState(t, b, 5*sec, breaker.HalfOpen)
	wantCounts(t, b, 5*sec, breaker.Counts{})
	call(t, b, 5*sec, breaker.Success)
	wantState(t, b, 5*sec, breaker.Closed)
}

func TestAProbeReportsOnce(t *testing.T) {
	t.Parallel()
	b := halfOpen(t, breaker.Config{ProbeSuccesses: 3})
	p := allow(t, b, 5*sec)
	for range 5 {
		p.DoneAt(5*sec, breaker.Success)
	}
	wantState(t, b, 5*sec, breaker.HalfOpen)
	wantCounts(t, b, 5*sec, breaker.Counts{Calls: 1})
	p.DoneAt(5*sec, breaker.Failure)
	wantState(t, b, 5*sec, breaker.HalfOpen)
}

func TestSeveralProbesAndSeveralSuccesses(t *testing.T) {
	t.Parallel()
	b := halfOpen(t, breaker.Config{Probes: 2, ProbeSuccesses: 3})
	p, q := allow(t, b, 5*sec), allow(t, b, 6*sec)
	if e := refuse(t, b, 7*sec); e.For != 28*sec {
		t.Errorf("the third probe was refused for %v, want 28s, when the first expires", e.For)
	}
	p.DoneAt(7*sec, breaker.Success)
	r := allow(t, b, 7*sec)
	q.DoneAt(8*sec, breaker.Success)
	wantState(t, b, 8*sec, breaker.HalfOpen)
	r.DoneAt(8*sec, breaker.Success)
	wantState(t, b, 8*sec, breaker.Closed)
}

func TestAFailedProbeOpensAndTheOthersNoLongerCount(t *testing.T) {
	t.Parallel()
	b := halfOpen(t, breaker.Config{Probes: 3})
	p, q, r := allow(t, b, 5*sec), allow(t, b, 5*sec), allow(t, b, 5*sec)
	p.DoneAt(6*sec, breaker.Failure)
	wantState(t, b, 6*sec, breaker.Open)
	q.DoneAt(7*sec, breaker.Success)
	wantState(t, b, 7*sec, breaker.Open)

	s := allow(t, b, 11*sec)
	r.DoneAt(11*sec, breaker.Failure) // a probe of the half-open state before
	wantState(t, b, 11*sec, breaker.HalfOpen)
	s.DoneAt(11*sec, breaker.Success)
	wantState(t, b, 11*sec, breaker.Closed)
}

func TestASlowProbeOpensAgain(t *testing.T) {
	t.Parallel()
	var last breaker.Event
	b := halfOpen(t, breaker.Config{SlowCall: sec}, breaker.WithObserver(func(e breaker.Event) { last = e }))
	allow(t, b, 5*sec).DoneAt(6*sec, breaker.Success)
	wantState(t, b, 6*sec, breaker.Open)
	want := breaker.Event{
		From: breaker.HalfOpen, To: breaker.Open, At: 6 * sec, Cause: breaker.CauseProbeSlow,
		Counts: breaker.Counts{Calls: 1, Slow: 1}, OpenFor: 5 * sec,
	}
	if last != want {
		t.Errorf("event\n got %+v\nwant %+v", last, want)
	}
}

func TestOpenForIsZeroWheneverACallWouldPass(t *testing.T) {
	t.Parallel()
	b := halfOpen(t, breaker.Config{Probes: 2})
	for _, now := range []time.Duration{5 * sec, 6 * sec} {
		if got := b.OpenForAt(now); got != 0 {
			t.Errorf("OpenForAt(%v) = %v, want 0", now, got)
		}
		_ = allow(t, b, now)
	}
	if got := b.OpenForAt(6 * sec); got != 29*sec {
		t.Errorf("OpenForAt(6s) with both probes under way = %v, want 29s", got)
	}
	if got := b.OpenForAt(35 * sec); got != 0 {
		t.Errorf("OpenForAt(35s) with an expired probe = %v, want 0", got)
	}
}
