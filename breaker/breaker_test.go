package breaker_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/breaker"
)

func TestNewReportsNilOptionsWithTheRest(t *testing.T) {
	t.Parallel()
	_, err := breaker.New(breaker.Config{Probes: -1}, breaker.WithName("mail"), breaker.WithObserver(nil), breaker.WithRand(nil))
	want := "breaker \"mail\": probes: -1 is negative\nobserver: is nil\nrand: is nil"
	if err == nil || err.Error() != want {
		t.Errorf("New\n got %v\nwant %v", err, want)
	}
}

func TestMustPanicsOnABadConfig(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("Must did not panic")
		}
	}()
	breaker.Must(breaker.Config{Probes: -1})
}

func TestAllowAllocatesNothing(t *testing.T) {
	for name, c := range map[string]breaker.Config{
		"calls": {WindowCalls: 10}, "time": {}, "slow": {SlowCall: time.Minute},
	} {
		b := breaker.Must(c)
		n := testing.AllocsPerRun(100, func() {
			p, _ := b.Allow()
			p.Done(breaker.Success)
		})
		if n != 0 {
			t.Errorf("%s: Allow and Done allocate %v times, want 0", name, n)
		}
	}
}

func TestFailuresAllocateNothingInSteadyState(t *testing.T) {
	b := breaker.Must(breaker.Config{WindowCalls: 20})
	mixed(b, 0, 1000)
	if n := testing.AllocsPerRun(100, func() { mixed(b, 0, 100) }); n != 0 {
		t.Errorf("100 calls of which 10 fail allocate %v times, want 0", n)
	}
}

func TestForceAndResetByTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		b := breaker.Must(breaker.Config{}, breaker.WithObserver(r.observe))
		if err := b.Force(breaker.ForcedOpen); err != nil {
			t.Fatal(err)
		}
		if got, open := b.State(), b.OpenFor(); got != breaker.ForcedOpen || open != math.MaxInt64 {
			t.Errorf("State(), OpenFor() = %v, %v, want forced-open without end", got, open)
		}
		time.Sleep(time.Minute)
		b.Reset()
		if got := b.State(); got != breaker.Closed {
			t.Errorf("State() = %v, want closed", got)
		}
		if got := r.events[1].At - r.events[0].At; got != time.Minute {
			t.Errorf("the events are %v apart, want 1m", got)
		}
	})
}

func TestForcedOpenRefusesUntilReset(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{})
	if err := b.ForceAt(0, breaker.ForcedOpen); err != nil {
		t.Fatal(err)
	}
	if e := refuse(t, b, time.Hour); e.State != breaker.ForcedOpen || e.For != math.MaxInt64 {
		t.Errorf("refused with %+v, want State forced-open and For without end", e)
	}
	if got := b.OpenForAt(time.Hour); got != math.MaxInt64 {
		t.Errorf("OpenForAt = %v, want MaxInt64", got)
	}
	b.ResetAt(time.Hour)
	call(t, b, time.Hour, breaker.Success)
	wantState(t, b, time.Hour, breaker.Closed)
}

func TestForcedClosedCountsAndNeverOpens(t *testing.T) {
	t.Parallel()
	b := breaker.Must(fragile)
	call(t, b, 0, breaker.Failure)
	if err := b.ForceAt(0, breaker.ForcedClosed); err != nil {
		t.Fatal(err)
	}
	calls(t, b, 0, 30, breaker.Failure)
	wantState(t, b, 0, breaker.ForcedClosed)
	wantCounts(t, b, 0, breaker.Counts{Calls: 30, Failures: 30, ConsecutiveFailures: 30})
	b.ResetAt(0)
	wantCounts(t, b, 0, breaker.Counts{})
	call(t, b, 0, breaker.Failure)
	if got := b.OpenForAt(0); got != 5*sec {
		t.Errorf("OpenForAt after Reset and a failure = %v, want 5s", got)
	}
}

func TestResetOfAClosedBreakerForgetsItsCounts(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{WindowCalls: 10})
	calls(t, b, 0, 3, breaker.Failure)
	p := allow(t, b, 0)
	b.ResetAt(0)
	p.DoneAt(0, breaker.Failure)
	wantCounts(t, b, 0, breaker.Counts{})
}

func TestOnlyForcedStatesCanBeForced(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{}, breaker.WithName("mail"))
	for _, s := range []breaker.State{breaker.Closed, breaker.HalfOpen, breaker.Open, 9} {
		err := b.ForceAt(0, s)
		want := `breaker "mail": cannot force ` + s.String() + `, only forced-open and forced-closed`
		if err == nil || err.Error() != want {
			t.Errorf("ForceAt(0, %v) = %v, want %v", s, err, want)
		}
		wantState(t, b, 0, breaker.Closed)
	}
}

func TestShutForIsWhatIsCertain(t *testing.T) {
	t.Parallel()
	b := breaker.Must(fragile)
	if got := b.ShutFor(); got != 0 {
		t.Errorf("closed: ShutFor() = %v, want 0", got)
	}
	call(t, b, 0, breaker.Failure)
	probe := func() { allow(t, b, 5*sec) }
	for _, tt := range []struct {
		name       string
		now        time.Duration
		do         func()
		shut, open time.Duration
	}{
		{"open", 2 * sec, nil, 3 * sec, 3 * sec},
		{"open for as long as it should be", 5 * sec, nil, 0, 0},
		{"half-open with its probe under way, which may come back at any moment", 6 * sec, probe, 0, 29 * sec},
	} {
		if tt.do != nil {
			tt.do()
		}
		if shut, open := b.ShutForAt(tt.now), b.OpenForAt(tt.now); shut != tt.shut || open != tt.open {
			t.Errorf("%s: ShutForAt, OpenForAt = %v, %v, want %v, %v", tt.name, shut, open, tt.shut, tt.open)
		}
	}
	if err := b.ForceAt(0, breaker.ForcedOpen); err != nil {
		t.Fatal(err)
	}
	if got := b.ShutFor(); got != math.MaxInt64 {
		t.Errorf("forced open: ShutFor() = %v, want no end", got)
	}
}
