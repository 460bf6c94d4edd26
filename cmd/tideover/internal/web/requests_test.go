package web

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// requestSite is a site without an engine, with a real gateway.
type requestSite struct {
	*testSite
	gateway *gateway.Gateway
	api     *httptest.Server // serves the gateway

	mu     sync.Mutex
	answer http.HandlerFunc // of the provider main; nil means 503
}

// newRequestSite returns a site with the providers main, which fails, and spare, its fallback.
func newRequestSite(t *testing.T) *requestSite {
	t.Helper()
	s := &requestSite{testSite: &testSite{T: t}}
	main := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		answer := s.answer
		s.mu.Unlock()
		if answer == nil {
			answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
		}
		answer(w, r)
	}))
	spare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "from the spare") }))
	base := func(u string) *url.URL { return must(url.Parse(u)) }
	policy := must(retry.Parse("fixed(1ms) attempts=5"))
	g, err := gateway.New([]gateway.Spec{
		{
			Name: "main", Preset: gateway.Generic, Format: "test", BaseURL: base(main.URL), Policy: policy, Fallback: []string{"spare"}, FallbackAfter: 3,
			Keys: []gateway.Key{{Name: "team-a", Value: gateway.NewSecret("sk-secret-of-main")}},
		},
		{Name: "spare", Preset: gateway.Generic, Format: "test", BaseURL: base(spare.URL), Policy: policy, Keyless: true},
	}, gateway.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.gateway = g
	s.h = newSiteOf(setup{Config: admin.Config{Providers: g, Requests: g, Version: "test", Logger: slog.New(slog.DiscardHandler)}})
	s.api, s.srv = httptest.NewServer(g), httptest.NewServer(s.h)
	t.Cleanup(func() {
		for _, srv := range []*httptest.Server{s.srv, s.api, main, spare} {
			srv.CloseClientConnections()
			srv.Close()
		}
	})
	return s
}

// set sets the answer of the provider main.
func (s *requestSite) set(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// send sends a request to the gateway, and returns the id from the header of its response when
// the request is recorded.
func (s *requestSite) send(path string) string {
	s.Helper()
	resp, err := s.api.Client().Get(s.api.URL + path)
	if err != nil {
		s.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	id := resp.Header.Get("X-Tideover-Call")
	requests := admin.New(admin.Config{Requests: s.gateway}).Requests
	testwait.Until(s.T, "the request is recorded", func() bool {
		r, err := requests.Get(id)
		return err == nil && r.Outcome != gateway.InProgress
	})
	return id
}

func TestRequestsPage(t *testing.T) {
	t.Parallel()
	s := newRequestSite(t)
	has(t, "no requests", s.page("/requests"), "There are no requests yet", "A restart loses them", `aria-current="page">Requests</a>`)
	moved, unknown := s.send("/p/main/v1/chat?key=hush-hush"), s.send("/p/other/<script>alert(1)</script>")
	has(t, "the list", s.page("/requests"), `id="q-`+moved+`"`, `href="/requests/`+moved+`"`, "main → spare", "GET /v1/chat", `id="q-`+unknown+`"`, "rejected", ">404<")
	has(t, "the stream", s.message("/live/requests"), `hx-target="#live"`, moved)
	for query, want := range map[string]string{
		"provider=main": moved, "provider=spare": moved, "status=404": unknown, "status=4xx": unknown, "outcome=rejected": unknown, "outcome=succeeded": moved, "least=1us": moved,
	} {
		other := map[string]string{moved: unknown, unknown: moved}[want]
		body := s.page("/requests?" + query)
		has(t, query, body, `id="q-`+want+`"`)
		if query != "least=1us" {
			hasNot(t, query, body, `id="q-`+other+`"`)
		}
	}
	has(t, "nothing matches", s.page("/requests?least=1h"), "No kept request matches.")
	for path, want := range map[string]string{
		"/requests?call=" + moved: "/requests/" + moved, "/requests?call=+X-Tideover-Call:+" + moved + "+": "/requests/" + moved,
		"/requests?q=" + moved:                                 "/requests/" + moved,
		"/requests?status=nonsense&outcome=x&least=-1s&more=1": "/requests", "/requests?provider=main&status=": "/requests?provider=main",
	} {
		if a := s.request("GET", path, nil); a.status != http.StatusSeeOther || a.to != want {
			t.Errorf("%s: %d to %q, want %q", path, a.status, a.to, want)
		}
	}

	body := s.page("/requests/" + moved)
	has(t, "the page", body, "Request <span class=\"text\">"+moved, "attempt at <strong class=\"text\">main</strong>, key <span class=\"text\">team-a</span>", "wait, by policy", "the policy&#39;s delay",
		"failover from <strong class=\"text\">main</strong> to <strong class=\"text\">spare</strong>", "status 503 Service Unavailable", `class="fill bad"`, `class="fill wait"`, `class="fill good"`,
		"<dt>attempts</dt><dd>4</dd>", "<dt>failovers</dt><dd>1</dd>", "a restart of this server loses them")
	withheld := s.page("/requests/" + s.send("/p/main/v1/chat?colour=red"))
	has(t, "the page", withheld, "fallback <strong class=\"text\">spare</strong> not used", "not in its forward-query: colour", "<dt>failovers</dt><dd>0</dd>")
	hasNot(t, "the page", body, "hush-hush", "sk-secret-of-main")
	has(t, "its stream", s.message("/live/requests/"+moved), `hx-target="#live"`, "team-a")
	has(t, "a rejected request", s.page("/requests/"+unknown), "No attempt was made.", "unknown_provider", "no such provider")
	hasNot(t, "a rejected request", s.page("/requests/"+unknown), "<script>alert")
	for _, path := range []string{"/requests/1", "/live/requests/1", "/requests/x%3Cscript%3E"} {
		if a := s.request("GET", path, nil); a.status != http.StatusNotFound || strings.Contains(a.body, "<script>") && !strings.Contains(path, "live") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	has(t, "an unknown id", s.request("GET", "/requests/1", nil).body, "no such request", "since its start", `href="/requests"`)
}

// A server that keeps no requests says so, on the page of the list and about a single request.
func TestNoRequestsAreKept(t *testing.T) {
	t.Parallel()
	s := &testSite{T: t}
	s.h = newSiteOf(setup{Config: admin.Config{Version: "test", Logger: slog.New(slog.DiscardHandler)}})
	s.srv = httptest.NewServer(s.h)
	t.Cleanup(s.srv.Close)
	body := s.page("/requests")
	has(t, "the list", body, "the server keeps no requests, because gateway.keep-requests is 0")
	hasNot(t, "the list", body, "Kept in memory", "no requests yet", `name="call"`)
	a := s.request("GET", "/requests/4711", nil)
	if a.status != http.StatusNotFound {
		t.Errorf("a request: %d", a.status)
	}
	has(t, "a request", a.body, "gateway.keep-requests is 0")
}

// A request in progress is shown, and an open page is not sent again while nothing happens.
func TestARequestInProgressIsShown(t *testing.T) {
	t.Parallel()
	s := newRequestSite(t)
	s.h.Pace, s.h.Beat = time.Millisecond, time.Hour
	hold := make(chan struct{})
	end := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(end)
	s.set(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := s.api.Client().Get(s.api.URL + "/p/main/slow"); err == nil {
			resp.Body.Close()
		}
	}()
	testwait.Until(t, "the request is in progress", func() bool {
		return len(s.gateway.Requests(gateway.RequestFilter{Outcome: gateway.InProgress})) == 1
	})
	id := fmt.Sprint(s.gateway.Requests(gateway.RequestFilter{})[0].Call)
	has(t, "the list", s.page("/requests"), "in progress", id)
	has(t, "the page", s.page("/requests/"+id), "in progress", `class="fill wait"`)
	m := s.listen("/live/requests/" + id)
	hear(t, m, "", "in progress")
	end()
	hear(t, m, "", "succeeded")
	<-done
}

// TestRequestsInABrowser finds a request that was retried twice and failed over, by the id in the
// header of its response, with two clicks.
func TestRequestsInABrowser(t *testing.T) {
	t.Parallel()
	s, v := newRequestSite(t), visitor{t, browsertest.Open(t)}
	x := v.open(s.testSite)
	moved := s.send("/p/main/v1/chat?key=hush-hush")
	for _, width := range []int64{1280, 390} {
		x.Resize(width, 800)
		x.live("/providers")
		if width < 600 {
			x.click(".menu")
		}
		x.click(`nav a[href="/requests"]`)
		x.Wait("the list is live", `location.pathname === "/requests" && document.getElementById("link").dataset.state === "live"`)
		x.Do(chromedp.SetValue(chromedp.CSS("#find"), moved))
		x.click(".find button")
		x.Wait("the request is found", `location.pathname === "/requests/`+moved+`"`)
		x.seen("#steps", "failover from main to spare")
		if got := eval[string](x, `[...document.querySelectorAll("#steps tbody tr")].map(r => r.className.replace("step-", "")).join(" ")`); got != "attempt wait attempt wait attempt failover attempt" {
			t.Errorf("%d: the steps are %s", width, got)
		}
		for _, text := range x.TooWide() {
			t.Errorf("%d: %s", width, text)
		}
	}
	for name, path := range map[string]string{"requests": "/requests", "request": "/requests/" + moved} {
		x.live(path)
		x.looksRight("", name)
	}
	x.Resize(1280, 900)
	x.live("/requests")
	later := s.send("/p/unknown/x")
	x.seen("#q-"+later+" .state", "rejected")
	x.exec(`const s = document.querySelector("select[name=outcome]"); s.value = "rejected"; s.form.requestSubmit()`)
	x.Wait("the filter is applied", `location.search === "?outcome=rejected" && !document.getElementById("q-`+moved+`")`)
	x.seen("#q-"+later+" .state", "rejected")
	x.quiet()
	x.visit("/requests?call=4711")
	x.seen("main", "no such request")
	x.expectStatus("404")
}
