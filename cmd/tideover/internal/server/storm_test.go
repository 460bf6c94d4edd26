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

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/testwait"
)

// live is a server in this process.
type live struct {
	t    *testing.T
	data string
	page Page
}

// serveText serves a configuration until the test ends.
func serveText(t *testing.T, text string) *live {
	t.Helper()
	dir, err := os.MkdirTemp("", "to") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	l := &live{t: t, data: filepath.Join(dir, "data")}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan Page, 1), make(chan error, 1)
	go func() {
		done <- Run(ctx, context.Background(), Options{
			Source: config.Source{
				Path: filepath.Join(dir, "tideover.yaml"), Data: []byte(text), Environ: []string{"HOME=" + dir}, Redactor: new(secret.Redactor),
				Flags: map[string]string{"data": l.data, "listen": "127.0.0.1:0"},
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
	case l.page = <-ready:
	case err := <-done:
		done <- err
		t.Fatalf("Run: %v", err)
	}
	return l
}

// ask sends a request, and returns the body of the answer.
func (l *live) ask(method, path, body string) string {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.t.Context(), method, strings.TrimSuffix(l.page.Address, "/")+path, strings.NewReader(body))
	if err != nil {
		l.t.Error(err)
		return ""
	}
	req.Header.Set("Content-Type", "application/json")
	if !strings.HasPrefix(path, "/p/") {
		req.Header.Set("Authorization", "Bearer "+l.page.Token.Reveal())
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if l.t.Context().Err() == nil {
			l.t.Error(err)
		}
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

// storms returns those of the status, as layer and name.
func (l *live) storms() (list []string) {
	l.t.Helper()
	var st control.Status
	text := l.ask(http.MethodGet, "/api/v1/status", "")
	if err := json.Unmarshal([]byte(text), &st); err != nil || st.Storms == nil {
		l.t.Fatalf("status %s: %v", text, err)
	}
	for _, s := range st.Storms {
		if s.Since.IsZero() || s.Window != 1 {
			l.t.Errorf("storm %+v", s)
		}
		list = append(list, s.Layer+" "+s.Name)
	}
	return list
}

// inbox is who is notified.
type inbox struct {
	mu    sync.Mutex
	told  []string
	spans map[string]int // by name
}

func (i *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/otlp/v1/traces" && r.Header.Get("X-Tenant") == "us" {
		i.trace(r)
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
	i.mu.Lock()
	defer i.mu.Unlock()
	i.told = append(i.told, string(m.Event)+": "+m.Title)
}

// trace counts spans.
func (i *inbox) trace(r *http.Request) {
	var in struct {
		ResourceSpans []struct {
			ScopeSpans []struct{ Spans []struct{ Name string } }
		}
	}
	if json.NewDecoder(r.Body).Decode(&in) != nil || len(in.ResourceSpans) != 1 {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range in.ResourceSpans[0].ScopeSpans[0].Spans {
		i.spans[s.Name]++
	}
}

// traced reports whether there are spans of all the names.
func (i *inbox) traced(names ...string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !slices.ContainsFunc(names, func(name string) bool { return i.spans[name] == 0 })
}

func (i *inbox) has(text string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Contains(i.told, text)
}

const stormy = `version: 1
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

// TestAStormIsSeenEverywhere lets a workflow and a provider retry what can't
// succeed, beside a workflow that is well, and looks wherever somebody might.
func TestAStormIsSeenEverywhere(t *testing.T) {
	t.Parallel()
	box := &inbox{spans: map[string]int{}}
	upstream := httptest.NewServer(box)
	defer upstream.Close()
	l := serveText(t, strings.ReplaceAll(stormy, "ADDRESS", upstream.URL))
	if got := l.storms(); len(got) != 0 {
		t.Fatalf("from the start: %q", got)
	}
	stop := l.blow()
	want := []string{"provider down", "workflow order"}
	testwait.Until(t, "both are in the status", func() bool { return slices.Equal(l.storms(), want) })
	text := ""
	for _, line := range []string{
		`tideover_retry_storm{layer="workflow",name="order"} 1`, `tideover_retry_storm{layer="provider",name="down"} 1`,
		`tideover_retry_storm{layer="workflow",name="calm"} 0`, `tideover_amplification{layer="workflow",name="calm"} 1`,
		`tideover_gateway_breaker_state{provider="down",state="closed"} 1`,
	} {
		testwait.Until(t, "the metrics have "+line, func() bool {
			text = l.ask(http.MethodGet, "/metrics", "")
			return strings.Contains(text, line+"\n")
		})
	}
	// A machine that stalls may have more than one storm.
	const total = `tideover_retry_storms_total{layer="workflow",name="order"} `
	if !strings.Contains(text, total) || strings.Contains(text, total+"0\n") {
		t.Errorf("the metrics count no storm:\n%s", text)
	}
	compareTypes(t, text)
	testwait.Until(t, "both are told", func() bool {
		return box.has("storm: order: retry storm") && box.has("storm: provider down: retry storm")
	})
	testwait.Until(t, "there are spans", func() bool { return box.traced("order", "calm", "attempt", "gateway/down") })
	stop()
	testwait.Until(t, "both are over", func() bool { return len(l.storms()) == 0 })
	testwait.Until(t, "that is told", func() bool { return box.has("recovered: order: the retry storm is over") })
	trail := func() string {
		data, err := os.ReadFile(filepath.Join(l.data, "audit.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, name := range []string{"order", "gateway/down"} {
		for _, kind := range []string{"storm-began", "storm-ended"} {
			testwait.Until(t, kind+" of "+name+" is in the trail", func() bool { return inTrail(trail(), kind, name) })
		}
	}
}

// blow makes work until it is told to stop.
func (l *live) blow() (stop func()) {
	over := make(chan struct{})
	var all sync.WaitGroup
	often := func(f func()) {
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(20 * time.Millisecond): // real clock: the storm lasts until it is seen
					f()
				}
			}
		})
	}
	often(func() {
		l.ask(http.MethodPost, "/api/v1/runs", `{"workflow": "order"}`)
		l.ask(http.MethodPost, "/api/v1/runs", `{"workflow": "calm"}`)
	})
	for range 5 {
		often(func() { l.ask(http.MethodGet, "/p/down/x", "") })
	}
	return func() { close(over); all.Wait() }
}

// inTrail looks for an event.
func inTrail(text, kind, name string) bool {
	for line := range strings.Lines(text) {
		var ev struct{ Kind, Name, Note string }
		if json.Unmarshal([]byte(line), &ev) == nil && ev.Kind == kind && ev.Name == name && strings.Contains(ev.Note, "attempts per first attempt") {
			return true
		}
	}
	return false
}

// compareTypes compares what a server says of its metrics with what is promised.
func compareTypes(t *testing.T, text string) {
	t.Helper()
	all, seen := promised(t), 0
	for line := range strings.Lines(text) {
		var name, kind string
		if n, _ := fmt.Fscanf(bytes.NewBufferString(line), "# TYPE %s %s\n", &name, &kind); n == 2 && strings.HasPrefix(name, "tideover_") {
			if seen++; all[name].kind != kind {
				t.Errorf("%s is a %s, and %q is promised", name, kind, all[name].kind)
			}
		}
	}
	if seen < 30 {
		t.Errorf("%d metrics", seen)
	}
}
