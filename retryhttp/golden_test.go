package retryhttp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// TestEventsGolden records what users see of the decisions after failed attempts: the
// response and the events in JSON.
func TestEventsGolden(t *testing.T) {
	stream := "Content-Type: text/event-stream"
	for _, tt := range []struct {
		name   string
		policy string
		script []answer
		method string // "" means GET
		body   string
		slow   bool // the first request is answered after a second
		opts   []retryhttp.Option
	}{
		{name: "503 then success", script: statuses(503, 200)},
		{name: "503 until the attempts are used up", script: statuses(503)},
		{name: "429 with Retry-After", script: []answer{{429, "Retry-After: 10", "later"}, {200, "", "ok"}}},
		{name: "429 with a wait that is too long", script: []answer{{429, "Retry-After: 1000", "later"}}},
		{name: "429 without credit", script: []answer{{429, "", `{"error":{"code":"insufficient_quota"}}`}}},
		{name: "401", script: statuses(401)},
		{name: "401 that asks for a retry", script: []answer{{401, "X-Should-Retry: true", "no"}, {200, "", "ok"}}},
		{name: "503 that forbids a retry", script: []answer{{503, "X-Should-Retry: false", "no"}}},
		{name: "post answered with 500", script: statuses(500), method: http.MethodPost, body: "{}"},
		{name: "body that is lost", script: statuses(503, 200), method: http.MethodPut, body: strings.Repeat("x", 17<<20)},
		{
			name: "body that is lost and a classifier that wants more", script: statuses(503, 200), method: http.MethodPut, body: strings.Repeat("x", 17<<20),
			opts: []retryhttp.Option{retryhttp.WithRetry(retry.WithClassifier(func(error) retry.Outcome { return retry.Outcome{} }))},
		},
		{name: "total timeout", policy: "fixed(10s) jitter=none attempts=9 total-timeout=25s", script: statuses(503)},
		{name: "budget out", policy: "fixed(1s) jitter=none attempts=9 budget=refund(5,1,10)", script: statuses(503)},
		{name: "hedge", policy: "fixed(1s) jitter=none attempts=2 hedge=20ms/100%", script: statuses(200), slow: true},
		{name: "hedged round that fails", policy: "fixed(1s) jitter=none attempts=2 hedge=20ms/100%", script: statuses(503, 503, 200), slow: true},
		{
			name: "stream that begins with an error", script: []answer{{200, stream, overload}, {200, stream, content}},
			opts: []retryhttp.Option{retryhttp.WithStreams(retryhttp.Streams{Hold: time.Second})},
		},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScriptedServer(t, tt.script...)
				if tt.policy == "" {
					tt.policy = "exponential(1s..10s) jitter=none attempts=3"
				}
				opts := append([]retryhttp.Option{retryhttp.WithRetry(retry.WithSeed(1), retry.WithName("it"))}, tt.opts...)
				transport := newNetTransport(t)
				var sent atomic.Int32
				g := newRigOver(t, tt.policy, roundTripper(func(r *http.Request) (*http.Response, error) {
					if sent.Add(1) == 1 && tt.slow {
						time.Sleep(time.Second)
					}
					return transport.RoundTrip(r)
				}), opts...)
				var body io.Reader
				if tt.body != "" {
					body = io.MultiReader(strings.NewReader(tt.body)) // a body that can't be read twice
				}
				if tt.method == "" {
					tt.method = http.MethodGet
				}
				resp, err := g.RoundTrip(request(t, tt.method, s.URL+"/x", body))
				var b strings.Builder
				describe(t, &b, resp, err)
				for _, ev := range g.events {
					text, _ := json.Marshal(ev)
					fmt.Fprintf(&b, "event %s\n", text)
				}
				got := strings.ReplaceAll(b.String(), strings.TrimPrefix(s.URL, "http://"), "server")
				testfile.Golden(t, filepath.Join("testdata", "events", strings.ReplaceAll(tt.name, " ", "-")+".txt"), got)
			})
		})
	}
}

// describe writes the whole response, and the reason for giving up.
func describe(t *testing.T, b *strings.Builder, resp *http.Response, err error) {
	t.Helper()
	if err != nil {
		reason := retry.Reason(0)
		if e, ok := errors.AsType[*retry.Error](err); ok {
			reason = e.Reason
		}
		fmt.Fprintf(b, "error %v, reason %q\n", err, reason)
		return
	}
	fmt.Fprintf(b, "response %d\n", resp.StatusCode)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		fmt.Fprintf(b, "  %s: %s\n", name, strings.Join(resp.Header[name], ", "))
	}
	fmt.Fprintf(b, "  body %q\n", read(t, resp))
	if e, ok := retryhttp.GaveUp(resp); ok {
		fmt.Fprintf(b, "gave up %q: %v\n", e.Reason, e)
		for _, f := range e.History() {
			fmt.Fprintf(b, "  %v\n", f)
		}
	}
}
