package cli

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/sim"
	"github.com/tideover/tideover/sim/advise"
)

// adviceLines renders advice as lines of text.
func adviceLines(a *advise.Advice, s *screen) []string {
	colour := "32"
	if !a.Reached {
		colour = "31"
	}
	lines := []string{s.paint(colour, visible(adviceVerdict(a))), "", s.paint("1", withBreaker(a.Policy, a.Breaker))}
	if len(a.Misses) > 0 {
		lines = append(lines, "")
	}
	for i := range a.Misses {
		lines = append(lines, "  "+visible(describeMiss(&a.Misses[i])))
	}
	return slices.Concat(lines, perProcessLines(a.Policy, a.Breaker), []string{""}, outcomeTable(a.Outcomes).render(s), capacityLines(a.Outcomes),
		[]string{
			"", s.paint("2", fmt.Sprintf("The table is the final measurement: at least as long as %s of each scenario.", textfmt.Plural(a.Checked, "run"))),
			s.paint("2", fmt.Sprintf("The comparisons below are from the search: %s each, with other seeds. Compare only values in the same line.", textfmt.Plural(a.Seeds, "run"))),
		},
		sectionLines(s, "Why", reasonLines(a.Reasons)),
		sectionLines(s, "Robust and arbitrary settings", choiceLines(a.Choices)),
		sectionLines(s, "Gains and costs, compared with one attempt", tradeLines(a.Trades)),
		sectionLines(s, "Alternatives", alternativeLines(a.Alternatives)),
		[]string{"", s.paint("2", fmt.Sprintf("The search tried %d policies in %d simulated runs with %s events, from seed %d. ± is a 95 %% interval.",
			a.Tried, a.Runs, magnitude(a.Events), a.Seed))})
}

// adviceVerdict says whether the policy reaches the goal, and what is better with another policy.
func adviceVerdict(a *advise.Advice) string {
	text := "This policy reaches the goal"
	switch {
	case a.Reached:
	case len(a.Misses) > 0 && !slices.ContainsFunc(a.Misses, func(m advise.Miss) bool { return !m.Uncertain() }):
		text = fmt.Sprintf("None of the %d policies that were tried reaches the goal for certain. This one may reach it", a.Tried)
	default:
		text = fmt.Sprintf("None of the %d policies that were tried reaches the goal. This one does the least harm", a.Tried)
	}
	for i, l := range a.Losses {
		joint, other := "; ", l.Policy
		if i == 0 {
			joint = ", but in some measures another policy is better: "
		}
		if l.Breaker {
			other += " and a breaker"
		}
		text += fmt.Sprintf("%s%s %s %s, with %s %s", joint, l.Scenario, measureName(l.Measure), formatEstimate(l.Measure, l.Advised), other, formatEstimate(l.Measure, l.Other))
	}
	text += "."
	if a.Unstable {
		text += " On an ordinary day its retries may overload the service by chance, and keep it overloaded."
	}
	return text
}

// perProcessLines says which parts of the policy each process has for itself, and which not all
// programs support.
func perProcessLines(policy string, breaker bool) []string {
	if strings.Contains(policy, "hedge=") {
		return []string{"Not every program supports a hedge, see docs/policy.md. Each process has its own limit of hedges, its own budget and its own breaker, if any."}
	}
	switch hasBudget := strings.Contains(policy, "budget="); {
	case hasBudget && breaker:
		return []string{"Each process has its own budget and its own breaker."}
	case hasBudget:
		return []string{"Each process has its own budget."}
	case breaker:
		return []string{"Each process has its own breaker."}
	}
	return nil
}

// sectionLines returns a heading and indented lines, or nothing if there are no lines.
func sectionLines(s *screen, head string, lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	out := []string{"", s.paint("1", head)}
	for _, line := range lines {
		out = append(out, "  "+visible(line))
	}
	return out
}

func withBreaker(policy string, breaker bool) string {
	if breaker {
		return policy + "\nwith a circuit breaker (default settings)"
	}
	return policy
}

// describeMiss says which goal is missed, and by how much.
func describeMiss(m *advise.Miss) string {
	text := fmt.Sprintf("%s: goal is %s, got %s", m.Scenario, describeGoal(m), formatEstimate(m.Goal, m.Got))
	switch {
	case m.Goal == "recovery" && m.Never > 0:
		text = fmt.Sprintf("%s: goal is recovery within %s, but the service never recovers in %s of the runs", m.Scenario, formatMeasure(m.Goal, m.Want), percent(m.Never))
	case m.Success > 0:
		return fmt.Sprintf("%s: goal is %s, got %s, but only %s of the calls succeed, and 99 %% must", m.Scenario, describeGoal(m), formatEstimate(m.Goal, m.Got), percent(m.Success))
	case m.Got.N == 0:
		return fmt.Sprintf("%s: goal is %s, but no call succeeds", m.Scenario, describeGoal(m))
	}
	if m.Uncertain() {
		return text + "; a part of this interval misses the goal"
	}
	if off := m.Best - m.Got.Mean; m.Got.N > 0 && math.Abs(off) > math.Max(m.Got.Half, 1e-4) {
		return text + fmt.Sprintf("; the best value of any policy is %s", formatMeasure(m.Goal, m.Best))
	}
	return text + ", which is the best value of any policy"
}

// describeGoal returns the goal that was missed, with its limit.
func describeGoal(m *advise.Miss) string {
	switch m.Goal {
	case "success":
		return "success of at least " + formatMeasure(m.Goal, m.Want)
	case "through":
		return "success of at least " + formatMeasure(m.Goal, m.Want) + " of the calls that begin during the outage"
	}
	return m.Goal + " of at most " + formatMeasure(m.Goal, m.Want)
}

func outcomeTable(list []advise.Outcome) *table {
	t := &table{heads: []string{"SCENARIO", "SUCCESS", "THROUGH", "P50", "P99", "LOAD", "RECOVERY", ""}}
	for _, o := range list {
		through := ""
		if o.OutageSuccess.N > 0 {
			through = formatEstimate("through", o.OutageSuccess)
		}
		t.add(plain(o.Scenario), plain(formatEstimate("success", o.Success)), plain(through), plain(formatEstimate("p50", o.P50)), plain(formatEstimate("p99", o.P99)),
			plain(formatEstimate("amplification", o.Amplification)), plain(describeRecovery(&o)), plain(describeGoals(o.Goal)))
	}
	return t
}

// describeGoals lists the goals of a scenario, for the last column of the table.
func describeGoals(g advise.Goal) string {
	var parts []string
	add := func(set bool, format, measure string, v float64) {
		if set {
			parts = append(parts, fmt.Sprintf(format, formatMeasure(measure, v)))
		}
	}
	add(g.Success > 0, "success >= %s", "success", g.Success)
	add(g.Through > 0, "through >= %s", "through", g.Through)
	add(g.P99 > 0, "p99 <= %s", "p99", g.P99.Seconds())
	add(g.Amplification > 0, "load <= %s", "amplification", g.Amplification)
	add(g.Recovery > 0, "recovery <= %s", "recovery", g.Recovery.Seconds())
	return optional("goal: ", strings.Join(parts, ", "), "")
}

// capacityLines says which capacity was simulated, if it is the same in all scenarios.
func capacityLines(list []advise.Outcome) []string {
	first := list[0].Capacity
	if first == 0 || slices.ContainsFunc(list, func(o advise.Outcome) bool { return o.Capacity != first }) {
		return nil
	}
	return []string{"", fmt.Sprintf("Simulated capacity: %s calls per second.", strconv.FormatFloat(first, 'f', -1, 64))}
}

// choiceLines returns a line for each setting: whether other values would do as well.
func choiceLines(list []advise.Choice) (lines []string) {
	for _, c := range list {
		kind := "robust"
		var parts []string
		if len(c.Ties) > 0 {
			kind = "arbitrary"
			parts = append(parts, "no difference with "+strings.Join(c.Ties, " or "))
		}
		for _, d := range c.Differ {
			effect := "worse"
			if d.Better {
				effect, kind = "better", "trade-off"
			}
			parts = append(parts, fmt.Sprintf("%s is %s (%s %s instead of %s)", d.Value, effect, d.Scenario+" "+measureName(d.Measure),
				formatMeasure(d.Measure, d.Other.Mean), formatMeasure(d.Measure, d.Policy.Mean)))
		}
		lines = append(lines, fmt.Sprintf("%-19s  %s: %s", c.Setting+" "+c.Value, kind, strings.Join(parts, "; ")))
	}
	return lines
}

func reasonLines(list []advise.Reason) (lines []string) {
	for _, r := range list {
		text := "no measurable effect in these scenarios"
		switch {
		case r.Never > 0:
			text = fmt.Sprintf("%s: without %s, the service never recovers in %s of the runs", r.Scenario, pronoun(r.For), percent(r.Never))
		case r.Measure != "":
			text = fmt.Sprintf("%s: %s %s, without %s %s", r.Scenario, measureName(r.Measure), formatEstimate(r.Measure, r.With), pronoun(r.For), formatEstimate(r.Measure, r.Without))
		case r.For == "jitter":
			text += "; it spreads the retries of callers that fail at the same time"
		case r.For == "the attempt timeout":
			text += "; it ends calls that never get an answer"
		}
		lines = append(lines, fmt.Sprintf("%-19s  %s", r.For, text))
	}
	return lines
}

// pronoun returns the pronoun for a part of a policy.
func pronoun(part string) string {
	if part == "retries" {
		return "them"
	}
	return "it"
}

// tradeLines returns one line per scenario: the measures that the policy improves, and the measures
// that it worsens, compared with one attempt.
func tradeLines(list []advise.Trade) (lines []string) {
	for len(list) > 0 {
		n := slices.IndexFunc(list, func(t advise.Trade) bool { return t.Scenario != list[0].Scenario })
		if n < 0 {
			n = len(list)
		}
		changes := map[bool][]string{}
		for _, t := range list[:n] {
			changes[t.Better] = append(changes[t.Better], fmt.Sprintf("%s %s -> %s", measureName(t.Measure),
				formatMeasure(t.Measure, t.Single.Mean), formatMeasure(t.Measure, t.Policy.Mean)))
		}
		better := optional("better: ", strings.Join(changes[true], ", "), "; ")
		worse := optional("worse: ", strings.Join(changes[false], ", "), "")
		lines = append(lines, list[0].Scenario+": "+strings.TrimSuffix(better+worse, "; "))
		list = list[n:]
	}
	return lines
}

func alternativeLines(list []advise.Alternative) (lines []string) {
	for _, a := range list {
		note := ""
		if !a.Reached {
			note = " (narrowly misses the goal)"
		}
		lines = append(lines, fmt.Sprintf("for %s%s:", a.For, note), "  "+strings.ReplaceAll(withBreaker(a.Policy, a.Breaker), "\n", " "))
		for _, o := range a.Outcomes {
			lines = append(lines, fmt.Sprintf("  %s: success %s, p99 %s, load %s%s", o.Scenario, formatMeasure("success", o.Success.Mean), formatEstimate("p99", o.P99),
				formatEstimate("amplification", o.Amplification), optional(", recovery ", describeRecovery(&o), "")))
		}
	}
	return lines
}

// describeRecovery returns how fast the service recovers; empty if there is nothing to recover from.
func describeRecovery(o *advise.Outcome) string {
	switch {
	case o.NeverRecovers > 0:
		return "none in " + percent(o.NeverRecovers)
	case o.Recovery.N > 0 && (o.Recovery.Mean >= 0.001 || o.Goal.Recovery > 0):
		return formatEstimate("recovery", o.Recovery)
	}
	return ""
}

// measureName returns the name that the output uses for a measure.
func measureName(measure string) string {
	names := map[string]string{"amplification": "load", "peak": "attempts in the worst second", "never": "runs without a recovery"}
	return cmp.Or(names[measure], measure)
}

// formatEstimate formats an estimate with its unit; "none" if it has no samples.
func formatEstimate(measure string, e sim.Estimate) string {
	if e.N == 0 {
		return "none"
	}
	text := formatMeasure(measure, e.Mean)
	if e.Half > 0 && (measure == "success" || measure == "through") {
		return text + " ±" + strconv.FormatFloat(100*e.Half, 'g', 2, 64)
	}
	return text
}

// formatMeasure formats the value of a measure with its unit.
func formatMeasure(measure string, v float64) string {
	switch measure {
	case "success", "through", "never":
		return percent(v)
	case "amplification":
		return strconv.FormatFloat(v, 'f', 2, 64)
	case "peak":
		return strconv.FormatFloat(v, 'f', 0, 64)
	case "recovery":
		if v < 0.001 {
			return "at once"
		}
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + " s"
}

// percent formats a share between 0 and 1. It uses up to five decimals, so that 0.99999 does not
// look like 100 %.
func percent(v float64) string {
	digits := 2
	for rest := 1 - v; rest > 0 && rest < 0.001 && digits < 5; rest *= 10 {
		digits++
	}
	text := strconv.FormatFloat(100*v, 'f', digits, 64)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".") + " %"
}

func magnitude(n int) string {
	if n < 1e6 {
		return strconv.Itoa(n)
	}
	return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + " million"
}
