package pages

import (
	"fmt"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

const (
	slotWidth = 10 * time.Second // length of a time slot
	slotCount = 60               // number of slots that are kept
)

// counts has the numbers of events in one time slot, without internal workflows.
type counts struct {
	Began     int // runs
	Succeeded int // runs
	Failed    int // attempts
	Dead      int // runs
}

// activity counts the events of the last minutes by their own times, so that it needs no clock.
type activity struct {
	mu    sync.Mutex
	slots [slotCount]struct {
		at int64 // number of the slot since 1970
		counts
	}
}

// count counts an event, unless it is older than all slots or of an internal workflow.
func (p *activity) count(ev *retry.Event) {
	if ev.Run == "" || control.Internal(ev.Name) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := ev.Time.UnixNano() / int64(slotWidth)
	s := &p.slots[uint64(n)%slotCount]
	if n < s.at {
		return
	}
	if n > s.at {
		s.at, s.counts = n, counts{}
	}
	switch ofRun := ev.Step == ""; {
	case ev.Kind == retry.RunStarted:
		s.Began++
	case ev.Kind == retry.AttemptFailed:
		s.Failed++
	case ev.Kind == retry.Succeeded && ofRun:
		s.Succeeded++
	case ev.Kind == retry.GaveUp && ofRun:
		s.Dead++
	}
}

// last returns the slots up to now, the oldest first. The last slot is the current one, which is not
// complete yet.
func (p *activity) last(now time.Time) (list [slotCount]counts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := now.UnixNano() / int64(slotWidth)
	for i := range list {
		at := n - slotCount + 1 + int64(i)
		if s := &p.slots[uint64(at)%slotCount]; s.at == at {
			list[i] = s.counts
		}
	}
	return list
}

// Sparkline has the charts of the activity: one of runs, and one of attempts that failed.
type Sparkline struct {
	Charts []sparkChart
	Minute counts        // sum of the last minute
	All    counts        // sum of all slots
	Span   time.Duration // that a chart covers
	Width  time.Duration // that a bar covers
}

// sparkChart is a bar chart.
type sparkChart struct {
	ChartColumn
	Bars   []sparkBar
	Most   int // the count that a bar of full height stands for
	Legend []sparkLegend
}

type sparkLegend struct{ Class, Text string }

// sparkBar is a part of the bar of a slot, or the mark of the runs that started. Positions and sizes are
// in percent, or in pixels for the height of a mark.
type sparkBar struct{ X, Y, W, H, Class string }

func (b *counts) add(o counts) {
	b.Began, b.Succeeded, b.Failed, b.Dead = b.Began+o.Began, b.Succeeded+o.Succeeded, b.Failed+o.Failed, b.Dead+o.Dead
}

// sparkSeries is a number that a chart shows in each slot.
type sparkSeries struct {
	class     string
	of        func(*counts) int
	one, many string
	mark      bool // a line across the slot, not a part of the bar
}

// sparkCharts are the charts, by what they count.
var sparkCharts = []struct {
	name   string
	series []sparkSeries
}{
	{"Runs", []sparkSeries{
		{"started", func(c *counts) int { return c.Began }, "started", "started", true},
		{"succeeded", func(c *counts) int { return c.Succeeded }, "succeeded", "succeeded", false},
		{"dead", func(c *counts) int { return c.Dead }, "gave up", "gave up", false},
	}},
	{"Failed attempts", []sparkSeries{{"failed", func(c *counts) int { return c.Failed }, "attempt failed", "attempts failed", false}}},
}

// newSparkline returns the charts of the slots, of which the last contains the time now.
func newSparkline(list [slotCount]counts, now time.Time) Sparkline {
	s := Sparkline{Span: slotCount * slotWidth, Width: slotWidth}
	for i := range list {
		s.All.add(list[i])
		if i >= slotCount-int(time.Minute/slotWidth) {
			s.Minute.add(list[i])
		}
	}
	end := now.Truncate(slotWidth)
	for _, c := range sparkCharts {
		chart := sparkChart{ChartColumn: ChartColumn{Name: c.name}}
		for i := range list {
			chart.Most = max(chart.Most, highest(c.series, &list[i]))
		}
		for i := range list {
			chart.Values = append(chart.Values, ChartValue{end.Add(time.Duration(i-slotCount+1) * slotWidth), numbersOf(c.series, &list[i])})
			chart.addBars(i, c.series, &list[i])
		}
		for _, x := range c.series {
			if n := x.of(&s.All); n > 0 {
				chart.Legend = append(chart.Legend, sparkLegend{x.class, textfmt.PluralOf(n, x.one, x.many)})
			}
		}
		s.Charts = append(s.Charts, chart)
	}
	return s
}

// highest returns the height of the bar of a slot, or that of a mark above it.
func highest(series []sparkSeries, b *counts) int {
	bar, mark := 0, 0
	for _, x := range series {
		if x.mark {
			mark = max(mark, x.of(b))
		} else {
			bar += x.of(b)
		}
	}
	return max(bar, mark)
}

// numbersOf returns the numbers of a slot in words, or "" if all are 0.
func numbersOf(series []sparkSeries, b *counts) string {
	var list []NumberOf
	for _, x := range series {
		list = append(list, NumberOf{x.of(b), x.one, x.many})
	}
	return NumbersText(list...)
}

// addBars adds the parts of the bar of a slot, and its mark.
func (c *sparkChart) addBars(slot int, series []sparkSeries, b *counts) {
	const wide = 100.0 / slotCount
	top := 100.0
	for _, x := range series {
		n := x.of(b)
		if n == 0 {
			continue
		}
		high := 100 * float64(n) / float64(c.Most)
		if x.mark {
			c.Bars = append(c.Bars, sparkBar{Percent(float64(slot) * wide), Percent(100 - high), Percent(wide), "2", x.class})
			continue
		}
		top -= high
		c.Bars = append(c.Bars, sparkBar{Percent(float64(slot) * wide), Percent(top), Percent(wide * 0.8), Percent(high), x.class})
	}
}

// Table has the values of the charts.
func (s Sparkline) Table() (t ChartTable) {
	for i := range s.Charts {
		t.Columns = append(t.Columns, s.Charts[i].ChartColumn)
	}
	return t
}

// Ago is the label of the left end of the charts.
func (s Sparkline) Ago() string { return Round(s.Span) + " ago" }

// Empty reports whether nothing has happened.
func (s Sparkline) Empty() bool { return s.All == counts{} }

// Said describes the chart in words, for screen readers.
func (s Sparkline) Said() string {
	return fmt.Sprintf("in the last %d minutes %s started, %d succeeded and %d gave up; %s failed",
		int(s.Span/time.Minute), textfmt.Plural(s.All.Began, "run"), s.All.Succeeded, s.All.Dead, textfmt.Plural(s.All.Failed, "attempt"))
}

// Activity returns what happened in the last minutes.
func (h *Data) Activity(now time.Time) Sparkline { return newSparkline(h.feed.activity.last(now), now) }
