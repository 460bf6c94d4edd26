package gateway

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var faulty = flag.Int("faulty", 192, "requests that go wrong in the test for leaks")

// chaos is the handler of a provider that fails in every way.
func chaos(n int, w http.ResponseWriter, r *http.Request) {
	switch n % 12 {
	case 0:
		hijack(w, "")
	case 1:
		hijack(w, "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort")
	case 2:
		hijack(w, "nonsense\r\n\r\n")
	case 3:
		fails(503)(n, w, r)
	case 4:
		fails(429, "Retry-After-Ms", "1")(n, w, r)
	case 5:
		fails(500)(n, w, r)
	case 6:
		select {
		case <-r.Context().Done():
		case <-time.After(100 * time.Millisecond):
		}
	case 7:
		sse(w, evStart, evError)
	case 8:
		sse(w, evContent)
		hijackAfter(w)
	case 9:
		fails([]int{401, 402, 403}[n/12%3])(n, w, r)
	case 10:
		hijack(w, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	default:
		fmt.Fprint(w, strings.Repeat("x", 20<<10))
	}
}

// hijackAfter breaks off an answer that has begun.
func hijackAfter(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// No failure of a request leaks a goroutine: the synctest bubble fails if one is left.
func TestNothingLeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		main, spare := unstartedTestServer(chaos), unstartedTestServer(chaos)
		var mu sync.Mutex
		open := map[net.Conn]bool{}
		for _, u := range []*testServer{main, spare} {
			u.Config.ConnState = func(c net.Conn, s http.ConnState) {
				mu.Lock()
				defer mu.Unlock()
				if s == http.StateNew || s == http.StateActive {
					open[c] = true
				}
				if s == http.StateClosed || s == http.StateHijacked {
					delete(open, c)
				}
			}
			u.Start()
			defer u.Close()
		}
		limits := func(s *Spec) { s.Concurrent, s.StreamIdle = 20, 50*time.Millisecond }
		short := withPolicy(t, "fixed(1ms) attempts=4 attempt-timeout=30ms total-timeout=2s")
		r := newRig(t, []Spec{
			spec(t, "main", Anthropic, main.URL, keys("one", "two"), fallback("spare"), withoutBreaker, limits, short),
			spec(t, "spare", Anthropic, spare.URL, keys("three"), withoutBreaker, limits, short),
		})
		var callers sync.WaitGroup
		for range 32 {
			callers.Go(func() {
				for range *faulty / 32 {
					misuse(r)
				}
			})
		}
		callers.Wait()
		for _, name := range []string{"main", "spare"} {
			eventually(t, name+" has nothing under way", func() bool {
				p := r.table.Load().providers[name]
				st := r.settled(name)
				return st.InFlight == 0 && st.Waiting == 0 && p.upstream.slots.Stats().InUse == 0 && len(st.Keys) > 0 && st.Keys[0].InFlight == 0
			})
		}
		if n := r.traffic.count(); n != 0 {
			t.Errorf("%d requests are under way", n)
		}
		r.Client().CloseIdleConnections()
		r.base.CloseIdleConnections()
		eventually(t, "no connection is open", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(open) == 0
		})
	})
}

// misuse makes one request, over the port or in the process, and sometimes cancels it.
func misuse(r *rig) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if rand.IntN(10) == 0 {
		time.AfterFunc(time.Duration(rand.IntN(20))*time.Millisecond, cancel)
	}
	method := http.MethodGet
	var body io.Reader
	if rand.IntN(2) == 0 {
		method, body = http.MethodPost, io.MultiReader(strings.NewReader(strings.Repeat("y", rand.IntN(8<<10))))
	}
	inside := rand.IntN(3) == 0
	address := r.URL + "/p/main/v1/x"
	if inside {
		address = "/v1/x"
	}
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		r.t.Error(err)
		return
	}
	if !inside {
		r.do(req)
		return
	}
	req.Header.Set("Idempotency-Key", "it")
	if resp, err := r.RoundTripper("main").RoundTrip(req); err == nil {
		_, _ = io.CopyN(io.Discard, resp.Body, int64(rand.IntN(40<<10)))
		_ = resp.Body.Close()
	}
}
