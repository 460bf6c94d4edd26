package metrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/retry"
)

// samples returns all metrics as name{label="value",…} with their values.
func samples(t *testing.T, c ...prometheus.Collector) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c...)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			all[strings.TrimPrefix(f.GetName(), "tideover_")+"{"+strings.Join(labels, ",")+"}"] = number(m)
		}
	}
	return all
}

func number(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	default:
		return m.Histogram.GetSampleSum()
	}
}

func wants(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for name, n := range want {
		if v, ok := got[name]; !ok || v != n {
			t.Errorf("%s is %v (there: %v), want %v", name, v, ok, n)
		}
	}
}

// life returns the events of a run that is retried once and then gives up.
func life(workflow string) []retry.Event {
	of := func(e retry.Event) retry.Event { e.Name, e.Run = workflow, "r"; return e }
	return []retry.Event{
		of(retry.Event{Kind: retry.RunStarted}),
		of(retry.Event{Kind: retry.AttemptStarted, Step: "s", Attempt: 1}),
		of(retry.Event{Kind: retry.AttemptFailed, Step: "s", Attempt: 1, Err: errors.New("no")}),
		of(retry.Event{Kind: retry.Waiting, Step: "s", Attempt: 1, Delay: 4 * time.Second, By: retry.ByServer}),
		of(retry.Event{Kind: retry.AttemptStarted, Step: "s", Attempt: 2}),
		of(retry.Event{Kind: retry.AttemptLost, Step: "s", Attempt: 2}),
		of(retry.Event{Kind: retry.GaveUp, Step: "s", Attempt: 2, Reason: retry.StopLost}),
		of(retry.Event{Kind: retry.GaveUp, Reason: retry.StopLost}),
	}
}

func TestARunIsCounted(t *testing.T) {
	t.Parallel()
	tally := NewTally()
	tally.Know("order", "session.night", "notify.phone", "nip90.5900")
	wants(t, samples(t, tally), map[string]float64{ // known names have counters before their first event
		`attempts_total{layer="workflow",name="order"}`: 0, `first_attempts_total{layer="session",name="night"}`: 0,
		`runs_ended_total{layer="notification",name="phone",outcome="dead"}`: 0, `runs_started_total{layer="job",name="5900"}`: 0,
	})
	for _, ev := range life("order") {
		tally.Observe(ev)
	}
	for _, ev := range life("notify.phone") {
		tally.Observe(ev)
	}
	tally.Observe(retry.Event{Kind: retry.Succeeded, Name: "order", Run: "q"})
	tally.Observe(retry.Event{Kind: retry.Canceled, Name: "order", Run: "p"})
	tally.Observe(retry.Event{Kind: retry.AttemptStarted, Name: "gateway/openai", Attempt: 1}) // ignored: the gateway counts its own attempts
	wants(t, samples(t, tally), map[string]float64{
		`attempts_total{layer="workflow",name="order"}`: 2, `first_attempts_total{layer="workflow",name="order"}`: 1,
		`attempt_failures_total{layer="workflow",name="order"}`: 1, `attempts_lost_total{layer="workflow",name="order"}`: 1,
		`retries_total{by="server",layer="workflow",name="order"}`: 1, `wait_seconds{by="server",layer="workflow"}`: 4,
		`giveups_total{layer="workflow",name="order",reason="lost"}`: 1, `runs_started_total{layer="workflow",name="order"}`: 1,
		`runs_ended_total{layer="workflow",name="order",outcome="dead"}`: 1, `runs_ended_total{layer="workflow",name="order",outcome="succeeded"}`: 1,
		`runs_ended_total{layer="workflow",name="order",outcome="canceled"}`: 1,
		`giveups_total{layer="notification",name="phone",reason="lost"}`:     1,
	})
	if got := tally.Counts()[storm.Subject{Layer: Workflow, Name: "order"}]; got != (storm.Count{Attempts: 2, First: 1}) {
		t.Errorf("counts %+v", got)
	}
}

// Workflows that are not configured count under the name "other".
func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	tally := NewTally()
	tally.Know("order")
	for i := range 5000 {
		tally.Observe(retry.Event{Kind: retry.AttemptStarted, Name: fmt.Sprint("made-up-", i), Run: "r", Attempt: 1})
	}
	tally.Observe(retry.Event{Kind: retry.AttemptStarted, Name: "order.on-give-up", Run: "r", Attempt: 1})
	got := samples(t, tally)
	wants(t, got, map[string]float64{`attempts_total{layer="workflow",name="other"}`: 5000, `attempts_total{layer="workflow",name="order"}`: 0,
		`attempts_total{layer="follow-up",name="order"}`: 1})
	if len(got) > 100 {
		t.Errorf("%d samples", len(got))
	}
	for i := range 5000 {
		tally.Know(fmt.Sprint("configured-", i))
	}
	if n := len(tally.Counts()); n > maxNames {
		t.Errorf("%d names", n)
	}
}

func TestALayerIsInTheName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]storm.Subject{
		"order": {Layer: Workflow, Name: "order"}, "session.a": {Layer: Session, Name: "a"},
		"notify.a": {Layer: Notification, Name: "a"}, "nip90.5900": {Layer: Job, Name: "5900"},
		"order.on-give-up": {Layer: FollowUp, Name: "order"}, "session.a.on-give-up": {Layer: FollowUp, Name: "session.a"},
	} {
		if got := SubjectOf(name); got != want {
			t.Errorf("SubjectOf(%q) = %v, want %v", name, got, want)
		}
		if got := WorkflowOf(want); got != name {
			t.Errorf("WorkflowOf(%v) = %q, want %q", want, got, name)
		}
	}
}
