package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestDocsWritesTheDocumentation(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "html")
	o := clitest.Run(t, "docs", dir)
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "message", o.Stderr, " pages to "+dir)
	for name, want := range map[string]string{"index.html": `<h1 id="tideover">`, "serve.html": `href="workflows.html`, "static/docs.css": "--accent"} {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not have %s: %v", name, want, err)
		}
	}
	clitest.WantCode(t, clitest.Run(t, "docs", filepath.Join(dir, "index.html")), 125)
	clitest.WantCode(t, clitest.Run(t, "docs"), 125)
}
