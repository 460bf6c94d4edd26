package simulate

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/draw"
	"github.com/tideover/tideover/internal/textfmt"
)

// Style says how text is laid out.
type Style struct {
	Width  int  // columns to fill; 0 means 80
	ASCII  bool // draw with plain characters
	Colour bool
}

// signs are the characters of the text.
type signs struct {
	give, best           string // of the table
	good, load, failed   string // of the plots
	side, corner, bottom string
	eighths              []string
}

var (
	unicodeSigns = signs{
		give: "±", best: "✓", good: "█", load: "░", failed: "▀", side: "│", corner: "└", bottom: "─",
		eighths: []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
	}
	asciiSigns = signs{give: "+-", best: "*", good: "#", load: ":", failed: "x", side: "|", corner: "+", bottom: "-", eighths: []string{"#"}}
)

// page is a text in the making.
type page struct {
	strings.Builder
	v     *View
	width int
	signs signs
	paint draw.Paint
}

// Text writes the report for a person in front of a terminal: the scenario, a table
// with a column for each policy, their loads over time, and what it means.
func Text(w io.Writer, v *View, s Style) error {
	p := &page{v: v, width: s.Width, signs: unicodeSigns, paint: draw.Paint{On: s.Colour}}
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
		p.WriteString(draw.Wrap(visible(sentence), p.width, ""))
	}
	text := p.String()
	if s.ASCII {
		text = asciiOnly(text)
	}
	_, err := io.WriteString(w, text)
	return err
}

// head says what was simulated.
func (p *page) head() {
	s := &p.v.Scenario
	title := p.paint.Bold(visible(s.Name))
	if s.About != "" {
		title += ": " + visible(s.About)
	}
	p.WriteString(draw.Wrap(title, p.width, ""))
	p.WriteString(draw.Wrap(visible(strings.Join(Describe(*s), " ")), p.width, "  "))
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
		lead := draw.Letter(i) + "  " + name + pad + "  "
		lines := draw.Wrap(visible(text), p.width, strings.Repeat(" ", utf8.RuneCountInString(lead)))
		p.WriteString(p.paint.Strong(i, draw.Letter(i)+"  "+name) + pad + "  " + strings.TrimLeft(lines, " "))
	}
}

// nameWidth is the longest name that is written whole.
const nameWidth = 24

// name returns a name that can't do anything to a terminal.
func (p *page) name(i int) string { return textfmt.ClipWithin(visible(p.v.name(i)), nameWidth, "..") }

// plots writes the load over time, policy by policy.
func (p *page) plots() {
	c := p.chart()
	for i := range p.v.Report.Results {
		p.WriteString("\n" + p.paint.Strong(i, draw.Letter(i)+"  "+p.name(i)) + "\n")
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
	p.WriteString("\n" + p.paint.Dim(strings.TrimSuffix(draw.Wrap(visible(note), p.width, ""), "\n")) + "\n")
}

// target is where the load is counted.
func (v *View) target() string {
	if n := len(v.Scenario.Services); n > 0 {
		return v.Scenario.Services[n-1].Name
	}
	return "the one thing"
}
