package simulate

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/tideover/tideover/cmd/tideover/internal/chart"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/sim"
)

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

// ordinal returns the label of a row; the last row of a full map includes all later attempts.
func ordinal(row, rows int) string {
	if row == rows-1 && rows >= heatFull {
		return strconv.Itoa(row+1) + "+"
	}
	return strconv.Itoa(row + 1)
}

// heatFull is the number of rows from which the last one includes later attempts.
const heatFull = 10

// heatRow draws a row: neighbours of the same level are one rectangle.
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

// heat returns a level from 0 for nothing to heatLevels for the most; each level is three times as
// much as the one below.
func heat(v, top float64) int {
	if v <= 0 || top <= 0 {
		return 0
	}
	return max(heatLevels+int(math.Floor(math.Log(v/top)/math.Log(3)+0.001)), 1)
}

// mostAttempts returns the highest number of attempts of one row in a bucket, of all policies.
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

// bar draws the recovery of a policy.
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

// formatRecovery formats the recovery time.
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
