package client

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/prom"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// The following two functions are on the page docs/http.md.

// newClient returns a client for one service. Make it once; all goroutines share it.
func newClient(registry prometheus.Registerer, log *slog.Logger) (*http.Client, error) {
	policy, err := retry.Parse("http attempt-timeout=10s budget=refund(1,0.1,100)")
	if err != nil {
		return nil, err
	}
	budget, err := limit.NewBudget(policy.Budget)
	if err != nil {
		return nil, err
	}
	b := breaker.Must(breaker.Config{}, breaker.WithName("billing"))

	metrics := prom.Must(registry)    // one for all clients of the program
	metrics.Breaker(b)                // tideover_breaker_state
	metrics.Budget("billing", budget) // tideover_budget_tokens

	connections := http.DefaultTransport.(*http.Transport).Clone()
	connections.MaxIdleConnsPerHost = 100 // as many as there are goroutines; the default is 2
	transport, err := retryhttp.New(policy, connections, retryhttp.WithRetry(
		retry.WithName("billing"),
		retry.WithBreaker(b),
		retry.WithBudget(budget),
		retry.WithLogger(log),
		metrics.Observe(),
	))
	return &http.Client{Transport: transport, Timeout: time.Minute}, err
}

// get returns the body of a response. A response that says that the service failed is an error.
func get(client *http.Client, url string) ([]byte, error) {
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if e, ok := retryhttp.GaveUp(resp); ok {
		return nil, e
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// A client with retries, a breaker, a budget, metrics and a logger, which 100 goroutines share.
func Example() {
	var requests atomic.Int64
	var seen sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		requests.Add(1)
		if _, again := seen.LoadOrStore(req.URL.Path, true); !again && len(req.URL.Path) == len("/9") {
			w.WriteHeader(http.StatusServiceUnavailable) // the first request for each of /0 to /9
			return
		}
		_, _ = io.WriteString(w, "hello")
	}))
	defer server.Close()

	registry := prometheus.NewRegistry()                              // or prometheus.DefaultRegisterer
	client, err := newClient(registry, slog.New(slog.DiscardHandler)) // or slog.Default()
	if err != nil {
		panic(err)
	}
	defer client.CloseIdleConnections()
	var succeeded atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if body, err := get(client, fmt.Sprintf("%s/%d", server.URL, i)); err == nil && string(body) == "hello" {
				succeeded.Add(1)
			}
		})
	}
	wg.Wait()
	fmt.Println(succeeded.Load(), "succeeded,", requests.Load(), "requests")

	families, _ := registry.Gather()
	for _, f := range families {
		switch m := f.GetMetric()[0]; f.GetName() {
		case "tideover_attempts_total":
			fmt.Println(f.GetName(), m.GetCounter().GetValue())
		case "tideover_budget_tokens":
			fmt.Println(f.GetName(), m.GetGauge().GetValue())
		}
	}
	// Output:
	// 100 succeeded, 110 requests
	// tideover_attempts_total 110
	// tideover_budget_tokens 100
}

// The client of the page about HTTP is the one above, so that it compiles and works.
func TestThePageShowsTheClient(t *testing.T) {
	t.Parallel()
	page, err1 := os.ReadFile("../../docs/http.md")
	source, err2 := os.ReadFile("client_test.go")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	_, code, ok := strings.Cut(string(source), "on the page docs/http.md.\n\n")
	code, _, ok2 := strings.Cut(code, "\n// A client with retries")
	if !ok || !ok2 || !strings.Contains(code, "func newClient(") {
		t.Fatal("the example looks otherwise")
	}
	if !strings.Contains(string(page), "```go\n"+code+"```\n") {
		t.Errorf("docs/http.md lacks\n%s", code)
	}
}
