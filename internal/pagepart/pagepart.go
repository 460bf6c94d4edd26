// Package pagepart finds the generated parts of a page of the documentation: the lines between <!-- begin NAME --> and
// <!-- end NAME -->, which tests and benchmarks write. The text outside of them is written by hand.
package pagepart

import (
	"fmt"
	"strings"
)

// Replace returns the page with another text in a part, and the text that was in it.
func Replace(page, name, text string) (changed, old string, err error) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	before, rest, found := strings.Cut(page, begin)
	old, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", "", fmt.Errorf("there are no lines %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + text + end + after, old, nil
}

// Without returns the page without its generated parts.
func Without(page string) (string, error) {
	var kept strings.Builder
	part := "" // name of the current part
	for line := range strings.Lines(page) {
		begins, isBegin := marked(line, "begin ")
		ends, isEnd := marked(line, "end ")
		switch {
		case isBegin && part != "":
			return "", fmt.Errorf("the part %q begins inside the part %q", begins, part)
		case isEnd && ends != part:
			return "", fmt.Errorf("the part %q ends inside the part %q", ends, part)
		case isBegin:
			part = begins
		case isEnd:
			part = ""
		case part == "":
			kept.WriteString(line)
		}
	}
	if part != "" {
		return "", fmt.Errorf("the part %q has no end", part)
	}
	return kept.String(), nil
}

// marked returns the name in a line such as <!-- begin NAME -->.
func marked(line, word string) (name string, ok bool) {
	rest, found := strings.CutPrefix(strings.TrimSpace(line), "<!-- "+word)
	name, closed := strings.CutSuffix(rest, " -->")
	return name, found && closed
}
