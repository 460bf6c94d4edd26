package retryhttp_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// memory is a transport that answers 200 at once. It reads and closes the body, as a
// transport must.
func memory(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
	}
	return &http.Response{
		Status: "200 OK", StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: r,
	}, nil
}

// BenchmarkRoundTrip compares a request through the transport with one through the
// transport below alone.
func BenchmarkRoundTrip(b *testing.B) {
	transport := func(policy string) http.RoundTripper {
		p, err := retry.Parse(policy)
		if err != nil {
			b.Fatal(err)
		}
		t, err := retryhttp.New(p, roundTripper(memory))
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	payload := bytes.Repeat([]byte("x"), 1<<10)
	for _, bb := range []struct {
		name string
		rt   http.RoundTripper
	}{
		{"direct", roundTripper(memory)},
		{"retryhttp", transport("http")},
		{"retryhttp-attempt-timeout", transport("http attempt-timeout=10s")},
	} {
		b.Run("GET/"+bb.name, func(b *testing.B) {
			req, _ := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://memory.invalid/x", nil)
			b.ReportAllocs()
			for b.Loop() {
				roundTrip(b, bb.rt, req)
			}
		})
		b.Run("POST1K/"+bb.name, func(b *testing.B) {
			r := bytes.NewReader(payload)
			req, _ := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://memory.invalid/x", r)
			b.ReportAllocs()
			for b.Loop() {
				r.Reset(payload) // reuse the reader, so that the benchmark itself allocates nothing
				roundTrip(b, bb.rt, req)
			}
		})
	}
}

func roundTrip(b *testing.B, rt http.RoundTripper, req *http.Request) {
	b.Helper()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		b.Fatal(err)
	}
	_ = resp.Body.Close()
}
