package retryhttp_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/memnet"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// slowFirst is a server that does not answer its first request until it is canceled.
type slowFirst struct {
	*httptest.Server
	asked    atomic.Int32
	canceled chan struct{}
	once     sync.Once
}

func newSlowFirst(t *testing.T) *slowFirst {
	t.Helper()
	s := &slowFirst{canceled: make(chan struct{})}
	s.Server = newServer(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if s.asked.Add(1) == 1 {
			<-r.Context().Done()
			s.once.Do(func() { close(s.canceled) })
			return
		}
		_, _ = w.Write(b)
		w.(http.Flusher).Flush()
		time.Sleep(30 * time.Millisecond) // the winner's body outlives the race
		_, _ = io.WriteString(w, "second")
	})
	return s
}

func TestH17HedgeWinsAndTheLoserIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, method := range []string{"GET", "PUT"} {
			s := newSlowFirst(t)
			g := newRig(t, "fixed(0s) attempts=2 hedge=20ms/100%")
			var body io.Reader
			want := "second"
			if method == "PUT" {
				body, want = strings.NewReader("hello "), "hello second"
			}
			resp, got := g.send(t, request(t, method, s.URL, body))
			if resp.StatusCode != 200 || got != want || s.asked.Load() != 2 || g.count(retry.HedgeStarted) != 1 {
				t.Errorf("%s: %s %q after %d requests, %d hedges", method, resp.Status, got, s.asked.Load(), g.count(retry.HedgeStarted))
			}
			<-s.canceled
		}
	})
}

func TestH17OnlyWhatMayBeSentTwiceIsHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name, method string
			body         io.Reader
		}{
			{"a POST", "POST", strings.NewReader("x")},
			{"a body that can't be read twice at once", "PUT", io.MultiReader(strings.NewReader("x"))},
		} {
			var asked atomic.Int32
			s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				time.Sleep(60 * time.Millisecond)
				_, _ = io.WriteString(w, "ok")
			})
			g := newRig(t, "fixed(0s) attempts=2 hedge=10ms/100%")
			if _, got := g.send(t, request(t, tt.method, s.URL, tt.body)); got != "ok" || asked.Load() != 1 || g.count(retry.HedgeStarted) != 0 {
				t.Errorf("%s: %q after %d requests, want one", tt.name, got, asked.Load())
			}
		}
	})
}

func TestH17HedgesStayWithinTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(_ http.ResponseWriter, _ *http.Request) { time.Sleep(5 * time.Millisecond) })
		g := newRig(t, "fixed(0s) attempts=1 hedge=1ms/5%")
		const calls = 100
		for range calls {
			g.send(t, request(t, "GET", s.URL, nil))
		}
		if n := g.count(retry.HedgeStarted); n < 10 || n > 10+calls*5/100 {
			t.Errorf("%d hedges of %d slow calls, want the first 10 and 5 %%", n, calls)
		}
	})
}

func TestH17BothAnswerAndNothingLeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Both attempts fail, one fails, or both succeed: in any order, every body must be
		// closed and every connection released. TestMain checks for leaked goroutines.
		var n atomic.Int32
		s := newSiteFunc(t, func(w http.ResponseWriter, _ *http.Request) {
			i := n.Add(1)
			time.Sleep(time.Duration(i%7) * time.Millisecond)
			if i%3 == 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<10))
		})
		g := newRig(t, "fixed(0s) attempts=4 hedge=2ms/100%")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 15 {
					resp, err := g.RoundTrip(request(t, "GET", s.URL, nil))
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Minute) // the handlers of canceled requests end
		g.net.CloseIdleConnections()
		synctest.Wait()
		if n := s.open(); n > 0 {
			t.Errorf("%d connections are still open", n)
		}
	})
}

// openSite is a server that counts its open connections.
type openSite struct {
	*httptest.Server
	n atomic.Int32
}

func (s *openSite) open() int32 { return s.n.Load() }

func newSiteFunc(t *testing.T, h http.HandlerFunc) *openSite {
	t.Helper()
	s := new(openSite)
	s.Server = memnet.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		switch st {
		case http.StateNew:
			s.n.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.n.Add(-1)
		default:
		}
	}
	startServer(t, s.Server)
	return s
}

func TestH17HedgingIsRoutedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newSlowFirst(t), newScriptedServer(t, answer{200, "", "second"})
		r := &to{places: []string{first.URL, second.URL}}
		g := newRig(t, "fixed(0s) attempts=2 hedge=20ms/100%", retryhttp.WithRouter(r))
		if _, got := g.send(t, request(t, "GET", first.URL, nil)); got != "second" {
			t.Errorf("got %q, want the second's answer", got)
		}
		synctest.Wait()
		if story := r.told(); !strings.Contains(story, "1: 0 true") || !strings.Contains(story, "1 closed") || !strings.Contains(story, "2: 200 false, ") {
			t.Errorf("the router got %q", story)
		}
	})
}
