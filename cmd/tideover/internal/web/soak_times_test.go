package web

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/api"
)

// soakToken is the token for the API.
const soakToken = "a-token-for-the-soak"

// measure requests each list once, and records how long the server took.
func (s *soak) measure() {
	s.Helper()
	some := "q=name-" + strconv.Itoa(*soakRuns/2)
	for _, path := range []string{
		"/overview", "/runs", "/runs?order=next&state=waiting", "/runs?state=dead", "/runs?order=oldest&workflow=quick", "/runs?attempts=2",
		"/runs?" + some, "/dead", "/providers", "/sessions", "/policies", "/runs/" + s.busy,
	} {
		s.time(path, s.h, path)
	}
	for _, path := range []string{"runs", "runs?order=next&state=waiting", "runs?state=dead", "runs?limit=500", "dead", "status", "sessions"} {
		s.time("API "+path, s.api, api.Prefix+path)
	}
}

// time sends a request and records its duration.
//
// real clock: the long test checks the times; the short one only prints them.
func (s *soak) time(name string, h http.Handler, path string) {
	s.Helper()
	r := httptest.NewRequestWithContext(s.Context(), http.MethodGet, "http://localhost"+path, nil)
	r.Header.Set("Authorization", "Bearer "+soakToken)
	w := httptest.NewRecorder()
	began := time.Now()
	h.ServeHTTP(w, r)
	s.took[name] = append(s.took[name], time.Since(began))
	if w.Code != http.StatusOK {
		s.Errorf("%s: %d %s", name, w.Code, w.Body)
	}
}

// times logs how long the server took for lists, and checks the limit in the long test.
func (s *soak) times(t *testing.T) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(s.took)) {
		list := s.took[path]
		slices.Sort(list)
		middle := list[len(list)/2]
		t.Logf("%-34s %4d times, median %v, 95 of 100 within %v", path, len(list), middle.Round(100*time.Microsecond), list[len(list)*95/100].Round(100*time.Microsecond))
		if long() && middle > 100*time.Millisecond {
			t.Errorf("%s takes the server %v", path, middle)
		}
	}
}
