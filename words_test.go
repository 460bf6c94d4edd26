package tideover_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/pagepart"
)

const (
	maxPageWords   = 2500   // of a page in docs
	maxAllWords    = 56_000 // of all pages in docs together: 55 000, and 1 000 for a feature, at most 62 000
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
		text, err := pagepart.Without(texts[file])
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
