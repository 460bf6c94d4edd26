package web

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/console/pagetest"
)

func TestAssets(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	body := b.page("/runs")
	found := regexp.MustCompile(`(?:src|href)="(/static/[^"]+)"`).FindAllStringSubmatch(body, -1)
	if len(found) != 3 {
		t.Errorf("the page loads %d files, want 3", len(found))
	}
	for _, m := range found {
		a := b.request("GET", m[1], nil)
		if a.status != http.StatusOK || !strings.Contains(a.head.Get("Cache-Control"), "immutable") {
			t.Errorf("GET %s: %d, Cache-Control %q", m[1], a.status, a.head.Get("Cache-Control"))
		}
		if c := b.request("GET", m[1], nil, "If-None-Match", a.head.Get("ETag")); c.status != http.StatusNotModified || c.body != "" {
			t.Errorf("GET %s again: %d", m[1], c.status)
		}
	}
	for path, want := range map[string]int{
		"/static/app.js?v=old": 200, "/static/": 404, "/static/../site.go": 404, "/static/page.css.map": 404,
	} {
		a := b.request("GET", path, nil)
		if a.status == http.StatusTemporaryRedirect || a.status == http.StatusMovedPermanently {
			a = b.request("GET", a.to, nil)
		}
		if a.status != want || strings.Contains(a.head.Get("Cache-Control"), "immutable") {
			t.Errorf("GET %s: %d, Cache-Control %q, want %d", path, a.status, a.head.Get("Cache-Control"), want)
		}
	}
}

func TestNothingInline(t *testing.T) {
	t.Parallel()
	pagetest.NothingInline(t, templates)
}
