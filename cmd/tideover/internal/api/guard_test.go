package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/internal/secret"
)

// cookie starts a browser session by the link with the token, and returns the session's cookie.
func (f *fixture) cookie() string {
	f.t.Helper()
	got := f.ask(true, "GET", "/?token="+token, "")
	name, _, ok := strings.Cut(got.header.Get("Set-Cookie"), ";")
	if got.status != http.StatusSeeOther || !ok {
		f.t.Fatalf("GET /?token=: %d %v", got.status, got.header)
	}
	return name
}

func TestAuthorization(t *testing.T) {
	t.Parallel()
	f := serve(t)
	cookie := f.cookie()
	name, _, _ := strings.Cut(cookie, "=")
	for _, c := range []struct {
		name   string
		tcp    bool
		path   string
		header []string
		want   int
	}{
		{"the socket requires no token", false, "status", nil, 200},
		{"over the socket the host does not matter", false, "status", []string{"Host", "evil.example"}, 200},
		{"over TCP one is needed", true, "status", nil, 401},
		{"the token lets in", true, "status", []string{"Authorization", "Bearer " + token}, 200},
		{"the scheme may be in lower case", true, "status", []string{"Authorization", "bearer " + token}, 200},
		{"another token does not", true, "status", []string{"Authorization", "Bearer " + token + "x"}, 401},
		{"nor an empty one", true, "status", []string{"Authorization", "Bearer "}, 401},
		{"nor another scheme", true, "status", []string{"Authorization", "Basic " + token}, 401},
		{"a session lets in", true, "status", []string{"Cookie", cookie}, 200},
		{"the token is not a session", true, "status", []string{"Cookie", name + "=" + token}, 401},
		{"a session can't be made longer", true, "status", []string{"Cookie", strings.Replace(cookie, "=1", "=2", 1)}, 401},
		{"a token in the address is not for programs", true, "status?token=" + token, nil, 401},
		{"the health check requires no token", true, "healthz", nil, 200},
		{"but not under another name", true, "healthz", []string{"Host", "evil.example"}, 421},
		{"a name that leads here may be another's", true, "status", []string{"Host", "evil.example", "Authorization", "Bearer " + token}, 421},
		{"localhost is ours", true, "status", []string{"Host", "localhost:7878", "Authorization", "Bearer " + token}, 200},
		{"so is all of the loopback interface", true, "status", []string{"Host", "[::1]:1", "Authorization", "Bearer " + token}, 200},
		{"a host may be given", true, "status", []string{"Host", "TideOver.example.:5", "Authorization", "Bearer " + token}, 200},
		{"with its port", true, "status", []string{"Host", "other.example:99", "Authorization", "Bearer " + token}, 200},
		{"and only that", true, "status", []string{"Host", "other.example:98", "Authorization", "Bearer " + token}, 421},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := f.ask(c.tcp, "GET", Prefix+c.path, "", c.header...); got.status != c.want {
				t.Errorf("GET %s %q: %d %s, want %d", c.path, c.header, got.status, got.text, c.want)
			}
		})
	}
}

func TestPagesOfOtherSitesChangeNothing(t *testing.T) {
	t.Parallel()
	f := serve(t)
	cookie := f.cookie()
	for _, c := range []struct {
		name   string
		header []string
		want   int
	}{
		{"our own page may", []string{"Sec-Fetch-Site", "same-origin"}, 201},
		{"an old browser sends the origin", []string{"Origin", "http://" + f.tcp}, 201},
		{"another site may not", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"nor another port of this machine", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"nor another origin", []string{"Origin", "http://127.0.0.1:1"}, 403},
		{"a program has neither", nil, 201},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := f.ask(true, "POST", Prefix+"runs", `{"workflow":"echo"}`, append(c.header, "Cookie", cookie)...)
			if got.status != c.want {
				t.Errorf("POST runs with %q: %d %s, want %d", c.header, got.status, got.text, c.want)
			}
		})
	}
}

func TestALinkBeginsASession(t *testing.T) {
	t.Parallel()
	f := serve(t)
	for _, c := range []struct{ name, path, to string }{
		{"it leads on without the token", "/runs?token=" + token + "&state=dead", "/runs?state=dead"},
		{"the root stays the root", "/?token=" + token, "/"},
		{"it can't lead to another server", "//evil.example/x?token=" + token, "/evil.example/x"},
		{"nor by a backslash", "/%5Cevil.example?token=" + token, "/evil.example"},
		{"nor by an escaped slash", "/%2F%2Fevil.example?token=" + token, "/evil.example"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := f.ask(true, "GET", c.path, "")
			if got.status != http.StatusSeeOther || got.header.Get("Location") != c.to {
				t.Errorf("GET %s: %d to %q, want %q", c.path, got.status, got.header.Get("Location"), c.to)
			}
			set := got.header.Get("Set-Cookie")
			for _, part := range []string{"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=2592000"} {
				if !strings.Contains(set, part) {
					t.Errorf("cookie %q, want %s in it", set, part)
				}
			}
			if strings.Contains(set, token) {
				t.Errorf("the cookie %q has the token", set)
			}
		})
	}
	for _, path := range []string{"/?token=wrong", "/?token=", "/?token=" + token + "&token=" + token, "/"} {
		if got := f.ask(true, "GET", path, ""); got.status != 401 || got.header.Get("Set-Cookie") != "" || !strings.Contains(got.text, "'tideover serve'") {
			t.Errorf("GET %s: %d %q %v", path, got.status, got.text, got.header)
		}
	}
}

func TestMissingTokenErrorSaysWhereTheTokenIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		command string
		path    string
		want    []string
		not     string
	}{
		{"a page of a server", "", "/runs", []string{"This page needs a token", "'tideover serve'", "?token=TOKEN", "server.token"}, "gateway"},
		{"a page of a gateway", "tideover gateway", "/providers", []string{"This page needs a token", "'tideover gateway'", "the file 'token' of the data folder"}, "serve'"},
		{"metrics", "", httpserver.MetricsPath, []string{"Authorization: Bearer TOKEN", "the file 'token' of the data folder", "server.token"}, "page"},
		{"the API", "", Prefix + "providers", []string{`"code":"unauthorized"`, "Authorization: Bearer TOKEN"}, "page"},
	} {
		g := httpserver.Guard(httpserver.GuardOptions{Command: c.command, Token: secret.New(token)}, http.NotFoundHandler())
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost"+c.path, nil))
		text := w.Body.String()
		for _, want := range c.want {
			if w.Code != 401 || !strings.Contains(text, want) {
				t.Errorf("%s: %d %q, want %q in it", c.name, w.Code, text, want)
			}
		}
		if strings.Contains(text, c.not) || strings.Contains(text, "/somewhere") {
			t.Errorf("%s: %q", c.name, text)
		}
	}
}

func TestServerWithoutTokenRejectsTCP(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"Bearer ", "Bearer", ""} {
		g := httpserver.Guard(httpserver.GuardOptions{}, http.NotFoundHandler())
		w := new(recorder)
		r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1/api/v1/status", nil)
		r.Header.Set("Authorization", header)
		if g.ServeHTTP(w, r); w.status != 401 {
			t.Errorf("Authorization %q: %d, want 401", header, w.status)
		}
	}
}

type recorder struct {
	status int
	header http.Header
}

func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }
func (r *recorder) WriteHeader(status int)      { r.status = status }

func TestNestedGuardsCheckOnce(t *testing.T) {
	t.Parallel()
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'")
	})
	o := httpserver.GuardOptions{Token: secret.New(token)}
	w := new(recorder)
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://localhost/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	httpserver.Guard(o, httpserver.Guard(o, page)).ServeHTTP(w, r)
	if got := w.header.Get("Content-Security-Policy"); got != "default-src 'self'" {
		t.Errorf("the page's policy is %q", got)
	}
}

func TestResponsesHaveSecurityHeaders(t *testing.T) {
	t.Parallel()
	f := serve(t)
	for _, path := range []string{"status", "nothing", "runs?state=x", "healthz"} {
		for _, tcp := range []bool{true, false} {
			h := f.ask(tcp, "GET", Prefix+path, "").header
			for name, want := range map[string]string{
				"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff",
				"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Frame-Options": "DENY",
			} {
				if !strings.HasPrefix(h.Get(name), want) {
					t.Errorf("%s over TCP %v: %s is %q, want %q", path, tcp, name, h.Get(name), want)
				}
			}
		}
	}
}
