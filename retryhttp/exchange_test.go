package retryhttp_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

func TestA3NeverAfterTheContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(503)...)
		g := newRig(t, "fixed(1h) attempts=3")
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		time.AfterFunc(30*time.Millisecond, func() { cancel(gone) })
		start := time.Now()
		resp, err := g.RoundTrip(requestWith(t, ctx, "GET", s.URL, nil))
		e, ok := errors.AsType[*retry.Error](err)
		if resp != nil || !ok || e.Reason != retry.StopCanceled || !errors.Is(err, gone) || time.Since(start) != 30*time.Millisecond {
			t.Errorf("RoundTrip = %v, %v, want canceled with its cause", resp, err)
		}
		if st, ok := errors.AsType[*retryhttp.StatusError](err); !ok || st.Code != 503 {
			t.Errorf("the error lost the last answer: %v", err)
		}
		body := track(strings.NewReader("x"))
		for _, policy := range []string{quick, quick + " attempt-timeout=1s"} {
			if _, err := newRig(t, policy).RoundTrip(requestWith(t, ctx, "GET", s.URL, body)); !errors.Is(err, gone) || s.asked() != 1 {
				t.Errorf("with a context that has ended: %v after %d requests, want none", err, s.asked()-1)
			}
		}
		body.waitUntilClosed()
	})
}

func TestA3CallerGoneIsNotATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{}, 1)
		s := newServer(t, func(_ http.ResponseWriter, r *http.Request) { hung <- struct{}{}; <-r.Context().Done() })
		g := newRig(t, quick+" attempt-timeout=10s")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-hung; cancel() }()
		_, err := g.RoundTrip(requestWith(t, ctx, "GET", s.URL, nil))
		if !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("RoundTrip = %v, want canceled and no deadline", err)
		}
	})
}

func TestC7WaitThatCantFitTheDeadlineEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, answer{429, "Retry-After: 20", "later"})
		g := newRig(t, quick)
		client := &http.Client{Transport: g, Timeout: 10 * time.Second} // wraps the body
		start := time.Now()
		resp, err := client.Get(s.URL)
		if err != nil || time.Since(start) != 0 {
			t.Fatalf("Get = %v after %v", err, time.Since(start))
		}
		e := wantReason(t, resp, retry.StopDeadline)
		if body := read(t, resp); body != "later" || e.Attempts != 1 {
			t.Errorf("body %q after %d attempts, want %q after 1", body, e.Attempts, "later")
		}
	})
}

func TestC7LastResponseAfterAClosedGateComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget, err := limit.NewBudget(limit.Refund(1, 0.001, 1))
		if err != nil {
			t.Fatal(err)
		}
		s := newScriptedServer(t, statuses(503)...)
		g := newRig(t, quick+" attempt-timeout=1m", retryhttp.WithRetry(retry.WithBudget(budget)))
		resp, body := g.send(t, request(t, "GET", s.URL, nil))
		wantStatus(t, resp, 503, s, 2)
		wantReason(t, resp, retry.StopBudget)
		if body != "body of 503" {
			t.Errorf("body %q", body)
		}
	})
}

func TestC8WaitIsAtLeastWhatTheServerAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, answer{429, "Retry-After-Ms: 40", ""}, answer{status: 200})
		g := newRig(t, quick)
		start := time.Now()
		resp, _ := g.send(t, request(t, "GET", s.URL, nil))
		wantStatus(t, resp, 200, s, 2)
		ms := time.Millisecond
		if w := g.waits(); len(w) != 1 || w[0] < 40*ms || w[0] > 48*ms || time.Since(start) != w[0] {
			t.Errorf("waited %v, want one wait of 40ms to 48ms", w)
		}
	})
}

func TestClassifierHasTheLastWordButNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		always := retryhttp.WithRetry(retry.WithClassifier(func(error) retry.Outcome { return retry.Outcome{} }))
		s := newScriptedServer(t, statuses(500)...)
		resp, _ := newRig(t, quick, always).send(t, request(t, "POST", s.URL, track(strings.NewReader("x"))))
		wantStatus(t, resp, 500, s, 3)

		long := &scripted{t: t, body: pattern(retryhttp.KeptInAll + 1), script: []int{500}}
		body := track(bytes.NewReader(long.body))
		resp, text := newRigOver(t, quick, long, always).send(t, request(t, "PUT", "http://x.invalid", body))
		if resp.StatusCode != 500 || long.asked != 1 {
			t.Errorf("got status %d after %d requests, want 500 after 1", resp.StatusCode, long.asked)
		}
		if e := wantReason(t, resp, retry.StopAttempts); text != "body of 500" || !errors.Is(e, retryhttp.ErrBody) {
			t.Errorf("body %q, %v, want the only answer and ErrBody", text, e)
		}
		body.waitUntilClosed()
	})
}

func TestWhatTransportsShouldNotDo(t *testing.T) {
	body := track(strings.NewReader("x"))
	broken := errors.New("broken")
	for _, policy := range []string{quick, quick + " attempt-timeout=1m"} {
		p, _ := retry.Parse(policy)
		tr, _ := retryhttp.New(p, roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: body}, broken
		}))
		resp, err := tr.RoundTrip(request(t, "POST", "http://x.invalid", nil))
		if resp != nil || !errors.Is(err, broken) || !strings.Contains(err.Error(), "broken: not retried: the request may have been processed") {
			t.Errorf("answer and error: %v, %v, want the error", resp, err)
		}
		tr, _ = retryhttp.New(p, roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil }))
		if resp, err := tr.RoundTrip(request(t, "GET", "http://x.invalid", nil)); resp != nil || err != nil {
			t.Errorf("neither answer nor error: %v, %v", resp, err)
		}
	}
	body.waitUntilClosed()
}

func TestLegacyCancelIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		cancel := make(chan struct{})
		time.AfterFunc(20*time.Millisecond, func() { close(cancel) })
		req := request(t, "GET", s.URL, nil)
		req.Cancel = cancel //nolint:staticcheck // http.Client still sets it
		g := newRig(t, quick)
		if _, err := g.RoundTrip(req); !errors.Is(err, retry.StopCanceled) || g.count(retry.Waiting) != 0 {
			t.Errorf("RoundTrip = %v after %d retries, want canceled", err, g.count(retry.Waiting))
		}
	})
}

func TestClosedBreakerGivesTheLastResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(503)...)
		b, err := breaker.New(breaker.Config{FailureRate: breaker.Off, ConsecutiveFailures: 2})
		if err != nil {
			t.Fatal(err)
		}
		resp, body := newRig(t, "fixed(0s) attempts=5", retryhttp.WithRetry(retry.WithBreaker(b))).send(t, request(t, "GET", s.URL, nil))
		wantStatus(t, resp, 503, s, 2)
		wantReason(t, resp, retry.StopBreaker)
		if body != "body of 503" {
			t.Errorf("body %q", body)
		}
		sent := track(strings.NewReader("x"))
		_, err = newRig(t, quick, retryhttp.WithRetry(retry.WithBreaker(b))).RoundTrip(request(t, "PUT", s.URL, sent))
		if !errors.Is(err, retry.StopBreaker) || s.asked() != 2 {
			t.Errorf("with an open breaker: %v after %d more requests", err, s.asked()-2)
		}
		sent.waitUntilClosed()
	})
}

func TestLoggerSaysWhatWasNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := retryhttp.WithRetry(retry.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		s := newScriptedServer(t, statuses(404)...)
		newRig(t, quick, logger).send(t, request(t, "GET", s.URL, nil))
		if log.Len() > 0 {
			t.Errorf("a 404 was logged: %s", &log)
		}
		long := &scripted{t: t, body: pattern(retryhttp.KeptInAll + 1), script: []int{503}}
		newRigOver(t, quick, long, logger).send(t, request(t, "PUT", "http://x.invalid", track(bytes.NewReader(long.body))))
		if !strings.Contains(log.String(), "more than 16 MiB") {
			t.Errorf("log: %s", &log)
		}
	})
}

func TestACompleteAnswerIsKeptHoweverLate(t *testing.T) {
	for _, text := range []string{"fixed(0s) attempts=1", "fixed(0s) attempts=1 attempt-timeout=1m"} {
		policy, err := retry.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		next := roundTripper(func(r *http.Request) (*http.Response, error) {
			cancel()
			<-r.Context().Done()
			return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody, Request: r}, nil
		})
		transport, err := retryhttp.New(policy, next)
		if err != nil {
			t.Fatal(err)
		}
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://example.com", nil)
		resp, err := transport.RoundTrip(req)
		if err != nil || resp.StatusCode != http.StatusCreated {
			t.Errorf("%s: %v, %v, want the answer", text, resp, err)
		}
	}
}

func TestGaveUpBelongsToOneResponse(t *testing.T) {
	policy, _ := retry.Parse("fixed(0s) attempts=1")
	code := http.StatusServiceUnavailable
	transport, err := retryhttp.New(policy, roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Body: http.NoBody, Request: r}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com", nil)
	first, err := transport.RoundTrip(req)
	if _, ok := retryhttp.GaveUp(first); err != nil || !ok {
		t.Fatalf("503: %v, gave up %v", err, ok)
	}
	code = http.StatusOK
	second, err := transport.RoundTrip(first.Request)
	if e, ok := retryhttp.GaveUp(second); err != nil || ok {
		t.Errorf("200 with the request of a failure: %v, gave up %v", err, e)
	}
}
