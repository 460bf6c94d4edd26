package httpserver

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/secret"
)

func TestLoginPage(t *testing.T) {
	t.Parallel()
	g := Guard(GuardOptions{Token: secret.New(token), Command: "tideover gateway"}, http.NotFoundHandler())
	for _, c := range []struct {
		name, method, path string
		header             http.Header
		page               bool
		want, not          string
	}{
		{"a browser", "GET", "/runs?state=dead&q=%22%3E%3Cb%3E", http.Header{"Accept": {"text/html,*/*"}}, true, `<input type="hidden" name="q" value="&#34;&gt;&lt;b&gt;">`, "not valid"},
		{"a wrong token", "GET", "/runs?token=wrong&state=dead", http.Header{"Accept": {"text/html"}}, true, "This token is not valid", "wrong"},
		{"the command", "GET", "/", http.Header{"Accept": {"text/html"}}, true, "<code>tideover gateway</code>", "tideover serve"},
		{"a script of a page", "GET", "/runs", http.Header{"Accept": {"text/html"}, "Hx-Request": {"true"}}, false, "This page needs a token", "<"},
		{"a form", "POST", "/runs/1/cancel", http.Header{"Accept": {"text/html"}}, false, "This page needs a token", "<"},
		{"a program", "GET", "/runs", nil, false, "This page needs a token", "<"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, "http://localhost"+c.path, nil)
		r.Header = c.header
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		text := w.Body.String()
		if w.Code != http.StatusUnauthorized || !strings.Contains(text, c.want) || strings.Contains(text, c.not) {
			t.Errorf("%s: %d, want 401, %q and not %q in\n%s", c.name, w.Code, c.want, c.not, text)
		}
		if page := strings.HasPrefix(w.Header().Get("Content-Type"), "text/html"); page != c.page {
			t.Errorf("%s: HTML is %v, want %v", c.name, page, c.page)
		}
		if !c.page {
			continue
		}
		_, style, _ := strings.Cut(text, "<style>")
		style, _, _ = strings.Cut(style, "</style>")
		sum := sha256.Sum256([]byte(style))
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.Contains(policy, "style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") || !strings.Contains(policy, "default-src 'none'") {
			t.Errorf("%s: the policy is %q", c.name, policy)
		}
	}
}
