package docsite

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/tideover/tideover"
)

// top is the folder of the repository.
var top = filepath.Join("..", "..", "..", "..")

// loadWritten renders the documentation for files, once for all tests.
var loadWritten = sync.OnceValues(func() (*site, error) { return load(tideover.Docs, order, true) })

// loadTest returns the documentation. Tests must not change it.
func loadTest(t *testing.T, static bool) *site {
	t.Helper()
	loaded := loadServed
	if static {
		loaded = loadWritten
	}
	s, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEveryPageHasItsPlace(t *testing.T) {
	t.Parallel()
	s := loadTest(t, false)
	var files []string
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		list, err := filepath.Glob(filepath.Join(top, filepath.FromSlash(pattern)))
		if err != nil || len(list) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		files = append(files, list...)
	}
	for _, file := range files {
		rel, _ := filepath.Rel(top, file)
		p := s.byFile[filepath.ToSlash(rel)]
		if p == nil {
			t.Errorf("%s has no place in the reading order: add it to order", rel)
			continue
		}
		if p.Title == "" || p.Label == "" || len(p.Body) < 100 {
			t.Errorf("%s: title %q, label %q, %d bytes", rel, p.Title, p.Label, len(p.Body))
		}
	}
	if first := s.pages[0]; first.File != "README.md" || first.Path != "" {
		t.Errorf("the first page is %s at %q", first.File, first.Path)
	}
	if len(s.pages) != len(files)+1 {
		t.Errorf("%d pages, %d files", len(s.pages), len(files)+1)
	}
}

func TestPagesHaveNoProblems(t *testing.T) {
	t.Parallel()
	for _, static := range []bool{false, true} {
		for _, problem := range loadTest(t, static).problems {
			t.Error(problem)
		}
	}
}

func TestProblemsAreFound(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"README.md":       "# A\n\n[b](docs/b.md#there) [c](docs/c.md) ![d](docs/d.png)\n",
		"docs/b.md":       "# B\n\n<!-- a comment -->\n\n[a](../README.md#a) [b](#not-there) [s](../main.go)\n\n<div>x</div>\n",
		"docs/e.md":       "Text <b>bold</b>\n",
		"docs/adr/1-x.md": "# X\n\n[b](../b.md#b) [y](2-y.md)\n",
	} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	s, err := load(files, []group{{"Start", []entry{{"README.md", "A"}, {"docs/b.md", "B"}, {"docs/e.md", "E"}}}}, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range s.problems {
		got = append(got, p.Error())
	}
	want := []string{
		"docs/b.md: HTML is not shown: <div>x</div>", "docs/e.md: HTML is not shown: <b>", "docs/e.md: HTML is not shown: </b>", "docs/e.md has no title",
		"README.md: the link docs/b.md#there leads to a heading that does not exist", "README.md: the link docs/c.md leads to a file that does not exist",
		"README.md: the link docs/d.png leads to a file that does not exist", "docs/b.md: the link #not-there leads to a heading that does not exist",
		"docs/adr/1-x.md: the link 2-y.md leads to a file that does not exist",
	}
	if !slices.Equal(got, want) {
		t.Errorf("problems:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if body := string(s.byFile["docs/b.md"].Body); strings.Contains(body, "comment") || strings.Contains(body, "<div>x") || !strings.Contains(body, repository+"blob/HEAD/main.go") {
		t.Errorf("the page is %s", body)
	}
	for _, again := range [][]entry{{{"README.md", ""}, {"README.md", ""}}, {{"docs/search.md", ""}}} {
		files["docs/search.md"] = &fstest.MapFile{Data: []byte("# Search\n")}
		if _, err := load(files, []group{{"Start", again}}, false); err == nil {
			t.Errorf("%v was accepted", again)
		}
	}
}

// TestLinksToTheRepository checks the links that leave the site for a file of the repository.
func TestLinksToTheRepository(t *testing.T) {
	t.Parallel()
	list := loadTest(t, false).linked()
	if len(list) < 50 {
		t.Errorf("%d links", len(list))
	}
	for _, target := range list {
		info, err := os.Stat(filepath.Join(top, filepath.FromSlash(target)))
		if err != nil {
			t.Error(err)
		} else if info.IsDir() != (path.Ext(target) == "") {
			t.Errorf("%s: is it a folder?", target)
		}
	}
}

var (
	attribute = regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)
	anchorID  = regexp.MustCompile(`id="([^"]*)"`)
)

// TestWrittenFiles follows all links of the written files.
func TestWrittenFiles(t *testing.T) {
	t.Parallel()
	files, err := renderFiles(loadTest(t, true))
	if err != nil {
		t.Fatal(err)
	}
	anchors, links := map[string][]string{}, 0
	for name, body := range files {
		for _, m := range anchorID.FindAllSubmatch(body, -1) {
			if id := string(m[1]); slices.Contains(anchors[name], id) && path.Ext(name) == ".html" {
				t.Errorf("%s has two elements %s", name, id)
			}
			anchors[name] = append(anchors[name], string(m[1]))
		}
	}
	for name, body := range files {
		if path.Ext(name) != ".html" {
			continue
		}
		for _, m := range attribute.FindAllSubmatch(body, -1) {
			links++
			dest := string(m[1])
			if strings.HasPrefix(dest, "https://") {
				continue
			}
			file, anchor, _ := strings.Cut(dest, "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if _, ok := files[target]; !ok || strings.HasPrefix(dest, "/") {
				t.Errorf("%s: no file for %s", name, dest)
			} else if anchor != "" && !slices.Contains(anchors[target], anchor) {
				t.Errorf("%s: no element for %s", name, dest)
			}
		}
		for _, bad := range []string{"style=", "<style", "onclick", "javascript:", "<script>"} {
			if bytes.Contains(regexp.MustCompile(`(?s)<code.*?</code>`).ReplaceAll(body, nil), []byte(bad)) {
				t.Errorf("%s has %q", name, bad)
			}
		}
	}
	if links < 3000 {
		t.Errorf("%d links", links)
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "folder")
	pages, err := Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	written := 0
	err = filepath.WalkDir(dir, func(file string, _ fs.DirEntry, err error) error {
		if filepath.Ext(file) == ".html" {
			written++
		}
		return err
	})
	if err != nil || written != pages+1 || pages < 60 {
		t.Errorf("%d pages, %d files: %v", pages, written, err)
	}
	if _, err := Write(filepath.Join(dir, "index.html")); err == nil {
		t.Error("a file was accepted as a folder")
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	const text = "# The `x` page\n\n## A, b & c\n\n## A b c\n\n## A b c\n\nOne  \ntwo <https://example.com>. [^1]\n\n| a | b |\n| --- | ---: |\n| `x\\|y` | 1 |\n\n```console\n$ a <b>\n```\n\n[^1]: A note.\n"
	files := fstest.MapFS{"README.md": {Data: []byte(text)}}
	s, err := load(files, []group{{"Start", []entry{{"README.md", ""}}}}, false)
	if err != nil || len(s.problems) > 0 {
		t.Fatal(err, s.problems)
	}
	p := s.pages[0]
	for _, want := range []string{
		`<h1 id="the-x-page">The <code>x</code> page</h1>`,
		`<h2 id="a-b--c">A, b &amp; c <a class="anchor" href="#a-b--c" aria-label="Link to: A, b &amp; c">#</a></h2>`,
		`<h2 id="a-b-c">`, `<h2 id="a-b-c-1">`, `<code>x|y</code>`, `<td align="right">1</td>`,
		`<pre tabindex="0"><code class="language-console">$ a &lt;b&gt;` + "\n</code></pre>", "A note.", `<a href="https://example.com">`,
	} {
		if !strings.Contains(string(p.Body), want) {
			t.Errorf("%s is missing in %s", want, p.Body)
		}
	}
	if p.Title != "The x page" || p.Label != p.Title || len(p.Headings) != 3 {
		t.Errorf("title %q, label %q, headings %v", p.Title, p.Label, p.Headings)
	}
	last := p.sections[len(p.sections)-1]
	if want := "One two . a b x|y 1 $ a <b> A note."; last.anchor != "a-b-c-1" || last.text != want {
		t.Errorf("the last section is %q: %q, want %q", last.anchor, last.text, want)
	}
}
