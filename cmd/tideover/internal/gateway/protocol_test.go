package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What a provider does not say of its answer is not made up.
func TestNoContentTypeIsInvented(t *testing.T) {
	u := newUpstream(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if w.Header()["Content-Type"] = nil; r.URL.Path == "/typed" {
			w.Header().Set("Content-Type", "text/x-own")
		}
		fmt.Fprint(w, `{"a":1}`)
	})
	r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
	if got := r.get("/p/it/plain"); got.code != 200 || got.header["Content-Type"] != nil {
		t.Errorf("got %d, Content-Type %q, want none", got.code, got.header["Content-Type"])
	}
	if got := r.get("/p/it/typed"); fmt.Sprint(got.header["Content-Type"]) != "[text/x-own]" {
		t.Errorf("Content-Type %q, want the provider's", got.header["Content-Type"])
	}
	if got := r.get("/p/nobody/x"); got.header.Get("Content-Type") != "application/json" {
		t.Errorf("our own: %v", got.header)
	}
}

func TestG16HTTP2AndTrailersPassThrough(t *testing.T) {
	u := unstarted(func(_ int, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprintf(w, "over %s", r.Proto)
		w.Header().Set("X-Sum", "42")
		w.Header().Set(http.TrailerPrefix+"X-Late", "yes")
	})
	u.EnableHTTP2 = true
	u.StartTLS()
	t.Cleanup(u.Close)
	r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
	roots := x509.NewCertPool()
	roots.AddCert(u.Certificate())
	r.base.TLSClientConfig = &tls.Config{RootCAs: roots}
	resp, err := r.Client().Get(r.URL + "/p/it/x")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || string(text) != "over HTTP/2.0" {
		t.Errorf("got %q, %v", text, err)
	}
	if resp.Trailer.Get("X-Sum") != "42" || resp.Trailer.Get("X-Late") != "yes" {
		t.Errorf("trailers: %v", resp.Trailer)
	}
}

func TestACertificateOfAnotherFailsOver(t *testing.T) {
	u := unstarted(says("main"))
	u.StartTLS()
	t.Cleanup(u.Close)
	spare := newUpstream(t, says("the spare"))
	r := newRig(t, []Spec{
		spec(t, "main", Anthropic, u.URL, fallback("spare")), spec(t, "spare", Anthropic, spare.URL), spec(t, "alone", Anthropic, u.URL),
	})
	if got := r.ask(http.MethodPost, "/p/main/x", chat); got.body != "the spare" {
		t.Errorf("got %d %q", got.code, got.body)
	}
	got := r.ask(http.MethodPost, "/p/alone/x", chat)
	if got.code != 502 || got.errorCode(t) != codeUnreachable || got.header.Get(shouldRetry) != "false" {
		t.Errorf("got %d %q", got.code, got.body)
	}
}

func TestG16UpgradePassesThrough(t *testing.T) {
	u := newUpstream(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		line, _ := rw.ReadString('\n')
		fmt.Fprintf(conn, "echo %s", line)
	})
	r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
	conn, err := net.Dial("tcp", r.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /p/it/socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v", resp, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := in.ReadString('\n'); line != "echo hello\n" {
		t.Errorf("got %q, %v", line, err)
	}
	_ = conn.Close()
	eventually(t, "the connection is given back", func() bool { return r.status("it").InFlight == 0 })
	if n := r.settled("it").Totals; n.CutShort != 0 {
		t.Errorf("totals: %+v", n)
	}
}

func TestUploads(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	u := newUpstream(t, shaky(1, 503))
	r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL, func(s *Spec) { s.MaxBody = 2 << 20 })})
	t.Run("of unknown length, twice", func(t *testing.T) {
		req, _ := http.NewRequest(http.MethodPost, r.URL+"/p/it/files", io.MultiReader(bytes.NewReader(big)))
		if got := r.do(req); got.body != "done" {
			t.Errorf("got %d %q, %v", got.code, got.body, got.err)
		}
		for i, s := range u.requests() {
			if s.body != string(big) {
				t.Errorf("attempt %d had %d bytes", i+1, len(s.body))
			}
		}
	})
	t.Run("longer than allowed", func(t *testing.T) {
		before := u.count()
		got := r.ask(http.MethodPost, "/p/it/files", strings.Repeat("x", 3<<20))
		if got.code != 413 || got.errorCode(t) != codeTooLarge || u.count() != before {
			t.Errorf("got %d %q, %v", got.code, got.body, got.err)
		}
	})
	t.Run("longer than allowed, of unknown length", func(t *testing.T) {
		req, _ := http.NewRequest(http.MethodPost, r.URL+"/p/it/files", io.MultiReader(strings.NewReader(strings.Repeat("x", 3<<20))))
		got := r.do(req)
		if got.code != 413 || got.errorCode(t) != codeTooLarge {
			t.Errorf("got %d %q, %v", got.code, got.body, got.err)
		}
	})
	if st := r.settled("it"); st.Breaker != "closed" || st.Totals.Failed != 2 {
		t.Errorf("%+v", st)
	}
	t.Run("too long to be kept", func(t *testing.T) {
		bad := newUpstream(t, fails(503))
		r := newRig(t, []Spec{spec(t, "it", Anthropic, bad.URL)})
		req, _ := http.NewRequest(http.MethodPost, r.URL+"/p/it/files", io.MultiReader(strings.NewReader(strings.Repeat("x", 17<<20))))
		if got := r.do(req); got.code != 503 || bad.count() != 1 {
			t.Errorf("got %d after %d requests, want the 503 after one", got.code, bad.count())
		}
		if n := r.settled("it").Totals; n.NotKept != 1 {
			t.Errorf("totals: %+v", n)
		}
	})
}

func TestG16ACallerThatGoesAwayTakesTheRequestAlong(t *testing.T) {
	gone := make(chan struct{})
	u := newUpstream(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(gone)
	})
	r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+"/p/it/x", nil)
	go func() {
		eventually(t, "it is under way", func() bool { return u.count() == 1 })
		cancel()
	}()
	if got := r.do(req); got.err == nil {
		t.Fatalf("got %d", got.code)
	}
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
		t.Fatal("the provider still works for nobody")
	}
	eventually(t, "it is counted", func() bool { return r.status("it").Totals.Canceled == 1 })
	st := r.status("it")
	counts := r.table.Load().providers["it"].door.breaker.Counts()
	if st.Totals.Failed != 0 || counts.Failures != 0 || st.InFlight != 0 || u.count() != 1 {
		t.Errorf("%+v, %+v", st, counts)
	}
}

func TestE13Deadlines(t *testing.T) {
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	u := newUpstream(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	})
	r := newRig(t, []Spec{
		spec(t, "it", Generic, u.URL),
		spec(t, "short", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=1 attempt-timeout=50ms")),
		spec(t, "stainless", OpenAI, u.URL),
	})
	for _, tt := range []struct {
		name, path string
		headers    []string
		code       string
		sent       int
		header     string // tells the provider how much is left
	}{
		{"no time at all", "/p/it/x", []string{"X-Request-Timeout-Ms", "0"}, codeDeadline, 0, ""},
		{"the caller's time", "/p/it/x", []string{"Grpc-Timeout", "100m"}, codeDeadline, 1, "X-Request-Timeout-Ms"},
		{"the caller's time, as its SDK says it", "/p/stainless/x", []string{"X-Stainless-Timeout", "0.1"}, codeDeadline, 1, "X-Stainless-Timeout"},
		{"the policy's time", "/p/short/x", nil, codeTimeout, 1, "X-Request-Timeout-Ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := u.count()
			began := time.Now()
			got := r.get(tt.path, tt.headers...)
			if got.code != 504 || got.errorCode(t) != tt.code || got.header.Get(shouldRetry) != "false" {
				t.Errorf("got %d %q, want 504 %s", got.code, got.body, tt.code)
			}
			if d := time.Since(began); d > 2*time.Second {
				t.Errorf("it took %v", d)
			}
			list := u.requests()[before:]
			if len(list) != tt.sent {
				t.Fatalf("sent %d times, want %d", len(list), tt.sent)
			}
			if tt.sent == 1 && list[0].header.Get(tt.header) == "" || tt.sent == 1 && tt.header != "Grpc-Timeout" && list[0].header.Get("Grpc-Timeout") != "" {
				t.Errorf("told %v, want %s alone", list[0].header, tt.header)
			}
		})
	}
	// A caller's impatience says nothing about the provider.
	if c := r.table.Load().providers["it"].door.breaker.Counts(); c.Failures != 0 {
		t.Errorf("the breaker has counted %+v", c)
	}
	if c := r.table.Load().providers["short"].door.breaker.Counts(); c.Failures != 1 {
		t.Errorf("the breaker has counted %+v, want our own timeout", c)
	}
}

// A deadline is for the beginning of an answer: a stream goes on as long as there is
// somebody to read it.
func TestE13ADeadlineDoesNotCutAStream(t *testing.T) {
	u := newUpstream(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		sse(w, evContent)
		time.Sleep(250 * time.Millisecond)
		sse(w, evContent)
	})
	r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL)})
	got := r.ask(http.MethodPost, "/p/it/v1/messages", chat, "X-Stainless-Timeout", "0.2")
	if got.err != nil || strings.Count(got.body, "hello") != 2 {
		t.Errorf("got %q, %v", got.body, got.err)
	}
	if n := r.settled("it").Totals; n.Succeeded != 1 {
		t.Errorf("totals: %+v", n)
	}
}

func TestARateThatLeavesNoRoomInTime(t *testing.T) {
	u := newUpstream(t, says("ok"))
	r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, func(s *Spec) { s.Rate.Events, s.Rate.Per = 1, 10*time.Second })})
	r.get("/p/it/x")
	began := time.Now()
	got := r.get("/p/it/x", "X-Request-Timeout-Ms", "5000")
	if got.code != 504 || got.errorCode(t) != codeDeadline || got.header.Get("Retry-After") != "10" || time.Since(began) > 3*time.Second {
		t.Errorf("got %d %q, Retry-After %q", got.code, got.body, got.header.Get("Retry-After"))
	}
	r = newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=2 total-timeout=2s"), func(s *Spec) { s.Rate.Events, s.Rate.Per = 1, 10*time.Second })})
	r.get("/p/it/x")
	if got := r.get("/p/it/x"); got.code != 503 || got.errorCode(t) != codeRate || got.header.Get("Retry-After") != "10" {
		t.Errorf("got %d %q, Retry-After %q", got.code, got.body, got.header.Get("Retry-After"))
	}
}

func TestI5Hedging(t *testing.T) {
	first := make(chan struct{})
	t.Cleanup(func() { close(first) })
	u := newUpstream(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			select {
			case <-first:
			case <-r.Context().Done():
			}
			return
		}
		fmt.Fprint(w, "quick")
	})
	hedge := withPolicy(t, "fixed(1ms) attempts=2 attempt-timeout=5s hedge=20ms/100%")
	r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, hedge)})
	if got := r.get("/p/it/x"); got.body != "quick" || u.count() != 2 {
		t.Errorf("got %d %q after %d requests", got.code, got.body, u.count())
	}
	st := r.settled("it")
	if st.Totals.Hedges != 1 || st.Totals.Succeeded != 1 {
		t.Errorf("totals: %+v", st.Totals)
	}
	eventually(t, "the one that lost is gone", func() bool { return r.status("it").InFlight == 0 })
	if c := r.table.Load().providers["it"].door.breaker.Counts(); c.Failures != 0 {
		t.Errorf("the one that lost counts as %+v", c)
	}
	// What costs money is not done twice.
	slow := newUpstream(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		time.Sleep(100 * time.Millisecond)
		fmt.Fprint(w, "slow")
	})
	r = newRig(t, []Spec{spec(t, "it", Anthropic, slow.URL, hedge, func(s *Spec) { s.Posts = PostsUnanswered })})
	if got := r.ask(http.MethodPost, "/p/it/v1/messages", chat); got.body != "slow" || slow.count() != 1 {
		t.Errorf("got %d %q after %d requests, want one", got.code, got.body, slow.count())
	}
}
