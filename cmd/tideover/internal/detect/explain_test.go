package detect

import (
	"strings"
	"testing"
	"time"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	output := strings.Join([]string{
		"5-hour limit reached ∙ resets 1pm", // line 1: too far up
		strings.Repeat("more\n", 20) + `{"type":"rate_limit_event","status":"pending"}`,
		"429 Too Many Requests", // line 23
		"529 Overloaded · Retrying in 4s · attempt 6/10",
		"The test says that the 5-hour limit reached ∙ resets 2pm.",
		"You've hit your session limit",
		"5-hour limit reached ∙ resets 3pm",
		"You've hit your session limit", // line 28
	}, "\n")
	d := New(builtin(t, "claude-code"), Options{Location: time.UTC, At: noon, Explain: true})
	_, _ = d.Stream().Write([]byte(output))
	stop, findings := d.Explain(1)
	if stop.Number != 27 || !stop.Until.Equal(utc(11, 15, 15, 0, 0)) {
		t.Errorf("Stop = %+v, want line 27 and 3pm", stop)
	}
	want := map[int]string{
		1: "outside of the last lines", 22: "not the event of limit-event: **.status is pending, not rejected", 23: "superseded: the program continued",
		24: "alive", 25: "decoy", 26: "less important than line 27", 27: "decides", 28: "less important than line 27",
	}
	for _, f := range findings {
		if w, ok := want[f.Number]; !ok || !strings.Contains(f.Verdict, w) {
			t.Errorf("line %d: %+v, want %q", f.Number, f, w)
		}
		delete(want, f.Number)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	plain := New(builtin(t, "claude-code"), Options{Location: time.UTC, At: noon})
	_, _ = plain.Stream().Write([]byte(output))
	if got := plain.Stop(1); got != stop {
		t.Errorf("without an explanation: %+v, with one: %+v", got, stop)
	}
}

func TestBest(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"5-hour limit reached ∙ resets 3am":                                         "generic",
		"You've hit your usage limit. Try again in 2 hours.":                        "generic",
		"Your quota will reset after 19h14m47s.":                                    "generic",
		"It will reset in 2 days 3 hours":                                           "generic",
		"litellm.RateLimitError":                                                    "generic",
		"429 Too Many Requests":                                                     "generic",
		"nothing of note":                                                           "generic",
		`{"type":"usage_limit_reached","resets_at":1794747600}` + "\nretry after 3": "codex",
	} {
		var stops []Stop
		for _, name := range Names() {
			stops = append(stops, stopOf(t, name, output, 1))
		}
		if got := stops[Best(stops)]; got.Pack != want {
			t.Errorf("%q: %+v, want pack %s", output, got, want)
		}
	}
	if got := Best(nil); got != -1 {
		t.Errorf("Best(nil) = %d, want -1", got)
	}
}
