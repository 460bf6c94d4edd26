package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tideover/tideover/sim"
	"github.com/tideover/tideover/sim/advise"
)

// adviceLines puts advice into words.
func adviceLines(a *advise.Advice, s *screen) []string {
	lines := []string{s.paint("1", withBreaker(a.Policy, a.Breaker)), ""}
	if a.Reached {
		lines = append(lines, s.paint("32", "It reaches the goal."))
	} else {
		lines = append(lines, s.paint("31", fmt.Sprintf("It does not reach the goal, and neither does any other of the %d that were tried.", a.Tried)))
		for i := range a.Misses {
			lines = append(lines, "  "+visible(missed(&a.Misses[i])))
		}
	}
	lines = append(lines, "")
	lines = append(lines, outcomeTable(a.Outcomes).render(s)...)
	lines = append(lines, chapter(s, "Why", reasonLines(a.Reasons))...)
	lines = append(lines, chapter(s, "What it brings and costs, compared with one attempt", tradeLines(a.Trades))...)
	lines = append(lines, chapter(s, "Instead", alternativeLines(a.Alternatives))...)
	return append(lines, "", s.paint("2", fmt.Sprintf("%d policies, %d runs, %s events, %d seeds at the end; seed %d. ± is a 95 %% interval.",
		a.Tried, a.Runs, magnitude(a.Events), a.Seeds, a.Seed)))
}

func chapter(s *screen, head string, lines []string) []string {
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
		return policy + "\nwith a breaker beside it, as by default"
	}
	return policy
}

// missed says what is missed, and by how much.
func missed(m *advise.Miss) string {
	text := fmt.Sprintf("%s: %s is wanted, %s is reached", m.Scenario, wanted(m), got(m.Goal, m.Got))
	switch {
	case m.Goal == "recovery" && m.Never > 0:
		text = fmt.Sprintf("%s: recovery within %s is wanted, and in %s of the runs there is none", m.Scenario, value(m.Goal, m.Want), percent(m.Never))
	case m.Got.N == 0:
		return fmt.Sprintf("%s: %s is wanted, and no call succeeds", m.Scenario, wanted(m))
	}
	if off := m.Best - m.Got.Mean; m.Got.N > 0 && math.Abs(off) > math.Max(m.Got.Half, 1e-4) {
		return text + fmt.Sprintf("; the best that any policy has there, whatever else it misses, is %s", value(m.Goal, m.Best))
	}
	return text + ", which is the best that any policy has"
}

func wanted(m *advise.Miss) string {
	if m.Goal == "success" {
		return "success of " + value(m.Goal, m.Want)
	}
	return m.Goal + " of at most " + value(m.Goal, m.Want)
}

func outcomeTable(list []advise.Outcome) *table {
	t := &table{heads: []string{"SCENARIO", "SUCCESS", "P50", "P99", "LOAD", "RECOVERY", ""}}
	for _, o := range list {
		recovery := ""
		switch {
		case o.NeverRecovers > 0:
			recovery = "none in " + percent(o.NeverRecovers)
		case o.Recovery.Mean >= 0.001:
			recovery = got("recovery", o.Recovery)
		case o.Goal.Recovery > 0:
			recovery = "at once"
		}
		t.add(plain(o.Scenario), plain(got("success", o.Success)), plain(got("p50", o.P50)), plain(got("p99", o.P99)),
			plain(got("amplification", o.Amplification)), plain(recovery), plain(wishes(o.Goal)))
	}
	return t
}

// wishes says what was wanted of a scenario.
func wishes(g advise.Goal) string {
	var parts []string
	add := func(set bool, format, measure string, v float64) {
		if set {
			parts = append(parts, fmt.Sprintf(format, value(measure, v)))
		}
	}
	add(g.Success > 0, "success >= %s", "success", g.Success)
	add(g.P99 > 0, "p99 <= %s", "p99", g.P99.Seconds())
	add(g.Amplification > 0, "load <= %s", "amplification", g.Amplification)
	add(g.Recovery > 0, "recovery <= %s", "recovery", g.Recovery.Seconds())
	if len(parts) == 0 {
		return ""
	}
	return "wanted: " + strings.Join(parts, ", ")
}

func reasonLines(list []advise.Reason) (lines []string) {
	for _, r := range list {
		text := "shows nowhere here"
		switch {
		case r.Never > 0:
			text = fmt.Sprintf("%s: without, there is no recovery in %s of the runs", r.Scenario, percent(r.Never))
		case r.Measure != "":
			text = fmt.Sprintf("%s: %s %s, without %s", r.Scenario, measureName(r.Measure), got(r.Measure, r.With), got(r.Measure, r.Without))
		case r.For == "jitter":
			text += "; it is for callers that fail in step"
		case r.For == "the attempt timeout":
			text += "; it is for calls that are never answered"
		}
		lines = append(lines, fmt.Sprintf("%-19s  %s", r.For, text))
	}
	return lines
}

// tradeLines has a line for each scenario: what is better, then what is worse.
func tradeLines(list []advise.Trade) (lines []string) {
	for len(list) > 0 {
		n := slices.IndexFunc(list, func(t advise.Trade) bool { return t.Scenario != list[0].Scenario })
		if n < 0 {
			n = len(list)
		}
		var parts []string
		for _, better := range []bool{true, false} {
			var changes []string
			for _, t := range list[:n] {
				if t.Better == better {
					changes = append(changes, fmt.Sprintf("%s %s -> %s", measureName(t.Measure), value(t.Measure, t.Single.Mean), value(t.Measure, t.Policy.Mean)))
				}
			}
			if len(changes) > 0 {
				parts = append(parts, map[bool]string{true: "better: ", false: "worse: "}[better]+strings.Join(changes, ", "))
			}
		}
		lines = append(lines, list[0].Scenario+": "+strings.Join(parts, "; "))
		list = list[n:]
	}
	return lines
}

func alternativeLines(list []advise.Alternative) (lines []string) {
	for _, a := range list {
		note := ""
		if !a.Reached {
			note = " (does not quite reach the goal)"
		}
		lines = append(lines, fmt.Sprintf("for %s%s:", a.For, note), "  "+strings.ReplaceAll(withBreaker(a.Policy, a.Breaker), "\n", " "))
	}
	return lines
}

func measureName(measure string) string {
	switch measure {
	case "amplification":
		return "load"
	case "peak":
		return "attempts in the worst second"
	default:
		return measure
	}
}

// got writes an estimate.
func got(measure string, e sim.Estimate) string {
	if e.N == 0 {
		return "none"
	}
	text := value(measure, e.Mean)
	if e.Half > 0 && measure == "success" {
		return text + " ±" + strconv.FormatFloat(100*e.Half, 'g', 2, 64)
	}
	return text
}

// value writes a number in its unit.
func value(measure string, v float64) string {
	switch measure {
	case "success":
		return percent(v)
	case "amplification":
		return strconv.FormatFloat(v, 'f', 2, 64)
	case "peak":
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64) + " s"
	}
}

// percent writes a share, with as many digits as are needed to tell it from all.
func percent(v float64) string {
	digits := 2
	for rest := 1 - v; rest > 0 && rest < 0.001 && digits < 5; rest *= 10 {
		digits++
	}
	text := strconv.FormatFloat(100*v, 'f', digits, 64)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".") + " %"
}

func magnitude(n int) string {
	switch {
	case n >= 1e6:
		return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + " million"
	default:
		return strconv.Itoa(n)
	}
}
