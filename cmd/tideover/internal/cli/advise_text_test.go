package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/sim"
	"github.com/tideover/tideover/sim/advise"
)

func TestAdviceSaysWhereItsValuesComeFrom(t *testing.T) {
	t.Parallel()
	estimate := sim.Estimate{Mean: 0.99, N: 8}
	lines := adviceLines(&advise.Advice{
		Policy: "exponential(1s) attempts=2 budget=refund(1,0.1,10)", Breaker: true, Reached: true,
		Outcomes: []advise.Outcome{{Scenario: "outage"}}, Seeds: 8, Checked: 40,
		Reasons: []advise.Reason{
			{For: "retries", Scenario: "outage", Measure: "success", With: estimate, Without: estimate},
			{For: "the budget", Scenario: "outage", Never: 0.5},
		},
		Choices: []advise.Choice{{Setting: "base", Value: "1s", Ties: []string{"2s", "4s"}, Differ: []advise.Difference{
			{Value: "5s", Scenario: "outage", Measure: "recovery", Policy: sim.Estimate{N: 8}, Other: sim.Estimate{Mean: 3.5, N: 8}},
		}}},
		Alternatives: []advise.Alternative{{Policy: "fixed(1s) attempts=2", For: "less load", Reached: true, Outcomes: []advise.Outcome{
			{Scenario: "outage", Goal: advise.Goal{Recovery: time.Second}, Measures: sim.Measures[sim.Estimate]{
				Success: estimate, P99: sim.Estimate{Mean: 2, N: 8}, Amplification: sim.Estimate{Mean: 1.5, N: 8}, Recovery: sim.Estimate{N: 8},
			}},
		}}},
	}, new(screen))
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		"budget=refund(1,0.1,10)\nwith a circuit breaker (default settings)\nEach process has its own budget and its own breaker.\n",
		"The table is the final measurement: at least as long as 40 runs of each scenario.\nThe comparisons below are from the search: 8 runs each, with other seeds.",
		"arbitrary: no difference with 2s or 4s; 5s is worse (outage recovery 3.5 s instead of at once)",
		"    fixed(1s) attempts=2\n    outage: success 99 %, p99 2 s, load 1.50, recovery at once\n",
		"success 99 %, without them 99 %",
		"without it, the service never recovers in 50 % of the runs",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the advice is\n%s\nwant %q in it", text, want)
		}
	}
	if lines[0] != "This policy reaches the goal." {
		t.Errorf("the first line is %q", lines[0])
	}
	if table, note := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "SCENARIO") }), slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "The table is") }); table > note {
		t.Error("the note is above the table")
	}
}

func TestTheFirstLineSaysWhatTheGoalCosts(t *testing.T) {
	t.Parallel()
	estimate := func(v float64) sim.Estimate { return sim.Estimate{Mean: v, N: 8} }
	a := &advise.Advice{
		Policy: "fixed(0s) attempts=1", Reached: true, Outcomes: []advise.Outcome{{Scenario: "ordinary"}},
		Losses: []advise.Loss{{Scenario: "ordinary", Measure: "success", Policy: "fixed(1s) attempts=3", Advised: estimate(0.22), Other: estimate(0.9)}},
	}
	if got, want := adviceLines(a, new(screen))[0], "This policy reaches the goal, but in some measures another policy is better: ordinary success 22 %, with fixed(1s) attempts=3 90 %."; got != want {
		t.Errorf("the first line is %q, want %q", got, want)
	}
	a.Reached, a.Tried = false, 7
	a.Losses = []advise.Loss{
		{Scenario: "outage", Measure: "recovery", Policy: "fixed(0s) attempts=1", Breaker: true, Advised: estimate(87.9), Other: estimate(60)},
		{Scenario: "brownout", Measure: "never", Policy: "fixed(1s) attempts=3", Advised: estimate(0.5), Other: estimate(0)},
	}
	if got, want := adviceLines(a, new(screen))[0], "None of the 7 policies that were tried reaches the goal. This one does the least harm, but in some measures another policy is better: "+
		"outage recovery 87.9 s, with fixed(0s) attempts=1 and a breaker 60 s; brownout runs without a recovery 50 %, with fixed(1s) attempts=3 0 %."; got != want {
		t.Errorf("the first line is %q, want %q", got, want)
	}
	a.Losses = nil
	if got, want := adviceLines(a, new(screen))[0], "None of the 7 policies that were tried reaches the goal. This one does the least harm."; got != want {
		t.Errorf("the first line is %q, want %q", got, want)
	}
	a.Misses = []advise.Miss{{Goal: "success", Scenario: "ordinary", Want: 0.999, Got: sim.Estimate{Mean: 0.99906, Half: 0.0002, N: 8}, Best: 0.99906}}
	lines := adviceLines(a, new(screen))
	if got, want := lines[0], "None of the 7 policies that were tried reaches the goal for certain. This one may reach it."; got != want {
		t.Errorf("the first line is %q, want %q", got, want)
	}
	if text, want := strings.Join(lines, "\n"), "ordinary: goal is success of at least 99.9 %, got 99.906 % ±0.02; a part of this interval misses the goal"; !strings.Contains(text, want) {
		t.Errorf("the advice is\n%s\nwant %q in it", text, want)
	}
}
