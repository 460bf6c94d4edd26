package simulate

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/chart"
	"github.com/tideover/tideover/internal/textfmt"
)

// Style is the layout of text.
type Style struct {
	Width  int  // columns to fill; 0 means 80
	ASCII  bool // use ASCII characters only
	Colour bool
}

// signs are the special characters of the text.
type signs struct {
	give, best           string   // of the table: before the interval, and after the best value
	good, load, failed   string   // of the plots: cells of goodput and load, and periods of failures
	side, corner, bottom string   // axes of the plots
	eighths              []string // partly filled cells, from the lowest to the full one
}

var (
	unicodeSigns = signs{
		give: "±", best: "✓", good: "█", load: "░", failed: "▀", side: "│", corner: "└", bottom: "─",
		eighths: []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
	}
	asciiSigns = signs{give: "+-", best: "*", good: "#", load: ":", failed: "x", side: "|", corner: "+", bottom: "-", eighths: []string{"#"}}
)

// page builds the text of a report.
type page struct {
	strings.Builder
	v     *View
	width int
	signs signs
	paint chart.Paint
}

// Text writes the report for a terminal: the scenario, a table with a column for each policy, the
// load over time, and the findings.
func Text(w io.Writer, v *View, s Style) error {
	p := &page{v: v, width: s.Width, signs: unicodeSigns, paint: chart.Paint{On: s.Colour}}
	if s.Width <= 0 {
		p.width = 80
	}
	if s.ASCII {
		p.signs = asciiSigns
	}
	p.head()
	p.table()
	p.plots()
	p.WriteString("\n")
	for _, sentence := range v.Findings() {
		p.WriteString(chart.Wrap(visible(sentence), p.width, ""))
	}
	text := p.String()
	if s.ASCII {
		text = asciiOnly(text)
	}
	_, err := io.WriteString(w, text)
	return err
}

// head writes the scenario and the policies.
func (p *page) head() {
	s := &p.v.Scenario
	title := p.paint.Bold(visible(s.Name))
	if s.About != "" {
		title += ": " + visible(s.About)
	}
	p.WriteString(chart.Wrap(title, p.width, ""))
	p.WriteString(chart.Wrap(visible(strings.Join(Describe(*s), " ")), p.width, "  "))
	p.WriteString("\n")
	wide := 0
	for i := range p.v.Report.Results {
		wide = max(wide, utf8.RuneCountInString(p.name(i)))
	}
	for i := range p.v.Report.Results {
		name := p.name(i)
		pad := strings.Repeat(" ", wide-utf8.RuneCountInString(name))
		text := p.v.Report.Results[i].Policy
		if b := p.v.Contestants[i].Breaker; b != nil {
			text += ", with a breaker"
		}
		lead := chart.Letter(i) + "  " + name + pad + "  "
		lines := chart.Wrap(visible(text), p.width, strings.Repeat(" ", utf8.RuneCountInString(lead)))
		p.WriteString(p.paint.Strong(i, chart.Letter(i)+"  "+name) + pad + "  " + strings.TrimLeft(lines, " "))
	}
}

// nameWidth is the length of the longest name that is not shortened.
const nameWidth = 24

// name returns the name of a policy, safe for a terminal.
func (p *page) name(i int) string { return textfmt.ClipWithin(visible(p.v.name(i)), nameWidth, "..") }

// plots writes the load over time of each policy.
func (p *page) plots() {
	c := p.newLoadPlot()
	for i := range p.v.Report.Results {
		p.WriteString("\n" + p.paint.Strong(i, chart.Letter(i)+"  "+p.name(i)) + "\n")
		c.draw(p, i)
	}
	note := fmt.Sprintf("%s calls that succeed, %s attempts at %s, both per second: the highest bucket of %s in each column.",
		p.signs.good, p.signs.load, p.v.target(), p.v.bucket())
	var failures []string
	for _, f := range p.v.Scenario.Failures {
		failures = append(failures, failureLabel(f))
	}
	if len(failures) > 0 {
		note += fmt.Sprintf(" %s %s.", p.signs.failed, strings.Join(failures, "; "))
	}
	p.WriteString("\n" + p.paint.Dim(strings.TrimSuffix(chart.Wrap(visible(note), p.width, ""), "\n")) + "\n")
}

// visible escapes characters that could change how a terminal shows other text, including line
// breaks. Names come from files, which may have other authors than the user.
func visible(text string) string {
	return escaped(text, func(r rune) bool { return unicode.IsGraphic(r) && r != unicode.ReplacementChar })
}

// asciiOnly escapes all characters that are not ASCII.
func asciiOnly(text string) string {
	return escaped(text, func(r rune) bool { return r < utf8.RuneSelf })
}

// escaped escapes all characters for which stays returns false.
func escaped(text string, stays func(rune) bool) string {
	var b strings.Builder
	for _, r := range text {
		if stays(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// table writes the measures, with a column for each policy. Policies that do not fit into the width
// follow in another table below.
func (p *page) table() {
	rows := p.v.rows()
	lead := 0
	for _, m := range rows {
		lead = max(lead, utf8.RuneCountInString(m.title(p.v)))
	}
	columns := make([]column, len(p.v.Report.Results))
	marked := false
	for i := range columns {
		columns[i] = p.column(rows, i)
		marked = marked || slices.Contains(columns[i].best, true)
	}
	for first := 0; first < len(columns); {
		n, wide := 0, lead
		for ; first+n < len(columns) && (n == 0 || wide+columns[first+n].width+2 <= p.width); n++ {
			wide += columns[first+n].width + 2
		}
		p.block(rows, lead, columns[first:first+n], first)
		first += n
	}
	note := p.v.seeds()
	if marked {
		note += fmt.Sprintf(" %s marks the best value, if the difference to each other policy is significant.", p.signs.best)
	}
	if text := p.v.noRecovery(); text != "" {
		note += " " + text
	}
	p.WriteString(p.paint.Dim(strings.TrimSuffix(chart.Wrap(strings.ReplaceAll(note, "±", p.signs.give), p.width, ""), "\n")) + "\n")
}

// column has the aligned cells of a policy.
type column struct {
	cells []string
	best  []bool
	head  string
	width int
}

func (p *page) column(rows []*measure, n int) column {
	c := column{head: chart.Letter(n) + " " + p.name(n)}
	values, halves := 0, 0
	cells := make([]cell, len(rows))
	for i, m := range rows {
		cells[i] = p.v.cell(m, n)
		values = max(values, len(cells[i].Value))
		halves = max(halves, len(cells[i].Half))
	}
	c.width = utf8.RuneCountInString(c.head)
	for _, x := range cells {
		text := fmt.Sprintf("%*s", values, x.Value)
		if halves > 0 {
			give := p.signs.give
			if x.Half == "" {
				give = strings.Repeat(" ", utf8.RuneCountInString(give))
			}
			text += fmt.Sprintf(" %s%-*s", give, halves, x.Half)
		}
		switch {
		case x.Best:
			text += " " + p.signs.best
		case x.Note != "":
			text = strings.TrimRight(text, " ") + " (" + x.Note + ")"
		}
		c.cells, c.best = append(c.cells, text), append(c.best, x.Best)
		c.width = max(c.width, utf8.RuneCountInString(text))
	}
	return c
}

// block writes a table with some of the policies. lead is the width of the titles of the rows, and
// first the index of the first policy.
func (p *page) block(rows []*measure, lead int, columns []column, first int) {
	heads := []string{strings.Repeat(" ", lead)}
	for i, c := range columns {
		heads = append(heads, p.paint.Strong(first+i, c.head)+blanks(c.head, c.width))
	}
	p.line(heads, "\n")
	for r, m := range rows {
		cells := []string{m.title(p.v) + blanks(m.title(p.v), lead)}
		for _, c := range columns {
			text := c.cells[r]
			if c.best[r] {
				text = p.paint.Bold(text)
			}
			cells = append(cells, text+blanks(c.cells[r], c.width))
		}
		p.line(cells, "")
	}
}

// line writes before, and then the cells as one line.
func (p *page) line(cells []string, before string) {
	p.WriteString(before + strings.TrimRight(strings.Join(cells, "  "), " ") + "\n")
}

// blanks returns the spaces that pad the text to the width.
func blanks(text string, width int) string {
	return strings.Repeat(" ", max(width-utf8.RuneCountInString(text), 0))
}
