package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
)

// In Google's upload protocol the client sends the content to the URL that the answer
// names. That URL leads through the gateway to the provider that answered, with its key.
func TestTheURLOfAnUploadLeadsThroughTheGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := newTestServer(t, fails(http.StatusServiceUnavailable))
		var address string
		u := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Goog-Upload-Command") == "start" {
				w.Header().Set("X-Goog-Upload-Url", address+"/api/upload/v1beta/files?upload_id=a%2Fb")
				w.Header().Set("X-Goog-Upload-Control-Url", "https://elsewhere.example.com/x")
			}
		})
		address = u.URL
		r := newRig(t, []Spec{spec(t, "main", Gemini, down.URL, fallback("spare")), spec(t, "spare", Gemini, u.URL+"/api/")})
		begun := r.ask(http.MethodPost, "/p/main/upload/v1beta/files", "{}", "X-Goog-Upload-Command", "start")
		got, want := begun.header.Get("X-Goog-Upload-Url"), r.URL+"/p/spare/upload/v1beta/files?upload_id=a%2Fb"
		if got != want {
			t.Fatalf("X-Goog-Upload-Url is %q, want %q", got, want)
		}
		if got := begun.header.Get("X-Goog-Upload-Control-Url"); got != "https://elsewhere.example.com/x" {
			t.Errorf("the URL of another host became %q", got)
		}
		if sent := r.ask(http.MethodPost, got[len(r.URL):], "content"); sent.code != http.StatusOK {
			t.Errorf("the content was answered with %d: %s", sent.code, sent.body)
		}
		last := u.requests()[u.count()-1]
		if got := fmt.Sprint(last.path, "?", last.query, " ", last.body, " ", last.header.Get("X-Goog-Api-Key")); got != "/api/upload/v1beta/files?upload_id=a%2Fb content sk-spare-secret-1" {
			t.Errorf("the content arrived as %s", got)
		}
	})
}

func TestURLsBelowTheBaseURLLeadThroughTheGateway(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ base, address, want string }{
		{"https://a.example.com", "https://a.example.com/u?x=1", "/p/it/u?x=1"},
		{"https://a.example.com/", "https://A.example.com/u", "/p/it/u"},
		{"https://a.example.com/v1", "https://a.example.com/v1/u%2Fv", "/p/it/u%2Fv"},
		{"https://a.example.com/v1", "https://a.example.com/v10/u", ""},
		{"https://a.example.com/v1", "https://a.example.com/u", ""},
		{"https://a.example.com", "http://a.example.com/u", ""},
		{"https://a.example.com", "https://b.example.com/u", ""},
		{"https://a.example.com", "https://a.example.com/u/../v", ""},
		{"https://a.example.com", "/u", "/p/it/u"},
		{"https://a.example.com", "u", ""},
		{"https://a.example.com", "", ""},
	} {
		p := &provider{spec: spec(t, "it", Generic, tt.base)}
		if got, _ := p.spec.pathThrough(mustURL(t, tt.address)); got != tt.want {
			t.Errorf("pathThrough(%q) below %s = %q, want %q", tt.address, tt.base, got, tt.want)
		}
	}
}

// A program may serve the gateway below another path.
func TestBelowAnotherPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, says("ok"))
		g := newRig(t, []Spec{spec(t, "it", Generic, u.URL)}).Gateway
		mux := http.NewServeMux()
		mux.Handle("/llm/", http.StripPrefix("/llm", g))
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/llm/p/it/v1/a%2Fb?q=1", nil)
		r.RemoteAddr = "127.0.0.1:1"
		mux.ServeHTTP(w, r)
		if w.Code != http.StatusOK || w.Body.String() != "ok" {
			t.Fatalf("got %d %q", w.Code, w.Body)
		}
		if got := u.requests()[0]; got.path != "/v1/a%2Fb" || got.query != "q=1" {
			t.Errorf("the provider got %s?%s", got.path, got.query)
		}
	})
}
