package docsite

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tideover/tideover"
)

// Write writes the documentation into the folder, as HTML that needs no server: the pages refer to
// each other by relative paths, and a script searches an index. index.html is the first page. Write
// returns the number of pages.
func Write(folder string) (pages int, err error) {
	s, err := load(tideover.Docs, order, true)
	if err != nil {
		return 0, err
	}
	files, err := renderFiles(s)
	if err != nil {
		return 0, err
	}
	for name, body := range files {
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return 0, fmt.Errorf("write the documentation: %w", err)
		}
		if err := os.WriteFile(file, body, 0o644); err != nil { //nolint:gosec // everyone may read it
			return 0, fmt.Errorf("write the documentation: %w", err)
		}
	}
	return len(s.pages), nil
}

// indexFile is the script with the index of the search.
const indexFile = "search-index.js"

// renderFiles returns all files of the site by their paths in its folder.
func renderFiles(s *site) (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, body := range s.files {
		files[name] = body
	}
	for name, a := range loadAssets() {
		files[assetPath+name] = a.Body
	}
	views := []view{newSearchView(s, "")}
	for _, p := range s.pages {
		views = append(views, newPageView(s, p))
	}
	for _, v := range views {
		body, err := v.html()
		if err != nil {
			return nil, err
		}
		files[s.url("", v.Path)] = body
	}
	index, err := indexScript(s)
	files[assetPath+indexFile] = index
	return files, err
}

// indexScript returns a script with the index of the search. It is a script because a page that
// was opened as a file can't load JSON.
func indexScript(s *site) ([]byte, error) {
	type entry struct {
		Page    string `json:"page"`
		Title   string `json:"title"` // for the search
		Heading string `json:"heading"`
		URL     string `json:"url"`
		Text    string `json:"text"`
		Seldom  bool   `json:"seldom,omitempty"` // counts half
	}
	var list []entry
	for _, p := range s.pages {
		for _, part := range p.sections {
			list = append(list, entry{p.Title, p.lowerTitle, part.heading, s.url(searchPath, p.Path) + "#" + part.anchor, part.text, p.isSeldomAnswer()})
		}
	}
	text, err := json.Marshal(struct {
		EmptyWords []string `json:"emptyWords"`
		Endings    []string `json:"endings"`
		Sections   []entry  `json:"sections"`
	}{emptyWords, endings, list})
	return fmt.Appendf(nil, "window.docsIndex = %s;\n", text), err
}
