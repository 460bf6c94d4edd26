package bench_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// BenchmarkHTTPGet is a GET through a retrying transport, answered at once. The
// baseline has no retrying at all.
func BenchmarkHTTPGet(b *testing.B) { compare(b, httpEntries(nil)) }

// BenchmarkHTTPPost is BenchmarkHTTPGet for a POST of 1 KiB.
func BenchmarkHTTPPost(b *testing.B) { compare(b, httpEntries(bytes.Repeat([]byte("x"), 1<<10))) }

func httpEntries(body []byte) []entry {
	through := func(peer string, build func() http.RoundTripper) entry {
		return entry{peer, func(ctx context.Context) func() error { return send(ctx, build(), body) }}
	}
	return []entry{
		through("hand-written", func() http.RoundTripper { return instant{} }),
		through("tideover", func() http.RoundTripper {
			p, err := retry.Parse(policy)
			if err != nil {
				panic(err)
			}
			t, err := retryhttp.New(p, instant{})
			if err != nil {
				panic(err)
			}
			return t
		}),
		through("retryablehttp", func() http.RoundTripper {
			c := retryablehttp.NewClient()
			c.Logger = nil // the default logs each request
			c.HTTPClient = &http.Client{Transport: instant{}}
			c.RetryMax = attempts - 1
			return &retryablehttp.RoundTripper{Client: c}
		}),
		through("failsafe", func() http.RoundTripper {
			return failsafehttp.NewRoundTripper(instant{}, failsafehttp.NewRetryPolicyBuilder().WithMaxAttempts(attempts).
				WithBackoff(baseDelay, capDelay).WithJitterFactor(.25).Build())
		}),
	}
}

// send returns a call that sends one request again and again. The body is
// rearmed in place, so that the harness allocates nothing.
func send(ctx context.Context, rt http.RoundTripper, payload []byte) func() error {
	method, rd := http.MethodGet, bytes.NewReader(payload)
	var body io.Reader
	if payload != nil {
		method, body = http.MethodPost, rd
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://fake.invalid/x", body)
	if err != nil {
		panic(err)
	}
	armed := req.Body
	return func() error {
		rd.Reset(payload)
		req.Body = armed
		resp, err := rt.RoundTrip(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
}

// instant answers at once. It reads and closes the body, as http.Transport does.
type instant struct{}

var noHeader = http.Header{}

func (instant) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
		if err := r.Body.Close(); err != nil {
			return nil, err
		}
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: noHeader, Body: http.NoBody, Request: r,
	}, nil
}
