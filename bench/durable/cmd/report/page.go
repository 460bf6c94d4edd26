package main

import (
	"fmt"
	"strings"
)

const intro = `# Durable benchmarks

This page compares the engine with other systems that keep tasks on disk, and measures it with many waiting runs.
` + "`make bench-durable`" + ` and ` + "`make bench-waiting`" + ` generate it, each its own section; do not edit it. The explanations at the
end come from ` + "`bench/durable/notes.md`" + `.

All systems have their strongest durability: a record is on disk before the caller gets the acknowledgement. A task is
200 bytes of JSON; its handler decodes them and does nothing else. Values are medians over the rounds; each ratio is the
median of the ratios inside one round. Servers and measured process share the machine, as in a small installation.
`

// compose returns the page with one section replaced and the other kept.
func compose(old, section, text, notes string) string {
	var b strings.Builder
	b.WriteString(intro)
	for _, name := range []string{"durable", "waiting"} {
		body := text
		if name != section {
			body = oldSection(old, name)
		}
		if body != "" {
			fmt.Fprintf(&b, "\n%s\n%s%s\n", beginMark(name), body, endMark(name))
		}
	}
	if notes = strings.TrimSpace(notes); notes != "" {
		fmt.Fprintf(&b, "\n## Shortfalls and oddities\n\n%s\n", notes)
	}
	return b.String()
}

func beginMark(section string) string { return "<!-- make bench-" + section + " writes from here -->" }
func endMark(section string) string   { return "<!-- make bench-" + section + " writes to here -->" }

// oldSection returns the section of the present page.
func oldSection(page, section string) string {
	_, rest, ok := strings.Cut(page, beginMark(section)+"\n")
	if !ok {
		return ""
	}
	body, _, _ := strings.Cut(rest, endMark(section))
	return body
}

func (r *results) setting(command string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- %s, %s, %s, %s, %s, %s, %s rounds\n", r.about["date"], r.about["go"], r.about["cpu"], r.about["memory"],
		r.about["kernel"], r.about["disk"], r.about["rounds"])
	if len(r.modules) > 0 {
		fmt.Fprintf(&b, "- systems and libraries:\n  - %s\n", strings.Join(r.modules, "\n  - "))
	}
	fmt.Fprintf(&b, "- load average at the start and before the rounds: %s (the measurements themselves raise it)\n", strings.Join(r.loads, ", "))
	fmt.Fprintf(&b, "- to reproduce: `%s`\n", command)
	return b.String()
}

// goal is a goal that was set before the first measurement.
type goal struct {
	what  string
	a     key
	b     key // if set, the ratio of a to b is meant
	least bool
	limit float64
	unit  string
}

// goals compares the measurements with the goals.
func (r *results) goals(goals []goal) string {
	var b strings.Builder
	b.WriteString("| what | goal | measured | met |\n|---|--:|--:|---|\n")
	for _, g := range goals {
		v, ok := r.median(g.a.system, g.a.value)
		if g.b != (key{}) {
			v, ok = r.ratio(g.a, g.b)
		}
		if !ok {
			continue
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

// row is a line of a table: one value of each system, or several.
type row struct {
	what   string
	values []string
}

// table has a column for each system.
func (r *results) table(rows []row) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, s := range r.systems {
		fmt.Fprintf(&b, " %s |", s)
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(r.systems)) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row.what)
		for _, s := range r.systems {
			fmt.Fprintf(&b, " %s |", r.cell(s, row.values))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (r *results) cell(system string, values []string) string {
	var parts []string
	for _, value := range values {
		v, ok := r.median(system, value)
		if !ok {
			return "–"
		}
		parts = append(parts, threeDigits(v))
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
