package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/chart"
	"github.com/tideover/tideover/internal/textfmt"
)

// Style configures [Text] and [List].
type Style struct {
	Width  int  // columns to fill; 0 means 80
	ASCII  bool // use ASCII characters only
	Colour bool
	Log    bool // draw the bars on a logarithmic scale
}

// leastBar is the least number of columns for bars, even if the lines are then too long for the
// terminal.
const leastBar = 12

// view has the settings for writing certain plans. They are derived from a [Style] and the plans.
type view struct {
	width  int
	glyphs glyphs
	paint  chart.Paint
	scale  chart.Scale
	rule   string // separator between policies
	many   bool   // there is more than one plan
}

// Text writes the plans as text. One plan has its bars beside the numbers. Several plans are
// written as a table, with the bars of all plans below, on one scale.
func Text(w io.Writer, plans []Plan, s Style) error {
	v := &view{
		width: cmp.Or(s.Width, 80), glyphs: unicodeGlyphs, rule: "│",
		paint: chart.Paint{On: s.Colour}, scale: delayScale(plans, s.Log), many: len(plans) > 1,
	}
	if s.ASCII {
		v.glyphs, v.rule = asciiGlyphs, "|"
	}
	var b strings.Builder
	v.titles(&b, plans)
	if v.many {
		v.tables(&b, plans)
		v.barList(&b, plans)
	} else {
		v.table(&b, plans)
	}
	v.notes(&b, plans)
	_, err := io.WriteString(w, b.String())
	return err
}

func (v *view) titles(b *strings.Builder, plans []Plan) {
	for i, p := range plans {
		indent := ""
		if v.many {
			fmt.Fprintf(b, "%s  ", v.paint.Strong(i, chart.Letter(i)))
			indent = "   "
		}
		text := p.Policy.String()
		if p.Name != text {
			fmt.Fprint(b, v.paint.Bold(p.Name))
			if p.Use != "" {
				fmt.Fprint(b, ": ", p.Use)
			}
			fmt.Fprint(b, "\n", indent)
		}
		fmt.Fprintln(b, text)
	}
}

// table writes the table of a single plan, with a bar in each row.
func (v *view) table(b *strings.Builder, plans []Plan) {
	p := &plans[0]
	if len(p.Retries) == 0 {
		return
	}
	lines := numbers(plans, v.rule)
	used := 0
	for _, l := range lines {
		used = max(used, utf8.RuneCountInString(l))
	}
	width := max(v.width-used-2, leastBar)
	b.WriteString("\n" + v.paint.Dim(lines[0]) + "\n")
	for i, l := range lines[1:] {
		if i < len(p.Retries) {
			l += strings.Repeat(" ", used-utf8.RuneCountInString(l)+2) + v.bar(p, 0, p.Retries[i], width)
		}
		b.WriteString(l + "\n")
	}
	v.legend(b, plans, width)
}

// tables writes the plans side by side, in one or more tables. Each table has as many plans as fit
// in the width.
func (v *view) tables(b *strings.Builder, plans []Plan) {
	if mostRetries(plans) == 0 {
		return
	}
	for first := 0; first < len(plans); {
		n := len(plans) - first
		lines := numbers(plans[first:first+n], v.rule)
		for n > 1 && utf8.RuneCountInString(lines[0]) > v.width {
			n--
			lines = numbers(plans[first:first+n], v.rule)
		}
		b.WriteString("\n" + v.headings(lines[0], plans[first:first+n], first) + "\n")
		b.WriteString(v.paint.Dim(lines[0]) + "\n")
		for _, l := range lines[1:] {
			b.WriteString(l + "\n")
		}
		first += n
	}
}

// headings returns the line with the names of the policies above their columns. line is the line of
// column headings, and first is the number of the first plan.
func (v *view) headings(line string, plans []Plan, first int) string {
	var b strings.Builder
	for i, group := range strings.Split(line, v.rule) {
		width := utf8.RuneCountInString(group)
		before := len(group) - len(strings.TrimLeft(group, " "))
		if i == 0 {
			before = len("retry") + 2 // the first group begins with the column "retry"
		}
		before = min(before, 4+len("retry"))
		title := textfmt.ClipASCII(chart.Letter(first+i)+"  "+plans[i].Name, width-before-2)
		if i > 0 {
			b.WriteString(v.paint.Dim(v.rule))
		}
		b.WriteString(strings.Repeat(" ", before) + v.paint.Strong(first+i, title))
		if i < len(plans)-1 {
			b.WriteString(strings.Repeat(" ", width-before-len(title)))
		}
	}
	return b.String()
}

// numbers returns the lines of a table of the plans: the column headings, then one line per retry.
func numbers(plans []Plan, rule string) []string {
	rows := 0
	for _, p := range plans {
		n := len(p.Retries)
		if !p.Whole() {
			n++
		}
		rows = max(rows, n)
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "retry\t")
	each(w, plans, rule, func(p *Plan) []string { return p.columns("delay", "range", "waits so far", "sample") })
	for n := range rows {
		fmt.Fprint(w, rowName(plans, n), "\t")
		each(w, plans, rule, func(p *Plan) []string { return p.row(n) })
	}
	_ = w.Flush() // writing to a strings.Builder can't fail
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i := range lines {
		// tabwriter puts two spaces before the first column, too: remove them.
		lines[i] = strings.TrimRight(strings.TrimPrefix(lines[i], "  "), " ")
	}
	return lines
}

// each writes one line of a table: the cells of each plan, with a rule between the plans.
func each(w io.Writer, plans []Plan, rule string, cells func(*Plan) []string) {
	for i := range plans {
		if i > 0 {
			fmt.Fprint(w, rule, "\t")
		}
		fmt.Fprint(w, strings.Join(cells(&plans[i]), "\t"), "\t")
	}
	fmt.Fprintln(w)
}

// rowName returns the number of the retry in row n. It returns dots for the last row, which stands
// for retries that are not listed.
func rowName(plans []Plan, n int) string {
	if n < mostRetries(plans) {
		return strconv.Itoa(n + 1)
	}
	return "..."
}

// columns returns the cells of a plan in one row. It leaves out sample if the plan has no samples.
func (p *Plan) columns(delay, band, sum, sample string) []string {
	cells := []string{delay, band, sum}
	if p.Sampled {
		cells = append(cells, sample)
	}
	return cells
}

// starred reports whether a listed retry can't happen.
func (p *Plan) starred() bool {
	n := len(p.Retries)
	return n > 0 && p.Retries[n-1].Never
}

// row returns the cells of row n. A star marks a retry that can't happen.
func (p *Plan) row(n int) []string {
	switch {
	case n == len(p.Retries) && !p.Whole():
		return p.columns("...", "", "", "")
	case n >= len(p.Retries):
		return p.columns("", "", "", "")
	}
	r := p.Retries[n]
	delay := textfmt.ShortDuration(r.Delay)
	if r.Never {
		delay += "*"
	} else if p.starred() {
		delay += " "
	}
	return p.columns(delay, durationRange(r.Low, r.High), durationRange(r.Sum.Low, r.Sum.High), textfmt.ShortDuration(r.Sample))
}

// mostRetries returns the largest number of listed retries of a plan.
func mostRetries(plans []Plan) (n int) {
	for _, p := range plans {
		n = max(n, len(p.Retries))
	}
	return n
}

// barList writes the bars of several policies, retry by retry.
func (v *view) barList(b *strings.Builder, plans []Plan) {
	rows := mostRetries(plans)
	if rows == 0 {
		return
	}
	name := len(chart.Letter(len(plans) - 1))
	width := max(v.width-len("retry")-2-name-2, leastBar)
	b.WriteString("\n")
	for n := range rows {
		label := strconv.Itoa(n + 1)
		for i, p := range plans {
			if n >= len(p.Retries) {
				continue
			}
			l := fmt.Sprintf("%*s", name, chart.Letter(i))
			fmt.Fprintf(b, "%5s  %s  %s\n", label, v.paint.Colour(i, l), v.bar(&p, i, p.Retries[n], width))
			label = ""
		}
	}
	v.legend(b, plans, width)
}

// legend writes a line that explains the bars. width is the full length of a bar.
func (v *view) legend(b *strings.Builder, plans []Plan, width int) {
	if v.scale.High == 0 {
		return
	}
	parts := []string{v.glyphs.mark + " delay"}
	if slices.ContainsFunc(plans, func(p Plan) bool { return p.Policy.Random() }) {
		parts = append(parts, v.glyphs.band+" range")
	}
	if slices.ContainsFunc(plans, func(p Plan) bool { return p.Sampled }) {
		parts = append(parts, v.glyphs.sample+" sample")
	}
	if slices.ContainsFunc(plans, func(p Plan) bool { return p.starred() }) {
		parts = append(parts, "* can't happen")
	}
	full := "full length " + textfmt.ShortDuration(v.scale.High)
	if v.scale.Log {
		full = fmt.Sprintf("logarithmic from %s to %s", textfmt.ShortDuration(v.scale.Low), textfmt.ShortDuration(v.scale.High))
	} else if v.crushed(plans, width) {
		full += " (try --log)"
	}
	line := strings.Join(append(parts, full), "   ")
	pad := max(v.width-utf8.RuneCountInString(line), 0)
	if v.many {
		pad = len("retry") + 2 + len(chart.Letter(len(plans)-1)) + 2
	}
	b.WriteString(strings.Repeat(" ", pad) + v.paint.Dim(line) + "\n")
}

// notes writes the notes, separately for each policy.
func (v *view) notes(b *strings.Builder, plans []Plan) {
	b.WriteString("\n")
	if !v.many {
		b.WriteString(chart.Wrap(strings.Join(plans[0].Notes(), "\n"), v.width, ""))
		return
	}
	for i, p := range plans {
		indent := strings.Repeat(" ", len(chart.Letter(i))+2)
		text := chart.Wrap(strings.Join(p.Notes(), " "), v.width, indent)
		b.WriteString(v.paint.Strong(i, chart.Letter(i)) + "  " + strings.TrimPrefix(text, indent))
	}
}

// List writes the name, the purpose and the text form of each plan. The plans must be from [Presets].
func List(w io.Writer, plans []Plan, s Style) error {
	paint := chart.Paint{On: s.Colour}
	width := 0
	for _, p := range plans {
		width = max(width, len(p.Name))
	}
	var b strings.Builder
	for _, p := range plans {
		fmt.Fprintf(&b, "%s%s  %s\n", paint.Bold(p.Name), strings.Repeat(" ", width-len(p.Name)), p.Use)
		fmt.Fprintf(&b, "%s  %s\n", strings.Repeat(" ", width), paint.Dim(p.Policy.String()))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// durationRange formats a range of durations, or one duration if low and high are equal.
func durationRange(low, high time.Duration) string {
	if low == high {
		return textfmt.ShortDuration(low)
	}
	return textfmt.ShortDuration(low) + ".." + textfmt.ShortDuration(high)
}

// delayScale returns a scale for all delays of the plans.
func delayScale(plans []Plan, log bool) chart.Scale {
	s := chart.Scale{Log: log}
	for _, p := range plans {
		for _, r := range p.Retries {
			s.Include(r.Low, r.Delay, r.High)
		}
	}
	return s
}
