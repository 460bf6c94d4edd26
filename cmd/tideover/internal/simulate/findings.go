package simulate

import (
	"fmt"
	"math"
	"strings"

	"github.com/tideover/tideover/sim"
)

// mostFindings limits the number of sentences.
const mostFindings = 3

// Findings returns the conclusions of the report as sentences, the most important first. A
// comparison is included only if it is significant.
func (v *View) Findings() []string {
	var list []string
	for _, say := range []func(*View) string{recoveryFinding, successFinding, attemptsFinding, peakFinding, latencyFinding} {
		if s := say(v); s != "" && len(list) < mostFindings {
			list = append(list, s)
		}
	}
	switch {
	case len(list) == 0 && len(v.Report.Results) == 1:
		list = append(list, fmt.Sprintf("%s of the calls succeed.", v.formatted(byName("success"), 0)))
	case v.Report.Seeds < 2 && len(v.Report.Results) > 1:
		list = append(list, "One seed can't show whether a difference is chance; use more with --seeds.")
	case len(list) == 0 && len(v.Report.Results) > 1:
		list = append(list, fmt.Sprintf("No difference between the policies is larger than chance in %d seeds.", v.Report.Seeds))
	}
	return list
}

// recoveryFinding says with which policies the service recovers.
func recoveryFinding(v *View) string {
	if !v.recoverable() {
		return ""
	}
	var never, some, always []string
	for i := range v.Report.Results {
		r := &v.Report.Results[i]
		switch lost := int(math.Round(r.NeverRecovers * float64(v.Report.Seeds))); lost {
		case 0:
			always = append(always, fmt.Sprintf("%s (after %s on average)", r.Name, second.value(r.Recovery.Mean)))
		case v.Report.Seeds:
			never = append(never, r.Name)
		default:
			some = append(some, fmt.Sprintf("%s (%s do)", r.Name, fraction(v.Report.Seeds-lost, v.Report.Seeds)))
		}
	}
	if len(never)+len(some) == 0 {
		return ""
	}
	seeds := fraction(v.Report.Seeds, v.Report.Seeds) + " seeds"
	var parts []string
	switch len(never) {
	case 0:
	case 1:
		parts = append(parts, fmt.Sprintf("%s never recovers, in %s", never[0], seeds))
	default:
		parts = append(parts, fmt.Sprintf("%s never recover, in %s", and(never), seeds))
	}
	if len(some) > 0 {
		parts = append(parts, "not all seeds recover with "+and(some))
	}
	if len(always) > 0 {
		parts = append(parts, "all seeds recover with "+and(always))
	}
	return strings.Join(parts, "; ") + "."
}

// successFinding says with which policy the most calls succeed.
func successFinding(v *View) string {
	m := byName("success")
	if most, least := v.extremes(m); v.get(m, most).Mean == 0 {
		return "No call succeeds with any policy."
	} else if n := v.best(m); n >= 0 {
		return fmt.Sprintf("Most calls succeed with %s: %s, compared to %s with %s.",
			v.name(n), v.formatted(m, n), v.formatted(m, least), v.name(least))
	} else if v.apart(m, least) {
		return fmt.Sprintf("Fewest calls succeed with %s: %s, compared to %s with %s.", v.name(least), v.formatted(m, least), v.formatted(m, most), v.name(most))
	}
	return ""
}

// attemptsFinding says which policy makes the fewest attempts.
func attemptsFinding(v *View) string {
	m := byName("attempts/call")
	n := v.best(m)
	_, least := v.extremes(m)
	if n < 0 {
		return ""
	}
	text := "%s makes the fewest attempts per call: %s, compared to %s with %s."
	if v.sameSuccess() && v.get(byName("success"), n).Mean > 0 {
		text = "About equally many calls succeed with each policy, and %s makes the fewest attempts: %s per call, compared to %s with %s."
	}
	return fmt.Sprintf(text, v.name(n), v.formatted(m, n), v.formatted(m, least), v.name(least))
}

// peakFinding says which policy has the lowest peak of retries.
func peakFinding(v *View) string {
	m := byName("peak retries")
	n := v.best(m)
	_, worst := v.extremes(m)
	if n < 0 {
		return ""
	}
	return fmt.Sprintf("At the peak, %s makes %s retries in %s, and %s %s.", v.name(worst), v.formatted(m, worst), v.bucket(), v.name(n), v.formatted(m, n))
}

// latencyFinding says which policy has the shortest tail, if that can be compared.
func latencyFinding(v *View) string {
	m := byName("latency p99")
	n := v.best(m)
	_, worst := v.extremes(m)
	if n < 0 {
		return ""
	}
	return fmt.Sprintf("99%% of the calls take %s or less with %s, and %s with %s.", v.formatted(m, n), v.name(n), v.formatted(m, worst), v.name(worst))
}

func byName(name string) *measure {
	for i := range measures {
		if measures[i].name == name {
			return &measures[i]
		}
	}
	return nil
}

// hasWaiting reports whether any call has waited in a queue.
func hasWaiting(r *sim.Report) bool {
	for i := range r.Results {
		for _, w := range r.Results[i].Series.Waiting {
			if w > 0 {
				return true
			}
		}
	}
	return false
}
