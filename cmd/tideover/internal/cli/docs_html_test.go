package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDocsWritesTheDocumentation(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "html")
	o := tideover(t, "docs", dir)
	wantCode(t, o, 0)
	wantIn(t, "message", o.stderr, " pages to "+dir)
	for name, want := range map[string]string{"index.html": `<h1 id="tideover">`, "serve.html": `href="workflows.html`, "static/docs.css": "--accent"} {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not have %s: %v", name, want, err)
		}
	}
	wantCode(t, tideover(t, "docs", filepath.Join(dir, "index.html")), 125)
	wantCode(t, tideover(t, "docs"), 125)
}
