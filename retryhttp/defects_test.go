package retryhttp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

func TestSuccessAfterTwo503HasExactlyTwoRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(503, 503, 200)...)
		g := newRig(t, quick)
		resp, body := g.send(t, request(t, "GET", s.URL, nil))
		wantStatus(t, resp, 200, s, 3)
		if n := g.count(retry.Waiting); n != 2 || body != "body of 200" {
			t.Errorf("observed %d retries and body %q, want 2 and the last body", n, body)
		}
		if e, ok := retryhttp.GaveUp(resp); ok {
			t.Errorf("GaveUp = %v, want nothing after a success", e)
		}
	})
}

func TestDefect4DiscardedResponsesLeakNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := strings.Repeat("x", 32<<10)
		var script []answer
		for range 50 {
			script = append(script, answer{503, "", big}, answer{200, "", big})
		}
		s := newScriptedServer(t, script...)
		g := newRig(t, quick)
		for range 50 {
			g.send(t, request(t, "GET", s.URL, nil))
		}
		if s.asked() != 100 || s.connections() != 1 {
			t.Errorf("%d requests made %d connections, want 100 and 1", s.asked(), s.connections())
		}
	})
}

func TestDefect6RetryAfterForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		date := time.Now().Add(time.Minute).UTC()
		for _, tt := range []struct {
			name, header string
			reason       retry.Reason
		}{
			{"a date past the deadline", "Retry-After: " + date.Format(http.TimeFormat), retry.StopDeadline},
			{"an RFC 850 date past the deadline", "Retry-After: " + date.Format("Monday, 02-Jan-06 15:04:05 GMT"), retry.StopDeadline},
			{"an asctime date past the deadline", "Retry-After: " + date.Format(time.ANSIC), retry.StopDeadline},
			{"longer than any wait", "Retry-After: 10000000000", retry.StopServerWait},
			{"longer than a duration", "Retry-After: 99999999999999999999999", retry.StopServerWait},
			{"longer than server-wait", "Retry-After: 121", retry.StopServerWait},
			{"negative is ignored", "Retry-After: -5", retry.StopAttempts},
			{"garbage is ignored", "Retry-After: NaN", retry.StopAttempts},
		} {
			s := newScriptedServer(t, answer{429, tt.header, "slow down"})
			g := newRig(t, quick)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			start := time.Now()
			resp, body := g.send(t, requestWith(t, ctx, "GET", s.URL, nil))
			cancel()
			if resp.StatusCode != 429 || body != "slow down" || time.Since(start) != 0 {
				t.Errorf("%s: %s %q after %v, want the 429 readable at once", tt.name, resp.Status, body, time.Since(start))
			}
			wantReason(t, resp, tt.reason)
			if want := map[bool]int{true: 3, false: 1}[tt.reason == retry.StopAttempts]; s.asked() != want {
				t.Errorf("%s: asked %d times, want %d", tt.name, s.asked(), want)
			}
		}
	})
}

func TestDefect7PostAnswered503IsSentOnceAndLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(503)...)
		for _, policy := range []string{quick, quick + " attempt-timeout=1m"} {
			g := newRig(t, policy)
			body := track(strings.NewReader("hello"))
			req := request(t, "POST", s.URL, body)
			was := *req
			before := s.asked()
			resp, text := g.send(t, req)
			wantStatus(t, resp, 503, s, before+1)
			if text != "body of 503" || s.got(before) != "hello" {
				t.Errorf("answer %q, server got %q", text, s.got(before))
			}
			if req.Body != io.ReadCloser(body) || req.GetBody != nil || req.ContentLength != was.ContentLength || req.Context() != was.Context() {
				t.Error("the caller's request was changed")
			}
			body.waitUntilClosed()
		}
	})
}

func TestDefect7RetriedRequestIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, script := range [][]int{{503, 503, 200}, {503, 503, 503}} {
			s := newScriptedServer(t, statuses(script...)...)
			g := newRig(t, quick)
			body := track(strings.NewReader("hello"))
			req := request(t, "PUT", s.URL, body)
			req.Header.Set("X-Mine", "1")
			was := *req
			resp, _ := g.send(t, req)
			wantStatus(t, resp, script[2], s, 3)
			for i := range 3 {
				if s.got(i) != "hello" {
					t.Errorf("attempt %d sent %q", i+1, s.got(i))
				}
			}
			if req.Body != io.ReadCloser(body) || req.GetBody != nil || req.Context() != was.Context() || len(req.Header) != 1 {
				t.Error("the caller's request was changed")
			}
			if script[2] == 200 && resp.Request != req {
				t.Error("resp.Request is not the caller's request")
			}
			body.waitUntilClosed()
		}
	})
}
