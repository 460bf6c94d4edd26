package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/limit"
)

func TestRoutes(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/messages": "/v1/messages",
		"/v1/messages/batches/msgbatch_01HkcTjaV5uDC8jWR4ZsDV8d/results": "/v1/messages/batches/{id}/results",
		"/v1/chat/completions/chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT":    "/v1/chat/completions/{id}",
		"/v1/models/gpt-4o-mini-2024-07-18":                              "/v1/models/gpt-4o-mini-2024-07-18",
		"/v1/models/claude-3-5-sonnet-20241022":                          "/v1/models/claude-3-5-sonnet-20241022",
		"/v1beta/models/gemini-2.5-pro:generateContent":                  "/v1beta/models/gemini-2.5-pro:generateContent",
		"/users/12345/posts/9":                                           "/users/{id}/posts/{id}",
		"/things/0b4b9a5e-ad6e-4a5f-8a56-b3ff6f4b1d11":                   "/things/{id}",
		"/bot123456:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/send":             "/{id}/send",
		"":                                "",
		"/":                               "/",
		"/" + strings.Repeat("long/", 30): otherRoute,
	} {
		if want != otherRoute {
			want = "GET " + want
		}
		if got := routeOf("GET", path); got != want {
			t.Errorf("routeOf(%q) = %q, want %q", path, got, want)
		}
	}
}

func FuzzRouteIsALabel(f *testing.F) {
	f.Add("/v1/x")
	f.Add("/\xff/%zz//..")
	f.Fuzz(func(t *testing.T, path string) {
		if r := routeOf("GET", path); len(r) > maxLabel || !utf8.ValidString(r) {
			t.Errorf("routeOf(%q) = %q", path, r)
		}
	})
}

func FuzzPathsStayBelow(f *testing.F) {
	for _, s := range []string{"/a/b", "/%2e%2e/x", `/a\..\b`, "/a%2f..%2fb", "/..;/x", "//", "/%zz"} {
		f.Add(s)
	}
	base := mustURL(f, "http://host/base/")
	f.Fuzz(func(t *testing.T, rest string) {
		if !strings.HasPrefix(rest, "/") || hasDots(rest) {
			return
		}
		u := below(base, rest, "")
		// The path as a server sees it that resolves dots.
		if got := u.JoinPath().Path; !strings.HasPrefix(got, "/base/") && got != "/base" {
			t.Errorf("%q leads to %q", rest, got)
		}
	})
}

func TestThereAreNotTooManyRoutes(t *testing.T) {
	b := &budgets{spec: limit.ProviderBudget(), redact: strings.Clone}
	for i := range 200 {
		b.of(fmt.Sprint("GET /", i))
	}
	list := b.list()
	if len(list) != maxRoutes+1 || list[maxRoutes].Route != otherRoute {
		t.Errorf("%d routes, the last %q", len(list), list[len(list)-1].Route)
	}
	if b.of("GET /1") == b.of("GET /2") || b.of("GET /150") != b.of("GET /151") {
		t.Error("routes beyond the limit share one budget, and only those")
	}
}

func TestWithoutKey(t *testing.T) {
	for query, want := range map[string]string{
		"":                           "",
		"a=1&b=2":                    "a=1&b=2",
		"key=x":                      "",
		"a=%zz&key=x&b":              "a=%zz&b",
		"KEY=x;a=1":                  "a=1",
		"k%65y=x&monkey=1&keys=2&a&": "monkey=1&keys=2&a",
		"a=1&&b=2&":                  "a=1&&b=2&",
	} {
		if got := withoutKey(query); got != want {
			t.Errorf("withoutKey(%q) = %q, want %q", query, got, want)
		}
	}
}

func TestQuotas(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *time.Time { t := now.Add(d); return &t }
	var q rateLimits
	keys := []*key{{name: "key-1"}, {name: "key-2"}}
	q.read("key-1", http.Header{
		"X-Ratelimit-Limit-Requests": {"500"}, "X-Ratelimit-Remaining-Requests": {"499"}, "X-Ratelimit-Reset-Requests": {"1m30s"},
		"X-Ratelimit-Limit-Tokens": {"odd"}, "X-Ratelimit-Remaining-Tokens": {"7"}, "X-Ratelimit-Reset-Tokens": {"6ms"},
	}, now)
	q.read("key-2", http.Header{
		"Anthropic-Ratelimit-Input-Tokens-Limit": {"1000"}, "Anthropic-Ratelimit-Input-Tokens-Remaining": {"0"},
		"Anthropic-Ratelimit-Input-Tokens-Reset": {"2026-07-01T12:00:10Z"},
	}, now)
	q.read("key-2", http.Header{"X-Ratelimit-Remaining-Requests": {"-3"}, "Ratelimit-Remaining": {"none"}}, now)
	want := []Quota{
		{"requests", "key-1", 500, 499, at(90 * time.Second)},
		{"tokens", "key-1", 0, 7, at(6 * time.Millisecond)},
		{"input-tokens", "key-2", 1000, 0, at(10 * time.Second)},
	}
	same := func(got, want []Quota) bool {
		if len(got) != len(want) {
			return false
		}
		for i := range got {
			g, w := got[i], want[i]
			if !g.Reset.Equal(*w.Reset) {
				return false
			}
			if g.Reset, w.Reset = nil, nil; g != w {
				return false
			}
		}
		return true
	}
	if got := q.list(now, keys); !same(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := q.list(now.Add(20*time.Second), keys); !same(got, want[:1]) {
		t.Errorf("later: got %+v, want %+v", got, want[:1])
	}
	if got := q.list(now, keys[1:]); len(got) != 0 {
		t.Errorf("of keys that are gone: %+v", got)
	}
}
