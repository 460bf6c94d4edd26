package tideover_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	maxPageWords   = 2500   // of a page in docs
	maxAllWords    = 55_000 // of all pages in docs together
	maxReadmeLines = 120
)

// TestThePagesAreShort limits the words of the pages in docs, except for generated parts and
// docs/promises.md. With -v it prints the words of each page.
func TestThePagesAreShort(t *testing.T) {
	t.Parallel()
	texts, all := documents(t), 0
	for _, file := range slices.Sorted(maps.Keys(texts)) {
		if filepath.Dir(file) != "docs" || file == promisesPage {
			continue
		}
		text, err := withoutGenerated(texts[file])
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		n := len(strings.Fields(text))
		all += n
		t.Logf("%5d %s", n, file)
		if n > maxPageWords {
			t.Errorf("%s has %d words, the limit is %d", file, n, maxPageWords)
		}
	}
	t.Logf("%5d together", all)
	if all > maxAllWords {
		t.Errorf("the pages have %d words, the limit is %d", all, maxAllWords)
	}
}

// withoutGenerated returns the text without the lines between <!-- begin NAME --> and
// <!-- end NAME -->, which tests and benchmarks write.
func withoutGenerated(text string) (string, error) {
	var kept strings.Builder
	part := "" // name of the current generated part
	for line := range strings.Lines(text) {
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

func TestWordsOfGeneratedPartsAreNotCounted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want, err string }{
		{"a\n<!-- begin x -->\nb\n<!-- end x -->\nc\n", "a\nc\n", ""},
		{"<!-- a comment -->\n", "<!-- a comment -->\n", ""},
		{"<!-- begin x -->\n", "", `the part "x" has no end`},
		{"<!-- begin x -->\n<!-- begin y -->\n", "", `the part "y" begins inside the part "x"`},
		{"<!-- begin x -->\n<!-- end y -->\n", "", `the part "y" ends inside the part "x"`},
		{"<!-- end x -->\n", "", `the part "x" ends inside the part ""`},
	} {
		got, err := withoutGenerated(tt.text)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("withoutGenerated(%q) = %q, %v, want %q, %q", tt.text, got, err, tt.want, tt.err)
		}
	}
}

func TestTheReadmeIsShort(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > maxReadmeLines {
		t.Errorf("README.md has %d lines, the limit is %d", n, maxReadmeLines)
	}
}
