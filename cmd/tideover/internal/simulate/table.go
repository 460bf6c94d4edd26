package simulate

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/chart"
)

// table writes the measures, with a column for each policy: as many as fit, and the others below.
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

// block writes some policies side by side.
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

// line writes cells side by side.
func (p *page) line(cells []string, before string) {
	p.WriteString(before + strings.TrimRight(strings.Join(cells, "  "), " ") + "\n")
}

// blanks returns the padding to the width.
func blanks(text string, width int) string {
	return strings.Repeat(" ", max(width-utf8.RuneCountInString(text), 0))
}
