package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/testwait"
)

// testServer is a server in this process.
type testServer struct {
	t    *testing.T
	data string
	page Page
}

// newTestServer runs a server with a configuration until the test ends.
func newTestServer(t *testing.T, text string) *testServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "to") // not t.TempDir, whose path may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	s := &testServer{t: t, data: filepath.Join(dir, "data")}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan Page, 1), make(chan error, 1)
	go func() {
		done <- Run(ctx, context.Background(), Options{
			Source: config.Source{
				Path: filepath.Join(dir, "tideover.yaml"), Data: []byte(text), Environ: []string{"HOME=" + dir}, Redactor: new(secret.Redactor),
				Flags: map[string]string{"data": s.data, "listen": "127.0.0.1:0"},
			},
			Log: slog.New(slog.DiscardHandler), Ready: func(p Page) { ready <- p },
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		_ = os.RemoveAll(dir)
	})
	select {
	case s.page = <-ready:
	case err := <-done:
		done <- err
		t.Fatalf("Run: %v", err)
	}
	return s
}

// request sends a request, and returns the body of the response.
func (s *testServer) request(method, path, body string) string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, strings.TrimSuffix(s.page.Address, "/")+path, strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return ""
	}
	req.Header.Set("Content-Type", "application/json")
	if !strings.HasPrefix(path, "/p/") {
		req.Header.Set("Authorization", "Bearer "+s.page.Token.Reveal())
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if s.t.Context().Err() == nil {
			s.t.Error(err)
		}
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

// storms returns the layer and the name of each retry storm in the status.
func (s *testServer) storms() (list []string) {
	s.t.Helper()
	var st admin.Status
	text := s.request(http.MethodGet, "/api/v1/status", "")
	if err := json.Unmarshal([]byte(text), &st); err != nil || st.Storms == nil {
		s.t.Fatalf("status %s: %v", text, err)
	}
	for _, x := range st.Storms {
		if x.Since.IsZero() || x.Window != 1 {
			s.t.Errorf("storm %+v", x)
		}
		list = append(list, x.Layer+" "+x.Name)
	}
	return list
}

// receiver receives messages and spans.
type receiver struct {
	mu       sync.Mutex
	messages []string
	spans    map[string]int // by name
}

func (c *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/otlp/v1/traces" && r.Header.Get("X-Tenant") == "us" {
		c.countSpans(r)
		return
	}
	if r.URL.Path != "/hook" {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	var m notify.Message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages = append(c.messages, string(m.Event)+": "+m.Title)
}

// countSpans counts the spans of a request.
func (c *receiver) countSpans(r *http.Request) {
	var in struct {
		ResourceSpans []struct {
			ScopeSpans []struct{ Spans []struct{ Name string } }
		}
	}
	if json.NewDecoder(r.Body).Decode(&in) != nil || len(in.ResourceSpans) != 1 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range in.ResourceSpans[0].ScopeSpans[0].Spans {
		c.spans[s.Name]++
	}
}

// hasSpans reports whether spans with all of the names were received.
func (c *receiver) hasSpans(names ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(names, func(name string) bool { return c.spans[name] == 0 })
}

// hasMessage reports whether a message with the text was received.
func (c *receiver) hasMessage(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.messages, text)
}

const stormConfig = `version: 1
alarm: {amplification: 2, for: 2s, min-attempts: 2}
tracing: {endpoint: "ADDRESS/otlp/", headers: {X-Tenant: us}}
notify:
  hook: {webhook: "ADDRESS/hook", on: [storm, recovered]}
providers:
  down:
    base-url: ADDRESS/down
    format: test
    auth: none
    policy: fixed(10ms) attempts=6 budget=refund(1,1,1000000)
    breaker: {consecutive: 0, window: 10s, of-last: 1000000} # never
workflows:
  order:
    steps:
      - {id: charge, http: {get: "ADDRESS/order"}, policy: fixed(10ms) attempts=8}
  calm:
    steps:
      - {id: charge, http: {post: "ADDRESS/hook", body: "{}"}}
`

// A workflow and a provider retry requests that always fail, and another workflow succeeds. The
// storm must appear in the status, the metrics, the messages, the spans and the audit trail.
func TestAStormIsSeenEverywhere(t *testing.T) {
	t.Parallel()
	box := &receiver{spans: map[string]int{}}
	upstream := httptest.NewServer(box)
	defer upstream.Close()
	s := newTestServer(t, strings.ReplaceAll(stormConfig, "ADDRESS", upstream.URL))
	if got := s.storms(); len(got) != 0 {
		t.Fatalf("from the start: %q", got)
	}
	stop := s.causeStorm()
	want := []string{"provider down", "workflow order"}
	testwait.Until(t, "both are in the status", func() bool { return slices.Equal(s.storms(), want) })
	text := ""
	for _, line := range []string{
		`tideover_retry_storm{layer="workflow",name="order"} 1`, `tideover_retry_storm{layer="provider",name="down"} 1`,
		`tideover_retry_storm{layer="workflow",name="calm"} 0`, `tideover_amplification{layer="workflow",name="calm"} 1`,
		`tideover_gateway_breaker_state{provider="down",state="closed"} 1`,
	} {
		testwait.Until(t, "the metrics have "+line, func() bool {
			text = s.request(http.MethodGet, "/metrics", "")
			return strings.Contains(text, line+"\n")
		})
	}
	// On a slow machine there may be more than one storm.
	const total = `tideover_retry_storms_total{layer="workflow",name="order"} `
	if !strings.Contains(text, total) || strings.Contains(text, total+"0\n") {
		t.Errorf("the metrics count no storm:\n%s", text)
	}
	compareTypes(t, text)
	testwait.Until(t, "both are notified", func() bool {
		return box.hasMessage("storm: order: retry storm") && box.hasMessage("storm: provider down: retry storm")
	})
	testwait.Until(t, "there are spans", func() bool { return box.hasSpans("order", "calm", "attempt", "gateway/down") })
	stop()
	testwait.Until(t, "both are over", func() bool { return len(s.storms()) == 0 })
	testwait.Until(t, "the end is notified", func() bool { return box.hasMessage("recovered: order: the retry storm is over") })
	trail := func() string {
		data, err := os.ReadFile(filepath.Join(s.data, "audit.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, name := range []string{"order", "gateway/down"} {
		for _, kind := range []string{"storm-began", "storm-ended"} {
			testwait.Until(t, kind+" of "+name+" is in the trail", func() bool { return hasEvent(trail(), kind, name) })
		}
	}
}

// causeStorm starts runs and sends requests until stop is called.
func (s *testServer) causeStorm() (stop func()) {
	stopped := make(chan struct{})
	var all sync.WaitGroup
	repeat := func(f func()) {
		all.Go(func() {
			for {
				select {
				case <-stopped:
					return
				case <-time.After(20 * time.Millisecond): // real clock: the storm lasts until it is seen
					f()
				}
			}
		})
	}
	repeat(func() {
		s.request(http.MethodPost, "/api/v1/runs", `{"workflow": "order"}`)
		s.request(http.MethodPost, "/api/v1/runs", `{"workflow": "calm"}`)
	})
	for range 5 {
		repeat(func() { s.request(http.MethodGet, "/p/down/x", "") })
	}
	return func() { close(stopped); all.Wait() }
}

// hasEvent reports whether the text of the audit trail has an event of the kind and the name.
func hasEvent(text, kind, name string) bool {
	for line := range strings.Lines(text) {
		var ev struct{ Kind, Name, Note string }
		if json.Unmarshal([]byte(line), &ev) == nil && ev.Kind == kind && ev.Name == name && strings.Contains(ev.Note, "attempts per first attempt") {
			return true
		}
	}
	return false
}

// compareTypes compares the types of metrics that a server reports with the documented ones.
func compareTypes(t *testing.T, text string) {
	t.Helper()
	all, seen := allMetrics(t), 0
	for line := range strings.Lines(text) {
		var name, kind string
		if n, _ := fmt.Fscanf(bytes.NewBufferString(line), "# TYPE %s %s\n", &name, &kind); n == 2 && strings.HasPrefix(name, "tideover_") {
			if seen++; all[name].kind != kind {
				t.Errorf("%s is a %s, want %q", name, kind, all[name].kind)
			}
		}
	}
	if seen < 30 {
		t.Errorf("%d metrics", seen)
	}
}
