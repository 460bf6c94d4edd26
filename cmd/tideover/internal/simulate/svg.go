package simulate

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/chart"
	"github.com/tideover/tideover/internal/textfmt"
)

// Sizes in pixels.
const (
	svgWide   = 840
	svgMargin = 24
	svgLine   = 17
	svgChars  = 112 // characters per line
)

// SVG writes a chart of load and goodput with all policies. It is self-contained, and follows the
// reader's choice of a light or a dark background.
func SVG(w io.Writer, v *View) error {
	var body strings.Builder
	y := float64(svgMargin)
	text := func(class string, x float64, s string) {
		fmt.Fprintf(&body, `<text class="%s" x="%.0f" y="%.1f">%s</text>`+"\n", class, x, y+11, chart.Escape(s))
		y += svgLine
	}
	title := visible(v.Scenario.Name)
	if v.Scenario.About != "" {
		title += ": " + visible(v.Scenario.About)
	}
	text("name", svgMargin, textfmt.ClipWithin(title, svgChars, ".."))
	y += 6
	for i, r := range v.Report.Results {
		fmt.Fprintf(&body, `<rect class="f%d" x="%d" y="%.1f" width="12" height="12" rx="3"/>`+"\n", hue(i), svgMargin, y)
		text("head", svgMargin+20, textfmt.ClipWithin(visible(r.Name), svgChars, ".."))
		for line := range strings.SplitSeq(strings.TrimSpace(chart.Wrap(r.Policy, svgChars, "")), "\n") {
			text("soft", svgMargin+20, line)
		}
	}
	for _, f := range []figure{loadFigure(v), goodFigure(v)} {
		y += 14
		text("head", svgMargin, f.Title+": "+f.Caption)
		p := panel{wide: svgWide, high: 230, left: 72, right: 24, top: 8, bottom: 26}
		fmt.Fprintf(&body, `<g transform="translate(0 %.1f)">%s</g>`+"\n", y, f.plot(p))
		y += p.high
	}
	y += svgMargin / 2
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%d" height="%.0f" role="img" aria-labelledby="title">
<title id="title">%s</title>
<style>%s</style>
<rect class="ground" width="%d" height="%.0f"/>
%s</svg>
`, svgWide, y, svgWide, y, chart.Escape("Simulation of "+title), svgStyle(len(v.Report.Results)), svgWide, y, body.String())
	return err
}

// hue returns the index of a policy's colour.
func hue(i int) int { return i % len(chart.Colours) }

var (
	//go:embed svg.css
	lightStyle string
	//go:embed svg_dark.css
	darkStyle string
)

// svgStyle returns the style of a standalone chart.
func svgStyle(policies int) string {
	return "\n" + lightStyle + chart.SeriesStyle(policies, 0) +
		"@media (prefers-color-scheme: dark) {\n" + darkStyle + chart.SeriesStyle(policies, 1) + "}\n"
}

// panel is the area of a chart, with margins for labels.
type panel struct {
	wide, high, left, right, top, bottom float64
}

func (p panel) inside() (wide, high float64) {
	return p.wide - p.left - p.right, p.high - p.top - p.bottom
}

// canvas is a chart in a panel.
type canvas struct {
	strings.Builder
	panel
}

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(c, format, args...) }

func (c *canvas) text(class string, x, y float64, s string) {
	c.printf(`<text class="%s" x="%.1f" y="%.1f">%s</text>`, class, x, y, chart.Escape(s))
}

// x and y convert a position between 0 and 1, from left to right and from the bottom up, to pixels.
func (c *canvas) x(f float64) float64 {
	wide, _ := c.inside()
	return c.left + min(max(f, 0), 1)*wide
}

func (c *canvas) y(f float64) float64 {
	_, high := c.inside()
	return c.top + (1-min(max(f, 0), 1))*high
}

// upright draws a vertical axis from zero to top. write formats its labels.
func (c *canvas) upright(top float64, write func(float64) string) {
	for _, v := range nice(top, 5) {
		at := c.y(v / top)
		c.printf(`<path class="grid" d="M%.1f %.1fH%.1f"/>`, c.left, at, c.wide-c.right)
		c.text("end", c.left-6, at+4, write(v))
	}
}

// along draws a horizontal time axis with about n labels below the panel.
func (c *canvas) along(s chart.Scale, n int) {
	for _, t := range s.Ticks(n) {
		at := c.x(s.At(t))
		c.printf(`<path class="grid" d="M%.1f %.1fV%.1f"/>`, at, c.high-c.bottom, c.high-c.bottom+4)
		c.text("mid", min(at, c.wide-c.right-8), c.high-c.bottom+17, textfmt.ShortDuration(t))
	}
}

// failures shades the periods of failures.
func (c *canvas) failures(v *View, end time.Duration) {
	for _, f := range v.Scenario.Failures {
		from, to := c.x(float64(f.From)/float64(end)), c.x(float64(v.until(f))/float64(end))
		c.printf(`<rect class="fail" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>`,
			from, c.top, max(to-from, 1), c.high-c.top-c.bottom, chart.Escape(failureLabel(f)))
	}
}

// series draws the line of policy n through values at equal distances. If a column of pixels has
// several values, it draws the highest. top is the upper end of the scale.
func (c *canvas) series(n int, name string, values []float64, top float64) {
	wide, _ := c.inside()
	columns := max(min(len(values), int(wide)), 1)
	var points []string
	for i := range columns {
		from, to := span(i, columns, len(values))
		points = append(points, c.point((float64(i)+0.5)/float64(columns), highest(values, from, to)/top))
	}
	c.line(n, name, points)
}

// point returns a point of a line. Both positions are between 0 and 1.
func (c *canvas) point(x, y float64) string { return fmt.Sprintf("%.1f %.1f", c.x(x), c.y(y)) }

// line draws the line of policy n. It is thinner than the line of the policy before, so that both
// lines are visible where they overlap.
func (c *canvas) line(n int, name string, points []string) {
	d := strings.Join(points, "L")
	if d != "" {
		d = "M" + d
	}
	c.printf(`<path class="line s%d" stroke-width="%.1f" d="%s"><title>%s</title></path>`, hue(n), max(3.4-0.65*float64(n), 1.4), d, chart.Escape(name))
}

// nice returns about n round numbers from 0 to top.
func nice(top float64, n int) (list []float64) {
	if !(top > 0) || math.IsInf(top, 0) {
		return []float64{0}
	}
	step := math.Pow(10, math.Floor(math.Log10(top/float64(n))))
	for _, m := range []float64{1, 2, 5, 10} {
		if top/(step*m) <= float64(n) {
			step *= m
			break
		}
	}
	for i := 0; float64(i)*step <= top*1.0001; i++ {
		list = append(list, float64(i)*step)
	}
	return list
}

// compact formats a number briefly, such as 12k.
func compact(f float64) string {
	switch {
	case f >= 1e9:
		return fmt.Sprintf("%.4gG", f/1e9)
	case f >= 1e6:
		return fmt.Sprintf("%.4gM", f/1e6)
	case f >= 1e4:
		return fmt.Sprintf("%.4gk", f/1e3)
	default:
		return fmt.Sprintf("%.4g", f)
	}
}
