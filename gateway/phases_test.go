package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/memnet"
)

// silentUpstream starts a provider that calls handle for each connection, and keeps it
// open until the other side closes it. It returns the address.
func silentUpstream(t testing.TB, handle func(net.Conn)) string {
	t.Helper()
	l := memnet.Listen()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	return l.Addr().String()
}

// answersWith returns a handler that reads a request and writes the text.
func answersWith(text string) func(net.Conn) {
	return func(c net.Conn) {
		if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(c, text)
		}
	}
}

// A provider may fall silent in any phase of a request. The request ends after the limit
// of that phase, or at the caller's deadline if that is earlier.
func TestEveryPhaseOfARequestEnds(t *testing.T) {
	const (
		attempt = 20 * time.Second
		idle    = 45 * time.Second
	)
	for _, tt := range []struct {
		phase  string
		scheme string
		handle func(net.Conn)
		after  time.Duration
		begun  bool // the caller gets the beginning of an answer
	}{
		{"TLS handshake", "https", func(net.Conn) {}, 10 * time.Second, false},
		{"request body", "http", nil, attempt, false},
		{"response head", "http", answersWith(""), attempt, false},
		{"response head, half of it", "http", answersWith("HTTP/1.1 200 OK\r\nContent-Le"), attempt, false},
		{"body of a known length", "http", answersWith("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc"), attempt, true},
		{"body of an unknown length", "http", answersWith("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"), idle, true},
		{"body of a failure", "http", answersWith("HTTP/1.1 500 Oops\r\nContent-Length: 1000\r\n\r\nabc"), attempt, true},
	} {
		for _, deadline := range []time.Duration{0, 2 * time.Second} {
			t.Run(fmt.Sprintf("%s, deadline %v", tt.phase, deadline), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					handle := tt.handle
					if handle == nil { // reads only the beginning of the request
						done := make(chan struct{})
						t.Cleanup(func() { close(done) })
						handle = func(c net.Conn) {
							_, _ = io.ReadFull(c, make([]byte, 16))
							<-done
						}
					}
					r := newRig(t, []Spec{spec(t, "it", Generic, tt.scheme+"://"+silentUpstream(t, handle),
						withPolicy(t, "fixed(1s) attempts=1 attempt-timeout="+attempt.String()), func(s *Spec) { s.StreamIdle = idle })})
					want, headers := tt.after, []string(nil)
					if deadline > 0 {
						want, headers = deadline, []string{"X-Request-Timeout-Ms", fmt.Sprint(deadline.Milliseconds())}
					}
					began := time.Now()
					got := r.ask(http.MethodPost, "/p/it/x", strings.Repeat("x", 64<<10), headers...)
					if d := time.Since(began); d.Round(time.Second) != want {
						t.Errorf("the request took %v, want %v", d, want)
					}
					if tt.begun && (got.body != "abc" || got.err == nil) || !tt.begun && got.errorCode(t) == "" {
						t.Errorf("got %d %q, %v", got.code, got.body, got.err)
					}
				})
			})
		}
	}
}

// sendSlowly sends a POST in this many pieces, one second apart, and returns
// the answer.
func (r *rig) sendSlowly(path string, seconds int, headers ...string) reply {
	body, in := io.Pipe()
	stop := make(chan struct{})
	defer func() {
		close(stop)
		_ = body.Close()
	}()
	go func() {
		for range seconds {
			select {
			case <-time.After(time.Second):
			case <-stop:
				return
			}
			_, _ = io.WriteString(in, "piece")
		}
		_ = in.Close()
	}()
	req, err := http.NewRequest(http.MethodPost, r.URL+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return r.do(req)
}

// The attempt timeout does not include the time of waiting for the body of the caller.
func TestASlowUploadIsNoFaultOfTheProvider(t *testing.T) {
	const policy = "fixed(1s) attempts=2 attempt-timeout=3s total-timeout=1m"
	for _, attempts := range []string{policy, strings.Replace(policy, "attempts=2", "attempts=1", 1)} {
		t.Run(attempts, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newTestServer(t, says("done"))
				r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, attempts), func(s *Spec) {
					s.Breaker.ConsecutiveFailures, s.Breaker.SlowCall, s.Breaker.SlowRate = 1, time.Second, 0.5
				})})
				for range 20 {
					if got := r.sendSlowly("/p/it/x", 5); got.code != 200 || got.body != "done" {
						t.Fatalf("got %d %q, %v, want the answer", got.code, got.body, got.err)
					}
				}
				st := r.settled("it")
				p := r.table.Load().providers["it"]
				if c := p.upstream.gate.breaker.Counts(); st.Breaker != "closed" || c.Failures != 0 || c.Slow != 0 {
					t.Errorf("the breaker is %s and has counted %+v, want no failure and no slow call", st.Breaker, c)
				}
				if mean := p.upstream.pace.mean(); mean > 0.1 {
					t.Errorf("answers take %v s to begin, want none of the time of the uploads", mean)
				}
			})
		})
	}
}

// The provider has the whole attempt timeout after the last byte of the body.
func TestAnAttemptTimesOutAfterASlowUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		address := silentUpstream(t, answersWith(""))
		r := newRig(t, []Spec{spec(t, "it", Generic, "http://"+address, withPolicy(t, "fixed(1s) attempts=1 attempt-timeout=3s"))})
		began := time.Now()
		got := r.sendSlowly("/p/it/x", 5)
		if d := time.Since(began).Round(time.Second); got.code != 504 || got.errorCode(t) != codeTimeout || d != 8*time.Second {
			t.Errorf("got %d %q, %v after %v, want a timeout after 5s for the upload and 3s for the attempt", got.code, got.body, got.err, d)
		}
		if c := r.table.Load().providers["it"].upstream.gate.breaker.Counts(); c.Failures != 1 {
			t.Errorf("the breaker has counted %+v, want a failure", c)
		}
	})
}

// An upload that takes longer than the total timeout, or than the caller's deadline, ends
// with an answer, and does not count as a failure of the provider.
func TestAnUploadThatTakesTooLongEnds(t *testing.T) {
	for _, tt := range []struct {
		name, code string
		headers    []string
		after      time.Duration
	}{
		{"total-timeout", codeTimeout, nil, 10500 * time.Millisecond},
		{"the caller's deadline", codeDeadline, []string{"X-Request-Timeout-Ms", "7500"}, 7500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newTestServer(t, says("done"))
				r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1s) attempts=2 attempt-timeout=3s total-timeout=10.5s"))})
				began := time.Now()
				got := r.sendSlowly("/p/it/x", 100, tt.headers...)
				if d := time.Since(began).Round(500 * time.Millisecond); got.code != 504 || got.errorCode(t) != tt.code || d != tt.after {
					t.Errorf("got %d %q, %v after %v, want %s after %v", got.code, got.body, got.err, d, tt.code, tt.after)
				}
				if c := r.table.Load().providers["it"].upstream.gate.breaker.Counts(); c.Failures != 0 {
					t.Errorf("the breaker has counted %+v, want no failure", c)
				}
			})
		})
	}
}

// The time in which a caller does not read does not count as silence of the provider.
func TestASlowReaderIsNoFaultOfTheProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pieces = 20
		u := newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
			_, _ = w.Write(make([]byte, pieces<<10))
		})
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1s) attempts=1 attempt-timeout=2s"),
			func(s *Spec) { s.StreamIdle = 2 * time.Second })})
		resp, err := r.Client().Get(r.URL + "/p/it/x")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for range pieces {
			time.Sleep(30 * time.Second)
			if _, err := io.ReadFull(resp.Body, make([]byte, 1<<10)); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := io.Copy(io.Discard, resp.Body); n != 0 || err != nil {
			t.Errorf("%d bytes are left, %v", n, err)
		}
		if n := r.settled("it").Totals; n.Succeeded != 1 || n.CutShort != 0 {
			t.Errorf("totals: %+v", n)
		}
		if c := r.table.Load().providers["it"].upstream.gate.breaker.Counts(); c.Failures != 0 {
			t.Errorf("the breaker has counted %+v, want no failure", c)
		}
	})
}

// A deadline for the whole answer limits streams, too. The deadline of the SDKs is only for
// the beginning of an answer.
func TestACallersDeadlineBoundsTheBody(t *testing.T) {
	const stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	events := stream + fmt.Sprintf("%x\r\n%s\r\n", len(evContent), evContent)
	sized := "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc"
	for _, tt := range []struct {
		name    string
		answer  string
		headers []string
		after   time.Duration
	}{
		{"a stream", events, []string{"Grpc-Timeout", "2S"}, 2 * time.Second},
		{"a stream of an SDK", events, []string{"X-Stainless-Timeout", "2"}, 45 * time.Second},
		{"a stream with both", events, []string{"X-Stainless-Timeout", "2", "X-Request-Timeout-Ms", "7000"}, 7 * time.Second},
		{"a body", sized, []string{"Connect-Timeout-Ms", "2000"}, 2 * time.Second},
		{"a body of an SDK", sized, []string{"X-Stainless-Timeout", "2"}, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				address := silentUpstream(t, answersWith(tt.answer))
				r := newRig(t, []Spec{spec(t, "it", Anthropic, "http://"+address,
					withPolicy(t, "fixed(1s) attempts=1 attempt-timeout=20s"), func(s *Spec) { s.StreamIdle = 45 * time.Second })})
				began := time.Now()
				got := r.ask(http.MethodPost, "/p/it/x", chat, tt.headers...)
				if d := time.Since(began).Round(time.Second); got.code != 200 || got.err == nil || d != tt.after {
					t.Errorf("got %d %q, %v after %v, want the beginning and an error after %v", got.code, got.body, got.err, d, tt.after)
				}
			})
		})
	}
}
