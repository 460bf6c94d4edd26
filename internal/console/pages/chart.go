package pages

import (
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
}

const (
	Thinnest = 0.3 // width of the shortest bar, in percent: less would not be visible
	labelled = 9   // least width of a bar with a label, in percent
)

// NewChart returns the chart of a run with a lane for each of the steps. It leaves out a bar that hardly extends beyond the previous
// bar of its class, so that a run with thousands of attempts has a small chart.
func NewChart(i *engine.Info, steps []engine.StepInfo, now time.Time) Chart {
	c := Chart{From: i.Created, To: i.Created}
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
		c.Now = Percent(c.place(now))
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
		if next := i.Steps[k].Next; next != nil && next.After(limit) {
			c.stretch(&limit)
		} else {
			c.stretch(next)
		}
	}
}

// place returns the position of a time in the chart, in percent.
func (c *Chart) place(t time.Time) float64 {
	return min(max(100*float64(t.Sub(c.From))/float64(c.To.Sub(c.From)), 0), 100)
}

func Percent(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) + "%" }

func (c *Chart) lane(s *engine.StepInfo, i *engine.Info, now time.Time) lane {
	l := laneOf{chart: c, lane: lane{Name: s.Name}, drawn: map[string]float64{}}
	if control.Waits(s) && s.Called != nil && (s.Ended != nil || s.Status == "waiting" || i.Finished()) {
		end := lastSet(now, s.Next, i.Ended, s.Ended)
		l.add(*s.Called, end, bar{Class: "wait", Wait: true, Title: operationTitle(s, end), Label: c.arrow(waitNames[s.Kind], end)})
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
			l.add(end, until, bar{Class: "wait", Wait: true, Title: waitTitle(w), Label: c.arrow(WaitSetter(w.By), until)})
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

// arrow returns the label of a wait, with an arrow if the wait ends after the chart.
func (c *Chart) arrow(label string, until time.Time) string {
	if until.After(c.To) {
		return strings.TrimPrefix(label+" →", " ")
	}
	return label
}

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

func waitTitle(w *engine.WaitInfo) string {
	t := fmt.Sprintf("wait of %s set by %s, until %s", Exact(w.Delay), WaitSetter(w.By), stamp(w.Until))
	if w.Woken != "" {
		t += ", ended early by " + w.Woken
	}
	return t
}
