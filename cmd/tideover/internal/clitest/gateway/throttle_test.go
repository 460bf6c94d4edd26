//go:build unix

package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// A path or a model with a Retry-After of a day does not block the provider: all other requests
// succeed, and the throttle is shown.
func TestOneThrottledPathClosesNoProvider(t *testing.T) {
	t.Parallel()
	var refused atomic.Int32
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/v1/batches" || strings.Contains(string(body), `"model":"big"`) {
			refused.Add(1)
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, "done")
	}))
	t.Cleanup(up.Close)
	s := clitest.GatewayFile(t, fmt.Sprintf("version: 1\nproviders:\n  openai: {base-url: %s, auth: \"${env:KEY}\", policy: fixed(1ms) attempts=3}\n", up.URL), "KEY=hush-hush-key")
	ask := func(path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Address()+"p/openai"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	const big, small = `{"messages":[],"model":"big"}`, `{"messages":[],"model":"small"}`
	for range 10 {
		if code, _ := ask("/v1/batches", ""); code != http.StatusTooManyRequests {
			t.Errorf("the closed path: %d", code)
		}
		if code, _ := ask("/v1/chat/completions", big); code != http.StatusTooManyRequests {
			t.Errorf("the closed model: %d", code)
		}
		if code, text := ask("/v1/chat/completions", small); text != "done" {
			t.Errorf("another model: %d %s", code, text)
		}
		if code, text := ask("/v1/files", "{}"); text != "done" {
			t.Errorf("another path: %d %s", code, text)
		}
	}
	if n := refused.Load(); n != 2 {
		t.Errorf("the provider refused %d requests, want one of the path and one of the model", n)
	}
	for what, text := range map[string]string{
		"the API": s.Read("/api/v1/providers/openai"), "the page": s.Read("/providers/openai"), "the list": s.Read("/providers"),
		"the verb": s.RunCommand("providers", "show", "openai").Out,
	} {
		for _, part := range []string{"POST /v1/batches", "POST /v1/chat/completions", "big"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s does not name %q", what, part)
			}
		}
	}
	if text := s.Metrics(); !strings.Contains(text, `tideover_gateway_throttled_routes{provider="openai"} 2`) {
		t.Error("the metrics do not count what is closed")
	}
}
