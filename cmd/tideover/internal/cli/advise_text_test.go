package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/sim"
	"github.com/tideover/tideover/sim/advise"
)

func TestAdviceSaysWhichSeedsItsValuesHave(t *testing.T) {
	t.Parallel()
	estimate := sim.Estimate{Mean: 0.99, N: 8}
	lines := adviceLines(&advise.Advice{
		Outcomes: []advise.Outcome{{Scenario: "outage"}}, Seeds: 8, Checked: 40,
		Reasons: []advise.Reason{
			{For: "retries", Scenario: "outage", Measure: "success", With: estimate, Without: estimate},
			{For: "the budget", Scenario: "outage", Never: 0.5},
		},
	}, new(screen))
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		"from the 8 seeds of the search, which are not among the 40 of the table", "success 99 %, without them 99 %",
		"without it, the service never recovers in 50 % of the runs",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the advice is\n%s\nwant %q in it", text, want)
		}
	}
	if table, note := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "SCENARIO") }), slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "The values below") }); table > note {
		t.Error("the note is above the table")
	}
}
