package pages

import (
	"slices"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/console/pagetest"
	"github.com/tideover/tideover/retry"
)

func TestPulse(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 15, 12, 0, 5, 0, time.UTC)
	ev := func(ago time.Duration, kind retry.EventKind, name, step string) retry.Event {
		return retry.Event{Kind: kind, Time: now.Add(-ago), Name: name, Step: step, Run: "r"}
	}
	for _, c := range []struct {
		name   string
		events []retry.Event
		at     int // index of the slot, counted back from the last
		want   counts
	}{
		{"nothing happened", nil, 0, counts{}},
		{"a run begins and succeeds", []retry.Event{ev(0, retry.RunStarted, "w", ""), ev(0, retry.Succeeded, "w", "call"), ev(0, retry.Succeeded, "w", "")}, 0, counts{Began: 1, Succeeded: 1}},
		{"an attempt fails, then the run dies", []retry.Event{ev(0, retry.AttemptFailed, "w", "call"), ev(0, retry.GaveUp, "w", "call"), ev(0, retry.GaveUp, "w", "")}, 0, counts{Failed: 1, Dead: 1}},
		{"a minute ago is six slices back", []retry.Event{ev(time.Minute, retry.RunStarted, "w", "")}, 6, counts{Began: 1}},
		{"messages and sessions do not count", []retry.Event{ev(0, retry.RunStarted, "notify.x", ""), ev(0, retry.Succeeded, "session.x", "")}, 0, counts{}},
		{"calls without a run do not count", []retry.Event{{Kind: retry.AttemptFailed, Time: now, Name: "gateway/x"}}, 0, counts{}},
		{"what is too old takes no newer one's place", []retry.Event{ev(0, retry.RunStarted, "w", ""), ev(slotCount*slotWidth, retry.RunStarted, "w", "")}, 0, counts{Began: 1}},
		{"a newer event replaces an older slot", []retry.Event{ev(slotCount*slotWidth, retry.RunStarted, "w", ""), ev(0, retry.AttemptFailed, "w", "s")}, 0, counts{Failed: 1}},
		{"before 1970", []retry.Event{{Kind: retry.RunStarted, Time: time.Unix(-100, 0), Name: "w", Run: "r"}}, 0, counts{}},
	} {
		var p activity
		for i := range c.events {
			p.count(&c.events[i])
		}
		if got := p.last(now)[slotCount-1-c.at]; got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestSparkline(t *testing.T) {
	t.Parallel()
	var list [slotCount]counts
	list[0] = counts{Began: 1, Succeeded: 2}
	list[slotCount-1] = counts{Succeeded: 1, Failed: 2, Dead: 1}
	s := newSparkline(list, time.Date(2026, 11, 15, 12, 0, 5, 0, time.UTC))
	runs, attempts := s.Charts[0], s.Charts[1]
	if runs.Most != 2 || attempts.Most != 2 || s.Minute != list[slotCount-1] {
		t.Fatalf("%+v", s)
	}
	want := []sparkBar{
		{"0.00%", "50.00%", "1.67%", "2", "started"}, {"0.00%", "0.00%", "1.33%", "100.00%", "succeeded"},
		{"98.33%", "50.00%", "1.33%", "50.00%", "succeeded"}, {"98.33%", "0.00%", "1.33%", "50.00%", "dead"},
	}
	if !slices.Equal(runs.Bars, want) || !slices.Equal(attempts.Bars, []sparkBar{{"98.33%", "0.00%", "1.33%", "100.00%", "failed"}}) {
		t.Errorf("the bars: %v, %v", runs.Bars, attempts.Bars)
	}
	for _, c := range s.Charts {
		for _, l := range c.Legend {
			if !slices.ContainsFunc(c.Bars, func(b sparkBar) bool { return b.Class == l.Class }) {
				t.Errorf("%s: nothing has the colour of %s", c.Name, l.Class)
			}
		}
	}
	rows := s.Table().Rows()
	if len(rows) != 2 || rows[0].Cells[0].Text != "1 succeeded, 1 gave up" || rows[0].Cells[1].Text != "2 attempts failed" || rows[1].Cells[0].Text != "1 started, 2 succeeded" || !rows[0].At.Equal(time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)) || !rows[1].At.Equal(time.Date(2026, 11, 15, 11, 50, 10, 0, time.UTC)) {
		t.Errorf("the table: %+v", rows)
	}
	pagetest.Has(t, "in words", s.Said(), "in the last 10 minutes 1 run started, 3 succeeded and 1 gave up; 2 attempts failed")
}
