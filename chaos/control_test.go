package chaos

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestControl(t *testing.T) {
	t.Parallel()
	words := func(contentType string, body []byte) (Spec, error) {
		if contentType == "text/words" {
			return Parse("504,200")
		}
		return Parse(string(body))
	}
	s := serve(t, "/a: 503,200; /b: reset", WithSpecParser(words))
	c := client(t, s, http1)
	get(t, s, "/a")
	get(t, s, "/a")
	get(t, s, "/c")
	_, _, _ = do(t, c, http.MethodPost, s.URL()+"/b", "x")

	ask := func(method, path, body string, headers ...string) (int, string) {
		t.Helper()
		resp, text, err := do(t, c, method, s.URL()+path, body, headers...)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		return resp.StatusCode, text
	}
	stats := func() (st Stats) {
		t.Helper()
		status, text := ask(http.MethodGet, "/_chaos/stats", "")
		if err := json.Unmarshal([]byte(text), &st); err != nil || status != 200 {
			t.Fatalf("stats: %d, %v in %s", status, err, text)
		}
		return st
	}
	st := stats()
	if st.Requests != 4 || st.Unmatched != 1 || len(st.Rules) != 2 || st.Rules[0].Answers["503"] != 1 || st.Rules[1].Answers["reset"] != 1 || st.Answers["404"] != 1 {
		t.Errorf("stats = %+v", st)
	}
	if st.Connections < 2 || st.Open < 1 || st.Peak < 1 || len(st.Arrivals.Counts) < 1 || len(st.Log) != 4 {
		t.Errorf("stats = %+v", st)
	}

	if status, text := ask(http.MethodGet, "/_chaos/spec", ""); status != 200 || text != "/a: 503,200; /b: reset\n" {
		t.Errorf("spec = %d %q", status, text)
	}
	if status, _ := ask(http.MethodPost, "/_chaos/reset", ""); status != 200 || stats().Requests != 0 {
		t.Errorf("reset = %d, %d requests", status, stats().Requests)
	}
	if resp, _ := get(t, s, "/a"); resp.StatusCode != 503 {
		t.Errorf("after a reset the script goes on with %d", resp.StatusCode)
	}
	if status, text := ask(http.MethodPost, "/_chaos/spec", "502x2,200"); status != 200 || text != "*: 502x2,200\n" || stats().Requests != 0 {
		t.Errorf("a spec as text: %d %q", status, text)
	}
	if status, text := ask(http.MethodPost, "/_chaos/spec", "five-oh-four", "Content-Type", "text/words"); status != 200 || text != "*: 504,200\n" {
		t.Errorf("a spec for the parser of the option: %d %q", status, text)
	}
	if status, text := ask(http.MethodPost, "/_chaos/spec", "5O4"); status != 400 || !strings.Contains(text, `\"5O4\" is no answer`) {
		t.Errorf("a bad spec: %d %q", status, text)
	}
	if resp, _ := get(t, s, "/a"); resp.StatusCode != 504 {
		t.Errorf("after a bad spec the old one is not there: %d", resp.StatusCode)
	}
	for path, want := range map[string]int{"/_chaos/": 404, "/_chaos/x": 404} {
		if status, text := ask(http.MethodGet, path, ""); status != want || !strings.Contains(text, "GET /_chaos/stats") {
			t.Errorf("GET %s = %d %q", path, status, text)
		}
	}
	if status, _ := ask(http.MethodPost, "/_chaos/spec", strings.Repeat("x", MaxText+1)); status != 413 {
		t.Errorf("a spec that is too long: %d", status)
	}
	if status, _ := ask(http.MethodPost, "/_chaos/reset", "", "Sec-Fetch-Site", "cross-site"); status != 403 {
		t.Errorf("a page from elsewhere may reset it: %d", status)
	}
}

func TestControlIsForThisMachine(t *testing.T) {
	t.Parallel()
	s := serve(t, "200")
	for address, want := range map[string]int{"192.0.2.1:1234": 403, "127.0.0.1:1234": 200, "[::1]:1234": 200, "nonsense": 403} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/_chaos/stats", http.NoBody)
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("asked from %s: %d, want %d", address, w.Code, want)
		}
	}
}
