package benchreport

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tideover/tideover/internal/pagepart"
)

// Main is the main function of a report: run gets the measurements and the page for its
// tables, which may be empty.
func Main(run func(in io.Reader, out io.Writer, page string) error) {
	page := flag.String("page", "", "page of the documentation to write the tables to; empty for none")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *page); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// Section is a generated part of a page; see package pagepart.
type Section struct{ Name, Text string }

// Publish prints the sections, and replaces them in the page if its file name is not empty. The
// text outside of the sections is written by hand, and stays.
func Publish(out io.Writer, page string, sections ...Section) error {
	for _, s := range sections {
		if _, err := fmt.Fprintln(out, s.Text); err != nil {
			return err
		}
	}
	if page == "" {
		return nil
	}
	data, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text := string(data)
	for _, s := range sections {
		if text, _, err = pagepart.Replace(text, s.Name, s.Text); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

// Goal is a goal that was set before the first measurement; see [AtLeast] and [AtMost].
type Goal struct {
	what    string
	measure Measure
	least   bool
	limit   float64
	unit    string
}

// AtLeast returns the goal that a number reaches the limit.
func AtLeast(what string, m Measure, limit float64, unit string) Goal {
	return Goal{what, m, true, limit, unit}
}

// AtMost returns the goal that a number does not exceed the limit.
func AtMost(what string, m Measure, limit float64, unit string) Goal {
	return Goal{what, m, false, limit, unit}
}

// Goals returns a table that compares the measurements with the goals. It returns "" if
// none of the goals was measured.
func (r *Results) Goals(goals []Goal) string {
	var b strings.Builder
	for _, g := range goals {
		v, ok := g.measure(r)
		if !ok {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("| what | goal | measured | met |\n|---|--:|--:|---|\n")
		}
		sign, met := "≤", "yes"
		if g.least {
			sign = "≥"
		}
		if g.least && v < g.limit || !g.least && v > g.limit {
			met = "**no**"
		}
		fmt.Fprintf(&b, "| %s | %s %g %s | %s %s | %s |\n", g.what, sign, g.limit, g.unit, threeDigits(v), g.unit, met)
	}
	return b.String()
}

// Row is a line of a table: one value of each system, or several; see [Medians].
type Row struct {
	What   string
	Values []string
	Of     func(system, value string) Measure
	Whole  bool // the values are counts, printed without decimals
}

// Medians returns the row with the medians of the values.
func Medians(what string, values ...string) Row {
	return Row{What: what, Values: values, Of: func(system, value string) Measure { return Key{system, value}.Median }}
}

// Table returns the rows as a table with a column for each system.
func (r *Results) Table(rows []Row) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, s := range r.Systems {
		fmt.Fprintf(&b, " %s |", s)
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(r.Systems)) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row.What)
		for _, s := range r.Systems {
			fmt.Fprintf(&b, " %s |", r.cell(s, row))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (r *Results) cell(system string, row Row) string {
	var parts []string
	for _, value := range row.Values {
		v, ok := row.Of(system, value)(r)
		if !ok {
			return "–"
		}
		text := threeDigits(v)
		if row.Whole {
			text = fmt.Sprintf("%.0f", v)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " / ")
}

// threeDigits returns a number with about three digits.
func threeDigits(v float64) string {
	switch size := max(v, -v); {
	case size >= 100 || size == 0:
		return fmt.Sprintf("%.0f", v)
	case size >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// Join joins the parts with an empty line between them.
func Join(parts ...string) string {
	for i := range parts {
		parts[i] = strings.TrimSuffix(parts[i], "\n")
	}
	return strings.Join(parts, "\n\n") + "\n"
}
