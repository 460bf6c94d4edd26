package retryhttp_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/retryhttp"
)

func TestA2OneIdempotencyKeyForAllAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(503, 503, 200)...)
		g := newRig(t, quick, retryhttp.WithIdempotencyKeys())
		req := request(t, "POST", s.URL, strings.NewReader("{}"))
		resp, _ := g.send(t, req)
		wantStatus(t, resp, 200, s, 3)
		key := s.heads[0].Get("Idempotency-Key")
		if len(key) < 20 || s.heads[1].Get("Idempotency-Key") != key || s.heads[2].Get("Idempotency-Key") != key {
			t.Errorf("keys %q, %q, %q, want one", key, s.heads[1].Get("Idempotency-Key"), s.heads[2].Get("Idempotency-Key"))
		}
		if req.Header.Get("Idempotency-Key") != "" {
			t.Error("the caller's request was changed")
		}
		// Another request gets another key. A request with a key keeps it, and an idempotent
		// request gets none.
		g.send(t, request(t, "POST", s.URL, strings.NewReader("{}")))
		own := request(t, "POST", s.URL, strings.NewReader("{}"))
		own.Header.Set("Idempotency-Key", "mine")
		g.send(t, own)
		g.send(t, request(t, "GET", s.URL, nil))
		if other := s.heads[3].Get("Idempotency-Key"); other == key || other == "" {
			t.Errorf("another request has the key %q", other)
		}
		if s.heads[4].Get("Idempotency-Key") != "mine" || s.heads[5].Get("Idempotency-Key") != "" {
			t.Errorf("keys %q of its own, %q of a GET", s.heads[4].Get("Idempotency-Key"), s.heads[5].Get("Idempotency-Key"))
		}
	})
}

func TestH18AttemptAndLayerAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(503, 503, 200)...)
		g := newRig(t, quick, retryhttp.WithAttemptHeaders("gateway"))
		req := request(t, "GET", s.URL, nil)
		req.Header.Set("X-Tideover-Layer", "client")
		req.Header.Set("X-Tideover-Attempt", "7")
		g.send(t, req)
		for i, h := range s.heads {
			if a, l := h.Get("X-Tideover-Attempt"), h.Get("X-Tideover-Layer"); a != strconv.Itoa(i+1) || l != "client, gateway" {
				t.Errorf("attempt %d: sent attempt %q of layer %q", i+1, a, l)
			}
		}
		if req.Header.Get("X-Tideover-Attempt") != "7" {
			t.Error("the caller's request was changed")
		}
	})
}

func TestE13WhatIsLeftIsSentAnewForEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(503, 503, 200)...)
		const name = "X-Request-Timeout-Ms"
		left := func(i int) int {
			n, err := strconv.Atoi(s.heads[i].Get(name))
			if err != nil {
				t.Fatalf("attempt %d: sent %q", i+1, s.heads[i].Get(name))
			}
			return n
		}
		g := newRig(t, "fixed(60ms) attempts=3", retryhttp.WithDeadlineHeaders(name))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		req := requestWith(t, ctx, "GET", s.URL, nil)
		req.Header.Set(name, "99999999") // the value of a layer before us, which is out of date
		g.send(t, req)
		if a, b, c := left(0), left(1), left(2); a != 10_000 || b != a-60 || c != b-60 {
			t.Errorf("sent %d, %d, %d ms, want what is left of 10 s", a, b, c)
		}
		// The header states the attempt timeout if that is shorter, and nothing without a limit.
		g = newRig(t, "fixed(0s) attempts=3 attempt-timeout=2s", retryhttp.WithDeadlineHeaders(name))
		g.send(t, request(t, "GET", s.URL, nil))
		if d := left(3); d != 2000 {
			t.Errorf("sent %d ms, want the attempt's 2 s", d)
		}
		g = newRig(t, quick, retryhttp.WithDeadlineHeaders(name))
		req = request(t, "GET", s.URL, nil)
		req.Header.Set(name, "99999999")
		g.send(t, req)
		if v := s.heads[4].Get(name); v != "" {
			t.Errorf("sent %q without any limit", v)
		}
	})
}

func TestG16RedirectsHaveOneBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var script []int
		asked := 0
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			code := script[min(asked, len(script)-1)]
			asked++
			if code == http.StatusFound {
				w.Header().Set("Location", "/next")
			}
			w.WriteHeader(code)
		})
		for _, tt := range []struct {
			script []int
			status int
			asked  int
		}{
			{[]int{503, 302, 503, 200}, 200, 4},      // three attempts: two retries in all
			{[]int{503, 302, 503, 503, 200}, 503, 4}, // no third retry
			{[]int{503, 503, 302, 503, 200}, 503, 4},
			{[]int{302, 503, 503, 503, 200}, 503, 4},
		} {
			script, asked = tt.script, 0
			resp, err := (&http.Client{Transport: newRig(t, quick)}).Do(request(t, "GET", s.URL, nil))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != tt.status || asked != tt.asked {
				t.Errorf("%v: status %d after %d requests, want %d after %d", tt.script, resp.StatusCode, asked, tt.status, tt.asked)
			}
		}
	})
}

func TestH18RetriesOfACallerHalveOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			policy       string
			prior, asked int
		}{
			{"fixed(0s) attempts=4", 0, 4},
			{"fixed(0s) attempts=4", 1, 2},
			{"fixed(0s) attempts=5", 3, 3},
			{"fixed(0s) attempts=2 total-timeout=1m", 1, 1},
			{"fixed(0s) attempts=1", 1, 1},
		} {
			s := newScriptedServer(t, statuses(503)...)
			req := requestWith(t, retryhttp.WithPriorRetries(t.Context(), tt.prior), "GET", s.URL, nil)
			resp, _ := newRig(t, tt.policy).send(t, req)
			wantStatus(t, resp, 503, s, tt.asked)
		}
	})
}
