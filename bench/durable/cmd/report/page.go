package main

import (
	"fmt"
	"strings"

	"github.com/tideover/tideover/internal/benchreport"
)

const intro = `# Durable benchmarks

This page compares the engine with other systems that keep tasks on disk, and measures it with many waiting runs.
` + "`make bench-durable`" + ` and ` + "`make bench-waiting`" + ` generate it, each its own section; do not edit it. The explanations at the
end come from ` + "`bench/durable/notes.md`" + `.

All systems have their strongest durability: a record is on disk before the caller gets the acknowledgement. A task is
200 bytes of JSON; its handler decodes them and does nothing else. Values are medians over the rounds; each ratio is the
median of the ratios inside one round. Servers and measured process share the machine, as in a small installation.
`

// compose returns the page with the given section replaced and the other section
// kept.
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
	return b.String() + notes
}

func beginMark(section string) string { return "<!-- make bench-" + section + " writes from here -->" }
func endMark(section string) string   { return "<!-- make bench-" + section + " writes to here -->" }

// oldSection returns the named section of the page as it is now.
func oldSection(page, section string) string {
	_, rest, ok := strings.Cut(page, beginMark(section)+"\n")
	if !ok {
		return ""
	}
	body, _, _ := strings.Cut(rest, endMark(section))
	return body
}

func setting(r *benchreport.Results, command string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- %s, %s, %s, %s, %s, %s, %s rounds\n", r.About["date"], r.About["go"], r.About["cpu"], r.About["memory"],
		r.About["kernel"], r.About["disk"], r.About["rounds"])
	if len(r.Modules) > 0 {
		fmt.Fprintf(&b, "- systems and libraries:\n  - %s\n", strings.Join(r.Modules, "\n  - "))
	}
	fmt.Fprintf(&b, "- load average at the start and before the rounds: %s (the measurements themselves raise it)\n", strings.Join(r.Loads, ", "))
	fmt.Fprintf(&b, "- to reproduce: `%s`\n", command)
	return b.String()
}
