package pages

import (
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
	if s.Most != 4 || len(s.Bars) != 2 || s.Minute != list[slotCount-1] {
		t.Fatalf("%+v", s)
	}
	last := s.Bars[1]
	want := []sparkPart{{"75.00%", "25.00%", "succeeded"}, {"25.00%", "50.00%", "waiting"}, {"0.00%", "25.00%", "dead"}}
	for i, part := range last.Parts {
		if part != want[i] {
			t.Errorf("part %d: %+v, want %+v", i, part, want[i])
		}
	}
	rows := s.Table().Rows()
	if len(rows) != 2 || rows[0].Cells[0].Text != "1 succeeded, 2 attempts failed, 1 gave up" || rows[1].Cells[0].Text != "1 started, 2 succeeded" || !rows[0].At.Equal(time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)) || !rows[1].At.Equal(time.Date(2026, 11, 15, 11, 50, 10, 0, time.UTC)) {
		t.Errorf("the table: %+v", rows)
	}
	pagetest.Has(t, "in words", s.Said(), "in the last 10 minutes 1 run started, 3 succeeded and 1 gave up; 2 attempts failed")
}
