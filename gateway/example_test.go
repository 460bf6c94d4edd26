package gateway_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/tideover/tideover/gateway"
)

// startUpstream starts a server that answers every request with the status. It stands for
// the API of a provider.
func startUpstream(status int) (base *url.URL, stop func()) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	base, err := url.Parse(server.URL)
	if err != nil {
		panic(err)
	}
	return base, server.Close
}

// quiet discards the log, which has the times of the failures.
var quiet = gateway.Options{Logger: slog.New(slog.DiscardHandler)}

// must returns the value, and panics if there is an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Two providers of the same API: the second takes over when the first fails.
func Example() {
	failing, stopFailing := startUpstream(http.StatusServiceUnavailable)
	defer stopFailing()
	working, stopWorking := startUpstream(http.StatusOK)
	defer stopWorking()
	key := gateway.Key{Name: "key-1", Value: gateway.NewSecret("sk-1")}
	g := must(gateway.New([]gateway.Spec{
		{Name: "main", Preset: gateway.OpenAI, BaseURL: failing, Keys: []gateway.Key{key}, Fallback: []string{"spare"}, FallbackAfter: 1},
		{Name: "spare", Preset: gateway.OpenAI, BaseURL: working, Keyless: true},
	}, quiet))
	server := httptest.NewServer(g) // yours
	defer server.Close()
	resp := must(http.Post(server.URL+"/p/main/v1/chat/completions", "application/json", strings.NewReader("{}")))
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, "from", resp.Header.Get("X-Tideover-Provider"))
	// Output: 200 from spare
}

// A client in the same process uses the providers without a server. It retries by itself:
// the transport makes only the attempts that need no wait.
func ExampleGateway_RoundTripper() {
	base, stop := startUpstream(http.StatusOK)
	defer stop()
	g := must(gateway.New([]gateway.Spec{{Name: "api", Preset: gateway.Generic, BaseURL: base}}, quiet))
	client := &http.Client{Transport: g.RoundTripper("api")}
	resp := must(client.Get(base.String() + "/v1/models"))
	defer resp.Body.Close()
	_ = must(io.ReadAll(resp.Body))
	fmt.Println(resp.StatusCode, g.Status()[0].Totals.Attempts)
	// Output: 200 1
}

// An operator takes a provider out of service, and puts it back.
func ExampleGateway_Control() {
	g := must(gateway.New([]gateway.Spec{{Name: "openai", Preset: gateway.OpenAI}}, quiet))
	for _, action := range []string{gateway.Drain, gateway.Reset} {
		if err := g.Control("openai", action); err != nil {
			panic(err)
		}
		fmt.Println(action, g.Status()[0].State)
	}
	fmt.Println(g.Control("other", gateway.Open))
	// Output:
	// drain draining
	// reset up
	// no such provider: "other"; configured: openai
}

// A reload replaces all providers or none.
func ExampleGateway_Reload() {
	g := must(gateway.New(nil, quiet))
	fmt.Println(g.Reload([]gateway.Spec{{Name: "openai", Preset: gateway.OpenAI}, {Name: "own", Preset: gateway.Generic}}))
	fmt.Println(len(g.Names()))
	// Output:
	// gateway: provider "own": base-url: is missing
	// 0
}
