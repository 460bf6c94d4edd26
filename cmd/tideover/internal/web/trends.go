package web

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	pen "github.com/tideover/tideover/cmd/tideover/internal/chart"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/textfmt"
)

// trends are the charts of runs over an hour, a day and two weeks.
type trends struct {
	Charts []trend
	Since  time.Time // when the server began to count
	Other  bool      // the workflow has no chart of its own
	Member bool      // only runs in this process of the cluster count
}

// trend is the chart of a range.
type trend struct {
	ID      string // of the HTML element
	Title   string
	Ago     string // label of the left end
	Total   admin.ChartPoint
	Most    uint64 // the number of runs that a bar of full height stands for
	Each    string // length of an interval
	Width   int    // of the coordinates in the paths; the height is 100
	Bars    []shape
	Started string // path of the marks of started runs
	Times   []times
	Said    string // the chart in words
}

// shape is a path of one colour.
type shape struct{ Class, Path string }

// times has the percentiles of durations, or of waits.
type times struct {
	Title   string
	Ticks   []tick // labels of the vertical axis; positions in percent
	Lines   []shape
	Numbers []number
	Said    string
}

// number is a percentile of the whole range.
type number struct{ Class, Text string }

// barWidth is the width of an interval in the paths of a chart.
const barWidth = 10

// rangeTexts has the title of each range, and the label of its left end.
var rangeTexts = map[string][2]string{
	"hour": {"The last hour", "60 min ago"}, "day": {"The last day", "24 h ago"}, "two-weeks": {"The last two weeks", "14 d ago"},
}

// loadTrends returns the charts of a workflow, or of all workflows if the name is empty. It returns nil
// if the server has none.
func loadTrends(charts *admin.Charts, workflow string) (*trends, error) {
	if charts == nil || control.Internal(workflow) {
		return nil, nil
	}
	t := new(trends)
	for _, name := range admin.RangeNames {
		c, err := charts.Get(workflow, name)
		if err != nil {
			return nil, err
		}
		t.Charts = append(t.Charts, newTrend(&c))
		t.Since, t.Other, t.Member = c.Since, c.Merged, c.OneMember
	}
	return t, nil
}

func newTrend(c *admin.Chart) trend {
	text := rangeTexts[c.Range]
	each := time.Duration(c.Interval * float64(time.Second))
	t := trend{
		ID: "trend-" + c.Range, Title: text[0], Ago: text[1], Total: c.Total, Most: 1, Each: textfmt.ShortDuration(each), Width: barWidth * len(c.Points),
	}
	t.Said = fmt.Sprintf("%s: %s started, %d succeeded, %d gave up, %d canceled", strings.ToLower(t.Title), textfmt.Plural(int(c.Total.Started), "run"), c.Total.Succeeded, c.Total.Failed, c.Total.Canceled)
	for i := range c.Points {
		p := &c.Points[i]
		t.Most = max(t.Most, p.Started, p.Succeeded+p.Failed+p.Canceled)
	}
	t.addBars(c.Points)
	t.addTimes("From start to end", c, func(p *admin.ChartPoint) *admin.Percentiles { return &p.Duration })
	t.addTimes("Wait for the first attempt", c, func(p *admin.ChartPoint) *admin.Percentiles { return &p.Wait })
	return t
}

// addBars adds the paths of the bars, and of the marks of started runs.
func (t *trend) addBars(points []admin.ChartPoint) {
	outcomes := []struct {
		class string
		count func(*admin.ChartPoint) uint64
	}{
		{"succeeded", func(p *admin.ChartPoint) uint64 { return p.Succeeded }},
		{"dead", func(p *admin.ChartPoint) uint64 { return p.Failed }},
		{"canceled", func(p *admin.ChartPoint) uint64 { return p.Canceled }},
	}
	paths := make([]strings.Builder, len(outcomes))
	var marks strings.Builder
	up := func(n uint64) float64 { return 100 * float64(n) / float64(t.Most) }
	for i := range points {
		top := 100.0
		for k, o := range outcomes {
			if n := o.count(&points[i]); n > 0 {
				top -= up(n)
				fmt.Fprintf(&paths[k], "M%d %.1fh%dv%.1fh-%[3]dz", i*barWidth+1, top, barWidth-2, up(n))
			}
		}
		if n := points[i].Started; n > 0 {
			fmt.Fprintf(&marks, "M%d %.1fh%d", i*barWidth, 100-up(n), barWidth)
		}
	}
	for k, o := range outcomes {
		if paths[k].Len() > 0 {
			t.Bars = append(t.Bars, shape{o.class, paths[k].String()})
		}
	}
	t.Started = marks.String()
}

// stepLine returns the path of a line with a horizontal part for each interval that has a value.
func stepLine(n int, y func(i int) (float64, bool)) string {
	var b strings.Builder
	joined := false
	for i := range n {
		at, ok := y(i)
		switch {
		case ok && joined:
			fmt.Fprintf(&b, "V%.1fh%d", at, barWidth)
		case ok:
			fmt.Fprintf(&b, "M%d %.1fh%d", i*barWidth, at, barWidth)
		}
		joined = ok
	}
	return b.String()
}

// addTimes adds the percentiles of a kind of durations. All of them share a logarithmic scale.
func (t *trend) addTimes(title string, c *admin.Chart, of func(*admin.ChartPoint) *admin.Percentiles) {
	kinds := []struct {
		name  string
		value func(*admin.Percentiles) float64
	}{
		{"p50", func(p *admin.Percentiles) float64 { return p.P50 }},
		{"p95", func(p *admin.Percentiles) float64 { return p.P95 }},
		{"p99", func(p *admin.Percentiles) float64 { return p.P99 }},
	}
	total := of(&c.Total)
	if total.Count == 0 {
		return
	}
	scale := pen.Scale{Log: true}
	for i := range c.Points {
		for _, k := range kinds {
			scale.Include(durationOf(k.value(of(&c.Points[i]))))
		}
	}
	up := func(d time.Duration) float64 { return 96 - 92*scale.At(d) }
	s := times{Title: title}
	for _, d := range scale.Ticks(4) {
		s.Ticks = append(s.Ticks, tick{pages.Percent(up(d)), textfmt.ShortDuration(d)})
	}
	var said []string
	for _, k := range kinds {
		s.Lines = append(s.Lines, shape{k.name, stepLine(len(c.Points), func(i int) (float64, bool) {
			p := of(&c.Points[i])
			return up(durationOf(k.value(p))), p.Count > 0
		})})
		text := k.name + " " + pages.Exact(durationOf(k.value(total)))
		s.Numbers, said = append(s.Numbers, number{k.name, text}), append(said, text)
	}
	s.Said = strings.ToLower(t.Title) + ", " + strings.ToLower(title) + ": " + strings.Join(said, ", ")
	t.Times = append(t.Times, s)
}

// trends returns the charts of a workflow for its page, or nil if there are none.
func (h *server) trends(_ *http.Request, workflow string) (any, error) {
	t, err := loadTrends(h.control.Charts, workflow)
	if t == nil {
		return nil, err
	}
	return t, err
}
