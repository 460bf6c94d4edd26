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

// Sparkline is a bar chart of the activity. Each bar stacks the runs that succeeded, the attempts that
// failed and the runs that died.
type Sparkline struct {
	Bars   []sparkBar
	Minute counts        // sum of the last minute
	All    counts        // sum of all slots
	Most   int           // the count that a bar of full height stands for
	Span   time.Duration // that the whole chart covers
	Width  time.Duration // that a bar covers
	Values ChartColumn
}

// sparkBar is the bar of a slot with events. Positions and sizes are in percent.
type sparkBar struct {
	X, W  string
	Parts []sparkPart
}

type sparkPart struct{ Y, H, Class string }

func (b *counts) add(o counts) {
	b.Began, b.Succeeded, b.Failed, b.Dead = b.Began+o.Began, b.Succeeded+o.Succeeded, b.Failed+o.Failed, b.Dead+o.Dead
}

func (b *counts) height() int { return b.Succeeded + b.Failed + b.Dead }

// newSparkline returns the chart of the slots, of which the last contains the time now.
func newSparkline(list [slotCount]counts, now time.Time) Sparkline {
	s := Sparkline{Span: slotCount * slotWidth, Width: slotWidth, Most: 1, Values: ChartColumn{Name: "Runs and attempts"}}
	for i := range list {
		s.All.add(list[i])
		if i >= slotCount-int(time.Minute/slotWidth) {
			s.Minute.add(list[i])
		}
		s.Most = max(s.Most, list[i].height())
	}
	end := now.Truncate(slotWidth)
	for i := range list {
		b := &list[i]
		s.Values.Values = append(s.Values.Values, ChartValue{end.Add(time.Duration(i-slotCount+1) * slotWidth), b.text()})
		if b.height() > 0 {
			s.Bars = append(s.Bars, s.bar(i, b))
		}
	}
	return s
}

// text returns the numbers in words, or "" if all are 0.
func (b *counts) text() string {
	return NumbersText(NumberOf{b.Began, "started", "started"}, NumberOf{b.Succeeded, "succeeded", "succeeded"},
		NumberOf{b.Failed, "attempt failed", "attempts failed"}, NumberOf{b.Dead, "gave up", "gave up"})
}

// Table has the values of the chart.
func (s Sparkline) Table() ChartTable { return ChartTable{[]ChartColumn{s.Values}} }

func (s *Sparkline) bar(i int, b *counts) sparkBar {
	const wide = 100.0 / slotCount
	out := sparkBar{X: Percent(float64(i) * wide), W: Percent(wide * 0.8)}
	top := 100.0
	for _, part := range []struct {
		n     int
		class string
	}{{b.Succeeded, "succeeded"}, {b.Failed, "waiting"}, {b.Dead, "dead"}} {
		if part.n == 0 {
			continue
		}
		high := 100 * float64(part.n) / float64(s.Most)
		top -= high
		out.Parts = append(out.Parts, sparkPart{Percent(top), Percent(high), part.class})
	}
	return out
}

// Said describes the chart in words, for screen readers.
func (s Sparkline) Said() string {
	return fmt.Sprintf("in the last %d minutes %s started, %d succeeded and %d gave up; %s failed",
		int(s.Span/time.Minute), textfmt.Plural(s.All.Began, "run"), s.All.Succeeded, s.All.Dead, textfmt.Plural(s.All.Failed, "attempt"))
}

// Activity returns what happened in the last minutes.
func (h *Data) Activity(now time.Time) Sparkline { return newSparkline(h.feed.activity.last(now), now) }
