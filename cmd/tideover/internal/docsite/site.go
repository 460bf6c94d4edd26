package docsite

import (
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
)

// Prefix is the path under which [Handler] serves the pages.
const Prefix = "/docs"

// repository is where links to files lead that are not part of the site.
const repository = "https://github.com/tideover/tideover/"

// page is a page of the site.
type page struct {
	File     string // path in the repository
	Path     string // path below /docs; "" for the first page
	Label    string // in the table of contents
	Title    string
	Headings []heading // those of level 2
	Previous *page
	Next     *page
	Body     template.HTML

	source   []byte
	tree     ast.Node
	anchors  map[string]bool
	sections []section

	lowerTitle string // for the search, with the label and other words
}

// heading is a heading of a page.
type heading struct{ Text, Anchor string }

// pageGroup is a part of the table of contents.
type pageGroup struct {
	Title string
	Pages []*page
}

// site is the documentation, rendered for a server or for files.
type site struct {
	static   bool        // for files
	groups   []pageGroup // the table of contents; the last one has the decisions
	pages    []*page     // in reading order
	byFile   map[string]*page
	byPath   map[string]*page
	files    map[string][]byte // files that pages link to, by path below /docs
	problems []error           // broken links, and Markdown that the site does not support
}

// load renders the documentation in fsys. If static is set, pages refer to each other by relative
// paths of files.
func load(fsys fs.FS, order []group, static bool) (*site, error) {
	s := &site{static: static, byFile: map[string]*page{}, byPath: map[string]*page{}, files: map[string][]byte{}}
	if err := s.addPages(fsys, order); err != nil {
		return nil, err
	}
	if err := s.addFiles(fsys); err != nil {
		return nil, err
	}
	for _, p := range s.pages {
		if err := s.render(p); err != nil {
			return nil, fmt.Errorf("%s: %w", p.File, err)
		}
	}
	return s, nil
}

// addPages parses the pages in their order.
func (s *site) addPages(fsys fs.FS, order []group) error {
	for _, g := range order {
		list := pageGroup{Title: g.title}
		for _, e := range g.files {
			p, err := s.addPage(fsys, e)
			if err != nil {
				return err
			}
			list.Pages = append(list.Pages, p)
		}
		s.groups = append(s.groups, list)
	}
	files, err := fs.Glob(fsys, decisions+"[0-9]*.md")
	if err != nil {
		return err
	}
	list := pageGroup{Title: "Decisions"}
	for _, file := range files {
		p, err := s.addPage(fsys, entry{file: file})
		if err != nil {
			return err
		}
		list.Pages = append(list.Pages, p)
	}
	s.groups = append(s.groups, list)
	for i, p := range s.pages {
		if i > 0 {
			p.Previous, s.pages[i-1].Next = s.pages[i-1], p
		}
	}
	return nil
}

func (s *site) addPage(fsys fs.FS, e entry) (*page, error) {
	source, err := fs.ReadFile(fsys, e.file)
	if err != nil {
		return nil, err
	}
	p := &page{File: e.file, Path: pagePath(e.file), Label: e.label, source: source}
	if s.byFile[p.File] != nil || s.byPath[p.Path] != nil || isReserved(p.Path) {
		return nil, fmt.Errorf("%s: the path %q is used twice", p.File, p.Path)
	}
	s.problems = append(s.problems, p.parse()...)
	if p.Label == "" {
		p.Label = p.Title
	}
	p.lowerTitle = strings.ToLower(p.Title + " " + p.Label + " " + otherWords[p.File])
	s.pages = append(s.pages, p)
	s.byFile[p.File], s.byPath[p.Path] = p, p
	return p, nil
}

// Paths below /docs that are not paths of pages.
const (
	searchPath = "search"
	assetPath  = "static/"
)

func isReserved(path string) bool {
	return path == searchPath || path == "index" || strings.HasPrefix(path+"/", assetPath)
}

// addFiles reads the files beside the pages, such as pictures.
func (s *site) addFiles(fsys fs.FS) error {
	return fs.WalkDir(fsys, "docs", func(file string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a site of one page
		}
		if err != nil || d.IsDir() || path.Ext(file) == ".md" {
			return err
		}
		body, err := fs.ReadFile(fsys, file)
		s.files[strings.TrimPrefix(file, "docs/")] = body
		return err
	})
}

// contents returns the groups of the table of contents for a page. The decisions are shown only on
// their own pages, because there are many.
func (s *site) contents(p *page) []pageGroup {
	last := len(s.groups) - 1
	if p != nil && strings.HasPrefix(p.File, decisions) {
		return s.groups
	}
	return s.groups[:last]
}

// url returns the URL of a page or a file on the page with the path from. All are paths below
// /docs.
func (s *site) url(from, to string) string {
	switch {
	case !s.static && to == "":
		return Prefix
	case !s.static:
		return Prefix + "/" + to
	}
	up := strings.Repeat("../", strings.Count(from, "/"))
	if _, isFile := s.files[to]; isFile || strings.HasPrefix(to, assetPath) {
		return up + to
	}
	if to == "" {
		to = "index"
	}
	return up + to + ".html"
}

// resolve returns the URL for the destination of a link on a page. A destination in the repository
// that is not part of the site becomes a link to the repository.
func (s *site) resolve(p *page, dest string) (string, error) {
	if strings.Contains(dest, ":") {
		return dest, nil // of another site
	}
	file, anchor, hasAnchor := strings.Cut(dest, "#")
	target := p.File
	if file != "" {
		target = path.Join(path.Dir(p.File), file)
	}
	to := s.byFile[target]
	if to == nil {
		to = s.byFile[target+"/README.md"]
	}
	switch {
	case to != nil && hasAnchor && !to.anchors[anchor]:
		return dest, fmt.Errorf("%s: the link %s leads to a heading that does not exist", p.File, dest)
	case to == p && hasAnchor:
		return "#" + anchor, nil
	case to != nil && hasAnchor:
		return s.url(p.Path, to.Path) + "#" + anchor, nil
	case to != nil:
		return s.url(p.Path, to.Path), nil
	}
	if name, ok := strings.CutPrefix(target, "docs/"); ok {
		if _, ok := s.files[name]; ok {
			return s.url(p.Path, name), nil
		}
		return dest, fmt.Errorf("%s: the link %s leads to a file that does not exist", p.File, dest)
	}
	kind := "blob/HEAD/"
	if path.Ext(target) == "" {
		kind = "tree/HEAD/" // a folder
	}
	return repository + kind + target, nil
}

// linked returns the paths in the repository to which links lead that are not part of the site.
func (s *site) linked() (list []string) {
	for _, p := range s.pages {
		for dest := range strings.SplitSeq(string(p.Body), `"`+repository) {
			_, rest, ok := strings.Cut(dest, "/HEAD/")
			if target, _, end := strings.Cut(rest, `"`); ok && end {
				list = append(list, target)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
