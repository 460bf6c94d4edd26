package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	pen "github.com/tideover/tideover/cmd/tideover/internal/chart"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/textfmt"
)

// trends are the charts of runs over a range of time.
type trends struct {
	Ranges []rangeLink
	Chart  trend
	Since  time.Time // when the server began to count
	Other  bool      // the workflow has no chart of its own
	Member bool      // only runs in this process of the cluster count
}

// rangeLink is a link that chooses a range.
type rangeLink struct {
	Text, URL string
	On        bool
}

// trend has the charts of a range.
type trend struct {
	Title   string
	Ago     string // label of the left end
	Total   admin.ChartPoint
	Most    uint64 // the number of runs that a bar of full height stands for
	Each    string // length of an interval
	Width   int    // of the coordinates in the paths; the height is 100
	Bars    []shape
	Started string // path of the marks of started runs
	Runs    pages.ChartColumn
	Times   []times
	Said    string // the chart of runs in words
}

// shape is a path of one colour.
type shape struct{ Class, Path string }

// times has the percentiles of durations, or of waits.
type times struct {
	pages.ChartColumn
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
	"hour": {"last hour", "60 min ago"}, "day": {"last day", "24 h ago"}, "two-weeks": {"last two weeks", "14 d ago"},
}

// chartRange returns the range of charts in the URL of a request, or "" if the URL has none.
func chartRange(r *http.Request) string {
	if name := r.URL.Query().Get("range"); slices.Contains(admin.RangeNames, name) {
		return name
	}
	return ""
}

// rangeURL returns the URL of a page with a range of charts.
func rangeURL(page, name string) string {
	if name == "" {
		return page
	}
	return page + "?range=" + name
}

// loadTrends returns the charts of a workflow, or of all workflows if the name is empty, for the page with
// this URL. If no range is chosen, it is the shortest one that has runs, so that the charts of a nightly
// workflow are not empty during the day. loadTrends returns nil if the server has no charts.
func loadTrends(charts *admin.Charts, workflow, chosen, page string) (*trends, error) {
	if charts == nil || control.Internal(workflow) {
		return nil, nil
	}
	var shown admin.Chart
	for _, name := range admin.RangeNames {
		if chosen != "" && chosen != name {
			continue
		}
		c, err := charts.Get(workflow, name)
		if err != nil {
			return nil, err
		}
		if shown.Range == "" || hasRuns(&c.Total) {
			shown = c
		}
		if hasRuns(&c.Total) {
			break
		}
	}
	t := &trends{Chart: newTrend(&shown), Since: shown.Since, Other: shown.Merged, Member: shown.OneMember}
	for _, name := range admin.RangeNames {
		t.Ranges = append(t.Ranges, rangeLink{rangeTexts[name][0], rangeURL(page, name) + "#trends", name == shown.Range})
	}
	return t, nil
}

// hasRuns reports whether a chart has anything to show.
func hasRuns(p *admin.ChartPoint) bool {
	return p.Started+p.Succeeded+p.Failed+p.Canceled+p.Wait.Count > 0
}

func newTrend(c *admin.Chart) trend {
	text := rangeTexts[c.Range]
	each := time.Duration(c.Interval * float64(time.Second))
	t := trend{Title: text[0], Ago: text[1], Total: c.Total, Most: 1, Each: pages.Round(each), Width: barWidth * len(c.Points)}
	t.Said = fmt.Sprintf("the %s: %s started, %d succeeded, %d gave up, %d canceled", t.Title, textfmt.Plural(int(c.Total.Started), "run"), c.Total.Succeeded, c.Total.Failed, c.Total.Canceled)
	t.Runs.Name = "Runs"
	for i := range c.Points {
		p := &c.Points[i]
		t.Most = max(t.Most, p.Started, p.Succeeded+p.Failed+p.Canceled)
		t.Runs.Values = append(t.Runs.Values, pages.ChartValue{At: p.Time, Text: pages.NumbersText(
			pages.Counted(int(p.Started), "started", "started"), pages.Counted(int(p.Succeeded), "succeeded", "succeeded"),
			pages.Counted(int(p.Failed), "gave up", "gave up"), pages.Counted(int(p.Canceled), "canceled", "canceled"))})
	}
	t.addBars(c.Points)
	t.addTimes("Took, from start to end", c, func(p *admin.ChartPoint) *admin.Percentiles { return &p.Duration })
	t.addTimes("Wait for the first attempt", c, func(p *admin.ChartPoint) *admin.Percentiles { return &p.Wait })
	return t
}

// HasRuns reports whether there is anything to show.
func (t trend) HasRuns() bool { return hasRuns(&t.Total) }

// Table has the values of all charts.
func (t trend) Table() pages.ChartTable {
	table := pages.ChartTable{Columns: []pages.ChartColumn{t.Runs}}
	for i := range t.Times {
		table.Columns = append(table.Columns, t.Times[i].ChartColumn)
	}
	return table
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

// marks returns the path of the marks of all intervals that have a value.
func marks(points []admin.ChartPoint, of func(*admin.ChartPoint) *admin.Percentiles, mark func(n int, p *admin.Percentiles) string) string {
	var b strings.Builder
	for n := range points {
		if p := of(&points[n]); p.Count > 0 {
			b.WriteString(mark(n, p))
		}
	}
	return b.String()
}

// percentileKinds are the percentiles that the charts show.
var percentileKinds = []struct {
	name string
	of   func(*admin.Percentiles) float64
}{
	{"p50", func(p *admin.Percentiles) float64 { return p.P50 }},
	{"p95", func(p *admin.Percentiles) float64 { return p.P95 }},
	{"p99", func(p *admin.Percentiles) float64 { return p.P99 }},
}

// percentileTexts returns the percentiles, each with its name.
func percentileTexts(p *admin.Percentiles) (list []string) {
	for _, k := range percentileKinds {
		list = append(list, k.name+" ≈ "+pages.Exact(durationOf(k.of(p))))
	}
	return list
}

// addTimes adds the percentiles of a kind of durations. All of them share a logarithmic scale. In each
// interval, their marks are beside each other, over a bar from the lowest to the highest.
func (t *trend) addTimes(title string, c *admin.Chart, of func(*admin.ChartPoint) *admin.Percentiles) {
	total := of(&c.Total)
	if total.Count == 0 {
		return
	}
	scale := pen.Scale{Log: true}
	s := times{ChartColumn: pages.ChartColumn{Name: title}}
	for i := range c.Points {
		p, v := of(&c.Points[i]), pages.ChartValue{At: c.Points[i].Time}
		for _, k := range percentileKinds {
			scale.Include(durationOf(k.of(p)))
		}
		if p.Count > 0 {
			v.Text = strings.Join(percentileTexts(p), ", ")
		}
		s.Values = append(s.Values, v)
	}
	up := func(d time.Duration) float64 { return 96 - 92*scale.At(d) }
	for _, d := range scale.Ticks(4) {
		s.Ticks = append(s.Ticks, tick{pages.Percent(up(d)), pages.Round(d)})
	}
	texts := percentileTexts(total)
	s.Lines = append(s.Lines, shape{"range", marks(c.Points, of, func(n int, p *admin.Percentiles) string {
		low, high := up(durationOf(p.P50)), up(durationOf(p.P99))
		return fmt.Sprintf("M%d %.1fh%dv%.1fh-%[3]dz", n*barWidth+1, high, barWidth-2, low-high)
	})})
	for i, k := range percentileKinds {
		s.Lines = append(s.Lines, shape{"percentile " + k.name, marks(c.Points, of, func(n int, p *admin.Percentiles) string {
			const third = barWidth / 3.0
			return fmt.Sprintf("M%.1f %.1fh%.1f", float64(n*barWidth)+float64(i)*third, up(durationOf(k.of(p))), third)
		})})
		s.Numbers = append(s.Numbers, number{k.name, texts[i]})
	}
	s.Said = "the " + t.Title + ", " + strings.ToLower(title) + ": " + strings.Join(texts, ", ")
	t.Times = append(t.Times, s)
}

// trends returns the charts of a workflow for its page, or nil if there are none, and the query of the URL that
// chooses them.
func (h *server) trends(r *http.Request, workflow string) (charts any, query string, err error) {
	chosen := chartRange(r)
	t, err := loadTrends(h.control.Charts, workflow, chosen, pages.WorkflowURL(workflow))
	if t == nil {
		return nil, "", err
	}
	return t, rangeURL("", chosen), err
}
