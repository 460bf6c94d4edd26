package theme_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tideover/tideover/internal/console/theme"
)

func TestAsset(t *testing.T) {
	t.Parallel()
	a := theme.NewAsset("page.css", []byte("body {}"))
	for _, tt := range []struct {
		query, known string
		status       int
		cache        string
	}{
		{a.Query(), "", http.StatusOK, "public, max-age=31536000, immutable"},
		{"?v=old", "", http.StatusOK, "no-cache"},
		{"", `"` + a.Version + `"`, http.StatusNotModified, "no-cache"},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/page.css"+tt.query, nil)
		r.Header.Set("If-None-Match", tt.known)
		a.ServeHTTP(w, r)
		if w.Code != tt.status || w.Header().Get("Cache-Control") != tt.cache {
			t.Errorf("GET %s: %d, Cache-Control %q, want %d, %q", r.URL, w.Code, w.Header().Get("Cache-Control"), tt.status, tt.cache)
		}
		if kind := w.Header().Get("Content-Type"); tt.status == http.StatusOK && (kind != "text/css; charset=utf-8" || w.Body.String() != "body {}") {
			t.Errorf("GET %s: %s %q", r.URL, kind, w.Body)
		}
	}
	if kind := theme.NewAsset("LICENSE", nil).Type; kind != "text/plain; charset=utf-8" {
		t.Errorf("a name without an extension: %s", kind)
	}
}
