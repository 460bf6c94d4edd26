package page_test

import (
	"bufio"
	"context"
	"errors"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/page"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// newEngine returns an engine with a dead run, a run that asks a question, and a schedule.
func newEngine(t *testing.T) (e *engine.Engine, dead, asks string) {
	t.Helper()
	order := must(engine.NewWorkflow("order", engine.Step("charge", func(context.Context, string) (string, error) {
		return "", retry.Permanent(errors.New("card <declined>"))
	}), engine.Step("ship", func(context.Context, string) (string, error) { return "shipped", nil }, engine.After("charge"))))
	release := must(engine.NewFlow("release", func(f *engine.Flow, _ string) (string, error) {
		a, err := engine.Ask(f, "deploy", engine.Question{Text: "Deploy?", Choices: []string{"yes", "no"}})
		return a.Choice, err
	}))
	e = must(engine.Open(t.Context(), engine.Config{Dir: t.TempDir(), Durability: engine.OS, Workflows: []*engine.Workflow{order, release}, Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := e.SetSchedules(t.Context(), []engine.Schedule{{Name: "nightly", Workflow: "order", Cron: "0 3 * * *", Input: []byte(`"night"`)}}); err != nil {
		t.Fatal(err)
	}
	first := must(e.Start(t.Context(), order, "4711"))
	must(first.Wait(t.Context()))
	second := must(e.Start(t.Context(), release, "v2"))
	testwait.Until(t, "lists have both runs, and one asks", func() bool {
		return len(must(e.List(t.Context(), engine.Filter{Asking: true, Fresh: true})).Runs) == 1
	})
	return e, first.ID, second.ID
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// site is a server with the pages.
type site struct {
	*testing.T
	url string
}

func newSite(t *testing.T, e *engine.Engine, o page.Options) site {
	t.Helper()
	srv := httptest.NewServer(page.New(e, o))
	t.Cleanup(srv.CloseClientConnections)
	t.Cleanup(srv.Close)
	return site{t, srv.URL}
}

// client follows no redirects.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func (s site) do(r *http.Request) (status int, location, body string) {
	s.Helper()
	resp := must(client.Do(r))
	text := must(io.ReadAll(resp.Body))
	resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Location"), string(text)
}

func (s site) get(path string) (status int, location, body string) {
	s.Helper()
	return s.do(must(http.NewRequestWithContext(s.Context(), http.MethodGet, s.url+path, nil)))
}

func (s site) post(path, origin string, form url.Values) (status int, location, body string) {
	s.Helper()
	r := must(http.NewRequestWithContext(s.Context(), http.MethodPost, s.url+path, strings.NewReader(form.Encode())))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	return s.do(r)
}

// operator is a user who may change runs.
func operator(*http.Request) page.User { return page.User{Name: "ada", MayChange: true} }

var linked = regexp.MustCompile(`(href|src|action|hx-post|hx-sse:connect)="([^"#]*)`)

// TestEveryLinkStaysBelowThePath follows all links from the first page, as a crawler does.
func TestEveryLinkStaysBelowThePath(t *testing.T) {
	t.Parallel()
	e, _, _ := newEngine(t)
	for _, base := range []string{"", "/tasks", "/a/b-c/d"} {
		s := newSite(t, e, page.Options{Path: base, User: operator})
		seen, todo, pages := map[string]bool{}, []string{base + "/"}, 0
		for len(todo) > 0 {
			path := todo[0]
			todo = todo[1:]
			if seen[path] || strings.HasPrefix(path, base+"/live/") || strings.HasPrefix(path, base+"/display") {
				continue
			}
			seen[path] = true
			status, to, body := s.get(path)
			if to != "" {
				todo = append(todo, to)
			} else if pages++; status != http.StatusOK && status != http.StatusConflict && status != http.StatusUnprocessableEntity && !strings.Contains(path, "/bulk/chosen") {
				t.Errorf("%s answers %d", path, status)
			}
			if strings.Contains(path, "/static/") {
				continue
			}
			for _, m := range linked.FindAllStringSubmatch(body, -1) {
				link := html.UnescapeString(m[2])
				switch {
				case link == "": // the page itself
				case !strings.HasPrefix(link, base+"/") || base != "" && strings.HasPrefix(link, base+base):
					t.Errorf("%s links to %s, which is not below %q", path, link, base)
				case m[1] == "href" || m[1] == "src":
					todo = append(todo, link)
				}
			}
		}
		if pages < 20 {
			t.Errorf("below %q there are only %d pages: %v", base, pages, seen)
		}
	}
}

// dialog matches links that ask about an action.
var dialog = regexp.MustCompile(`<a [^>]*data-dialog`)

// A path that is not clean, or not below the path of the pages, never leads to a page of the program.
func TestUncleanPathsStayBelowThePath(t *testing.T) {
	t.Parallel()
	e, _, _ := newEngine(t)
	s := newSite(t, e, page.Options{Path: "/tasks", User: operator})
	for path, want := range map[string]string{
		"/tasks": "/tasks/", "/tasks?a=b": "/tasks/?a=b", "/tasks//runs": "/tasks/runs", "/tasks/./dead": "/tasks/dead", "/tasks//static/": "/tasks/static/", "/tasks/runs/../dead": "/tasks/dead",
		"/tasks/%2e%2e/%2e%2e/secret": "/tasks/secret", "/tasks//evil.example/x": "/tasks/evil.example/x", "/tasksfoo": "", "/": "", "/runs": "",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			status, to, _ := s.do(must(http.NewRequestWithContext(t.Context(), method, s.url+path, nil)))
			if to != want || want == "" && status != http.StatusNotFound {
				t.Errorf("%s %s: %d to %q, want %q", method, path, status, to, want)
			}
		}
	}
}

func TestWithoutAUserNothingCanBeChanged(t *testing.T) {
	t.Parallel()
	e, dead, asks := newEngine(t)
	s := newSite(t, e, page.Options{Path: "/tasks"})
	for _, path := range []string{"/runs", "/runs?state=dead", "/runs/" + dead, "/runs/" + asks, "/dead", "/schedules", "/workflows", "/workflows/order"} {
		status, _, body := s.get("/tasks" + path)
		if offers := dialog.FindAllString(body, -1); status != http.StatusOK || len(offers) != 1 || strings.Contains(body, `method="post"`) {
			t.Errorf("%s: %d, and it offers more than the list of keys: %q\n%s", path, status, offers, body)
		}
	}
	for _, path := range []string{"/runs/" + dead + "/retry", "/runs/" + asks + "/cancel", "/bulk/chosen", "/schedules/nightly/pause", "/workflows/order/start"} {
		if status, _, body := s.get("/tasks" + path); status != http.StatusForbidden || !strings.Contains(body, "you may only look") {
			t.Errorf("GET %s: %d, want 403", path, status)
		}
		if status, _, _ := s.post("/tasks"+path, "", nil); status != http.StatusForbidden {
			t.Errorf("POST %s: %d, want 403", path, status)
		}
	}
}

func TestAUserRetriesAndAnswers(t *testing.T) {
	t.Parallel()
	e, dead, asks := newEngine(t)
	s := newSite(t, e, page.Options{Path: "tasks/", User: operator})
	if status, _, _ := s.post("/tasks/runs/"+dead+"/retry", "https://evil.example", nil); status != http.StatusForbidden {
		t.Errorf("a form of another site: %d, want 403", status)
	}
	if status, to, body := s.post("/tasks/runs/"+dead+"/retry", s.url, nil); status != http.StatusSeeOther || to != "/tasks/runs/"+dead+"?did=retry" {
		t.Fatalf("retry: %d to %q\n%s", status, to, body)
	}
	if status, to, body := s.post("/tasks/runs/"+asks+"/answer", s.url, url.Values{"question": {"deploy"}, "choice": {"0"}, "words": {"go"}}); status != http.StatusSeeOther {
		t.Fatalf("answer: %d to %q\n%s", status, to, body)
	}
	info := must(e.Wait(t.Context(), asks))
	if string(info.Output) != `"yes"` {
		t.Errorf("the run has ended with %s", info.Output)
	}
	_, _, body := s.get("/tasks/runs/" + asks)
	if !strings.Contains(body, `<span class="text">ada</span>`) {
		t.Errorf("the page does not say who has answered:\n%s", body)
	}
}

func TestAPageFollowsItsRun(t *testing.T) {
	t.Parallel()
	e, _, asks := newEngine(t)
	s := newSite(t, e, page.Options{Path: "/tasks"})
	resp := must(http.Get(s.url + "/tasks/live/runs/" + asks)) //nolint:noctx // the server ends it
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	if err := e.Cancel(t.Context(), asks, "ada"); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		if strings.Contains(lines.Text(), "state canceled") {
			return
		}
	}
	t.Errorf("the stream ended before the run was canceled: %v", lines.Err())
}

func TestSecretsAreRemoved(t *testing.T) {
	t.Parallel()
	e, dead, _ := newEngine(t)
	s := newSite(t, e, page.Options{Redact: func(text string) string { return strings.ReplaceAll(text, "declined", "***") }})
	for _, path := range []string{"/runs/" + dead, "/dead", "/runs?state=dead"} {
		if _, _, body := s.get(path); strings.Contains(body, "declined") || !strings.Contains(body, "card &lt;***&gt;") {
			t.Errorf("%s shows the secret, or not the error:\n%s", path, body)
		}
	}
}
