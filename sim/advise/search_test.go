//go:build !race

package advise_test

import (
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/sim"
	"github.com/tideover/tideover/sim/advise"
)

// These tests search in one goroutine each, and take ten times as long under
// the race detector, which the other tests of the package cover.

// busy is a service whose queue takes much longer than its latency.
var busy = advise.Service{Rate: 2, Capacity: 2.6, Latency: 50 * time.Millisecond}

func TestAGoalThatCanBeReached(t *testing.T) {
	t.Parallel()
	goal := advise.Goal{Success: 0.99, Amplification: 1.5, Recovery: 20 * time.Second}
	a := advice(t, advise.Request{Cases: service.Cases(goal)}, quickOptions)
	if !a.Reached || len(a.Misses) > 0 {
		t.Errorf("the goal is not reached: %+v", a.Misses)
	}
	p, err := retry.Parse(a.Policy)
	if err != nil || p.String() != a.Policy {
		t.Errorf("the policy is %q: %v, %q", a.Policy, err, p)
	}
	if p.Attempts < 2 || p.Jitter == (retry.Policy{}).Jitter || p.TotalTimeout != advise.DefaultDeadline {
		t.Errorf("2 %% of errors, and 1 %% allowed: advised %s", a.Policy)
	}
	for _, o := range a.Outcomes {
		if o.Goal.Success > 0 && o.Success.Mean < o.Goal.Success || o.Amplification.Mean+o.Amplification.Half > goal.Amplification {
			t.Errorf("%s: %+v does not reach its goal", o.Scenario, o)
		}
	}
	why := map[string]advise.Reason{}
	for _, r := range a.Reasons {
		why[r.For] = r
	}
	if r := why["retries"]; r.Measure != "success" || r.Without.Mean >= r.With.Mean {
		t.Errorf("the reason for retries is %+v; want that fewer calls succeed without", r)
	}
	if len(a.Trades) == 0 {
		t.Error("no word on what the retries cost")
	}
}

func TestAGoalThatNoPolicyReaches(t *testing.T) {
	t.Parallel()
	a := advice(t, advise.Request{Cases: service.Cases(advise.Goal{Success: 0.5, Through: 0.9999}), Deadline: 2 * time.Second}, quickOptions)
	for _, other := range a.Alternatives {
		if other.Reached {
			t.Errorf("no policy can reach the goal, but %s does", other.Policy)
		}
	}
	if a.Reached || len(a.Misses) != 1 {
		t.Fatalf("ten seconds of outage, and two of patience: reached %v, misses %+v", a.Reached, a.Misses)
	}
	m := a.Misses[0]
	if m.Goal != "through" || m.Scenario != "outage" || m.Got.Mean >= m.Want || m.Best >= m.Want || m.Best < m.Got.Mean-0.01 {
		t.Errorf("the miss is %+v", m)
	}
}

func TestWhatCanNotBeToldIsNotReached(t *testing.T) {
	t.Parallel()
	a := advice(t, advise.Request{Cases: service.Cases(advise.Goal{Success: 0.999999})}, quickOptions)
	if a.Reached || a.Misses[0].Goal != "success" {
		t.Errorf("a few thousand calls show one failure in a million: %+v", a)
	}
}

func TestABreakerSparesNothing(t *testing.T) {
	t.Parallel()
	a := advice(t, advise.Request{Cases: service.Cases(advise.Goal{Success: 0.9})}, quickOptions)
	if a.Breaker {
		t.Errorf("calls that a breaker refused count as load that was spared: %+v", a.Outcomes)
	}
}

func TestASimpleGoalNeedsNoRetries(t *testing.T) {
	t.Parallel()
	calm := service
	calm.Errors, calm.BlackHole = 0.0005, 1e-9
	a := advice(t, advise.Request{Cases: calm.Cases(advise.Goal{Success: 0.9})}, quickOptions)
	if p := retry.Must(a.Policy).Policy(); p.Attempts != 1 || len(a.Trades) > 0 {
		t.Errorf("hardly any error, and 10 %% allowed: advised %s", a.Policy)
	}
}

func TestAnOrdinaryDayCountsMoreThanLoad(t *testing.T) {
	t.Parallel()
	a := advice(t, advise.Request{Cases: service.Cases(advise.Goal{Success: 0.9})}, quickOptions)
	if day := a.Outcomes[0].Success.Mean; day < 0.99 || len(a.Losses) > 0 {
		t.Errorf("2 %% of errors: %s lets %v of the calls succeed, want as many as three attempts", a.Policy, day)
	}
	// Without retries, the calls that fail are lost, and the advice says so.
	a = advice(t, advise.Request{Cases: service.Cases(advise.Goal{Amplification: 1})}, quickOptions)
	if !a.Reached || len(a.Losses) != 1 || a.Losses[0].Other.Mean < 0.99 || a.Losses[0].Advised.Mean > 0.985 {
		t.Errorf("no retries allowed: %s, reached %v, losses %+v", a.Policy, a.Reached, a.Losses)
	}
}

// A service whose queue takes much longer than its latency needs patience, which a multiple of the latency does not
// give. The policies that reach the goals are plain ones.
func TestAPlainPolicyIsFound(t *testing.T) {
	t.Parallel()
	for _, r := range []advise.Request{
		{Cases: busy.Cases(advise.Goal{Success: 0.99})},
		{Cases: busy.Cases(advise.Goal{Through: 0.5}), Deadline: 2 * time.Minute},
	} {
		if a, err := advise.For(t.Context(), r, advise.Options{Seeds: 4}); err != nil || !a.Reached {
			t.Errorf("%+v: %v, %+v", r.Cases[0].Goal, err, a)
		}
	}
}

// One attempt with a short timeout lets less than half of the calls of this service succeed, and one that waits until
// the deadline 99 %.
func TestAGoalOutOfReachDoesNotSpoilTheDay(t *testing.T) {
	t.Parallel()
	a, err := advise.For(t.Context(), advise.Request{Cases: busy.Cases(advise.Goal{P99: 40 * time.Millisecond})}, advise.Options{Seeds: 4})
	if err != nil || a.Reached {
		t.Fatalf("%v: %+v", err, a)
	}
	if day := a.Outcomes[0].Success.Mean; day < 0.98 {
		t.Errorf("%s: %.2f %% of the calls succeed on an ordinary day; with one attempt and no timeout, 99 %%", a.Policy, 100*day)
	}
}

func TestWriters(t *testing.T) {
	t.Parallel()
	scenario, _ := sim.Preset("contention")
	scenario.Writers.Count = 10
	a := advice(t, advise.Request{Cases: []advise.Case{{Scenario: scenario, Goal: advise.Goal{Success: 0.99}}}}, advise.Options{})
	if p := retry.Must(a.Policy).Policy(); !a.Reached || p.Attempts < 2 || p.AttemptTimeout != 0 {
		t.Errorf("ten writers: %s, reached %v", a.Policy, a.Reached)
	}
}
