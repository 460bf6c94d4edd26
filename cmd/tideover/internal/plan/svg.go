package plan

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/chart"
	"github.com/tideover/tideover/internal/textfmt"
)

// Sizes in pixels, unless stated otherwise.
const (
	svgWidth  = 840
	svgLeft   = 70 // left margin of the plots, with room for the labels of the axis
	svgRight  = 24
	svgMargin = 24
	plotWidth = svgWidth - svgLeft - svgRight
	plotHigh  = 240
	laneHigh  = 34
	lineHigh  = 17
	monoLine  = 114 // monospaced characters per line
	softLine  = 118 // approximate number of proportional characters per line
)

// drawing builds the text of an SVG, from top to bottom.
type drawing struct {
	strings.Builder
	plans []Plan
	log   bool    // logarithmic scales
	y     float64 // where the next part begins
}

// SVG writes the plans as a chart: a legend with the sums, the delay before each retry with its
// band, and a timeline of the retries. log selects logarithmic scales. The chart needs no other
// files, and its colours follow the reader's choice of a light or a dark background.
func SVG(w io.Writer, plans []Plan, log bool) error {
	d := &drawing{plans: plans, log: log, y: svgMargin}
	d.legend()
	d.delays()
	d.timeline()
	body := d.String()
	d.Reset()
	high := d.y + svgMargin - 8
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%d" height="%.0f" role="img" aria-labelledby="title">`+"\n",
		svgWidth, high, svgWidth, high)
	names := make([]string, len(plans))
	for i, p := range plans {
		names[i] = p.Name
	}
	d.printf("<title id=\"title\">%s</title>\n", chart.Escape("Retry plan: "+strings.Join(names, "; ")))
	d.style()
	d.printf(`<rect class="ground" width="%d" height="%.0f"/>`+"\n", svgWidth, high)
	_, err := io.WriteString(w, d.String()+body+"</svg>\n")
	return err
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(d, format, args...) }

func (d *drawing) text(class string, x, y float64, s string) {
	d.printf(`<text class="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, x, y, chart.Escape(s))
}

func (d *drawing) style() {
	d.WriteString(`<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; fill: #1f2328 }
.name { font-weight: 600; font-size: 13px }
.head { font-weight: 600 }
.mono { font: 11px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #59636e }
.soft { fill: #59636e }
.end { text-anchor: end; fill: #59636e; font-size: 11px }
.mid { text-anchor: middle; fill: #59636e; font-size: 11px }
.ground { fill: #ffffff }
.grid { stroke: #d1d9e0; stroke-width: 1; fill: none }
.band { fill-opacity: .22; stroke: none }
.reach { fill-opacity: .16; stroke: none }
.line { fill: none; stroke-width: 1; stroke-opacity: .55; stroke-dasharray: 2 3 }
.mark { stroke-width: 3; stroke-linecap: round; fill: none }
.dot { stroke: #ffffff; stroke-width: 1 }
.sample { stroke-width: 1.5; fill: #ffffff }
.limit { stroke-width: 1.5; fill: none; stroke-dasharray: 4 3 }
.never { opacity: .3 }
`)
	d.WriteString(chart.SeriesStyle(len(d.plans), 0))
	d.WriteString(`@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.mono, .soft, .end, .mid { fill: #9198a1 }
.ground, .sample { fill: #0d1117 }
.grid { stroke: #3d444d }
.dot { stroke: #0d1117 }
`)
	d.WriteString(chart.SeriesStyle(len(d.plans), 1))
	d.WriteString("}\n</style>\n")
}

// legend adds the names and the sums of the policies.
func (d *drawing) legend() {
	for i, p := range d.plans {
		c := i % len(chart.Colours)
		d.printf(`<rect class="f%d" x="%d" y="%.1f" width="12" height="12" rx="3"/>`+"\n", c, svgMargin, d.y)
		name := p.Name
		if d.many() {
			name = chart.Letter(i) + "  " + name
		}
		d.text("name", svgMargin+20, d.y+11, textfmt.ClipASCII(name, 100))
		d.y += lineHigh
		text := p.Policy.String()
		if p.Name != text {
			d.lines("mono", text, monoLine)
		}
		d.lines("soft", summary(&p), softLine)
		d.y += 7
	}
}

func (d *drawing) many() bool { return len(d.plans) > 1 }

// lines adds a text, wrapped at width characters.
func (d *drawing) lines(class, text string, width int) {
	for line := range strings.SplitSeq(strings.TrimSuffix(chart.Wrap(text, width, ""), "\n"), "\n") {
		d.text(class, svgMargin+20, d.y+11, line)
		d.y += lineHigh
	}
}

// summary returns the sum of the waits and the worst case.
func summary(p *Plan) string {
	s := p.waits()
	if p.WorstCase > 0 {
		s += fmt.Sprintf(" The worst case is %s in all.", textfmt.ShortDuration(p.WorstCase))
	}
	return s
}

// delays draws the delay before each retry.
func (d *drawing) delays() {
	rows := mostRetries(d.plans)
	if rows == 0 {
		return
	}
	d.heading("Delay before each retry", "line: without jitter, shade: range of the jitter")
	s := delayScale(d.plans, d.log)
	bottom := d.y + plotHigh
	at := func(t time.Duration) float64 { return bottom - s.At(t)*plotHigh }
	for _, t := range s.Ticks(6) {
		d.printf(`<path class="grid" d="M%d %.1fH%d"/>`+"\n", svgLeft, at(t), svgWidth-svgRight)
		d.text("end", svgLeft-8, at(t)+4, textfmt.ShortDuration(t))
	}
	slot := plotWidth / float64(rows)
	every := max(1, int(26/slot+0.999))
	for n := 0; n < rows; n += every {
		d.text("mid", svgLeft+(float64(n)+0.5)*slot, bottom+16, fmt.Sprint(n+1))
	}
	for i := range d.plans {
		d.column(i, slot, at)
	}
	d.y = bottom + 34
}

// column draws the delays of plan i: a band with a mark for each retry, and a thin line through the
// marks. slot is the width of a retry, and at returns the y coordinate of a duration.
func (d *drawing) column(i int, slot float64, at func(time.Duration) float64) {
	p, c := &d.plans[i], i%len(chart.Colours)
	wide := min(slot*0.72/float64(len(d.plans)), 34)
	middle := func(n int) float64 {
		return svgLeft + (float64(n)+0.5)*slot + (float64(i)-float64(len(d.plans)-1)/2)*wide*1.15
	}
	var points []string
	for n, r := range p.Retries {
		points = append(points, fmt.Sprintf("%.1f %.1f", middle(n), at(r.Delay)))
	}
	if len(points) > 1 {
		d.printf(`<path class="line s%d" d="M%s"/>`+"\n", c, strings.Join(points, "L"))
	}
	for n, r := range p.Retries {
		x := middle(n)
		d.printf(`<g%s><title>%s</title>`, never(r), chart.Escape(tooltip(p, r)))
		top := min(at(r.High), at(r.Low)-1)
		if r.Low != r.High {
			d.printf(`<rect class="band f%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="%.1f"/>`,
				c, x-wide/2, top, wide, at(r.Low)-top, min(3, wide/3))
		}
		d.printf(`<path class="mark s%d" d="M%.1f %.1fh%.1f"/>`, c, x-wide/2+1.5, at(r.Delay), max(wide-3, 0.5))
		if p.Sampled {
			d.printf(`<circle class="sample s%d" cx="%.1f" cy="%.1f" r="3"/>`, c, x, at(r.Sample))
		}
		d.WriteString("</g>\n")
	}
}

// tooltip returns the text that is shown when the pointer is over a retry.
func tooltip(p *Plan, r Retry) string {
	s := fmt.Sprintf("%s, retry %d: %s", p.Name, r.N, textfmt.ShortDuration(r.Delay))
	if r.Low != r.High {
		s += fmt.Sprintf(" (%s)", durationRange(r.Low, r.High))
	}
	s += fmt.Sprintf("; %s so far", durationRange(r.Sum.Low, r.Sum.High))
	if p.Sampled {
		s += "; sample " + textfmt.ShortDuration(r.Sample)
	}
	if r.Never {
		s += "; can't happen"
	}
	return s
}

func never(r Retry) string {
	if r.Never {
		return ` class="never"`
	}
	return ""
}

// heading adds the heading of a plot, and key, the explanation of its symbols.
func (d *drawing) heading(s, key string) {
	d.y += 18
	if d.log {
		s += ", logarithmic"
	}
	if len(d.plans) > 0 && d.plans[0].Sampled {
		key += ", ring: the sample"
	}
	d.text("head", svgMargin, d.y, s)
	d.text("end", svgWidth-svgRight, d.y, key)
	d.y += 20
}

// timeline draws when each attempt starts if all of them fail at once.
func (d *drawing) timeline() {
	s := chart.Scale{Log: d.log}
	for _, p := range d.plans {
		for _, r := range p.Retries {
			s.Include(r.Sum.Low, r.Sum.Delay, r.Sum.High)
		}
	}
	if s.High == 0 {
		return
	}
	d.heading("When the attempts start, if each fails at once", "dot: without jitter, shade: earliest to latest")
	bottom := d.y + laneHigh*float64(len(d.plans)) + 4
	at := func(t time.Duration) float64 { return svgLeft + s.At(t)*plotWidth }
	ticks := s.Ticks(9)
	if d.log {
		ticks = append([]time.Duration{0}, ticks...) // the first attempt, which Ticks leaves out
	}
	for _, t := range ticks {
		d.printf(`<path class="grid" d="M%.1f %.1fV%.1f"/>`+"\n", at(t), d.y, bottom)
		d.text("mid", at(t), bottom+16, textfmt.ShortDuration(t))
	}
	for i := range d.plans {
		d.lane(i, d.y+laneHigh*(float64(i)+0.5)+2, s, at)
	}
	d.y = bottom + 24
}

// lane draws the timeline of plan i: a dot for each attempt, on a bar from its earliest to its
// latest start. at returns the x coordinate of a duration.
func (d *drawing) lane(i int, y float64, s chart.Scale, at func(time.Duration) float64) {
	p, c := &d.plans[i], i%len(chart.Colours)
	d.printf(`<path class="grid" d="M%d %.1fH%d"/>`+"\n", svgLeft, y, svgWidth-svgRight)
	if d.many() {
		d.text("end", svgLeft-12, y+4, chart.Letter(i))
	}
	for _, r := range p.Retries { // draw the bars first, so that they do not cover dots
		if left, right := at(r.Sum.Low), at(r.Sum.High); r.Sum.Low != r.Sum.High {
			d.printf(`<g%s><rect class="reach f%d" x="%.1f" y="%.1f" width="%.1f" height="14" rx="3"/></g>`+"\n",
				never(r), c, left, y-7, max(right-left, 1))
		}
	}
	for _, r := range p.Retries {
		d.printf(`<g%s><title>%s</title>`, never(r), chart.Escape(tooltip(p, r)))
		d.printf(`<circle class="dot f%d" cx="%.1f" cy="%.1f" r="4"/>`, c, at(r.Sum.Delay), y)
		if p.Sampled {
			d.printf(`<circle class="sample s%d" cx="%.1f" cy="%.1f" r="3"/>`, c, at(r.Sum.Sample), y)
		}
		d.WriteString("</g>\n")
	}
	d.printf(`<circle class="dot f%d" cx="%.1f" cy="%.1f" r="4"><title>%s, first attempt</title></circle>`+"\n",
		c, at(0), y, chart.Escape(p.Name))
	if t := p.Policy.TotalTimeout; t > 0 && t <= s.High {
		d.printf(`<path class="limit s%d" d="M%.1f %.1fv%d"><title>total-timeout=%s</title></path>`+"\n",
			c, at(t), y-laneHigh/2+2, laneHigh-4, textfmt.ShortDuration(t))
	}
}
