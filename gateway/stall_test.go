package gateway

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A stream that stalls before its first content ends with an error that says why. If
// the request may be repeated, another provider takes over.
func TestAStreamThatStallsBeforeItsFirstContent(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	chunk := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
	const idle = 45 * time.Second
	for _, tt := range []struct {
		name   string
		answer string
		key    string // Idempotency-Key
		spare  bool
		want   string // part of what the caller gets
		after  time.Duration
	}{
		{"nothing comes", head, "", true, `event: error`, defaultHold + idle},
		{"the message has started", head + chunk(evStart), "", true, evStart + `event: error`, defaultHold + idle},
		{"within an event", head + chunk("event: mess"), "", true, "event: mess", defaultHold + idle},
		{"after content", head + chunk(evStart+evContent), "", true, evContent + `event: error`, idle},
		{"nothing comes, and it may be repeated", head, "one", true, "the spare", idle},
		{"the message has started, and it may be repeated", head + chunk(evStart), "one", true, "the spare", idle},
		{"it may be repeated, and there is no other", head + chunk(evStart), "one", false, evStart + `event: error`, defaultHold + 2*idle + 5*time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				address := silentUpstream(t, func(c net.Conn) {
					asked++
					answersWith(tt.answer)(c)
				})
				spare := newTestServer(t, says("the spare"))
				specs := []Spec{spec(t, "main", Anthropic, "http://"+address, withPolicy(t, strings.Replace(quick, "attempts=4 attempt-timeout=2s total-timeout=20s", "attempts=2 attempt-timeout=1h", 1)),
					func(s *Spec) { s.StreamIdle = idle })}
				if tt.spare {
					specs[0].Fallback = []string{"spare"}
					specs = append(specs, spec(t, "spare", Anthropic, spare.URL))
				}
				r := newRig(t, specs)
				began := time.Now()
				headers := []string(nil)
				if tt.key != "" {
					headers = []string{"Idempotency-Key", tt.key}
				}
				got := r.ask(http.MethodPost, "/p/main/v1/messages", chat, headers...)
				if d := time.Since(began).Round(time.Millisecond); !strings.Contains(got.body, tt.want) || d != tt.after {
					t.Errorf("got %d %q, %v after %v, want %q after %v", got.code, got.body, got.err, d, tt.want, tt.after)
				}
				if repeated := spare.count() + asked - 1; (repeated > 0) != (tt.key != "") {
					t.Errorf("asked %d times, and the spare %d times", asked, spare.count())
				}
				if tt.key == "" && got.err == nil {
					t.Error("the stream ended as if it were whole")
				}
			})
		})
	}
}

// A stream that is slow but not silent is passed on, also if the request may be repeated.
func TestASlowStreamIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			for range 10 {
				sse(w, ": ping\n\n")
				time.Sleep(15 * time.Second)
			}
			sse(w, evContent)
		})
		r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL, withPolicy(t, "fixed(1s) attempts=3 attempt-timeout=1m"), func(s *Spec) { s.StreamIdle = 30 * time.Second })})
		got := r.ask(http.MethodPost, "/p/it/v1/messages", chat, "Idempotency-Key", "one")
		if got.err != nil || strings.Count(got.body, "ping") != 10 || !strings.HasSuffix(got.body, evContent) || u.count() != 1 {
			t.Errorf("got %q, %v after %d requests, want all of it after one", got.body, got.err, u.count())
		}
	})
}
