package gateway

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"
)

// BenchmarkProxy sends the same requests through a tuned reverse proxy, through the
// gateway, and through a gateway whose keys have an account.
func BenchmarkProxy(b *testing.B) {
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	defer u.Close()
	to := mustURL(b, u.URL)
	plain := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     newTransport(),
		FlushInterval: -1,
		BufferPool:    &buffers{},
	}
	g, err := New([]Spec{spec(b, "it", Anthropic, u.URL, keys("one", "two"))}, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	shared, err := New([]Spec{spec(b, "it", Anthropic, u.URL, keys("one", "two"), withAccount("a"), func(s *Spec) { s.Keys[1].Account = "a" })},
		Options{Logger: slog.New(slog.DiscardHandler), Accounts: new(accountLog)})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{{"plain", plain}, {"gateway", g}, {"account", shared}} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			b.Run(c.name+"/"+method, func(b *testing.B) {
				s := httptest.NewServer(c.handler)
				defer s.Close()
				b.ReportAllocs()
				b.SetParallelism(16)
				b.RunParallel(func(pb *testing.PB) {
					client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
					defer client.CloseIdleConnections()
					for pb.Next() {
						var body io.Reader
						if method == http.MethodPost {
							body = strings.NewReader(chat)
						}
						req, _ := http.NewRequest(method, s.URL+"/p/it/v1/messages", body)
						resp, err := client.Do(req)
						if err != nil {
							b.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				})
			})
		}
	}
}
