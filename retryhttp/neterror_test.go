package retryhttp_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/memnet"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// The transport returns errors that callers of net/http can use as before: the same
// types and values.
func TestErrorsAreThoseOfNetHTTP(t *testing.T) {
	hangs := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	late := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for _, tt := range []struct {
		name    string
		dial    error // error of connecting; nil means that the server does not answer
		bare    bool  // the error is context.Canceled itself
		network bool  // the error is a net.Error
		timeout bool
	}{
		{"canceled", nil, true, false, false},
		{"canceled before", nil, true, false, false},
		{"deadline", nil, false, true, true},
		{"no server listens", refused, false, true, false},
		{"connecting takes too long", late, false, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := func() (context.Context, context.CancelFunc) {
					if tt.name == "deadline" {
						return context.WithTimeout(t.Context(), time.Second)
					}
					ctx, cancel := context.WithCancel(t.Context())
					switch tt.name {
					case "canceled":
						time.AfterFunc(time.Second, cancel)
					case "canceled before":
						cancel()
					}
					return ctx, cancel
				}
				s := newServer(t, hangs)
				base := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
					if tt.dial != nil {
						return nil, tt.dial
					}
					return memnet.Dial(ctx, network, address)
				}}
				t.Cleanup(base.CloseIdleConnections)
				policy, err := retry.Parse("fixed(0s) attempts=2 attempt-timeout=1h")
				if err != nil {
					t.Fatal(err)
				}
				ours, err := retryhttp.New(policy, base)
				if err != nil {
					t.Fatal(err)
				}
				for name, transport := range map[string]http.RoundTripper{"net/http": base, "retryhttp": ours} {
					ctx, cancel := limit()
					_, err := transport.RoundTrip(requestWith(t, ctx, "GET", s.URL, nil))
					cancel()
					network, is := err.(net.Error) //nolint:errorlint // as callers do
					if (err == context.Canceled) != tt.bare || is != tt.network || is && network.Timeout() != tt.timeout {
						t.Errorf("%s: RoundTrip = %#v, want canceled %v, net.Error %v, timeout %v", name, err, tt.bare, tt.network, tt.timeout)
					}
					ctx, cancel = limit()
					_, err = (&http.Client{Transport: transport}).Do(requestWith(t, ctx, "GET", s.URL, nil))
					cancel()
					u, _ := errors.AsType[*url.Error](err)
					if u == nil || u.Timeout() != tt.timeout || (u.Err == context.Canceled) != tt.bare {
						t.Errorf("%s: Do = %#v, want timeout %v", name, err, tt.timeout)
					}
				}
			})
		})
	}
}

// If the caller cancels with a cause, the error has the cause and the failures.
func TestACauseIsKeptWithTheAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("the user left")
		s := newServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		_, err := newRig(t, quick).RoundTrip(requestWith(t, ctx, "GET", s.URL, nil))
		if e, ok := errors.AsType[*retry.Error](err); !ok || e.Attempts != 1 || !errors.Is(err, gone) || !errors.Is(err, context.Canceled) {
			t.Errorf("RoundTrip = %v, want the cause and the attempts", err)
		}
	})
}

// A transport that makes one attempt and has no other setting returns the error of the
// transport below unchanged.
func TestOneAttemptReturnsTheErrorAsItIs(t *testing.T) {
	below := errors.New("below")
	for _, tt := range []struct {
		policy string
		same   bool
	}{{"http attempts=1", true}, {"fixed(0s) attempts=2", false}, {"http attempts=1 attempt-timeout=1m", false}} {
		policy, err := retry.Parse(tt.policy)
		if err != nil {
			t.Fatal(err)
		}
		transport, err := retryhttp.New(policy, roundTripper(func(*http.Request) (*http.Response, error) { return nil, below }))
		if err != nil {
			t.Fatal(err)
		}
		_, err = transport.RoundTrip(request(t, "GET", "http://up.example/", nil))
		if !errors.Is(err, below) || (err == below) != tt.same { //nolint:errorlint // the very value
			t.Errorf("%s: %T %v, want the same: %v", tt.policy, err, err, tt.same)
		}
		late, cancel := context.WithTimeout(t.Context(), 0)
		_, err = transport.RoundTrip(request(t, "GET", "http://up.example/", nil).WithContext(late))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || (err == context.DeadlineExceeded) != tt.same { //nolint:errorlint // the very value
			t.Errorf("%s: %T %v after the deadline, want the same: %v", tt.policy, err, err, tt.same)
		}
	}
}
