package docsite

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tideover/tideover"
)

// get sends a request to the handler.
func get(method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

func TestHandler(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxQuery)
	for _, c := range []struct {
		method, path string
		status       int
		kind, says   string
	}{
		{"GET", "/docs", 200, "text/html; charset=utf-8", `<h1 id="tideover">`},
		{"HEAD", "/docs", 200, "text/html; charset=utf-8", ""},
		{"GET", "/docs/serve", 200, "text/html; charset=utf-8", `aria-current="page">Server: serve`},
		{"GET", "/docs/tasks", 200, "text/html; charset=utf-8", `href="/docs/install"`},
		{"GET", "/docs/adr", 200, "text/html; charset=utf-8", `href="/docs/adr/0001-one-decision"`},
		{"GET", "/docs/adr/0001-one-decision", 200, "text/html; charset=utf-8", `href="/docs/adr/0002-text-form"`},
		{"GET", "/docs/plan.svg", 200, "image/svg+xml", "<svg"},
		{"GET", "/docs/run.png", 200, "image/png", "PNG"},
		{"GET", "/docs/recording.gif", 200, "image/gif", "GIF"},
		{"GET", "/docs/openapi.yaml", 200, "text/plain; charset=utf-8", "openapi:"},
		{"GET", "/docs/static/docs.css", 200, "text/css; charset=utf-8", "--accent"},
		{"GET", "/docs/static/docs.js", 200, "text/javascript; charset=utf-8", "copy"},
		{"GET", "/docs/static/icon.svg", 200, "image/svg+xml", "<svg"},
		{"GET", "/docs/search", 200, "text/html; charset=utf-8", "Type words or a question"},
		{"GET", "/docs?q=circuit+breaker", 302, "text/html; charset=utf-8", "/docs/search?q=circuit+breaker"},
		{"GET", "/docs/search?q=circuit+breaker", 200, "text/html; charset=utf-8", "<mark>breaker</mark>"},
		{"GET", "/docs/search?q=%3Cscript%3E", 200, "text/html; charset=utf-8", "for “&lt;script&gt;”"},
		{"GET", "/docs/search?q=%ff%fe", 200, "text/html; charset=utf-8", "Type words or a question"},
		{"GET", "/docs/search?q=" + long, 200, "text/html; charset=utf-8", "Nothing found"},
		{"GET", "/docs/search?q=" + long + "x", 400, "text/html; charset=utf-8", "The query is too long."},
		{"GET", "/docs/", 301, "text/html; charset=utf-8", ""},
		{"GET", "/docs/nothing", 404, "text/html; charset=utf-8", "no such page"},
		{"HEAD", "/docs/nothing", 404, "text/html; charset=utf-8", ""},
		{"GET", "/docs/README.md", 404, "text/html; charset=utf-8", "no such page"},
		{"GET", "/docs/static/", 404, "text/html; charset=utf-8", "no such page"},
		{"GET", "/docs/static/../doc.go", 404, "text/html; charset=utf-8", "no such page"},
		{"POST", "/docs", 405, "text/plain; charset=utf-8", "can only be read"},
		{"DELETE", "/docs/serve", 405, "text/plain; charset=utf-8", "can only be read"},
		{"OPTIONS", "/docs/search", 405, "text/plain; charset=utf-8", "can only be read"},
	} {
		w := get(c.method, c.path)
		if kind := w.Header().Get("Content-Type"); w.Code != c.status || kind != c.kind || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %.60s: %d %s %.200q, want %d %s %q", c.method, c.path, w.Code, kind, w.Body, c.status, c.kind, c.says)
		}
		if c.method == "HEAD" && w.Body.Len() > 0 {
			t.Errorf("HEAD %s has a body", c.path)
		}
		if policy := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "script-src 'unsafe") {
			t.Errorf("%s: the policy is %q", c.path, policy)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s may be sniffed", c.path)
		}
	}
	if w := get("GET", "/docs/"); w.Header().Get("Location") != "/docs" {
		t.Errorf("/docs/ leads to %q", w.Header().Get("Location"))
	}
}

func TestBrowsersCacheThePages(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/docs", "/docs/serve", "/docs/search?q=x", "/docs/run.png", "/docs/static/docs.css"} {
		w := get("GET", path)
		tag := w.Header().Get("ETag")
		if tag == "" || w.Header().Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: ETag %q, Cache-Control %q", path, tag, w.Header().Get("Cache-Control"))
		}
		if again := get("GET", path, "If-None-Match", tag); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", path, again.Code)
		}
	}
	body := get("GET", "/docs").Body.String()
	n := 0
	for _, m := range attribute.FindAllStringSubmatch(body, -1) {
		if strings.HasPrefix(m[1], "/docs/static/") {
			n++
			if w := get("GET", m[1]); w.Code != 200 || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
				t.Errorf("%s: %d, Cache-Control %q", m[1], w.Code, w.Header().Get("Cache-Control"))
			}
		}
	}
	if n != 3 {
		t.Errorf("the page loads %d files, want 3", n)
	}
}

// TestServedPages follows all links between the pages that the handler serves.
func TestServedPages(t *testing.T) {
	t.Parallel()
	s := loadTest(t, false)
	checked := map[string]bool{}
	for _, p := range s.pages {
		path := s.url("", p.Path)
		w := get("GET", path)
		if w.Code != 200 {
			t.Errorf("%s: %d", path, w.Code)
		}
		for _, m := range attribute.FindAllStringSubmatch(w.Body.String(), -1) {
			to, _, _ := strings.Cut(m[1], "#")
			if checked[to] || to == "" || to == "/" || strings.HasPrefix(to, "https://") {
				continue
			}
			checked[to] = true
			if w := get("GET", to); !Has(to) || w.Code != 200 {
				t.Errorf("%s: %s: %d", path, to, w.Code)
			}
		}
	}
	if len(checked) < len(s.pages) {
		t.Errorf("%d links between %d pages", len(checked), len(s.pages))
	}
}

// maxDocs limits the size of the documentation, which makes the command larger. The recording has
// 0.2 MB of it. The code that renders it has about 0.9 MB.
const maxDocs = 1_200_000

func TestTheDocumentationIsSmall(t *testing.T) {
	t.Parallel()
	s, size := loadTest(t, false), 0
	for _, p := range s.pages {
		size += len(p.source)
	}
	for _, body := range s.files {
		size += len(body)
	}
	if size > maxDocs || size < 500_000 {
		t.Errorf("the documentation has %d bytes, the limit is %d", size, maxDocs)
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := load(tideover.Docs, order, false); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSearch(b *testing.B) {
	s, err := load(tideover.Docs, order, false)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s.search("retry budget a")
	}
}
