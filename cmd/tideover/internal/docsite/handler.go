package docsite

import (
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/tideover/tideover"
	"github.com/tideover/tideover/internal/console/theme"
)

// contentPolicy is the Content-Security-Policy of all pages: they can load files only from this
// server.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// filePolicy is that of files beside the pages. Pictures have styles of their own.
const filePolicy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"

// loadServed renders the pages for a server at the first call.
var loadServed = sync.OnceValues(func() (*site, error) { return load(tideover.Docs, order, false) })

// Has reports whether a path belongs to the documentation.
func Has(path string) bool { return path == Prefix || strings.HasPrefix(path, Prefix+"/") }

// Handler returns the handler of the documentation. Its paths are those of [Has]. It needs no token,
// because all answers are the same for everyone.
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", contentPolicy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		head.Set("Allow", "GET, HEAD")
		http.Error(w, "the documentation can only be read", http.StatusMethodNotAllowed)
		return
	}
	s, err := loadServed()
	if err != nil {
		http.Error(w, "can't render the documentation: "+err.Error(), http.StatusInternalServerError)
		return
	}
	s.serve(w, r)
}

func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, Prefix), "/")
	if name == "" && r.URL.Path != Prefix {
		http.Redirect(w, r, Prefix, http.StatusMovedPermanently)
		return
	}
	if name == "" && r.URL.Query().Has("q") {
		http.Redirect(w, r, Prefix+"/"+searchPath+"?"+url.Values{"q": {r.URL.Query().Get("q")}}.Encode(), http.StatusFound)
		return
	}
	if p := s.byPath[name]; p != nil {
		show(w, r, http.StatusOK, newPageView(s, p))
		return
	}
	if name == searchPath {
		s.serveSearch(w, r)
		return
	}
	if asset, ok := loadAssets()[strings.TrimPrefix(name, assetPath)]; ok && strings.HasPrefix(name, assetPath) {
		asset.ServeHTTP(w, r)
		return
	}
	if body, ok := s.files[name]; ok {
		w.Header().Set("Content-Security-Policy", filePolicy)
		theme.NewAsset(name, body).ServeHTTP(w, r)
		return
	}
	show(w, r, http.StatusNotFound, view{site: s, Path: name, Title: "Page not found", Problem: "The documentation has no such page."})
}

func (s *site) serveSearch(w http.ResponseWriter, r *http.Request) {
	query := strings.TrimSpace(r.URL.Query().Get("q"))
	if len(query) > maxQuery {
		show(w, r, http.StatusBadRequest, view{site: s, Path: searchPath, Title: "Search", Problem: "The query is too long."})
		return
	}
	show(w, r, http.StatusOK, newSearchView(s, strings.ToValidUTF8(query, "")))
}

// show sends a page.
func show(w http.ResponseWriter, r *http.Request, status int, v view) {
	body, err := v.html()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	page := theme.NewAsset("page.html", body)
	if status == http.StatusOK {
		page.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("Content-Type", page.Type)
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}
