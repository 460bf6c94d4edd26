package pages

import (
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

// ChartValue is the value of a chart in an interval, in words.
type ChartValue struct {
	At   time.Time // when the interval began
	Text string    // "" if there is none
}

// ChartColumn has the values of a chart, the oldest first. The page shows the one under the pointer, and
// all of them in a table.
type ChartColumn struct {
	Name   string
	Values []ChartValue
}

// ChartTable has the values of charts that have the same intervals.
type ChartTable struct{ Columns []ChartColumn }

// chartRow has the values of all charts in an interval.
type chartRow struct {
	At    time.Time
	Cells []chartCell
}

type chartCell struct{ Name, Text string }

// Rows returns the intervals in which a chart has a value, the newest first.
func (t ChartTable) Rows() (list []chartRow) {
	for i, v := range slices.Backward(t.Columns[0].Values) {
		row, found := chartRow{At: v.At}, false
		for _, c := range t.Columns {
			row.Cells = append(row.Cells, chartCell{c.Name, c.Values[i].Text})
			found = found || c.Values[i].Text != ""
		}
		if found {
			list = append(list, row)
		}
	}
	return list
}

// NumberOf is a number with a word for what is counted.
type NumberOf struct {
	n         int
	one, many string
}

// Counted returns the number n with the word for one thing and that for several.
func Counted(n int, one, many string) NumberOf { return NumberOf{n, one, many} }

// NumbersText lists the numbers that are not 0. It returns "" if all are.
func NumbersText(list ...NumberOf) string {
	var parts []string
	for _, c := range list {
		if c.n > 0 {
			parts = append(parts, textfmt.PluralOf(c.n, c.one, c.many))
		}
	}
	return strings.Join(parts, ", ")
}
