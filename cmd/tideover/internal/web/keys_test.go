package web

import (
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	g := newFullSite(t)
	body := g.page("/keys")
	has(t, "/keys", body, "<kbd>?</kbd>", "<kbd>g</kbd> <kbd>o</kbd>", "Use these keys", "<html")
	a := g.request("GET", "/keys", nil, htmx...)
	hasNot(t, "the dialog", a.body, "<html")
	seen := map[string]bool{}
	for _, s := range g.h.server.menu() {
		if seen[s.Key] || !strings.Contains(body, s.Key+s.URL+" ") {
			t.Errorf("%s has key %q", s.Name, s.Key)
		}
		seen[s.Key] = true
	}
}
