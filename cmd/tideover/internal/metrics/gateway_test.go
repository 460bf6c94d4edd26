package metrics

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/retry"
)

// The names and labels of the gateway's metrics must not change: docs/metrics.md promises that.
func TestTheMetricsOfAGateway(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer up.Close()
	base, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := retry.Parse("fixed(1ms) jitter=none attempts=2 budget=refund(14,1,500)")
	if err != nil {
		t.Fatal(err)
	}
	provider := func(name string, fallback ...string) gateway.Spec {
		return gateway.Spec{
			Name: name, Preset: gateway.OpenAI, BaseURL: base, Policy: policy, Fallback: fallback,
			Keys: []gateway.Key{{Name: "key-1", Value: gateway.NewSecret("PLANTED-key")}},
		}.Fill()
	}
	g, err := gateway.New([]gateway.Spec{provider("main", "spare"), provider("spare")}, gateway.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	add := func(when string) {
		all := samples(t, Gateway(g))
		fmt.Fprintf(&text, "# %s\n", when)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			value := fmt.Sprint(all[name])
			if strings.Contains(name, "seconds") && all[name] > 0 {
				value = "> 0"
			}
			fmt.Fprintf(&text, "%s %s\n", name, value)
		}
	}
	add("from the start")
	rec := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/p/main/x", nil)
	req.RemoteAddr = "127.0.0.1:1"
	g.ServeHTTP(rec, req)
	if rec.Code != http.StatusOK {
		t.Fatalf("the answer is %d: %s", rec.Code, rec.Body)
	}
	if err := g.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	add("after a request that was retried")
	testfile.Golden(t, "testdata/gateway.txt", text.String())
	if strings.Contains(text.String(), "PLANTED") {
		t.Error("the metrics have a key")
	}
	descriptions := make(chan *prometheus.Desc, 100)
	Gateway(g).Describe(descriptions)
	if len(descriptions) != len(gatewayMetrics) {
		t.Errorf("%d metrics are described, want %d", len(descriptions), len(gatewayMetrics))
	}
}
