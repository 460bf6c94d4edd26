package api

import "testing"

func TestChartsOfWorkflowsThatHaveNone(t *testing.T) {
	t.Parallel()
	f := serve(t)
	for query, want := range map[string]string{
		"workflow=ecko":                    `unknown workflow "ecko"`,
		"workflow=notify.phone":            `"notify.phone" is an internal workflow, whose runs are not counted`,
		"workflow=notify.phone&range=year": `"notify.phone" is an internal workflow, whose runs are not counted`,
		"workflow=ecko&range=year":         `unknown range "year"`,
	} {
		got := f.ask(false, "GET", Prefix+"charts?"+query, "")
		if p := got.problem(t); p.Message != want {
			t.Errorf("charts?%s: %d %s, want %s", query, got.status, got.text, want)
		}
	}
	if p := f.ask(false, "GET", Prefix+"charts?workflow=ecko", "").problem(t); p.Hint != `did you mean "echo"?` {
		t.Errorf("the hint is %q", p.Hint)
	}
}
