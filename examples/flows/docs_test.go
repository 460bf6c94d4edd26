package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheSnippetsOfThePageCompile checks that each piece of Go of docs/workflows.md is a part of a
// file here or in examples/order, so that it compiles and is tested. The programs for other
// systems, which need their modules, are not checked.
func TestTheSnippetsOfThePageCompile(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	ours, others, found := strings.Cut(string(page), "\n## Beside Temporal and DBOS\n")
	if !found {
		t.Fatal("the page has no section about others")
	}
	_, limits, _ := strings.Cut(others, "\n## ")
	var sources []string
	for _, pattern := range []string{"*.go", "../order/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, trimLines(string(text)))
		}
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(ours+limits, -1)
	if len(blocks) < 10 {
		t.Errorf("the page has %d pieces of Go", len(blocks))
	}
next:
	for _, b := range blocks {
		for _, source := range sources {
			if strings.Contains(source, "\n"+trimLines(b[1])) {
				continue next
			}
		}
		t.Errorf("no file has this piece of the page:\n%s", b[1])
	}
}

// trimLines removes the white space around each line, and at the end of the text.
func trimLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSpace(text)) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}
