//go:build unix

package serve_test

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// pagesFile is the configuration of a server whose pages all have content. UPSTREAM is the URL of a
// server that answers with the status in the path.
const pagesFile = `version: 1
policies:
  api: exponential(1s..2m) jitter=full attempts=6 attempt-timeout=30s total-timeout=15m
  patient: fixed(1h) attempts=unlimited total-timeout=2d
workflows:
  nightly-report:
    description: Fetches, renders and sends the report of the day.
    schedule: {cron: "0 3 * * *", time-zone: Europe/Berlin}
    input: {day: "2026-11-17", limit: 1000, tags: [a, b], verbose: false}
    steps:
      - {id: fetch, run: [sh, -c, 'echo "fetched {{ .input.day }}"; test $TIDEOVER_ATTEMPT -ge 2'], policy: fixed(1ms) attempts=3}
      - {id: render, run: [sh, -c, 'echo rendered'], needs: [fetch]}
      - {id: check, run: [sh, -c, 'echo checked'], needs: [fetch]}
      - {id: send, run: [sh, -c, 'echo sent'], needs: [render, check]}
  import:
    schedule: "@weekly"
    steps: [{id: load, run: [sh, -c, 'echo "line 17: the column amount has the text n/a where a number is needed"; echo "dial tcp 10.0.0.1:5432: connect: connection refused" >&2; exit 1'], policy: fixed(1ms) attempts=3}]
  refund:
    steps: [{id: call, http: {post: "UPSTREAM/422", body: "{}"}, policy: fixed(1ms) attempts=2}]
  sync:
    steps: [{id: pull, http: {get: UPSTREAM/503}, policy: patient}]
  hold:
    steps: [{id: sleep, run: [sleep, "600"], account: warehouse}]
  deploy:
    input: {hosts: [web-1.example.com, web-2.example.com, db-1.example.com]}
    steps:
      - {id: build, run: [sh, -c, 'echo built'], undo: {run: [sh, -c, 'echo removed']}}
      - {id: hosts, for-each: "{{ .input.hosts }}", parallel: 2, run: [sh, -c, 'echo "{{ .item }} is up"'], needs: [build]}
      - {id: roll-out, approve: {question: "Roll out to three hosts?", choices: [approve, later, reject], timeout: 2d, default: later}, needs: [hosts]}
      - {id: done, run: [echo, done], needs: [roll-out]}
  rolled-back:
    steps:
      - {id: reserve, run: [sh, -c, 'echo reserved'], undo: {run: [sh, -c, 'echo released']}}
      - {id: pay, run: [sh, -c, 'echo no money >&2; exit 3'], policy: fixed(1ms) attempts=1, needs: [reserve]}
providers:
  search: {base-url: UPSTREAM/200, auth: [{name: team-a, key: "${env:SEARCH_KEY}"}], format: search, rate: {requests: 1000/min, concurrent: 8}}
  broken: {base-url: UPSTREAM/500, auth: none, format: search, policy: fixed(1ms) attempts=3, breaker: {consecutive: 2, open-for: 1h}}
  moved: {base-url: UPSTREAM/503, auth: none, format: search, policy: fixed(1ms) attempts=2, fallback: [search], fallback-after: 1}
notify:
  phone: {webhook: UPSTREAM/204, on: [gave-up]}
  pager: {webhook: UPSTREAM/422, on: [asked]}
sessions:
  limited: {start: [sh, -c, 'echo "retry after 5400s"; exit 1'], restart: true, detect: generic}
  completed: {start: [sh, -c, 'echo all done'], restart: true, detect: generic}
  spent: {start: [sh, -c, 'echo "retry after 1000000s"; exit 1'], restart: true, detect: generic}
`

// pagesServer is a server whose pages all have content.
type pagesServer struct {
	*clitest.Server
	base string // its URL
	ids  map[string]string
}

func newPagesServer(t *testing.T) *pagesServer {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		code, _ := strconv.Atoi(status)
		w.WriteHeader(code)
	}))
	t.Cleanup(upstream.Close)
	text := strings.ReplaceAll(pagesFile, "UPSTREAM", upstream.URL)
	s := &pagesServer{Server: clitest.Serve(t, text, "", "SEARCH_KEY=sk-search-0123456789", "TIDEOVER_TOKEN=", "TZ=UTC"), ids: map[string]string{}}
	s.base, _, _ = strings.Cut(s.PageURL(), "/?token=")
	return s
}

// fill starts runs, sends requests and waits until the pages have all states.
func (s *pagesServer) fill() {
	s.T.Helper()
	for _, run := range [][2]string{
		{"nightly-report", "succeeded"}, {"import", "dead"}, {"refund", "dead"}, {"sync", "waiting"}, {"hold", "running"}, {"deploy", "waiting"}, {"rolled-back", "dead"},
	} {
		name, state := run[0], run[1]
		clitest.WantCode(s.T, s.RunCommand("run", name, "--key", name+"-1"), 0)
		testwait.Until(s.T, name+" is "+state, func() bool {
			i := s.Show(name + "-1")
			s.ids[name] = i.ID
			return i.State == state && (name != "deploy" || i.Asking)
		})
	}
	for _, provider := range []string{"search", "broken", "broken", "moved"} { // the second request to broken is rejected
		resp, err := http.Get(s.base + "/p/" + provider + "/things")
		if err != nil {
			s.T.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	for name, state := range map[string]string{"limited": "waiting", "completed": "completed", "spent": "gave-up"} {
		testwait.Until(s.T, "session "+name+" is "+state, func() bool {
			return strings.Contains(s.RunCommand("sessions", "show", name, "--json").Out, `"state":"`+state+`"`)
		})
	}
}

// token returns the token of the server.
func (s *pagesServer) token() string {
	s.T.Helper()
	text, err := os.ReadFile(filepath.Join(s.Data, "token"))
	if err != nil {
		s.T.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// visited is a page of the server, with the selector of the rows if it is a list.
type visited struct{ name, path, row string }

// similar are the pages that have nothing to see that another page has not. They are visited with
// `-layouts all`.
var similar = []string{
	"run-waiting", "run-undone", "run-answer", "bulk-chosen", "dead-group", "dead-retry", "workflow-pause", "schedule-pause", "session-pause", "provider-reset", "notification-test", "docs-policy",
}

// pages returns the pages to visit. At least one has the path of each route of package web.
func (s *pagesServer) pages() []visited {
	run := func(name string) string { return "/runs/" + s.ids[name] }
	return []visited{
		{"overview", "/overview", ""},
		{"runs", "/runs", "#rows tr"},
		{"run-succeeded", run("nightly-report"), ""},
		{"run-dead", run("import"), ""},
		{"run-waiting", run("sync"), ""},
		{"run-asking", run("deploy"), ""},
		{"run-undone", run("rolled-back"), ""},
		{"run-output", run("import") + "/output?step=load&q=refused", ""},
		{"run-replay", run("import") + "/replay", ""},
		{"run-answer", s.link(run("deploy"), run("deploy")+`/answer[^"]*`), ""},
		{"bulk", "/bulk/cancel?workflow=import", ""},
		{"bulk-chosen", "/bulk/chosen?action=retry&from=dead&id=" + s.ids["import"], ""},
		{"dead", "/dead", ".groups tbody tr"},
		{"dead-group", s.link("/dead", `/dead\?group=[^"]*`), ".groups tbody tr.on"},
		{"dead-retry", s.link("/dead", `/dead/retry[^"]*`), ""},
		{"workflows", "/workflows", "#rows tr"},
		{"workflow", "/workflows/nightly-report", ""},
		{"workflow-as-code", "/workflows/deploy", ""},
		{"workflow-pause", "/workflows/nightly-report/pause", ""},
		{"start", "/workflows/nightly-report/start", ""},
		{"schedules", "/schedules", ".schedules tbody tr"},
		{"schedule-pause", s.link("/schedules", `/schedules/[^"]*/pause`), ""},
		{"sessions", "/sessions", "#rows tr"},
		{"session", "/sessions/limited", ""},
		{"session-pause", "/sessions/limited/pause", ""},
		{"providers", "/providers", "#rows section"},
		{"provider-down", "/providers/broken", ""},
		{"provider-reset", "/providers/broken/reset", ""},
		{"requests", "/requests", "#rows tr"},
		{"request", s.link("/requests", `/requests/[^"?]+`), ""},
		{"policies", "/policies", ""},
		{"notifications", "/notifications", ".notifiers tbody tr"},
		{"notification-test", "/notifications/phone/test", ""},
		{"health", "/health", ""},
		{"keys", "/keys", ""},
		{"not-found", "/nothing", ""},
		{"docs", "/docs", ""},
		{"docs-policy", "/docs/policy", ""},
		{"docs-search", "/docs/search?q=retry", ""},
	}
}

// link waits until a page has a link whose URL matches the regular expression, and returns the URL.
func (s *pagesServer) link(page, expr string) (found string) {
	s.T.Helper()
	want := regexp.MustCompile(`href="(` + expr + `)"`)
	testwait.Until(s.T, page+" has a link to "+expr, func() bool {
		r, err := http.NewRequestWithContext(s.T.Context(), http.MethodGet, s.base+page, nil)
		if err != nil {
			s.T.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.token())
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			s.T.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			s.T.Fatal(err)
		}
		m := want.FindSubmatch(body)
		if m != nil {
			found = html.UnescapeString(string(m[1]))
		}
		return m != nil
	})
	return found
}

// elsewhere are the routes of pages that are not visited here.
var elsewhere = map[string]string{
	"GET /{$}":                  "redirects to the first page",
	"GET /display":              "redirects to the page before",
	"GET /runs/{id}/output.txt": "is a download",
	"GET /cluster":              "a test of package web visits it",
	"GET /progress/{job}":       "a test of package web visits it",
}

// checkVisited fails the test for each route of a page that no page has.
func checkVisited(t *testing.T, pages []visited) {
	t.Helper()
	mux := http.NewServeMux()
	missing := map[string]bool{}
	for _, path := range clitest.PageRoutes(t, "GET") {
		if pattern := "GET " + path; !strings.HasPrefix(path, "/live/") {
			mux.HandleFunc(pattern, http.NotFound)
			missing[pattern] = elsewhere[pattern] == ""
		}
	}
	if len(missing) < 30 {
		t.Errorf("found only %d routes", len(missing))
	}
	for pattern := range elsewhere {
		if _, known := missing[pattern]; !known {
			t.Errorf("there is no route %s", pattern)
		}
	}
	for _, p := range pages {
		_, pattern := mux.Handler(httptest.NewRequestWithContext(t.Context(), http.MethodGet, p.path, nil))
		missing[pattern] = false
	}
	for pattern, is := range missing {
		if is {
			t.Errorf("no page of %s is visited: add one to pages", pattern)
		}
	}
}

// TestPagesInABrowser visits the pages of the server, each in the size of a computer or of a phone and in
// one of two color schemes. With `-layouts all` it visits every page, in all of them. TIDEOVER_PICTURES names a folder for screenshots.
func TestPagesInABrowser(t *testing.T) {
	t.Parallel()
	x := browsertest.Open(t)
	x.NeedAxe()
	s := newPagesServer(t)
	s.fill()
	check := func(name, row string, main bool) {
		t.Helper()
		x.Check(browsertest.Checks{Name: name, Row: row, Main: main, Pictures: os.Getenv("TIDEOVER_PICTURES")})
	}
	x.Do(chromedp.Navigate(s.base + "/runs?state=dead"))
	check("login", "", false)
	for _, token := range []string{"wrong", s.token()} {
		x.Do(chromedp.SendKeys(chromedp.CSS("#token"), token))
		x.PressEnter()
		x.Wait("the token is refused, or the page has a list and no token in its address", `document.querySelector("[role=alert]")?.innerText === "This token is not valid." ||
			location.pathname + location.search === "/runs?state=dead" && document.getElementById("rows")`)
	}
	pages := s.pages()
	checkVisited(t, pages)
	for i, p := range pages {
		if slices.Contains(similar, p.name) && !browsertest.AllLayouts() {
			continue
		}
		x.Do(chromedp.Navigate(s.base + p.path))
		if p.row != "" {
			x.Wait(p.name+" has a row", fmt.Sprintf("document.querySelector(%q)", p.row))
		}
		check(p.name, p.row, i > 0 && p.name != "docs") // the others have the same header and footer
	}
	x.Do(chromedp.Navigate(s.base + "/runs/" + s.ids["import"]))
	x.Do(chromedp.Click(chromedp.CSS(".more summary")), chromedp.Click(chromedp.CSS(`a[href$="/replay"]`)))
	x.Wait("the dialog is open", `document.querySelector("#dialog[open] textarea")`)
	check("dialog", "", false)
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
	clitest.WantNoProcess(t, s.Mark)
}
