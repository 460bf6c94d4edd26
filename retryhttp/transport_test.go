package retryhttp_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

func TestMustTakesAPolicyOrItsText(t *testing.T) {
	p := retry.Must(quick).Policy()
	if a, b := retryhttp.Must(quick, nil).Policy(), retryhttp.Must(p, nil).Policy(); a != b {
		t.Errorf("Must of the text has %v, of the policy %v", a, b)
	}
	defer func() {
		if err, _ := recover().(error); err == nil {
			t.Error("Must of a policy that is not valid did not panic with an error")
		}
	}()
	retryhttp.Must("nonsense", nil)
}

func TestNewRefusesWhatItCantHonour(t *testing.T) {
	for _, tt := range []struct {
		policy string
		opts   []retryhttp.Option
		want   []string
	}{
		{"fixed(1s) attempts=2 reset-after=1m", nil, []string{"an HTTP transport can't honour reset-after=1m"}},
		{"fixed(1s)", []retryhttp.Option{retryhttp.WithRouter(nil)}, []string{"WithRouter: nil"}},
		{"fixed(1s)", []retryhttp.Option{retryhttp.WithStreams(retryhttp.Streams{Hold: -1})}, []string{"WithStreams: hold -1ns"}},
		{"fixed(1s)", []retryhttp.Option{retryhttp.WithAttemptHeaders("a b")}, []string{`WithAttemptHeaders: "a b"`}},
		{"fixed(1s)", []retryhttp.Option{retryhttp.WithDeadlineHeaders("X-Soon")}, []string{`WithDeadlineHeaders: "X-Soon"`}},
		{"fixed(1s)", []retryhttp.Option{nil}, []string{"option: nil"}},
		{"fixed(1s)", []retryhttp.Option{retryhttp.WithIdempotent(nil)}, []string{"WithIdempotent: nil"}},
		{"fixed(1s)", []retryhttp.Option{retryhttp.WithRetry(retry.WithBudget(nil))}, []string{"WithBudget: nil"}},
	} {
		p, err := retry.Parse(tt.policy)
		if err != nil {
			t.Fatal(err)
		}
		_, err = retryhttp.New(p, nil, tt.opts...)
		for _, w := range tt.want {
			if err == nil || !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "a Runner") {
				t.Errorf("New(%s) = %v, want %q once", tt.policy, err, w)
			}
		}
	}
	var zero retryhttp.Transport
	body := track(strings.NewReader("x"))
	if _, err := zero.RoundTrip(request(t, "POST", "http://x.invalid", body)); err == nil {
		t.Error("zero Transport: RoundTrip = nil, want an error")
	}
	body.waitUntilClosed()
}

func TestFirstAttemptGoesOutAsItCame(t *testing.T) {
	var got *http.Request
	p, _ := retry.Parse(quick)
	tr, err := retryhttp.New(p, roundTripper(func(r *http.Request) (*http.Response, error) {
		got = r
		return ok200, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	payload := bytes.Repeat([]byte("x"), 1<<10)
	for _, req := range []*http.Request{
		request(t, "GET", "http://x.invalid", nil),
		request(t, "GET", "http://x.invalid", http.NoBody),
		request(t, "POST", "http://x.invalid", bytes.NewReader(payload)),
	} {
		if resp, err := tr.RoundTrip(req); err != nil || resp != ok200 || got != req {
			t.Errorf("%s: the request or the response was replaced: %v", req.Method, err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = tr.RoundTrip(req) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", req.Method, n)
		}
	}
}

var ok200 = &http.Response{StatusCode: 200, Body: http.NoBody}

func TestDerivedTransports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(503)...)
		g := newRig(t, "fixed(1s) attempts=2")
		more, one := g.WithAttempts(4), g.WithAttempts(0)
		for _, tt := range []struct {
			transport *retryhttp.Transport
			want      int
		}{{g.Transport, 2}, {more, 4}, {one, 1}, {more.WithAttempts(3), 3}} {
			before := s.asked()
			resp, err := tt.transport.RoundTrip(request(t, "PUT", s.URL, io.MultiReader(strings.NewReader("x"))))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if n := s.asked() - before; n != tt.want || tt.transport.Policy().Attempts != tt.want {
				t.Errorf("%d attempts of a policy with %d, want %d", n, tt.transport.Policy().Attempts, tt.want)
			}
		}
		before := s.asked()
		resp, err := more.RoundTrip(requestWith(t, retryhttp.WithPriorRetries(t.Context(), 1), "GET", s.URL, nil))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if n := s.asked() - before; n != 2 {
			t.Errorf("%d attempts for a caller that retries, want half of 4", n)
		}
		calls := map[uint64]bool{}
		for _, e := range g.events {
			calls[e.Call] = true
		}
		if len(calls) != 5 {
			t.Errorf("five calls have %d numbers", len(calls))
		}
	})
}

func TestDerivedHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowFirst(t)
		g := newRig(t, "fixed(1s) attempts=2")
		h, err := g.WithHedge(retry.Hedge{After: 20 * time.Millisecond, Share: 1})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := h.RoundTrip(request(t, "GET", s.URL, nil))
		if err != nil {
			t.Fatal(err)
		}
		read(t, resp)
		if g.count(retry.HedgeStarted) != 1 || h.Policy().Hedge.After != 20*time.Millisecond || g.Policy().Hedge != (retry.Hedge{}) {
			t.Errorf("%d hedges, policies %v and %v", g.count(retry.HedgeStarted), h.Policy(), g.Policy())
		}
		if _, err := g.WithHedge(retry.Hedge{After: -1}); err == nil {
			t.Error("a hedge that is not valid was taken")
		}
	})
}
