package web

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/console/pagetest"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// job is the input of the workflows under test. It controls the outcome of their attempts.
type job struct {
	Name     string `json:"name,omitempty"`
	Fail     int    `json:"fail,omitempty"` // number of attempts that fail
	Error    string `json:"error,omitempty"`
	Progress string `json:"progress,omitempty"`
	Server   string `json:"server,omitempty"` // the Retry-After of a failure, as a duration
	Snooze   string `json:"snooze,omitempty"`
	Hold     bool   `json:"hold,omitempty"` // the attempt lasts until the run is canceled
	Out      string `json:"out,omitempty"`
}

// do is the handler of the steps: it fails, waits or succeeds as the job says.
func do(ctx context.Context, j job) (string, error) {
	t, _ := engine.TaskOf(ctx)
	if j.Progress != "" {
		if err := engine.Progress(ctx, j.Progress); err != nil {
			return "", err
		}
	}
	if j.Hold {
		<-ctx.Done()
		return "", context.Cause(ctx)
	}
	if t.Total > j.Fail {
		return cmp.Or(j.Out, "done"), nil
	}
	err := errors.New(cmp.Or(j.Error, "the other side is down"))
	if d, e := time.ParseDuration(j.Server); e == nil {
		return "", retry.After(err, d)
	}
	if d, e := time.ParseDuration(j.Snooze); e == nil {
		return "", engine.Snooze(d, j.Error)
	}
	return "", err
}

// setup is the configuration of a test site.
type setup struct {
	Options
	admin.Config
	actor string // "" means the default
}

func newSiteOf(s setup) *Site {
	s.Control = admin.New(s.Config)
	h := New(s.Options)
	if s.actor != "" {
		h.caller = func(*http.Request) pages.Caller { return pages.Caller{Name: s.actor, IsUser: true} }
	}
	return h
}

// testSite is a site with an engine.
type testSite struct {
	*testing.T
	e   *engine.Engine
	h   *Site
	srv *httptest.Server
	w   map[string]*engine.Workflow

	outputs *output.Store // nil if the site shows none

	away *atomic.Bool // the server closes connections without an answer
	full *atomic.Bool // the server refuses streams
}

func newTestSite(t *testing.T, change ...func(*setup)) *testSite {
	t.Helper()
	b := &testSite{T: t, w: map[string]*engine.Workflow{}}
	add := func(name string, parts ...engine.Part) {
		w, err := engine.NewWorkflow(name, parts...)
		if err != nil {
			t.Fatal(err)
		}
		b.w[name] = w
	}
	add("quick", engine.Step("call", do, engine.Policy("fixed(1ms) attempts=3")))
	add("slow", engine.Step("call", do, engine.Policy("fixed(1h) attempts=3")))
	add("soon", engine.Step("call", do, engine.Policy("fixed(50m) attempts=5 server-wait=1h")))
	add("order", engine.Step("charge", do, engine.Policy("exponential(20ms..1s) attempts=4 server-wait=1h")),
		engine.Step("pack", do, engine.After("charge"), engine.Policy("fixed(1ms) attempts=3 server-wait=1h")),
		engine.Step("label", do, engine.After("charge"), engine.Policy("fixed(1h) attempts=unlimited server-wait=1h")))
	all := make([]*engine.Workflow, 0, len(b.w))
	for _, w := range b.w {
		all = append(all, w)
	}
	e, err := engine.Open(t.Context(), engine.Config{Dir: t.TempDir(), Durability: engine.OS, Workflows: all})
	if err != nil {
		t.Fatal(err)
	}
	b.serve(e, change...)
	return b
}

// serve starts a server with the pages of an engine.
func (b *testSite) serve(e *engine.Engine, change ...func(*setup)) {
	b.Helper()
	b.e = e
	o := setup{Config: admin.Config{Engine: e, Version: "test"}}
	for _, f := range change {
		f(&o)
	}
	b.h = newSiteOf(o)
	b.away, b.full = new(atomic.Bool), new(atomic.Bool)
	b.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.away.Load() {
			panic(http.ErrAbortHandler)
		}
		if b.full.Load() && strings.HasPrefix(r.URL.Path, "/live/") {
			http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
			return
		}
		b.h.ServeHTTP(w, r)
	}))
	b.Cleanup(func() {
		b.close()
		b.srv.CloseClientConnections()
		b.srv.Close()
	})
}

// with returns the site for another test, such as a subtest.
func (b *testSite) with(t *testing.T) *testSite {
	c := *b
	c.T = t
	return &c
}

// close closes the engine, which ends the streams.
func (b *testSite) close() {
	if err := b.e.Close(context.Background()); err != nil {
		b.Errorf("close: %v", err)
	}
}

func (b *testSite) start(workflow string, j job, opts ...engine.StartOption) string {
	b.Helper()
	s, err := b.e.Start(b.Context(), b.w[workflow], j, opts...)
	if err != nil {
		b.Fatal(err)
	}
	return s.ID
}

// until waits until a run has a state, and the list of runs shows that state.
func (b *testSite) until(id, state string) *engine.Info {
	b.Helper()
	if slices.Contains([]string{"succeeded", "dead", "canceled"}, state) {
		if _, err := b.e.Wait(testwait.Context(b), id); err != nil {
			b.Fatalf("wait until run %s is %s: %v", id, state, err)
		}
	}
	var i *engine.Info
	testwait.Until(b, "run "+id+" is "+state, func() bool {
		var err error
		if i, err = b.e.Get(b.Context(), id); err != nil || i.State != state {
			return false
		}
		list, err := b.e.List(b.Context(), engine.Filter{Search: id})
		return err == nil && len(list.Runs) == 1 && list.Runs[0].State == state
	})
	return i
}

// dead starts n runs and waits until they are dead.
func (b *testSite) dead(n int, j job, opts ...engine.StartOption) (ids []string) {
	b.Helper()
	j.Fail = cmp.Or(j.Fail, 3)
	for range n {
		ids = append(ids, b.start("quick", j, opts...))
	}
	for _, id := range ids {
		b.until(id, "dead")
	}
	return ids
}

type answer struct {
	status int
	head   http.Header
	body   string
	to     string // target of a redirect
}

// request sends a request and does not follow redirects.
func (b *testSite) request(method, path string, form url.Values, head ...string) answer {
	b.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(b.Context(), method, b.srv.URL+path, body)
	if err != nil {
		b.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text), resp.Header.Get("Location")}
}

// page returns the body of a page. It fails the test if the status is not 200.
func (b *testSite) page(path string) string {
	b.Helper()
	a := b.request("GET", path, nil)
	if a.status != http.StatusOK {
		b.Fatalf("GET %s: %d, want 200\n%s", path, a.status, a.body)
	}
	pagetest.Audit(b, path, a.body)
	return a.body
}

// message returns the first message of a stream.
func (b *testSite) message(path string) string {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", b.srv.URL+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		b.Fatalf("GET %s: %d %s", path, resp.StatusCode, text)
	}
	_, data := read(bufio.NewReader(resp.Body))
	pagetest.Audit(b, path, data)
	return data
}

// read reads a message of a stream.
func read(r *bufio.Reader) (event, data string) {
	var lines []string
	for {
		line, err := r.ReadString('\n')
		line = strings.TrimSuffix(line, "\n")
		switch {
		case err != nil:
			return "end", err.Error()
		case line == "":
			return event, strings.Join(lines, "\n")
		case strings.HasPrefix(line, "event: "):
			event = line[7:]
		case strings.HasPrefix(line, "data: "):
			lines = append(lines, line[6:])
		}
	}
}

var has, hasNot = pagetest.Has, pagetest.HasNot

// lastEvent returns the number of the last event of which the pages know.
func (b *testSite) lastEvent() uint64 { return must(b.h.Totals(b.Context(), false)).Last.Seq }

func TestHeaders(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	id := b.start("slow", job{Fail: 1})
	for _, path := range []string{"/", "/overview", "/policies", "/notifications", "/health", "/keys", "/bulk/cancel?workflow=slow", "/runs", "/runs/" + id, "/runs/missing", "/runs/" + id + "/cancel", "/dead", "/nothing", "/static/app.js", "/static/nothing"} {
		a := b.request("GET", path, nil)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff",
			"Referrer-Policy":         "no-referrer",
		} {
			if got := a.head.Get(name); got != want {
				t.Errorf("GET %s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
	if a := b.request("HEAD", "/runs", nil); a.status != 200 || a.body != "" {
		t.Errorf("HEAD /runs: %d %q", a.status, a.body)
	}
	if a := b.request("GET", "/", nil); a.to != "/overview" {
		t.Errorf("GET / leads to %q", a.to)
	}
	for _, path := range []string{"/runs/" + id + "/cancel", "/dead/retry", "/bulk/cancel", "/notifications/x/test"} {
		if a := b.request("PUT", path, nil); a.status < 400 {
			t.Errorf("PUT %s: %d", path, a.status)
		}
	}
}

func TestRunsPage(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	has(t, "the empty page", b.page("/runs"), "There are no runs yet", "Nothing is running or waiting", "No event since")
	waiting := b.start("slow", job{Name: "alpha", Fail: 1, Error: "no route to host"}, engine.Key("key-1"))
	b.until(waiting, "waiting")
	dead := b.dead(2, job{Name: "beta"})
	good := b.start("quick", job{Name: "gamma"})
	b.until(good, "succeeded")

	testwait.Until(t, "an event", func() bool { return b.lastEvent() > 0 })
	testwait.Until(t, "the search knows all words", func() bool {
		list, err := b.e.List(t.Context(), engine.Filter{Search: "gamma"})
		return err == nil && list.Behind == 0 && len(list.Runs) == 1
	})
	body := b.page("/runs")
	has(t, "/runs", body, waiting, dead[0], dead[1], good, "no route to host", "key-1", "by policy", "Last event", `">in `,
		`succeeded <span class="count">1</span>`, `dead <span class="count">2</span>`, `waiting <span class="count">1</span>`)
	for path, want := range map[string][]string{
		"/runs?state=dead":               dead,
		"/runs?state=dead&state=waiting": {dead[0], dead[1], waiting},
		"/runs?workflow=slow":            {waiting},
		"/runs?attempts=2":               dead,
		"/runs?q=" + good:                {good},
		"/runs?q=gamma":                  {good},
		"/runs?q=key-1":                  {waiting},
		"/runs?q=route":                  {waiting},
		"/runs?order=next":               {waiting},
		"/runs?q=nothing":                nil,
		"/runs?workflow=missing":         nil,
	} {
		a := b.request("GET", path, nil)
		if a.status == http.StatusSeeOther {
			path = a.to
		}
		body := b.page(path)
		for _, id := range []string{waiting, dead[0], dead[1], good} {
			if got := strings.Contains(body, `id="r-`+id+`"`); got != slices.Contains(want, id) {
				t.Errorf("GET %s: lists %s: %v", path, id, got)
			}
		}
		if want == nil {
			has(t, path, body, "No runs match")
			hasNot(t, path, body, "/bulk/")
		}
	}
	body = b.page("/runs?q=beta&state=dead&workflow=quick")
	has(t, "a filter", body, `value="beta"`, `<option selected>quick</option>`, "/bulk/retry?q=beta", `dead <span class="count">2</span>`)
	hasNot(t, "a filter", body, `id="chip-succeeded"`, `id="chip-waiting"`)
	has(t, "a chosen state without runs", b.page("/runs?q=beta&state=succeeded&workflow=quick"), `succeeded <span class="count">0</span>`)
}

func TestAddressesAreMadePlain(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	for path, want := range map[string]string{
		"/runs?q=&workflow=&attempts=&order=newest": "/runs",
		"/runs?q=+x+&state=nonsense":                "/runs?q=x",
		"/runs?state=dead&state=running":            "/runs?state=running&state=dead",
		"/runs?attempts=-3&order=sideways":          "/runs",
		"/runs?after=nonsense":                      "/runs",
		"/dead?after=nonsense":                      "/dead",
	} {
		if a := b.request("GET", path, nil); a.status != http.StatusSeeOther || a.to != want {
			t.Errorf("GET %s: %d to %q, want 303 to %q", path, a.status, a.to, want)
		}
	}
	for _, path := range []string{"/runs?q=x&state=dead", "/runs?attempts=3&order=oldest"} {
		if a := b.request("GET", path, nil); a.status != http.StatusOK {
			t.Errorf("GET %s: %d to %q, want 200", path, a.status, a.to)
		}
	}
}

func TestPaging(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	for range pages.RowsPerPage + 7 {
		b.start("slow", job{Fail: 1})
	}
	testwait.Until(t, "all are listed", func() bool {
		list, err := b.e.List(t.Context(), engine.Filter{Limit: 1000})
		return err == nil && len(list.Runs) == pages.RowsPerPage+7
	})
	seen := 0
	for path := "/runs"; path != ""; {
		body := b.page(path)
		seen += strings.Count(body, `id="r-`)
		_, next, _ := strings.Cut(body, `<nav class="pages"`)
		if path != "/runs" {
			has(t, path, next, "First page")
		}
		path = ""
		if before, _, ok := strings.Cut(next, `" rel="next"`); ok {
			path = strings.ReplaceAll(before[strings.LastIndex(before, `"`)+1:], "&amp;", "&")
		}
	}
	if want := pages.RowsPerPage + 7; seen != want {
		t.Errorf("saw %d runs, want %d", seen, want)
	}
}

func TestRunPage(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	id := b.start("order", job{Name: "x", Fail: 1, Server: "50m", Error: "503 from upstream\nwith a second line", Progress: "half"}, engine.Source("cron"), engine.Key("k-9"))
	b.until(id, "waiting")
	b.act(id, "wake") // ends the wait of the first step
	testwait.Until(t, "pack and label wait", func() bool {
		i, err := b.e.Get(t.Context(), id)
		return err == nil && i.State == "waiting" && i.Steps[1].Next != nil && i.Steps[2].Next != nil
	})
	body := b.page("/runs/" + id)
	has(t, "the run", body, id, "k-9", "cron", "charge", "pack", "label", "exponential(20ms..1s) attempts=4", "set by server", "503 from upstream", "with a second line",
		"Next attempt", "Wake", "Cancel", "&#34;name&#34;: &#34;x&#34;", "attempts 1 of 3", "attempts 1 of ∞", "Progress", `fill="url(#hatch)"`, `class="bar failed"`, "half")
	hasNot(t, "the run", body, "Retry from")
	has(t, "its stream", b.message("/live/runs/"+id), `hx-target="#live"`, `hx-swap="innerMorph"`, "503 from upstream", "label")

	if a := b.request("GET", "/runs/"+id[:20], nil); a.to != "/runs/"+id {
		t.Errorf("the beginning of an id: %d to %q, want the run", a.status, a.to)
	}
	if a := b.request("GET", "/runs/missing", nil); a.status != http.StatusNotFound {
		t.Errorf("an unknown id: %d, want 404", a.status)
	}
	if a := b.request("GET", "/live/runs/missing", nil); a.status != http.StatusNotFound {
		t.Errorf("the stream of an unknown id: %d, want 404", a.status)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	b := newTestSite(t, func(o *setup) {
		o.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
		o.actor = "hunter2"
	})
	j := job{Name: "hunter2", Error: "hunter2 refused", Progress: "hunter2", Out: "hunter2"}
	dead := b.dead(2, j, engine.Source("hunter2"))
	good := b.start("quick", j, engine.Key("hunter2"))
	b.until(good, "succeeded")
	waiting := b.start("slow", job{Fail: 1, Error: "hunter2"})
	b.until(waiting, "waiting")
	if a := b.request("POST", "/runs/"+waiting+"/wake", url.Values{}); a.status != http.StatusSeeOther {
		t.Fatalf("wake: %d", a.status)
	}
	b.until(waiting, "succeeded")
	for _, path := range everyPage(b, dead[0], good, waiting) {
		hasNot(t, path, b.request("GET", path, nil).body, "hunter2")
	}
	has(t, "the run", b.page("/runs/"+good), "***")

	// If the user does not edit the input, the new run gets the original one, with its secrets.
	body := b.page("/runs/" + dead[0] + "/replay")
	has(t, "the question", body, "Secrets in the input are hidden")
	shown := "{\n  \"name\": \"***\",\n  \"fail\": 3,\n  \"error\": \"*** refused\",\n  \"progress\": \"***\",\n  \"out\": \"***\"\n}"
	a := b.request("POST", "/runs/"+dead[0]+"/replay", url.Values{"input": {strings.ReplaceAll(shown, "\n", "\r\n")}})
	next := strings.TrimPrefix(strings.TrimSuffix(a.to, "?did=replay"), "/runs/")
	i, err := b.e.Get(t.Context(), next)
	if err != nil {
		t.Fatalf("%v %+v", err, a)
	}
	if got, want := string(i.Input), string(must(json.Marshal(job{Name: "hunter2", Fail: 3, Error: "hunter2 refused", Progress: "hunter2", Out: "hunter2"}))); got != want {
		t.Errorf("input of the replay is %s, want %s", got, want)
	}
}

// everyPage returns a URL of each kind of page.
func everyPage(b *testSite, dead string, others ...string) []string {
	b.Helper()
	paths := []string{"/overview", "/policies", "/notifications", "/health", "/keys", "/runs", "/dead", "/runs?state=dead", "/bulk/cancel?workflow=quick&state=dead", "/nothing"}
	groups, err := b.h.Groups(b.Context(), false)
	if err != nil {
		b.Fatal(err)
	}
	for _, g := range groups {
		paths = append(paths, g.URL, offered(g.Offers, "retry"))
	}
	for _, id := range append(others, dead) {
		paths = append(paths, "/runs/"+id, "/runs/"+id+"?all")
		for _, action := range []string{"cancel", "retry", "wake", "rerun", "replay", "latest"} {
			paths = append(paths, "/runs/"+id+"/"+action)
		}
	}
	return paths
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprint("web test: ", err))
	}
	return v
}

func TestThePageKnowsWhatBelongsToIt(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	alone := newSiteOf(setup{})
	for _, c := range []struct {
		method, path string
		has, alone   bool // expected results with and without an engine
	}{
		{"GET", "/", true, true},
		{"HEAD", "/", true, true},
		{"GET", "/overview", true, false},
		{"GET", "/policies", true, false},
		{"POST", "/notifications/x/test", true, false},
		{"POST", "/bulk/cancel", true, false},
		{"GET", "/health", true, true},
		{"GET", "/keys", true, true},
		{"GET", "/runs", true, false},
		{"GET", "/runs/missing", true, false},
		{"POST", "/runs/missing/cancel", true, false},
		{"GET", "/live/runs", true, false},
		{"GET", "/providers", true, true},
		{"POST", "/providers/openai/drain", true, true},
		{"GET", "/live/providers", true, true},
		{"GET", "/static/nothing.js", true, true},
		{"POST", "/", false, false},
		{"POST", "/runs", false, false},
		{"POST", "/v1/chat/completions", false, false},
		{"GET", "/v1/models", false, false},
		{"GET", "//v1/models", false, false},
		{"GET", "/p", false, false},
		{"OPTIONS", "/v1/models", false, false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil)
		if got := b.h.Has(r); got != c.has {
			t.Errorf("%s %s: %v, want %v", c.method, c.path, got, c.has)
		}
		if got := alone.Has(r); got != c.alone {
			t.Errorf("%s %s without an engine: %v, want %v", c.method, c.path, got, c.alone)
		}
	}
}

// offered returns the URL of the question about an action; "" if the action is not offered.
func offered(list []pages.Offer, action string) string {
	for _, o := range list {
		if o.Name == action {
			return o.URL
		}
	}
	return ""
}
