package main

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/tideover/tideover/internal/benchreport"
)

//go:embed intro.md
var intro string

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
	fmt.Fprintf(&b, "- load average at the start and before the rounds: %s (measuring raises it)\n", strings.Join(r.Loads, ", "))
	fmt.Fprintf(&b, "- to reproduce: `%s`\n", command)
	return b.String()
}
