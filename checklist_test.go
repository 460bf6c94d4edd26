package tideover_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
)

var (
	ruleTest = regexp.MustCompile(`^Test([A-I][0-9]+)[A-Z]\w*$`)
	ruleRow  = regexp.MustCompile(`(?m)^\| ([A-I][0-9]+) \|.*$`)
	quoted   = regexp.MustCompile("`(Test\\w+)`")
)

// TestEveryRuleOfHTTPHasItsTests compares the table of docs/promises.md with the
// existing tests.
func TestEveryRuleOfHTTPHasItsTests(t *testing.T) {
	t.Parallel()
	var have, listed []string
	for name, files := range testsByName(t) {
		if m := ruleTest.FindStringSubmatch(name); m != nil {
			for range files {
				have = append(have, m[1]+" "+name)
			}
		}
	}
	slices.Sort(have)
	page, err := os.ReadFile("docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	if testfile.Update() {
		page = ruleRow.ReplaceAllFunc(page, func(row []byte) []byte {
			cells := strings.Split(string(row), " | ")
			var names []string
			for _, h := range have {
				if name, ok := strings.CutPrefix(h, strings.TrimPrefix(cells[0], "| ")+" "); ok {
					names = append(names, "[`"+name+"`](../"+testsByName(t)[name][0]+")")
				}
			}
			return []byte(cells[0] + " | " + cells[1] + " | " + strings.Join(names, ", ") + " |")
		})
		if err := os.WriteFile("docs/promises.md", page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var rules []string
	for _, row := range ruleRow.FindAllStringSubmatch(string(page), -1) {
		rules = append(rules, row[1])
		for _, name := range quoted.FindAllStringSubmatch(row[0], -1) {
			listed = append(listed, row[1]+" "+name[1])
		}
	}
	want := strings.Fields("A1 A2 A3 B1 B2 B3 B4 B5 B6 B7 B8 B9 B10 B11 C4 C5 C6 C7 C8 D9 D10 D11 E12 E13 F14 F15 G16 H17 H18 I1 I2 I3 I4 I5 I6 I7 I8 I9 I10")
	if !slices.Equal(rules, want) {
		t.Errorf("docs/promises.md has the rules %v, want %v", rules, want)
	}
	for _, rule := range want {
		if !slices.ContainsFunc(have, func(s string) bool { return strings.HasPrefix(s, rule+" ") }) {
			t.Errorf("no test is named after %s", rule)
		}
	}
	for _, l := range listed {
		if !slices.Contains(have, l) {
			t.Errorf("docs/promises.md names %s, which does not exist", l)
		}
	}
	for _, h := range have {
		if !slices.Contains(listed, h) {
			t.Errorf("docs/promises.md does not name %s", h)
		}
	}
}
