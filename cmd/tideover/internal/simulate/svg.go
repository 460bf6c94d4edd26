package simulate

import (
	"fmt"
	"io"
	"strings"

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

const lightStyle = `
text { font: 12px system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; fill: #1f2328 }
.name { font-weight: 600; font-size: 13px }
.head { font-weight: 600 }
.soft, .end, .mid { fill: #59636e; font-size: 11px }
.end { text-anchor: end }
.mid { text-anchor: middle }
.ground { fill: #ffffff }
.grid { stroke: #d1d9e0; stroke-width: 1; fill: none }
.line { fill: none; stroke-linejoin: round }
.fail { fill: #cf222e; fill-opacity: .09 }
`

const darkStyle = `text { fill: #e6edf3 }
.soft, .end, .mid { fill: #9198a1 }
.ground { fill: #0d1117 }
.grid { stroke: #3d444d }
.fail { fill: #ff7b72; fill-opacity: .14 }
`

// svgStyle returns the style of a standalone chart.
func svgStyle(policies int) string {
	return lightStyle + hues(policies, 0) + "@media (prefers-color-scheme: dark) {\n" + darkStyle + hues(policies, 1) + "}\n"
}

// hues returns the CSS classes of the policies' colours; ground is 0 for a light and 1 for a dark
// background.
func hues(policies, ground int) string {
	var b strings.Builder
	for i, c := range chart.Colours[:min(policies, len(chart.Colours))] {
		fmt.Fprintf(&b, ".f%d { fill: %s } .s%d { stroke: %s }\n", i, c[ground], i, c[ground])
	}
	return b.String()
}
