package web

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// The vendored files must be equal to those of htmx.org 4.0.0 on npm.
func TestVendoredFiles(t *testing.T) {
	for name, want := range map[string]string{
		"htmx-4.0.0.min.js":   "e484d9171a9db30a39c8f16e3d709d4137f3211c659f8e6125816635033d593f",
		"hx-sse-4.0.0.min.js": "8a834680c4000a9034d79228872372a92e140c810a075cb6d4a76690dfc13085",
		"htmx-4.0.0.LICENSE":  "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
	} {
		body, err := static.ReadFile("static/" + name)
		if err != nil {
			t.Error(err)
			continue
		}
		sum := sha256.Sum256(body)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("sha256 of %s is %s, want %s", name, got, want)
		}
	}
}

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

// Pages and their files must not contain anything that the Content-Security-Policy forbids.
func TestNothingInline(t *testing.T) {
	for _, dir := range []string{"templates"} {
		files, err := templates.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			body, _ := templates.ReadFile(dir + "/" + f.Name())
			for _, bad := range []string{"style=", "<style", "onclick", "hx-on", "js:", "javascript:", "http://", "https://", "hx-vals"} {
				if strings.Contains(string(body), bad) {
					t.Errorf("%s has %q", f.Name(), bad)
				}
			}
		}
	}
	for _, name := range []string{"app.js", "page.css"} {
		body := loadAssets()[name].Body
		if len(body) == 0 {
			t.Errorf("%s is empty", name)
		}
		for _, bad := range []string{"eval(", "new Function", "innerHTML =", "outerHTML", "insertAdjacentHTML", "document.write", "@import", "http:", "https:"} {
			if strings.Contains(string(body), bad) {
				t.Errorf("%s has %q", name, bad)
			}
		}
	}
}
