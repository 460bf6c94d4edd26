package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// If a failover fails too, the caller gets the response that tells most: that of the
// provider that it asked for, rather than a problem with a fallback.
func TestTheMostTellingAnswer(t *testing.T) {
	long := strings.Repeat("x", 200<<10) // more than is read ahead
	forbids := func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Own", "yes")
		w.WriteHeader(403)
		fmt.Fprint(w, "you may not"+long)
	}
	for _, tt := range []struct {
		name        string
		main, spare func(int, http.ResponseWriter, *http.Request) // spare nil means that no server listens
		code        int
		begins      string // beginning of the body
		from        string
		why         string // reason for giving up
	}{
		{"forbidden here, unreachable there", forbids, nil, 403, "you may not", "main", "attempts"},
		{"forbidden here, refused there", forbids, fails(401), 403, "you may not", "main", "permanent"},
		{"refused here, refused there", fails(401), fails(402), 401, `{"error":{"message":"it is 401"}}`, "main", "permanent"},
		{"throttled here, refused there", fails(429, "Retry-After", "300"), fails(401), 429, `{"error":{"message":"it is 429"}}`, "main", "attempts"},
		{"refused here, throttled there", fails(401), fails(429, "Retry-After", "300"), 429, `{"error":{"message":"it is 429"}}`, "spare", "attempts"},
		{"refused here, a plain no there", fails(401), fails(404), 404, `{"error":{"message":"it is 404"}}`, "spare", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u, address := newTestServer(t, tt.main), unreachableURL
				if tt.spare != nil {
					address = newTestServer(t, tt.spare).URL
				}
				r := newRig(t, []Spec{
					spec(t, "main", Anthropic, u.URL, fallback("spare"), withPolicy(t, "fixed(1ms) attempts=2")),
					spec(t, "spare", Anthropic, address),
				})
				got := r.ask(http.MethodPost, "/p/main/v1/messages", chat)
				if got.err != nil || got.code != tt.code || !strings.HasPrefix(got.body, tt.begins) || got.header.Get(headerProvider) != tt.from {
					t.Errorf("got %d %.80q from %q, %v, want %d %q from %s", got.code, got.body, got.header.Get(headerProvider), got.err, tt.code, tt.begins, tt.from)
				}
				if strings.HasPrefix(tt.begins, "you") && (got.body != tt.begins+long || got.header.Get("X-Own") != "yes") {
					t.Errorf("the answer is not whole: %d bytes, %v", len(got.body), got.header)
				}
				if (got.header.Get(shouldRetry) == "false") != (tt.why != "") {
					t.Errorf("%s: %q", shouldRetry, got.header.Get(shouldRetry))
				}
				r.settled("main")
				if gave := giveUps(r, "main"); tt.why != "" && gave[tt.why] != 1 || tt.why == "" && len(gave) != 0 {
					t.Errorf("given up: %v, want %q", gave, tt.why)
				}
			})
		})
	}
}

// If the fallback has no room in the end, the caller still gets the response of the
// provider that it asked for.
func TestTheAnswerOfTheAskedIsBetterThanOurs(t *testing.T) {
	for _, code := range []int{401, 403, 429} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hold := make(chan struct{})
				u := newTestServer(t, fails(code, "X-Own", "yes", "Retry-After", "300"))
				spare := newTestServer(t, func(int, http.ResponseWriter, *http.Request) { <-hold })
				r := newRig(t, []Spec{
					spec(t, "main", Anthropic, u.URL, fallback("spare")),
					spec(t, "spare", Anthropic, spare.URL, withPolicy(t, "fixed(1ms)"), func(s *Spec) { s.Concurrent, s.Queue = 1, 1 }),
				})
				var others sync.WaitGroup
				others.Go(func() { r.get("/p/spare/x") })
				eventually(t, "the only place is taken", func() bool { return spare.count() == 1 })
				others.Go(func() { r.get("/p/spare/x") })
				eventually(t, "the queue is full", func() bool { return r.status("spare").Waiting == 1 })
				got := r.ask(http.MethodPost, "/p/main/v1/messages", chat)
				if got.code != code || got.header.Get("X-Own") != "yes" || got.body != fmt.Sprintf(`{"error":{"message":"it is %d"}}`, code) {
					t.Errorf("got %d %q, %v, want the %d", got.code, got.body, got.header, code)
				}
				if got.header.Get(shouldRetry) != "false" || got.header.Get(headerProvider) != "main" {
					t.Errorf("headers: %v", got.header)
				}
				close(hold)
				others.Wait()
				r.settled("main")
				if gave := giveUps(r, "main"); gave[codeQueue] != 1 {
					t.Errorf("given up: %v, want one for the queue", gave)
				}
			})
		})
	}
}

// A response of the gateway itself names each provider that it tried, and the provider
// that the caller asked for.
func TestOurAnswersNameBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spare := newTestServer(t, fails(429, "Retry-After", "300"))
		r := newRig(t, []Spec{
			spec(t, "main", Anthropic, unreachableURL, fallback("spare"), withPolicy(t, "fixed(1ms) attempts=1"), withoutBreaker),
			spec(t, "spare", Anthropic, spare.URL),
			spec(t, "gone", Anthropic, unreachableURL, fallback("lost"), withPolicy(t, "fixed(1ms) attempts=4")),
			spec(t, "lost", Anthropic, unreachableURL),
			spec(t, "down", Anthropic, unreachableURL, fallback("spare"), func(s *Spec) { s.OpenFor = time.Hour }),
		})
		r.get("/p/spare/x")
		takeDown(r, "down")
		for _, tt := range []struct {
			path, code string
			want       []string
		}{
			{"/p/gone/x", codeUnreachable, []string{"provider gone: dial tcp", "; fallback lost: dial tcp"}},
			{"/p/down/x", codeCooling, []string{"provider down: down, next probe in", "; fallback spare: its keys were throttled (429), the first for"}},
		} {
			got := r.get(tt.path)
			if code := got.errorCode(t); code != tt.code {
				t.Errorf("%s: %d %q, want %s", tt.path, got.code, got.body, tt.code)
			}
			for _, want := range append(tt.want, `"provider":"`+strings.Split(tt.path, "/")[2]+`"`) {
				if !strings.Contains(got.body, want) {
					t.Errorf("%s: %q is not in %s", tt.path, want, got.body)
				}
			}
			if got.header.Get(headerProvider) != "" {
				t.Errorf("%s: the answer is said to be from %s", tt.path, got.header.Get(headerProvider))
			}
		}
	})
}

func TestEveryAnswerNamesItsProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, spare := newTestServer(t, shaky(2, 503)), newTestServer(t, says("the spare"))
		r := newRig(t, []Spec{spec(t, "main", Anthropic, u.URL, fallback("spare")), spec(t, "spare", Anthropic, spare.URL)})
		for _, want := range []string{"spare", "main", "main"} {
			if got := r.ask(http.MethodPost, "/p/main/x", chat).header[headerProvider]; len(got) != 1 || got[0] != want {
				t.Errorf("the answer is said to be from %q, want %q", got, want)
			}
		}
	})
}

// A kept response is closed in the end, however the request ends.
func TestKeptAnswersAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{})
		u := newTestServer(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(401)
			_, _ = io.WriteString(w, "and then there is nothing")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done() // a body that does not end
			close(gone)
		})
		spare := newTestServer(t, says("the spare"))
		r := newRig(t, []Spec{spec(t, "main", Anthropic, u.URL, fallback("spare")), spec(t, "spare", Anthropic, spare.URL)})
		if got := r.ask(http.MethodPost, "/p/main/x", chat); got.body != "the spare" {
			t.Errorf("got %d %q", got.code, got.body)
		}
		<-gone
	})
}

func TestUndoubled(t *testing.T) {
	for text, want := range map[string]string{
		"":           "",
		"a":          "a",
		"a: b":       "a: b",
		"a: a":       "a",
		"a: b: b: c": "a: b: c",
		"context deadline exceeded: context deadline exceeded":                      "context deadline exceeded",
		"gave up: context deadline exceeded: Get x: context deadline exceeded":      "gave up: context deadline exceeded: Get x",
		"wait for the gate: context deadline exceeded: context deadline exceeded":   "wait for the gate: context deadline exceeded",
		"attempt timed out after 50ms: context deadline exceeded":                   "attempt timed out after 50ms: context deadline exceeded",
		"dial tcp 127.0.0.1:1: connect: connection refused: not retried: it may be": "dial tcp 127.0.0.1:1: connect: connection refused: not retried: it may be",
	} {
		if got := undoubled(text); got != want {
			t.Errorf("undoubled(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestOurAnswersAreForPeopleToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, []Spec{spec(t, "it", Generic, unreachableURL)})
		if got := r.get("/x"); !strings.Contains(got.body, "/p/<provider>/…") || strings.Contains(got.body, `\u00`) || fmt.Sprint(len(got.body)) != got.header.Get("Content-Length") {
			t.Errorf("got %q, %v", got.body, got.header)
		}
	})
}
