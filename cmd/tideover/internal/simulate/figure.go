package simulate

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
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

	high float64            // height on the page; 0 means the default
	plot func(panel) string // draws the chart as SVG elements; nil if there is nothing to draw
}

// pagePanel is the size of a chart on the page, small enough for a phone.
var pagePanel = panel{wide: 440, high: 230, left: 52, right: 12, top: 8, bottom: 24}

// SVG returns the chart for the page.
func (f figure) SVG() template.HTML {
	p := pagePanel
	p.high = cmp.Or(f.high, p.high)
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" role="img" aria-labelledby="t-%s"><title id="t-%s">%s</title>%s</svg>`, //nolint:gosec // every text in it is escaped
		p.wide, p.high, f.ID, f.ID, chart.Escape(f.Title+": "+f.Caption), f.plot(p)))
}

// overTime returns f with a plot of a series over time for all policies, and a table of its highest
// values. pick selects the series, whose values are divided by per.
func overTime(v *View, f figure, pick func(*sim.Series) []float64, per float64) figure {
	buckets := v.shown()
	end := v.time(buckets)
	all := make([][]float64, len(v.Report.Results))
	top := 0.0
	for i := range all {
		values := pick(&v.Report.Results[i].Series)
		for _, x := range values[:min(buckets, len(values))] {
			all[i] = append(all[i], x/per)
		}
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

// tableRows is the largest number of rows in the table of a chart.
const tableRows = 20

// sampled returns the rows of a table: for each of tableRows equal periods, its start and the highest
// value of each policy in it.
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
			if p.Share >= 0.01 { // so that one very fast call does not take up half of the scale
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

// quantile returns the time within which the share q of the successful calls ended, for display; "-"
// if there were none.
func quantile(points []sim.Point, q float64) string {
	for _, p := range points {
		if p.Share >= q {
			return textfmt.ShortDuration(seconds(p.Seconds))
		}
	}
	return "-"
}

// Sizes of a heat map and of bars.
const (
	heatCells  = 120
	heatLevels = 6
	barHigh    = 40
)

// heatFigure draws when a policy makes its attempts: first attempts in the lowest row, second ones
// above it, and so on.
func heatFigure(v *View, n int) figure {
	rows := v.Report.Results[n].Series.Attempts
	name := visible(v.name(n))
	f := figure{
		ID: fmt.Sprintf("heat-%d", n), Title: "Attempts of " + name,
		Caption: "first attempts in the lowest row, second ones above it, and so on; the darker, the more in a bucket, each step three times as many, on the same scale for all policies",
	}
	buckets := v.shown()
	end := v.time(buckets)
	top := mostAttempts(v)
	f.plot = func(p panel) string {
		c := &canvas{panel: p}
		_, high := c.inside()
		tall := high / float64(max(len(rows), 1))
		for r, row := range rows {
			y := c.top + high - float64(r+1)*tall
			c.heatRow(n, row[:min(buckets, len(row))], y, tall, top)
			if len(rows) <= 12 || r%2 == 0 {
				c.text("end", c.left-6, y+tall/2+4, ordinal(r, len(rows)))
			}
		}
		c.along(chart.Scale{High: end}, int(p.wide/75))
		return c.String()
	}
	f.Heads = []string{"attempt", "in all, per seed", "most in " + v.bucket()}
	for r, row := range rows {
		f.Rows = append(f.Rows, []string{ordinal(r, len(rows)), decimals(total(row)), decimals(highest(row, 0, len(row)))})
	}
	return f
}

// ordinal returns the label of a row of a heat map. The last row of a full map includes all later
// attempts, so its label ends with "+".
func ordinal(row, rows int) string {
	if row == rows-1 && rows >= heatFull {
		return strconv.Itoa(row+1) + "+"
	}
	return strconv.Itoa(row + 1)
}

// heatFull is the number of rows of a full heat map, whose last row includes all later attempts.
const heatFull = 10

// heatRow draws a row of a heat map at the height y. Neighbouring cells of the same level are one
// rectangle.
func (c *canvas) heatRow(n int, row []float64, y, tall, top float64) {
	cells := max(min(len(row), heatCells), 1)
	level := func(i int) int {
		from, to := span(i, cells, len(row))
		return heat(highest(row, from, to), top)
	}
	for i := 0; i < cells; {
		k, from := level(i), i
		for i < cells && level(i) == k {
			i++
		}
		if k > 0 {
			left, right := c.x(float64(from)/float64(cells)), c.x(float64(i)/float64(cells))
			c.printf(`<rect class="f%d h%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, hue(n), k, left, y+0.5, right-left, tall-1)
		}
	}
}

// heat returns the level of a value: 0 for nothing, heatLevels for top. Each level begins at three
// times the value of the level below.
func heat(v, top float64) int {
	if v <= 0 || top <= 0 {
		return 0
	}
	return max(heatLevels+int(math.Floor(math.Log(v/top)/math.Log(3)+0.001)), 1)
}

// mostAttempts returns the highest value in the heat maps of all policies.
func mostAttempts(v *View) (top float64) {
	for i := range v.Report.Results {
		for _, row := range v.Report.Results[i].Series.Attempts {
			top = max(top, highest(row, 0, len(row)))
		}
	}
	return top
}

func total(row []float64) (sum float64) {
	for _, x := range row {
		sum += x
	}
	return sum
}

// recoveryFigure draws the recovery times as bars with their intervals.
func recoveryFigure(v *View) figure {
	f := figure{ID: "recovery", Title: "Recovery", Caption: byName("recovery").meaning(v)}
	f.high = float64(barHigh*len(v.Report.Results) + 30)
	top := 0.0
	for i := range v.Report.Results {
		e := v.Report.Results[i].Recovery
		top = max(top, e.Mean+e.Half)
	}
	f.plot = func(p panel) string {
		p.left = 8 // the names are above the bars
		c := &canvas{panel: p}
		for i := range v.Report.Results {
			c.bar(v, i, p.top+float64(barHigh*i), top)
		}
		c.along(chart.Scale{High: seconds(top)}, 5)
		return c.String()
	}
	f.Heads = []string{"policy", "recovery", "seeds that never recover"}
	for i := range v.Report.Results {
		f.Rows = append(f.Rows, []string{visible(v.name(i)), formatRecovery(v, i), fraction(v.neverRecover(i), v.Report.Seeds)})
	}
	return f
}

// bar draws the recovery time of policy n as a bar at the height y. top is the end of the scale in
// seconds.
func (c *canvas) bar(v *View, n int, y, top float64) {
	e := v.Report.Results[n].Recovery
	c.text("soft", c.left, y+12, visible(textfmt.ClipWithin(v.name(n), 34, ".."))+": "+formatRecovery(v, n))
	if e.N == 0 || top == 0 {
		return
	}
	c.printf(`<rect class="f%d" x="%.1f" y="%.1f" width="%.1f" height="12" rx="2"/>`, hue(n), c.left, y+17, max(c.x(e.Mean/top)-c.left, 1))
	if e.Half > 0 {
		c.printf(`<path class="whisker" d="M%.1f %.1fH%.1f"/>`, c.x((e.Mean-e.Half)/top), y+23, c.x((e.Mean+e.Half)/top))
	}
}

// formatRecovery formats the recovery time of policy n, with its interval and the number of seeds that
// recovered if not all did.
func formatRecovery(v *View, n int) string {
	c := v.cell(byName("recovery"), n)
	if c.Half != "" {
		c.Value += " ± " + c.Half
	}
	if c.Note != "" {
		c.Value += " (" + c.Note + " seeds)"
	}
	return c.Value
}

// neverRecover returns the number of seeds in which a policy does not recover.
func (v *View) neverRecover(n int) int {
	return int(math.Round(v.Report.Results[n].NeverRecovers * float64(v.Report.Seeds)))
}

// needsRecovery reports whether any policy needed time to recover.
func needsRecovery(v *View) bool {
	return slices.ContainsFunc(v.Report.Results, func(r sim.Result) bool { return r.Recovery.Mean > 0 || r.NeverRecovers > 0 })
}
