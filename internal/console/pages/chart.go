package pages

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

// Chart is a drawing of the attempts and waits of a run over time, with a lane for each step.
type Chart struct {
	Lanes []lane
	From  time.Time
	To    time.Time
	Now   string // position of the current time; "" for a run that has ended

	NowAnchor string // of the text at that position, so that it stays inside the chart: start, middle or end
}

type lane struct {
	Name string
	Bars []bar
}

// bar is an attempt or a wait in the chart. X and W are percentages, which templates write into SVG
// attributes: the Content-Security-Policy forbids inline styles.
type bar struct {
	X, W  string
	Class string // the outcome, or "wait"
	Title string
	Label string // "" if there is no room
	Wait  bool
	Open  bool // it ends after the chart
}

const (
	Thinnest = 0.3 // width of the shortest bar, in percent: less would not be visible
	labelled = 9   // least width of a bar with a label, in percent
)

// NewChart returns the chart of a run with a lane for each of the steps. It leaves out a bar that hardly extends beyond the previous
// bar of its class, so that a run with thousands of attempts has a small chart.
func NewChart(i *engine.Info, steps []engine.StepInfo, now time.Time) *Chart {
	c := &Chart{From: i.Created, To: i.Created}
	for k := range steps {
		for _, a := range steps[k].Attempts {
			c.stretch(&a.Started)
			c.stretch(a.Ended)
		}
	}
	if !i.Finished() {
		c.stretch(&now)
		c.ahead(i, now)
	}
	c.stretch(i.Ended)
	if c.To.Sub(c.From) < time.Millisecond {
		c.To = c.From.Add(time.Millisecond)
	}
	if !i.Finished() {
		at := c.place(now)
		switch c.Now = Percent(at); {
		case at < 5:
			c.NowAnchor = "start"
		case at > 95:
			c.NowAnchor = "end"
		default:
			c.NowAnchor = "middle"
		}
	}
	for k := range steps {
		c.Lanes = append(c.Lanes, c.lane(&steps[k], i, now))
	}
	return c
}

// stretch moves the end of the chart to t if t is later. A nil t changes nothing.
func (c *Chart) stretch(t *time.Time) {
	if t != nil && t.After(c.To) {
		c.To = *t
	}
}

// ahead extends the chart into the future, up to the end of the current waits. The future gets at
// most about a third of the width, so that a wait of days leaves room for the history.
func (c *Chart) ahead(i *engine.Info, now time.Time) {
	limit := now.Add(now.Sub(c.From)/2 + time.Second)
	for k := range i.Steps {
		s := &i.Steps[k]
		if s.Next != nil && s.Next.After(limit) || isEndless(s) {
			c.stretch(&limit)
		} else {
			c.stretch(s.Next)
		}
	}
}

// place returns the position of a time in the chart, in percent.
func (c *Chart) place(t time.Time) float64 {
	return min(max(100*float64(t.Sub(c.From))/float64(c.To.Sub(c.From)), 0), 100)
}

func Percent(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) + "%" }

// isEndless reports whether an operation waits for a signal or an answer without a time limit.
func isEndless(s *engine.StepInfo) bool {
	return control.Waits(s) && s.Called != nil && s.Status == "waiting" && s.Next == nil && s.Ended == nil
}

// HasBars reports whether there is anything to draw.
func (c *Chart) HasBars() bool {
	return slices.ContainsFunc(c.Lanes, func(l lane) bool { return len(l.Bars) > 0 })
}

// Legend returns the classes of the bars, of which that of waits is the last.
func (c *Chart) Legend() (classes []string) {
	for _, l := range c.Lanes {
		for _, b := range l.Bars {
			if !slices.Contains(classes, b.Class) {
				classes = append(classes, b.Class)
			}
		}
	}
	slices.SortFunc(classes, func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(a, "wait"), strings.Count(b, "wait")), strings.Compare(a, b))
	})
	return classes
}

func (c *Chart) lane(s *engine.StepInfo, i *engine.Info, now time.Time) lane {
	l := laneOf{chart: c, lane: lane{Name: s.Name}, drawn: map[string]float64{}}
	if control.Waits(s) && s.Called != nil && (s.Ended != nil || s.Status == "waiting" || i.Finished()) {
		end := lastSet(now, s.Next, i.Ended, s.Ended)
		b := bar{Class: "wait", Wait: true, Title: operationTitle(s, end)}
		if b.Label, b.Open = c.label(waitNames[s.Kind], end, now); isEndless(s) && !i.Finished() {
			b.Label, b.Open, end = b.Label+", no time limit", true, c.To
		}
		l.add(*s.Called, end, b)
	}
	for n := range s.Attempts {
		a := &s.Attempts[n]
		end := lastSet(now, i.Ended, a.Ended)
		if w := a.Wait; w != nil {
			until := w.Until
			if n+1 < len(s.Attempts) {
				until = s.Attempts[n+1].Started
			} else if i.Ended != nil && i.Ended.Before(until) {
				until = *i.Ended
			}
			b := bar{Class: "wait", Wait: true, Title: waitTitle(w, until.Sub(end), n+1 < len(s.Attempts))}
			b.Label, b.Open = c.label(WaitSetter(w.By), until, now)
			l.add(end, until, b)
		}
		l.add(a.Started, end, bar{Class: a.Outcome, Title: attemptTitle(a, end), Label: "#" + strconv.Itoa(a.Number)})
	}
	return l.lane
}

// lastSet returns the last time that is set, or now if none is.
func lastSet(now time.Time, list ...*time.Time) time.Time {
	for _, t := range slices.Backward(list) {
		if t != nil {
			return *t
		}
	}
	return now
}

// label returns the label of a wait. If the wait ends after the chart, open is true, and the label says when.
func (c *Chart) label(name string, until, now time.Time) (label string, open bool) {
	if until.After(c.To) {
		return strings.TrimPrefix(name+", ends in "+SpacedDuration(until.Sub(now)), ", "), true
	}
	return name, false
}

// Span is the length of the axis.
func (c *Chart) Span() time.Duration { return c.To.Sub(c.From) }

// laneOf is a lane to which bars are added from left to right.
type laneOf struct {
	lane
	chart *Chart
	drawn map[string]float64 // where the last bar of a class ends
}

// add draws a bar, unless the last one of its class leaves no room for it.
func (l *laneOf) add(from, to time.Time, b bar) {
	x := l.chart.place(from)
	w := max(l.chart.place(to)-x, Thinnest)
	x = min(x, 100-w)
	if end, ok := l.drawn[b.Class]; ok && x+w-end < Thinnest {
		return
	}
	l.drawn[b.Class] = x + w
	if w < labelled {
		b.Label = ""
	}
	b.X, b.W = Percent(x), Percent(w)
	l.Bars = append(l.Bars, b)
}

// waitNames has the names of the waits of operations without attempts, by kind.
var waitNames = map[string]string{"sleep": "sleep", "await": "signal", "ask": "question"}

// operationTitle describes the wait of an operation without attempts, which ends or has ended at this
// time.
func operationTitle(s *engine.StepInfo, end time.Time) string {
	what := waitNames[s.Kind]
	if s.Ended == nil && s.Next == nil && s.Status == "waiting" {
		return what + ", open since " + stamp(*s.Called)
	}
	return what + " until " + stamp(end)
}

func attemptTitle(a *engine.AttemptInfo, end time.Time) string {
	t := fmt.Sprintf("attempt %d %s, %s from %s", a.Number, a.Outcome, Exact(end.Sub(a.Started)), stamp(a.Started))
	if a.Error != "" {
		t += ": " + firstLine(a.Error, 200)
	}
	return t
}

// waitTitle describes the wait after an attempt. If another attempt has followed, it began after idle.
func waitTitle(w *engine.WaitInfo, idle time.Duration, followed bool) string {
	t := fmt.Sprintf("wait of %s set by %s, until %s", Exact(w.Delay), WaitSetter(w.By), stamp(w.Until))
	if w.Woken != "" {
		t += ", ended early by " + w.Woken
	}
	if followed {
		t += "; the next attempt began after " + Exact(idle)
	}
	return t
}
