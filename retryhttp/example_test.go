package retryhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// flaky starts a server that answers 503 twice, and then 200.
func flaky() *httptest.Server {
	n := 0
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n++; n < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintf(w, "hello after %d requests", n)
	}))
}

// Three lines make a client that retries.
func Example() {
	server := flaky()
	defer server.Close()

	policy, _ := retry.Parse("http base=1ms")    // 1
	transport, _ := retryhttp.New(policy, nil)   // 2
	client := &http.Client{Transport: transport} // 3
	defer client.CloseIdleConnections()

	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.Status, string(body))
	// Output: 200 OK hello after 3 requests
}

// With a runner of your own, reading and checking the answer is part of the
// attempt. To net/http a 503 is not an error: without Check, the first attempt
// would count as a success.
func ExampleCheck() {
	server := flaky()
	defer server.Close()
	ctx, url := context.Background(), server.URL
	r := retry.Must("http base=1ms attempt-timeout=10s")

	body, err := retry.Value(ctx, r, func(ctx context.Context) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, retry.Permanent(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		if err := retryhttp.Check(resp); err != nil {
			return nil, err
		}
		return io.ReadAll(resp.Body)
	})
	fmt.Println(string(body), err)
	// Output: hello after 3 requests <nil>
}

// If the transport gives up after a response, the caller gets that response.
func ExampleGaveUp() {
	server := flaky()
	defer server.Close()
	policy, _ := retry.Parse("fixed(1ms) attempts=2")
	transport, _ := retryhttp.New(policy, nil)
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()

	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if e, ok := retryhttp.GaveUp(resp); ok {
		fmt.Println(resp.Status, "after", e.Attempts, "attempts:", e.Reason)
	}
	// Output: 503 Service Unavailable after 2 attempts: attempts used up
}

// A POST that was answered with a failure is sent again only with WithAnswered.
func ExampleWithAnswered() {
	server := flaky()
	defer server.Close()
	policy, _ := retry.Parse("fixed(1ms) attempts=3")
	transport, _ := retryhttp.New(policy, nil, retryhttp.WithAnswered(), retryhttp.WithConflict())
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()

	resp, err := client.Post(server.URL, "application/json", strings.NewReader(`{}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	fmt.Println(resp.Status)
	// Output: 200 OK
}
