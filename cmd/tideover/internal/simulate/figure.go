package simulate

import (
	"cmp"
	"fmt"
	"html/template"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/chart"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/sim"
)

// figure is a chart with a table of its numbers.
type figure struct {
	ID      string
	Title   string
	Caption string
	Heads   []string // of the table
	Rows    [][]string

	high float64 // height on the page; 0 means the default
	plot func(panel) string
}

// pagePanel is small enough for a phone.
var pagePanel = panel{wide: 440, high: 230, left: 52, right: 12, top: 8, bottom: 24}

// SVG returns the chart for the page.
func (f figure) SVG() template.HTML {
	p := pagePanel
	p.high = cmp.Or(f.high, p.high)
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" role="img" aria-labelledby="t-%s"><title id="t-%s">%s</title>%s</svg>`, //nolint:gosec // every text in it is escaped
		p.wide, p.high, f.ID, f.ID, chart.Escape(f.Title+": "+f.Caption), f.plot(p)))
}

// overTime adds a plot of all policies over time, and a table of some values.
func overTime(v *View, f figure, pick func(*sim.Series) []float64, per float64) figure {
	buckets := v.shown()
	end := v.time(buckets)
	all := make([][]float64, len(v.Report.Results))
	top := 0.0
	for i := range all {
		values := pick(&v.Report.Results[i].Series)
		all[i] = scaled(values[:min(buckets, len(values))], per)
		top = max(top, highest(all[i], 0, buckets))
	}
	if top == 0 {
		top = 1 // draw a line at the bottom if all values are 0
	}
	f.plot = func(p panel) string {
		c := &canvas{panel: p}
		c.failures(v, end)
		c.upright(top, compact)
		c.along(chart.Scale{High: end}, int(p.wide/75))
		for i, values := range all {
			c.series(i, visible(v.name(i)), values, top)
		}
		return c.String()
	}
	f.Heads = append([]string{"from"}, policyNames(v)...)
	f.Rows = sampled(all, buckets, v.time)
	return f
}

func scaled(values []float64, per float64) []float64 {
	out := make([]float64, len(values))
	for i, x := range values {
		out[i] = x / per
	}
	return out
}

// tableRows is the number of rows of the table of a chart.
const tableRows = 20

// sampled lists the highest values of equal periods.
func sampled(all [][]float64, buckets int, at func(int) time.Duration) (rows [][]string) {
	n := min(buckets, tableRows)
	for i := range n {
		from, to := i*buckets/n, (i+1)*buckets/n
		row := []string{textfmt.ShortDuration(at(from))}
		for _, values := range all {
			row = append(row, decimals(highest(values, from, to)))
		}
		rows = append(rows, row)
	}
	return rows
}

func policyNames(v *View) (list []string) {
	for i := range v.Report.Results {
		list = append(list, visible(v.name(i)))
	}
	return list
}

func loadFigure(v *View) figure {
	f := figure{ID: "load", Title: "Offered load", Caption: fmt.Sprintf("attempts that reach %s per second, by buckets of %s", visible(v.target()), v.bucket())}
	return overTime(v, f, func(s *sim.Series) []float64 { return s.Load }, v.Report.Bucket)
}

func goodFigure(v *View) figure {
	f := figure{ID: "goodput", Title: "Goodput", Caption: fmt.Sprintf("calls that succeed per second, by buckets of %s", v.bucket())}
	return overTime(v, f, func(s *sim.Series) []float64 { return s.Goodput }, v.Report.Bucket)
}

func queueFigure(v *View) figure {
	f := figure{ID: "queue", Title: "Queue", Caption: "calls that wait in the queues of services"}
	return overTime(v, f, func(s *sim.Series) []float64 { return s.Waiting }, 1)
}

// cdfFigure draws how long successful calls took. It has no plot if there were none.
func cdfFigure(v *View) figure {
	f := figure{ID: "latency", Title: "Latency", Caption: "share of the calls that succeeded within the time, which is on a logarithmic scale; all seeds together"}
	s := chart.Scale{Log: true}
	for i := range v.Report.Results {
		for _, p := range v.Report.Results[i].CDF {
			if p.Share >= 0.01 { // otherwise one fast call would use half of the scale
				s.Include(seconds(p.Seconds))
			}
		}
	}
	if s.High == 0 {
		return f // nothing succeeded
	}
	f.plot = func(p panel) string {
		c := &canvas{panel: p}
		c.upright(1, func(f float64) string { return fmt.Sprintf("%.0f%%", 100*f) })
		c.along(s, 6)
		for i := range v.Report.Results {
			var points []string
			for _, p := range v.Report.Results[i].CDF {
				points = append(points, c.point(s.At(seconds(p.Seconds)), p.Share))
			}
			c.line(i, visible(v.name(i)), points)
		}
		return c.String()
	}
	f.Heads = append([]string{"share"}, policyNames(v)...)
	for _, q := range []float64{0.5, 0.9, 0.95, 0.99, 0.999, 1} {
		row := []string{share.value(q)}
		for i := range v.Report.Results {
			row = append(row, quantile(v.Report.Results[i].CDF, q))
		}
		f.Rows = append(f.Rows, row)
	}
	return f
}

// quantile returns the time within which this share of the calls succeeded.
func quantile(points []sim.Point, q float64) string {
	for _, p := range points {
		if p.Share >= q {
			return textfmt.ShortDuration(seconds(p.Seconds))
		}
	}
	return "-"
}
