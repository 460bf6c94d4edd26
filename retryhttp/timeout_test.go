package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

func TestE12BodyIsReadableAfterTheAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			time.Sleep(120 * time.Millisecond)
			_, _ = io.WriteString(w, "b")
		})
		for _, policy := range []string{quick + " attempt-timeout=60ms", quick + " total-timeout=60ms"} {
			g := newRig(t, policy)
			resp, body := g.send(t, request(t, "GET", s.URL, nil))
			if resp.StatusCode != 200 || body != "ab" || g.count(retry.Waiting) != 0 {
				t.Errorf("%s: %s %q, want the whole body", policy, resp.Status, body)
			}
		}
	})
}

func TestE12ContextIsReleasedWithTheBody(t *testing.T) {
	for _, tt := range []struct {
		name string
		use  func(*http.Response)
	}{
		{"closed", func(r *http.Response) { _ = r.Body.Close() }},
		{"read", func(r *http.Response) { _, _ = io.Copy(io.Discard, r.Body) }},
	} {
		var ctx context.Context
		p, _ := retry.Parse("fixed(0s) attempts=2 attempt-timeout=1m")
		tr, err := retryhttp.New(p, roundTripper(func(r *http.Request) (*http.Response, error) {
			ctx = r.Context()
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("x")), Request: r}, nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(request(t, "GET", "http://x.invalid", nil))
		if err != nil || ctx.Err() != nil {
			t.Fatalf("%s: %v, context %v before the body was used", tt.name, err, ctx.Err())
		}
		if tt.use(resp); ctx.Err() == nil {
			t.Errorf("%s: the request's context has not ended", tt.name)
		}
	}
}

func TestE12TotalTimeoutEndsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		_, err := newRig(t, "fixed(0s) attempts=5 total-timeout=50ms").RoundTrip(request(t, "GET", s.URL, nil))
		if !errors.Is(err, retry.StopTotalTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("RoundTrip = %v, want the total timeout", err)
		}
	})
}
