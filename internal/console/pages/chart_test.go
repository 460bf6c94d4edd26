package pages

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
)

func TestDraw(t *testing.T) {
	start := time.Date(2026, 2, 5, 3, 0, 0, 0, time.UTC)
	after := func(s int) *time.Time { t := start.Add(time.Duration(s) * time.Second); return &t }
	i := &engine.Info{State: "waiting", Created: start, Steps: []engine.StepInfo{
		{Name: "charge", Next: after(40), Attempts: []engine.AttemptInfo{
			{Number: 1, Started: start, Ended: after(10), Outcome: "failed", Error: "down", Wait: &engine.WaitInfo{Delay: 10 * time.Second, Until: *after(20), By: "policy"}},
			{Number: 2, Started: *after(20), Ended: after(30), Outcome: "failed", Wait: &engine.WaitInfo{Delay: 10 * time.Second, Until: *after(40), By: "server", Woken: ""}},
		}}, {Name: "pack"},
	}}
	c := NewChart(i, i.Steps, *after(35))
	if !c.From.Equal(start) || !c.To.Equal(*after(40)) || c.Now != "87.50%" {
		t.Errorf("from %v to %v, now at %s", c.From, c.To, c.Now)
	}
	var got []string
	for _, b := range c.Lanes[0].Bars {
		got = append(got, strings.Join([]string{b.Class, b.X, b.W, b.Label}, " "))
	}
	want := "wait 25.00% 25.00% policy, failed 0.00% 25.00% #1, wait 75.00% 25.00% server, failed 50.00% 25.00% #2"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("bars %s, want %s", s, want)
	}
	if title := c.Lanes[0].Bars[2].Title; title != "wait of 10.0 s set by server, until 2026-02-05 03:00:40 UTC (+00:00)" {
		t.Errorf("title %q", title)
	}
	if len(c.Lanes) != 2 || len(c.Lanes[1].Bars) != 0 {
		t.Errorf("lanes %+v", c.Lanes)
	}
}

func TestALongWaitLeavesRoom(t *testing.T) {
	start := time.Date(2026, 2, 5, 3, 0, 0, 0, time.UTC)
	now, next := start.Add(10*time.Second), start.Add(8*24*time.Hour)
	i := &engine.Info{State: "waiting", Created: start, Steps: []engine.StepInfo{{Name: "x", Next: &next}}}
	if c := NewChart(i, i.Steps, now); c.To.Sub(start) > 20*time.Second {
		t.Errorf("%v are drawn", c.To.Sub(start))
	}
}

func TestBarsStayInside(t *testing.T) {
	start := time.Date(2026, 2, 5, 3, 0, 0, 0, time.UTC)
	i := &engine.Info{State: "running", Created: start, Steps: []engine.StepInfo{{Name: "x"}}}
	for n := range 5000 {
		at := start.Add(time.Duration(n) * time.Second)
		end := at.Add(time.Millisecond)
		i.Steps[0].Attempts = append(i.Steps[0].Attempts, engine.AttemptInfo{Number: n + 1, Started: at, Ended: &end, Outcome: "failed",
			Wait: &engine.WaitInfo{Delay: time.Second, Until: at.Add(time.Second), By: "policy"}})
	}
	c := NewChart(i, i.Steps, start.Add(5000*time.Second))
	if n := len(c.Lanes[0].Bars); n > 700 {
		t.Errorf("%d bars are drawn", n)
	}
	for _, b := range c.Lanes[0].Bars {
		x, err1 := strconv.ParseFloat(strings.TrimSuffix(b.X, "%"), 64)
		w, err2 := strconv.ParseFloat(strings.TrimSuffix(b.W, "%"), 64)
		if err1 != nil || err2 != nil || x < 0 || w <= 0 || x+w > 100.02 {
			t.Fatalf("a bar from %s, %s wide", b.X, b.W)
		}
	}
	if c := NewChart(&engine.Info{State: "succeeded", Created: start, Ended: &start}, []engine.StepInfo{{Name: "x"}}, start); !c.To.After(c.From) {
		t.Error("a run of no time has no axis")
	}
}

// A wait that ends after the chart says when, and has an arrow; the legend has only what is drawn.
func TestOpenWaits(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 2, 5, 3, 0, 0, 0, time.UTC)
	now, next := start.Add(10*time.Second), start.Add(50*time.Hour+10*time.Second)
	i := &engine.Info{State: "waiting", Created: start, Next: &next, Steps: []engine.StepInfo{
		{Name: "ask", Kind: "ask", Status: "waiting", Called: &start, Next: &next},
		{Name: "ship", Kind: "await", Status: "waiting", Called: &start},
	}}
	c := NewChart(i, i.Steps, now)
	for n, want := range []string{"question, ends in 2 d 02 h", "signal, no time limit"} {
		if b := c.Lanes[n].Bars[0]; b.Label != want || !b.Open || b.X != "0.00%" || b.W != "100.00%" {
			t.Errorf("a bar %+v, want %q up to the edge", b, want)
		}
	}
	if got := c.Legend(); len(got) != 1 || got[0] != "wait" || c.NowAnchor != "middle" {
		t.Errorf("the legend has %q, now is at %s, %s", got, c.Now, c.NowAnchor)
	}
	end := start.Add(time.Second)
	i = &engine.Info{State: "succeeded", Created: start, Ended: &end, Steps: []engine.StepInfo{{Name: "x", Attempts: []engine.AttemptInfo{
		{Number: 1, Started: start, Ended: &start, Outcome: "failed", Wait: &engine.WaitInfo{Delay: time.Millisecond, Until: start, By: "policy"}},
		{Number: 2, Started: start.Add(36 * time.Millisecond), Ended: &end, Outcome: "succeeded"},
	}}}}
	c = NewChart(i, i.Steps, end)
	if got := strings.Join(c.Legend(), " "); got != "failed succeeded wait" || c.Span() != time.Second {
		t.Errorf("the legend has %q, the axis %v", got, c.Span())
	}
	if title := c.Lanes[0].Bars[0].Title; !strings.HasSuffix(title, "; the next attempt began after 36 ms") {
		t.Errorf("the title of the wait: %q", title)
	}
	if NewChart(&engine.Info{State: "queued", Created: start}, []engine.StepInfo{{Name: "x"}}, now).HasBars() {
		t.Error("a run without an attempt has bars")
	}
}
