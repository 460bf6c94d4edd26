package retryhttp_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

func TestMustTakesAPolicyOrItsText(t *testing.T) {
	p := retry.Must(quick).Policy()
	if a, b := retryhttp.Must(quick, nil).Policy(), retryhttp.Must(p, nil).Policy(); a != b {
		t.Errorf("Must of the text has %v, of the policy %v", a, b)
	}
	defer func() {
		if err, _ := recover().(error); err == nil {
			t.Error("Must of a policy that is not valid did not panic with an error")
		}
	}()
	retryhttp.Must("nonsense", nil)
}

func TestNewRefusesWhatItCantHonour(t *testing.T) {
	for _, tt := range []struct {
		policy string
		opts   []retryhttp.Option
		want   []string
	}{
		{"fixed(1s) attempts=2 reset-after=1m", nil, []string{"an HTTP transport can't honour reset-after=1m"}},
		{"fixed(1s)", []retryhttp.Option{retryhttp.WithRouter(nil)}, []string{"WithRouter: nil"}},
		{"fixed(1s)", []retryhttp.Option{retryhttp.WithStreams(retryhttp.Streams{Hold: -1})}, []string{"WithStreams: hold -1ns"}},
		{"fixed(1s)", []retryhttp.Option{retryhttp.WithAttemptHeaders("a b")}, []string{`WithAttemptHeaders: "a b"`}},
		{"fixed(1s)", []retryhttp.Option{retryhttp.WithDeadlineHeaders("X-Soon")}, []string{`WithDeadlineHeaders: "X-Soon"`}},
		{"fixed(1s)", []retryhttp.Option{nil}, []string{"option: nil"}},
		{"fixed(1s)", []retryhttp.Option{retryhttp.WithIdempotent(nil)}, []string{"WithIdempotent: nil"}},
		{"fixed(1s)", []retryhttp.Option{retryhttp.WithRetry(retry.WithBudget(nil))}, []string{"WithBudget: nil"}},
	} {
		p, err := retry.Parse(tt.policy)
		if err != nil {
			t.Fatal(err)
		}
		_, err = retryhttp.New(p, nil, tt.opts...)
		for _, w := range tt.want {
			if err == nil || !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "a Runner") {
				t.Errorf("New(%s) = %v, want %q once", tt.policy, err, w)
			}
		}
	}
	var zero retryhttp.Transport
	body := track(strings.NewReader("x"))
	if _, err := zero.RoundTrip(request(t, "POST", "http://x.invalid", body)); err == nil {
		t.Error("zero Transport: RoundTrip = nil, want an error")
	}
	body.waitUntilClosed()
}

func TestFirstAttemptGoesOutAsItCame(t *testing.T) {
	var got *http.Request
	p, _ := retry.Parse(quick)
	tr, err := retryhttp.New(p, roundTripper(func(r *http.Request) (*http.Response, error) {
		got = r
		return ok200, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	payload := bytes.Repeat([]byte("x"), 1<<10)
	for _, req := range []*http.Request{
		request(t, "GET", "http://x.invalid", nil),
		request(t, "GET", "http://x.invalid", http.NoBody),
		request(t, "POST", "http://x.invalid", bytes.NewReader(payload)),
	} {
		if resp, err := tr.RoundTrip(req); err != nil || resp != ok200 || got != req {
			t.Errorf("%s: the request or the response was replaced: %v", req.Method, err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = tr.RoundTrip(req) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", req.Method, n)
		}
	}
}

var ok200 = &http.Response{StatusCode: 200, Body: http.NoBody}
