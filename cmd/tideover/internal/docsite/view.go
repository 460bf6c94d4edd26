package docsite

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"sync"

	"github.com/tideover/tideover/internal/console/theme"
)

//go:embed templates
var templates embed.FS

// loadTemplate parses the template of all pages at the first call.
var loadTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.ParseFS(templates, "templates/page.html"))
})

var (
	//go:embed static/docs.css
	styles string
	//go:embed static/docs.js
	script string
)

// loadAssets returns the style sheet, the script and the icon, by name.
var loadAssets = sync.OnceValue(func() map[string]theme.Asset {
	assets := map[string]theme.Asset{}
	for name, body := range map[string]string{"docs.css": theme.CSS + styles, "docs.js": script, "icon.svg": theme.Icon} {
		assets[name] = theme.NewAsset(name, []byte(body))
	}
	return assets
})

// view is the data of the template.
type view struct {
	site *site

	Path    string // of the page below /docs
	Title   string
	Page    *page  // nil for the search and for an error
	Search  bool   // it is the page of the search
	Query   string // of the search
	Results []result
	Problem string // sentence about a request that failed; "" for none
}

// Static reports whether the page is a file.
func (v view) Static() bool { return v.site.static }

// Contents returns the table of contents.
func (v view) Contents() []pageGroup { return v.site.contents(v.Page) }

// URL returns the URL of a path below /docs.
func (v view) URL(to string) string { return v.site.url(v.Path, to) }

// Asset returns the URL of an asset. On a server it contains a checksum of the asset, so that
// browsers can cache the asset without a time limit.
func (v view) Asset(name string) string {
	u := v.site.url(v.Path, assetPath+name)
	if !v.site.static {
		u += loadAssets()[name].Query()
	}
	return u
}

// MaxQuery returns the limit of a query, in bytes.
func (view) MaxQuery() int { return maxQuery }

// html renders a page.
func (v view) html() ([]byte, error) {
	var b bytes.Buffer
	if err := loadTemplate().Execute(&b, v); err != nil {
		return nil, fmt.Errorf("render %s: %w", v.Title, err)
	}
	return b.Bytes(), nil
}

// newPageView returns the data for a page.
func newPageView(s *site, p *page) view { return view{site: s, Path: p.Path, Title: p.Title, Page: p} }

// newSearchView returns the data for the page of the search.
func newSearchView(s *site, query string) view {
	return view{site: s, Path: searchPath, Title: "Search", Search: true, Query: query, Results: s.search(query)}
}
