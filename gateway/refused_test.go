package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tideover/tideover/internal/h2test"
)

// A provider that refuses the streams of HTTP/2 has not processed them: each counts as one
// attempt, a POST is repeated, and the fallback answers.
func TestARefusedStreamIsOneFailedAttempt(t *testing.T) {
	for _, limits := range []string{"", " attempt-timeout=1h total-timeout=2h"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for _, withFallback := range []bool{false, true} {
				t.Run(fmt.Sprint(method, limits, withFallback), func(t *testing.T) {
					var hits atomic.Int32
					address := h2test.Serve(t, nil, func(s h2test.Stream) bool {
						hits.Add(1)
						s.Reset(h2test.RefusedStream)
						return true
					})
					other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(w, r.Body)
						_, _ = io.WriteString(w, "fallback")
					}))
					t.Cleanup(other.Close)
					first := spec(t, "first", Generic, "http://"+address, withoutBreaker, func(s *Spec) { s.H2C = true },
						withPolicy(t, "fixed(1ms) jitter=none attempts=4"+limits))
					if withFallback {
						first.Fallback = []string{"other"}
					}
					g, s := newSocketGateway(t, first, spec(t, "other", Generic, other.URL))
					req, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/p/first/x", strings.NewReader("hello "))
					if err != nil {
						t.Fatal(err)
					}
					resp, err := socketClient(t, false).Do(req)
					if err != nil {
						t.Fatal(err)
					}
					text, _ := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					attempts := 0
					for _, p := range g.Status() {
						if p.Name == "first" {
							attempts = int(p.Totals.Attempts)
						}
					}
					if int(hits.Load()) != attempts || attempts == 0 || attempts > 4 {
						t.Errorf("the provider got %d requests, the gateway counts %d attempts", hits.Load(), attempts)
					}
					switch {
					case withFallback && (resp.StatusCode != 200 || string(text) != "hello fallback"):
						t.Errorf("%s %s, want the answer of the fallback", resp.Status, text)
					case !withFallback && (resp.StatusCode != 502 || attempts != 4 || strings.Contains(string(text), "may have been processed")):
						t.Errorf("%s %s after %d attempts, want 502 after 4", resp.Status, text, attempts)
					}
				})
			}
		}
	}
}
