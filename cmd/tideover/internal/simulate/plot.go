package simulate

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/chart"
	"github.com/tideover/tideover/internal/textfmt"
)

// Sizes of a plot in a terminal.
const (
	plotHigh  = 6   // rows
	leastPlot = 20  // columns
	mostPlot  = 120 // columns
)

// loadPlot is a plot of load and goodput over time, with the same scale for all policies.
type loadPlot struct {
	width   int // columns
	buckets int
	top     float64 // highest value of any policy, per second
	label   int     // width of the labels on the left, in columns
}

func (p *page) newLoadPlot() loadPlot {
	c := loadPlot{buckets: p.v.shown()}
	for i := range p.v.Report.Results {
		s := &p.v.Report.Results[i].Series
		c.top = max(c.top, highest(s.Load, 0, c.buckets), highest(s.Goodput, 0, c.buckets))
	}
	c.top /= p.v.Report.Bucket
	c.label = max(utf8.RuneCountInString(rate(c.top)), 4)
	c.width = min(max(p.width-c.label-2, leastPlot), mostPlot)
	return c
}

func rate(f float64) string { return decimals(f) + "/s" }

// highest returns the largest of values[from:to].
func highest(values []float64, from, to int) (top float64) {
	for _, v := range values[min(from, len(values)):min(to, len(values))] {
		top = max(top, v)
	}
	return top
}

// span returns which of n values a column shows: those from index from to to-1, at least one.
func span(column, columns, n int) (from, to int) {
	from = column * n / columns
	return from, max((column+1)*n/columns, from+1)
}

// draw writes the plot of a policy.
func (c loadPlot) draw(p *page, n int) {
	s := &p.v.Report.Results[n].Series
	for row := plotHigh - 1; row >= 0; row-- {
		label := ""
		if row == plotHigh-1 {
			label = rate(c.top)
		}
		p.WriteString(p.paint.Dim(fmt.Sprintf("%*s %s", c.label, label, p.signs.side)))
		kinds, texts := make([]int, c.width), make([]string, c.width)
		for column := range c.width {
			from, to := span(column, c.width, c.buckets)
			load := c.level(highest(s.Load, from, to) / p.v.Report.Bucket)
			good := c.level(highest(s.Goodput, from, to) / p.v.Report.Bucket)
			kinds[column], texts[column] = p.glyph(good-float64(row), load-float64(row))
		}
		p.WriteString(p.paintCells(n, kinds, texts) + "\n")
	}
	c.axis(p)
}

// level converts a rate to a height in rows.
func (c loadPlot) level(rate float64) float64 {
	if c.top == 0 {
		return 0
	}
	return rate / c.top * plotHigh
}

// The kinds of cells.
const (
	blank = iota
	full
	light
)

// glyph returns the kind and the character of a cell. good and load are the heights of goodput and
// load above the bottom of the cell, in rows.
func (p *page) glyph(good, load float64) (kind int, text string) {
	switch n := len(p.signs.eighths); {
	case good >= 1:
		return full, p.signs.good
	case load > max(good, 0.5): // more load than goodput
		return light, p.signs.load
	case good > 0.5/float64(n):
		return full, p.signs.eighths[min(int(math.Ceil(good*float64(n)-0.5)), n)-1]
	case load > 0.02: // show small values, too
		return light, p.signs.load
	}
	return blank, " "
}

// paintCells returns a line of cells in the colour of policy n, without blanks at the end.
// Neighbours of the same kind share one colour code.
func (p *page) paintCells(n int, kinds []int, texts []string) (line string) {
	for end := len(kinds); end > 0; {
		from := end - 1
		for from > 0 && kinds[from-1] == kinds[from] {
			from--
		}
		text := strings.Join(texts[from:end], "")
		switch {
		case kinds[from] == full:
			text = p.paint.Colour(n, text)
		case kinds[from] == light:
			text = p.paint.Faint(n, text)
		case line == "":
			text = ""
		}
		line, end = text+line, from
	}
	return line
}

// axis writes the time axis and the periods of failures.
func (c loadPlot) axis(p *page) {
	end := p.v.time(c.buckets)
	column := func(t time.Duration) int {
		return min(int(math.Ceil(float64(t)/float64(end)*float64(c.width)-1e-9)), c.width)
	}
	failed := []rune(strings.Repeat(" ", c.width))
	for _, f := range p.v.Scenario.Failures {
		from := column(f.From)
		for i := from; i < max(column(min(p.v.until(f), end)), from+1) && i < c.width; i++ {
			failed[i] = []rune(p.signs.failed)[0]
		}
	}
	line := p.signs.corner + strings.Repeat(p.signs.bottom, c.width)
	p.WriteString(p.paint.Dim(fmt.Sprintf("%*s %s", c.label, "0", line)) + "\n")
	if text := strings.TrimRight(string(failed), " "); text != "" {
		p.WriteString(p.paint.Dim(fmt.Sprintf("%*s  %s", c.label, "fail", text)) + "\n")
	}
	p.WriteString(p.paint.Dim(strings.Repeat(" ", c.label+2)+ticks(chart.Scale{High: end}, c.width, column)) + "\n")
}

// ticks returns the line with the labels of the time axis. column returns the column of a time.
func ticks(s chart.Scale, width int, column func(time.Duration) int) string {
	line := []byte(strings.Repeat(" ", width))
	free := 0
	for _, t := range s.Ticks(max(width/9, 2)) {
		text := textfmt.ShortDuration(t)
		at := column(t)
		if at >= free && at+len(text) <= width {
			copy(line[at:], text)
			free = at + len(text) + 1
		}
	}
	return strings.TrimRight(string(line), " ")
}
