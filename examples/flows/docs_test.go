package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheSnippetsOfThePagesCompile checks that each piece of Go of docs/workflows.md,
// docs/workflows-howto.md and docs/workflows-reference.md is a part of a file here or in
// examples/order, so that it compiles and is tested.
func TestTheSnippetsOfThePagesCompile(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/workflows*.md")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, file := range pages {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(page)
		text.WriteByte('\n')
	}
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
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(text.String(), -1)
	if len(blocks) < 10 {
		t.Errorf("the pages have %d pieces of Go", len(blocks))
	}
next:
	for _, b := range blocks {
		for _, source := range sources {
			if strings.Contains(source, "\n"+trimLines(b[1])) {
				continue next
			}
		}
		t.Errorf("no file has this piece of the pages:\n%s", b[1])
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
