package retryhttp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/memnet"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

func TestA1MethodsAfterAFailedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			method, key string
			first       answer
			opts        []retryhttp.Option
			asked       int
		}{
			{"GET", "", answer{status: 500}, nil, 2},
			{"HEAD", "", answer{status: 500}, nil, 2},
			{"OPTIONS", "", answer{status: 502}, nil, 2},
			{"TRACE", "", answer{status: 502}, nil, 2},
			{"PUT", "", answer{status: 503}, nil, 2},
			{"DELETE", "", answer{status: 504}, nil, 2},
			{"POST", "", answer{status: 500}, nil, 1},
			{"PATCH", "", answer{status: 502}, nil, 1},
			{"MERGE", "", answer{status: 502}, nil, 1},
			{"POST", "", answer{status: 503}, nil, 1},
			{"POST", "", answer{status: 503, header: "Retry-After: 0"}, nil, 2},
			{"POST", "", answer{status: 503, header: "Retry-After: soon"}, nil, 1},
			{"POST", "", answer{status: 429}, nil, 2},
			{"POST", "", answer{status: 425}, nil, 2},
			{"PATCH", "", answer{status: 421}, nil, 2},
			{"POST", "Idempotency-Key", answer{status: 500}, nil, 2},
			{"POST", "X-Idempotency-Key", answer{status: 500}, nil, 2},
			{"POST", "", answer{status: 500}, []retryhttp.Option{declared}, 2},
			{"POST", "", answer{status: 408}, []retryhttp.Option{retryhttp.WithAnswered()}, 2},
			{"POST", "", answer{status: 500}, []retryhttp.Option{retryhttp.WithAnswered()}, 2},
			{"POST", "", answer{status: 529}, []retryhttp.Option{retryhttp.WithAnswered()}, 2},
			{"POST", "", answer{status: 501}, []retryhttp.Option{retryhttp.WithAnswered()}, 1},
		} {
			s := newScriptedServer(t, tt.first, answer{status: 200})
			g := newRig(t, quick, tt.opts...)
			req := request(t, tt.method, s.URL+"/search", nil)
			if tt.key != "" {
				req.Header.Set(tt.key, "k")
			}
			resp, _ := g.send(t, req)
			if s.asked() != tt.asked {
				t.Errorf("%s %s answered %v: sent %d times, want %d", tt.method, tt.key, tt.first, s.asked(), tt.asked)
			}
			if tt.asked == 1 && tt.first.status != 501 {
				if e := wantReason(t, resp, retry.StopPermanent); !errors.Is(e, retryhttp.ErrNotIdempotent) {
					t.Errorf("%s answered %v: %v, want ErrNotIdempotent in it", tt.method, tt.first, e)
				}
			}
		}
	})
}

var declared = retryhttp.WithIdempotent(func(r *http.Request) bool { return r.URL.Path == "/search" })

func TestA1PostThatWasNotSentIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(200)...)
		for _, tt := range []struct{ name, policy string }{
			{"the error has a type", quick},
			{"the time is up while dialing", quick + " attempt-timeout=30ms"},
		} {
			g := newRig(t, tt.policy)
			var dialed atomic.Int32
			g.net.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if dialed.Add(1) == 1 {
					if strings.Contains(tt.policy, "timeout") {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					addr = "127.0.0.1:1"
				}
				return memnet.Dial(ctx, network, addr)
			}
			before := s.asked()
			resp, _ := g.send(t, request(t, "POST", s.URL, track(strings.NewReader("hello"))))
			wantStatus(t, resp, 200, s, before+1)
			if got := s.got(before); got != "hello" || g.count(retry.Waiting) != 1 {
				t.Errorf("%s: server got %q after %d retries, want %q after 1", tt.name, got, g.count(retry.Waiting), "hello")
			}
		}
	})
}

func TestA1PostThatWasSentButNotAnsweredIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		addr := listen(t, func(_ int, c net.Conn) {
			n.Add(1)
			_, _ = http.ReadRequest(bufio.NewReader(c))
		})
		for _, tt := range []struct {
			method, policy string
			want           int32
		}{
			{"POST", quick, 1},
			{"POST", quick + " attempt-timeout=5s", 1},
			{"PUT", quick, 3},
		} {
			n.Store(0)
			g := newRig(t, tt.policy)
			_, err := g.RoundTrip(request(t, tt.method, "http://"+addr, strings.NewReader("x")))
			if _, ok := errors.AsType[*retry.Error](err); !ok || n.Load() != tt.want || !errors.Is(err, io.EOF) {
				t.Errorf("%s with %s: sent %d times, %v, want %d times and the EOF", tt.method, tt.policy, n.Load(), err, tt.want)
			}
			if tt.method == "POST" && !errors.Is(err, retryhttp.ErrNotIdempotent) {
				t.Errorf("%s: %v, want ErrNotIdempotent in it", tt.method, err)
			}
		}
	})
}

func TestA1AttemptTimeoutOfAPostThatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		s := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
			n.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
		for _, tt := range []struct {
			method string
			want   int32
		}{{"POST", 1}, {"GET", 3}} {
			n.Store(0)
			g := newRig(t, quick+" attempt-timeout=40ms")
			_, err := g.RoundTrip(request(t, tt.method, s.URL, nil))
			if n.Load() != tt.want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: sent %d times, %v, want %d and a deadline", tt.method, n.Load(), err, tt.want)
			}
			if te, ok := errors.AsType[*retry.TimeoutError](err); !ok || te.Limit != 40*time.Millisecond {
				t.Errorf("%s: %v, want a *retry.TimeoutError of 40ms in it", tt.method, err)
			}
		}
	})
}

func TestA1UntracedTransportsAreTrustedWithNothing(t *testing.T) {
	n := 0
	broken := errors.New("broken")
	p, _ := retry.Parse(quick + " attempt-timeout=1s")
	tr, err := retryhttp.New(p, roundTripper(func(*http.Request) (*http.Response, error) { n++; return nil, broken }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = tr.RoundTrip(request(t, "POST", "http://x.invalid", nil)); n != 1 || !errors.Is(err, broken) {
		t.Errorf("a POST was sent %d times, %v, want once", n, err)
	}
}
