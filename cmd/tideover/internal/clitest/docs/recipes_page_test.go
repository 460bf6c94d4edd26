//go:build unix

package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// newRecipe returns the section of docs/recipes.md with this heading. It writes the files in the
// section to the paths in their first lines.
func newRecipe(t *testing.T, heading string) *clitest.Recipe {
	t.Helper()
	_, section, found := strings.Cut(clitest.ReadPage(t, "recipes.md"), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/recipes.md has no recipe %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	k := clitest.EmptyRecipe(t)
	k.Blocks = clitest.FencedIn(section)
	for _, b := range k.Blocks {
		if b.Language != "sh" {
			first, _, _ := strings.Cut(b.Text, "\n")
			name, ok := strings.CutPrefix(first, "# ")
			if !ok {
				t.Fatalf("the first line %q names no file", first)
			}
			k.Write(k.Path(name), b.Text, 0o600)
		}
	}
	return k
}

// calls returns the arguments of each call of a program that fake has created.
func calls(k *clitest.Recipe, name string) []string {
	text, _ := os.ReadFile(filepath.Join(k.Home, name+".calls"))
	return strings.FieldsFunc(string(text), func(c rune) bool { return c == '\n' })
}

// wantCalls checks the arguments of all calls of a program that fake has created.
func wantCalls(k *clitest.Recipe, name string, want ...string) {
	k.T.Helper()
	if got := strings.Join(calls(k, name), "\n"); got != strings.Join(want, "\n") {
		k.T.Errorf("%s was called with\n%s\nwant\n%s", name, got, strings.Join(want, "\n"))
	}
}
