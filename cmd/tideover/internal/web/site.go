package web

import (
	"context"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
)

// Options configures the pages.
type Options struct {
	Control *control.Service
	Redact  func(string) string // removes secrets from all text that is shown; nil removes none
}

// contentPolicy is the Content-Security-Policy of all pages: they can load files only from this
// server.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Site is the handler of all pages. It renders them, sends live updates to open pages, and shows
// errors. Each page is a type that embeds the Site.
type Site struct {
	*runData
	actor     string // name of the user in the history of a run
	mux       *http.ServeMux
	templates *template.Template
	assets    assets
	streams   atomic.Int64 // number of open streams
	findings  findingsCache
	cluster   clusterCache
	ended     endedCache
	starts    firstStarts
	jobs      bulkJobs
	samples   waitSamples
	began     time.Time

	requestTimeout time.Duration // how long a page of a cluster waits for other members
	pace           time.Duration // shortest time between two updates of a page
	beat           time.Duration // time between two heartbeats of a stream
	bulkWait       time.Duration // how long the answer to a form waits for the end of a bulk action
}

//go:embed templates
var templates embed.FS

// loadTemplates parses the templates once for all pages of the process.
var loadTemplates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(templateFuncs(loadAssets())).ParseFS(templates, "templates/*.html"))
})

// New returns the handler of all pages. It reads the engine's events in the background until the
// engine is closed. Without an engine there are only the pages of providers and health.
func New(o Options) *Site {
	h := &Site{
		runData: newRunData(o), actor: "page", mux: http.NewServeMux(), assets: loadAssets(), templates: loadTemplates(),
		requestTimeout: requestTimeout, pace: 500 * time.Millisecond, beat: 10 * time.Second, bulkWait: time.Second, began: time.Now(),
	}
	h.routes()
	return h
}

// noPage is the pattern that matches all paths without a page.
const noPage = "/"

func (h *Site) routes() {
	h.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, h.home(), http.StatusSeeOther) })
	if h.hasEngine() {
		h.engineRoutes()
	}
	providers := providersPage{h}
	h.live("/providers", "", always(providers.loadList), providerTexts)
	h.live("/providers/{provider}", "", byName("provider", providers.load), nil)
	h.form("/providers/{provider}/{action}", providers.question, providers.act)
	requests := requestsPage{h}
	h.mux.HandleFunc("GET /requests", requests.serve)
	h.mux.HandleFunc("GET /live/requests", requests.live)
	h.live("/requests/{call}", "", byName("call", requests.load), nil)
	h.live("/health", unrelated, always(healthPage{h}.load), nil)
	h.mux.HandleFunc("GET /keys", h.serveKeys)
	h.mux.HandleFunc("GET /display", h.setDisplay)
	h.mux.Handle("GET /static/", h.assets)
	h.mux.HandleFunc(noPage, func(w http.ResponseWriter, r *http.Request) {
		text := "page not found"
		if !h.hasEngine() {
			text += ": this server has no engine, only providers"
		}
		h.fail(w, r, control.NewError(control.CodeNotFound, text, ""))
	})
}

func (h *Site) engineRoutes() {
	notifications, bulk := notificationsPage{h}, bulkActions{h}
	h.live("/overview", "", always(overviewPage{h}.load), nil)
	h.mux.HandleFunc("GET /policies", policiesPage{h}.serve)
	h.live("/notifications", "", always(notifications.load), notificationTexts)
	h.form("/notifications/{notifier}/test", notifications.question, notifications.sendTest)
	h.mux.HandleFunc("GET /runs", runsPage{h}.serve)
	h.mux.HandleFunc("GET /live/runs", runsPage{h}.live)
	h.form("/bulk/{action}", bulk.question, bulk.act)
	h.form("/bulk/chosen", bulk.chosenQuestion, bulk.actOnChosen)
	h.live("/progress/{job}", unrelated, byName("job", progressPage{h}.load), nil)
	h.mux.HandleFunc("GET /runs/{id}", runPage{h}.serve)
	h.mux.HandleFunc("GET /live/runs/{id}", runPage{h}.live)
	h.mux.HandleFunc("GET /runs/{id}/output", outputPage{h}.serve)
	h.mux.HandleFunc("GET /runs/{id}/output.txt", outputPage{h}.download)
	h.form("/runs/{id}/{action}", runActions{h}.question, runActions{h}.act)
	h.mux.HandleFunc("GET /dead", deadPage{h}.serve)
	h.mux.HandleFunc("GET /live/dead", deadPage{h}.live)
	h.form("/dead/retry", bulk.groupQuestion, bulk.retryGroup)
	h.workflowRoutes()
	if h.clustered() {
		h.live("/cluster", "", always(clusterPage{h}.load), nil)
	}
	if h.control.Sessions != nil {
		sessions := sessionsPage{h}
		h.live("/sessions", "", always(sessions.loadList), sessionTexts)
		h.live("/sessions/{session}", "", byName("session", sessions.load), sessionTexts)
		h.form("/sessions/{session}/{action}", sessions.question, sessions.act)
	}
}

func (h *Site) workflowRoutes() {
	workflows, schedules, start := workflowsPage{h}, schedulesPage{h}, startPage{h}
	h.live("/workflows", "", always(workflows.loadList), nil)
	h.live("/workflows/{workflow}", "", byName("workflow", workflows.load), workflowTexts)
	h.form("/workflows/{workflow}/{action}", workflows.question, workflows.act)
	h.mux.HandleFunc("GET /workflows/{workflow}/start", start.serve)
	h.mux.HandleFunc("POST /workflows/{workflow}/start", start.start)
	h.live("/schedules", "", always(schedules.load), scheduleTexts)
	h.form("/schedules/{schedule}/{action}", schedules.question, schedules.act)
}

// Has reports whether the path of the request belongs to a page or an action. It does not check
// whether the run or the provider in the path exists.
func (h *Site) Has(r *http.Request) bool {
	_, pattern := h.mux.Handler(r)
	return pattern != "" && pattern != noPage
}

// home returns the URL of the first page.
func (h *Site) home() string {
	if !h.hasEngine() {
		return "/providers"
	}
	return "/overview"
}

// maxBody limits the body of a form, in bytes. It is large enough for the largest payload of an
// engine, although the encoding of forms makes it up to three times as long.
const maxBody = 2 << 20

// requestTimeout is how long a page of a cluster waits for the owner of a run. It is long enough for
// another member to take over the run's shard.
const requestTimeout = 20 * time.Second

// ServeHTTP implements [http.Handler].
func (h *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", contentPolicy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	ctx := control.LimitStoring(r.Context())
	if h.clustered() && !strings.HasPrefix(r.URL.Path, "/live/") {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.requestTimeout)
		defer cancel()
	}
	r = r.WithContext(ctx)
	h.mux.ServeHTTP(w, r)
}

// fromHTMX reports whether htmx sent the request, which then needs only a part of a page.
func fromHTMX(r *http.Request) bool { return r.Header.Get("HX-Request") == "true" }

// problem is the content of the page for an error.
type problem struct {
	Status int
	Text   string
	Back   string // URL of a page to go to
}

// fail shows an error, with the status of its code.
func (h *Site) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	p := problem{Status: status, Text: h.redact(err.Error()), Back: h.home()}
	if id := r.PathValue("id"); id != "" && status != http.StatusNotFound {
		p.Back = runURL(id)
	}
	for name, list := range map[string]string{"session": "/sessions", "provider": "/providers", "call": "/requests", "notifier": "/notifications", "workflow": "/workflows", "schedule": "/schedules"} {
		if r.PathValue(name) != "" {
			p.Back = list
		}
	}
	h.showDialog(w, r, status, "problem", page{Title: http.StatusText(status), Body: p})
}

// statusOf returns the HTTP status of an error, which is the same as in the API.
func statusOf(err error) int { return control.AsError(err).Status }

// runURL returns the URL of a run. URLs are built in Go, never in a template.
func runURL(id string) string { return "/runs/" + url.PathEscape(id) }

// actionURL returns the URL of an action on the run, session or provider whose URL is page.
func actionURL(page, action string) string { return page + "/" + url.PathEscape(action) }
