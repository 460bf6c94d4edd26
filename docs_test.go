package tideover_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// documents returns the texts of the pages, by their paths.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = string(text)
		}
	}
	return texts
}

// findTests returns the files that have a test or a fuzz target of a name. It reads them
// once for all tests.
var findTests = sync.OnceValues(func() (map[string][]string, error) {
	found := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			name, _, ok := strings.Cut(strings.TrimPrefix(line, "func "), "(")
			if ok && strings.HasPrefix(line, "func ") && (strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz")) {
				found[name] = append(found[name], filepath.ToSlash(path))
			}
		}
		return err
	})
	return found, err
})

// testsByName returns the files that have a test or a fuzz target of a name.
func testsByName(t *testing.T) map[string][]string {
	t.Helper()
	found, err := findTests()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestTheTestsThatPagesNameExist checks the names of tests in the pages; a name
// that ends in … is a prefix.
func TestTheTestsThatPagesNameExist(t *testing.T) {
	t.Parallel()
	tests, n := testsByName(t), 0
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)(…?)`")
	for file, text := range documents(t) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			n++
			ok := len(tests[m[1]]) > 0
			for name := range tests {
				ok = ok || m[2] != "" && strings.HasPrefix(name, m[1])
			}
			if !ok {
				t.Errorf("%s names %s, which does not exist", file, m[1])
			}
		}
	}
	if n < 150 {
		t.Errorf("the pages name %d tests", n)
	}
}

// promisesPage is the page for contributors that names the tests.
var promisesPage = filepath.Join("docs", "promises.md")

// TestEveryPromiseHasItsTest checks that each row of docs/promises.md names tests that are in the
// linked files, and that each promise of docs/guarantees.md has a row in the section of its name.
func TestEveryPromiseHasItsTest(t *testing.T) {
	t.Parallel()
	texts, tests := documents(t), testsByName(t)
	linked := regexp.MustCompile("\\[`((?:Test|Fuzz)\\w+)`\\]\\(\\.\\./([^)]+)\\)")
	section, rows := "", map[string]bool{}
	for line := range strings.Lines(texts[promisesPage]) {
		if strings.HasPrefix(line, "#") {
			section = line
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| promise |") || strings.HasPrefix(line, "| rule |") || strings.HasPrefix(line, "| ---") {
			continue
		}
		promise, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		rows[section+promise] = true
		all := linked.FindAllStringSubmatch(line, -1)
		if len(all) == 0 {
			t.Errorf("no test is linked for this promise: %s", line)
		}
		for _, m := range all {
			if !slices.Contains(tests[m[1]], m[2]) {
				t.Errorf("%s is not in %s", m[1], m[2])
			}
		}
	}
	page := texts[filepath.Join("docs", "guarantees.md")]
	item := regexp.MustCompile(`(?m)^(#.*\n)|^- (.*(?:\n  .*)*)`)
	promises, sections := 0, 0
	for _, m := range item.FindAllStringSubmatch(page, -1) {
		if m[1] != "" {
			section = m[1]
			if strings.HasPrefix(section, "## ") {
				sections++
			}
			continue
		}
		promises++
		if promise := strings.Join(strings.Fields(m[2]), " "); !rows[section+promise] {
			t.Errorf("docs/promises.md names no test in the section %q for the promise %q", strings.TrimSpace(section), promise)
		}
	}
	if limits := strings.Count(page, "\n**Not**: "); promises < 80 || limits < sections-1 {
		t.Errorf("%d promises in %d sections, %d of which say what is not promised", promises, sections, limits)
	}
}

// TestUserPagesNameNoTest checks that tests are named only in docs/promises.md, and in the pages for
// contributors.
func TestUserPagesNameNoTest(t *testing.T) {
	t.Parallel()
	tests := testsByName(t)
	code := regexp.MustCompile("(?ms)^```.*?^```$")
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)…?`")
	for file, text := range documents(t) {
		if file != "README.md" && filepath.Dir(file) != "docs" || file == promisesPage {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			isTest := len(tests[m[1]]) > 0
			for name := range tests {
				isTest = isTest || strings.HasSuffix(m[0], "…`") && strings.HasPrefix(name, m[1])
			}
			if isTest {
				t.Errorf("%s names %s, which belongs into docs/promises.md", file, m[1])
			}
		}
	}
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchor returns the anchor of a heading.
func anchor(heading string) string {
	heading = notInAnchors.ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(strings.TrimSpace(heading), " ", "-")
}

// TestTheLinksOfThePagesLeadSomewhere checks that the linked files and headings
// exist.
func TestTheLinksOfThePagesLeadSomewhere(t *testing.T) {
	t.Parallel()
	texts := documents(t)
	link := regexp.MustCompile(`\]\(([^):#\s]*)(?:#([^)\s]*))?\)`)
	code := regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]+`")
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	anchors := map[string]map[string]bool{} // by their pages
	for file, text := range texts {
		anchors[file] = map[string]bool{}
		for _, h := range heading.FindAllStringSubmatch(text, -1) {
			anchors[file][anchor(h[1])] = true
		}
	}
	for file, text := range texts {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			target := file
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(file), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if m[2] != "" && !anchors[target][m[2]] {
				t.Errorf("%s: %s has no heading for #%s", file, target, m[2])
			}
		}
	}
}

// TestTheIndexHasEveryPage checks that docs/README.md links to every page.
func TestTheIndexHasEveryPage(t *testing.T) {
	t.Parallel()
	texts := documents(t)
	index := texts[filepath.Join("docs", "README.md")]
	for file := range texts {
		name, ok := strings.CutPrefix(filepath.ToSlash(file), "docs/")
		if ok && !strings.Contains(name, "/") && name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not link to %s", name)
		}
	}
}

// TestTheTargetsThatPagesNameExist checks the make targets in the pages against
// the Makefile.
func TestTheTargetsThatPagesNameExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	named := regexp.MustCompile("(?m)(?:`|^    |^\\$ )make ([a-z][a-z-]*)")
	for file, text := range documents(t) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			n++
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(makefile) {
				t.Errorf("%s names make %s, which does not exist", file, m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("the pages name %d targets", n)
	}
}

// maxLine limits lines of prose in the pages, in characters.
const maxLine = 120

// TestLinesOfThePagesAreShort checks the lines of the README and of docs, except those that can't be
// broken: rows of tables, and the output of commands.
func TestLinesOfThePagesAreShort(t *testing.T) {
	t.Parallel()
	for file, text := range documents(t) {
		if file != "README.md" && filepath.Dir(file) != "docs" {
			continue
		}
		n, block := 0, "" // block is how the current code block begins
		for line := range strings.Lines(text) {
			n++
			if fence := strings.TrimSpace(line); strings.HasPrefix(fence, "```") {
				if block != "" {
					fence = ""
				}
				block = fence
			}
			isOutput := block == "```" || block == "```console"
			length := utf8.RuneCountInString(strings.TrimRight(line, "\n"))
			if !isOutput && !strings.HasPrefix(line, "|") && length > maxLine {
				t.Errorf("%s:%d has %d characters, the limit is %d", file, n, length, maxLine)
			}
		}
	}
}

// TestTheNumbersOfTheReadmeAreMeasured checks that each bold number in the tables of measurements of
// the README and of docs/measurements.md is on the page that its row links.
func TestTheNumbersOfTheReadmeAreMeasured(t *testing.T) {
	t.Parallel()
	texts := documents(t)
	source := regexp.MustCompile(`\]\(([a-z/-]+\.md)#[a-z0-9-]+\) \|$`)
	number := regexp.MustCompile(`\*\*([0-9.]+)\*\*`)
	for file, want := range map[string]int{"README.md": 3, filepath.Join("docs", "measurements.md"): 11} {
		rows := 0
		for line := range strings.Lines(texts[file]) {
			m := source.FindStringSubmatch(strings.TrimSpace(line))
			numbers := number.FindAllStringSubmatch(line, -1)
			if m == nil || len(numbers) == 0 {
				continue
			}
			rows++
			page := texts[filepath.Join(filepath.Dir(file), filepath.FromSlash(m[1]))]
			for _, n := range numbers {
				if !regexp.MustCompile(`[| ]` + regexp.QuoteMeta(n[1]) + ` `).MatchString(page) {
					t.Errorf("%s: %s does not have the number %s", file, m[1], n[1])
				}
			}
		}
		if rows != want {
			t.Errorf("%s has %d measurements, want %d", file, rows, want)
		}
	}
}

// TestPagesBeginWithTheirPurpose checks that each page begins with a sentence, and ends with its
// limits if it has a section about them.
func TestPagesBeginWithTheirPurpose(t *testing.T) {
	t.Parallel()
	heading, notProse := regexp.MustCompile(`(?m)^## .*$`), regexp.MustCompile("^\n*(```|[|#<-]|    )")
	for file, text := range documents(t) {
		if filepath.Dir(file) != "docs" {
			continue
		}
		title, rest, _ := strings.Cut(text, "\n")
		if !strings.HasPrefix(title, "# ") || notProse.MatchString(rest) {
			t.Errorf("%s begins with %q, and not with a title and what it is for", file, rest[:min(len(rest), 40)])
		}
		sections := heading.FindAllString(text, -1)
		if i := slices.Index(sections, "## Limits"); i >= 0 && i != len(sections)-1 {
			t.Errorf("%s has the section %q after its limits", file, sections[i+1])
		}
	}
}
