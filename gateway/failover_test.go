package gateway

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// hijack writes raw bytes to the connection and closes it.
func hijack(w http.ResponseWriter, raw string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	fmt.Fprint(conn, raw)
	_ = conn.Close()
}

const chat = `{"model":"m","messages":[]}`

func sse(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		fmt.Fprint(w, e)
		_ = http.NewResponseController(w).Flush()
	}
}

const (
	evStart   = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n"
	evContent = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"hello\"}}\n\n"
	evError   = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
)

// A caller sees only the response of the provider that succeeded. The failure of the
// provider that the caller asked for does not show.
func TestFailover(t *testing.T) {
	for _, tt := range []struct {
		name   string
		method string // "" means GET
		down   bool   // no server listens at its address
		handle func(n int, w http.ResponseWriter, r *http.Request)
		asked  int // number of requests to the first provider
		why    string
	}{
		{name: "it refuses connections", down: true, why: "unreachable"},
		{name: "it refuses connections of a POST", method: http.MethodPost, down: true, why: "unreachable"},
		{name: "it dies within the headers", asked: 2, why: "connection lost", handle: func(_ int, w http.ResponseWriter, _ *http.Request) {
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Le")
		}},
		{name: "it throttles without saying for how long", method: http.MethodPost, asked: 1, why: "429", handle: fails(429)},
		{name: "it throttles for a minute", method: http.MethodPost, asked: 1, why: "429", handle: fails(429, "Retry-After", "60")},
		{name: "it has no quota left", method: http.MethodPost, asked: 1, why: "429 insufficient_quota", handle: func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(429)
			fmt.Fprint(w, `{"error":{"code":"insufficient_quota"}}`)
		}},
		{name: "it answers a GET with 503", asked: 2, why: "503", handle: fails(503)},
		{name: "it answers a POST with 503", method: http.MethodPost, asked: 2, why: "503", handle: fails(503)},
		{name: "it wants to be left alone for a minute", method: http.MethodPost, asked: 1, why: "503", handle: fails(503, "Retry-After", "60")},
		{name: "it is overloaded", method: http.MethodPost, asked: 2, why: "529", handle: fails(529)},
		{name: "its key is not valid", method: http.MethodPost, asked: 1, why: "401", handle: fails(401)},
		{name: "its key is not paid", method: http.MethodPost, asked: 1, why: "402", handle: fails(402)},
		{name: "its key may not", method: http.MethodPost, asked: 1, why: "403", handle: fails(403)},
		{name: "it hangs before the headers", asked: 1, why: "timeout", handle: func(_ int, _ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}},
		{name: "it cuts a stream before any content", asked: 2, why: "connection lost", handle: func(_ int, w http.ResponseWriter, _ *http.Request) {
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"+fmt.Sprintf("%x\r\n%s\r\n", len(evStart), evStart))
		}},
		{name: "it begins a stream with an error", method: http.MethodPost, asked: 2, why: "529", handle: func(_ int, w http.ResponseWriter, _ *http.Request) {
			sse(w, evStart, evError)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				primary, address := new(testServer), unreachableURL
				if !tt.down {
					primary = newTestServer(t, tt.handle)
					address = primary.URL
				}
				spare := newTestServer(t, says("the spare"))
				r := newRig(t, []Spec{
					spec(t, "main", Anthropic, address, fallback("spare"), withPolicy(t, strings.Replace(quick, "attempt-timeout=2s", "attempt-timeout=150ms", 1))),
					spec(t, "spare", Anthropic, spare.URL),
				})
				method, body := tt.method, ""
				if method == "" {
					method = http.MethodGet
				} else {
					body = chat
				}
				got := r.ask(method, "/p/main/v1/messages", body)
				if got.err != nil || got.code != 200 || got.body != "the spare" {
					t.Fatalf("got %d %q, %v, want the answer of the spare", got.code, got.body, got.err)
				}
				if method == http.MethodGet && got.header.Get(shouldRetry) != "" {
					t.Errorf("%s: %s on a success", shouldRetry, got.header.Get(shouldRetry))
				}
				if n := primary.count(); n != tt.asked {
					t.Errorf("it was asked %d times, want %d", n, tt.asked)
				}
				if list := spare.requests(); len(list) != 1 || list[0].body != body {
					t.Errorf("the spare saw %v, want one request with the body %q", list, body)
				}
				st := r.settled("main")
				if len(st.Failovers) != 1 || st.Failovers[0].To != "spare" || st.Failovers[0].Why != tt.why {
					t.Errorf("failovers: %+v, want one to spare because of %q", st.Failovers, tt.why)
				}
				if n := st.Totals; n.Requests != 1 || n.Succeeded != 1 || n.Failovers != 1 || n.Failed != 0 {
					t.Errorf("totals: %+v", n)
				}
			})
		})
	}
}

// When a provider fails under load, all its requests succeed at the fallback. A failover
// takes no token of the retry budget; 60 retries would exhaust it.
func TestAWaveFailsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make(chan struct{})
		var there atomic.Int32
		u := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if there.Add(1) == 60 {
				close(all)
			}
			<-all // no request fails before all have arrived
			fails(503)(n, w, r)
		})
		spare := newTestServer(t, says("the spare"))
		r := newRig(t, []Spec{
			spec(t, "main", Anthropic, u.URL, fallback("spare"), withPolicy(t, strings.Replace(quick, "attempt-timeout=2s", "attempt-timeout=10s", 1))),
			spec(t, "spare", Anthropic, spare.URL),
		})
		var callers sync.WaitGroup
		for range 60 {
			callers.Go(func() {
				if got := r.ask(http.MethodPost, "/p/main/v1/messages", chat); got.body != "the spare" {
					t.Errorf("got %d %q, %v", got.code, got.body, got.err)
				}
			})
		}
		callers.Wait()
		if n := r.settled("main").Totals; n.Succeeded != 60 || n.Failovers != 60 {
			t.Errorf("totals: %+v", n)
		}
	})
}

// After the first content nothing is retried, and the caller sees that the
// answer is incomplete.
func TestF15AnAnswerThatBreaksOffIsNoCleanEnd(t *testing.T) {
	for _, tt := range []struct {
		name   string
		begins string // what the caller has got by then
		handle func(n int, w http.ResponseWriter, r *http.Request)
	}{
		{"a stream is cut", "hello", func(_ int, w http.ResponseWriter, _ *http.Request) {
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"+fmt.Sprintf("%x\r\n%s\r\n", len(evContent), evContent))
		}},
		{"a stream falls silent", "hello", func(_ int, w http.ResponseWriter, r *http.Request) {
			sse(w, evContent)
			<-r.Context().Done()
		}},
		{"a body is cut", "hello", func(_ int, w http.ResponseWriter, _ *http.Request) {
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := newTestServer(t, tt.handle)
				spare := newTestServer(t, says("the spare"))
				r := newRig(t, []Spec{
					spec(t, "main", Anthropic, u.URL, fallback("spare"), func(s *Spec) { s.StreamIdle = 100 * time.Millisecond }),
					spec(t, "spare", Anthropic, spare.URL),
				})
				got := r.ask(http.MethodPost, "/p/main/v1/messages", chat)
				if got.err == nil || !strings.Contains(got.body, tt.begins) {
					t.Errorf("got %q, %v, want the beginning and an error", got.body, got.err)
				}
				if u.count() != 1 || spare.count() != 0 {
					t.Errorf("asked %d and %d times, want 1 and 0", u.count(), spare.count())
				}
				eventually(t, "cut short is counted", func() bool { return r.status("main").Totals.CutShort == 1 })
				if n := r.status("main").Totals; n.Succeeded != 0 || n.Failed != 0 {
					t.Errorf("totals: %+v", n)
				}
			})
		})
	}
}

func TestF15EveryEventIsFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := make(chan struct{})
		u := newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			sse(w, evStart, evContent)
			<-next
			sse(w, evContent)
		})
		r := newRig(t, []Spec{spec(t, "main", Anthropic, u.URL)})
		resp, err := r.Client().Post(r.URL+"/p/main/v1/messages", "application/json", strings.NewReader(chat))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		hello := func() bool {
			for lines.Scan() {
				if strings.Contains(lines.Text(), "hello") {
					return true
				}
			}
			return false
		}
		if !hello() {
			t.Fatal("the first event does not come before the second is sent")
		}
		close(next)
		if !hello() {
			t.Error("the second event does not come")
		}
	})
}
