package web

import (
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
)

// Options configure the pages.
type Options struct {
	Control *control.Service
	Redact  func(string) string        // applied to all text that is shown; nil means none
	Actor   func(*http.Request) string // who sends a request, for the history of a run; nil means "page"
}

// contentPolicy lets a page load only files of this package.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// site renders pages, follows events for those that are open, and answers errors. Each page is a
// type of its own that embeds the site.
type site struct {
	*runData
	actor     func(*http.Request) string
	mux       *http.ServeMux
	templates *template.Template
	assets    assets
	streams   atomic.Int64
	findings  findingsCache
	began     time.Time
	pages     pages

	requestTimeout time.Duration // how long a page of a cluster waits for other processes
	pace           time.Duration // shortest time between two updates of a page
	beat           time.Duration // time between two heartbeats of a stream
}

// pages are the pages of a site.
type pages struct {
	overview      overviewPage
	runs          runsPage
	run           runPage
	runActions    runActions
	dead          deadPage
	bulk          bulkActions
	sessions      sessionsPage
	providers     providersPage
	policies      policiesPage
	notifications notificationsPage
	cluster       clusterPage
	health        healthPage
}

//go:embed templates
var templates embed.FS

// loadTemplates parses the templates once for all pages of the process.
var loadTemplates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(templateFuncs(loadAssets())).ParseFS(templates, "templates/*.html"))
})

// Site is all pages.
type Site interface {
	http.Handler

	// Has reports whether a page or an action has the path of the request, even if the run or
	// provider in it does not exist.
	Has(r *http.Request) bool
}

// New returns the pages. They read the engine's events until the engine is closed. Without an
// engine there are only providers and health.
func New(o Options) Site { return newSite(o) }

func newSite(o Options) *site {
	h := &site{
		runData: newRunData(o), actor: o.Actor, mux: http.NewServeMux(), assets: loadAssets(), templates: loadTemplates(),
		requestTimeout: requestTimeout, pace: 500 * time.Millisecond, beat: 10 * time.Second, began: time.Now(),
	}
	if h.actor == nil {
		h.actor = func(*http.Request) string { return "page" }
	}
	h.pages = pages{
		overviewPage{h}, runsPage{h}, runPage{h}, runActions{h}, deadPage{h}, bulkActions{h}, sessionsPage{h}, providersPage{h},
		policiesPage{h, new(waitSamples)}, notificationsPage{h}, clusterPage{h, new(clusterCache)}, healthPage{h},
	}
	h.routes()
	return h
}

// noPage is the pattern of all paths without a page.
const noPage = "/"

func (h *site) routes() {
	p := &h.pages
	h.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, h.home(), http.StatusSeeOther) })
	if h.hasEngine() {
		h.engineRoutes()
	}
	h.mux.HandleFunc("GET /providers", h.pageHandler("providers", always(p.providers.loadList), providerDone))
	h.mux.HandleFunc("GET /providers/{provider}", h.pageHandler("provider", p.providers.loader, nil))
	h.mux.HandleFunc("GET /providers/{provider}/{action}", p.providers.confirm)
	h.mux.HandleFunc("POST /providers/{provider}/{action}", p.providers.act)
	h.mux.HandleFunc("GET /live/providers", h.streamHandler("", always(p.providers.loadList)))
	h.mux.HandleFunc("GET /live/providers/{provider}", h.streamHandler("", p.providers.loader))
	h.mux.HandleFunc("GET /health", h.pageHandler("health", always(p.health.load), nil))
	h.mux.HandleFunc("GET /live/health", h.streamHandler(unrelated, always(p.health.load)))
	h.mux.HandleFunc("GET /keys", h.serveKeys)
	h.mux.Handle("GET /static/", h.assets)
	h.mux.HandleFunc(noPage, func(w http.ResponseWriter, r *http.Request) {
		text := "page not found"
		if !h.hasEngine() {
			text += ": this server has no engine, only providers"
		}
		h.fail(w, r, http.StatusNotFound, errors.New(text))
	})
}

func (h *site) engineRoutes() {
	p := &h.pages
	h.mux.HandleFunc("GET /overview", h.pageHandler("overview", always(p.overview.load), nil))
	h.mux.HandleFunc("GET /live/overview", h.streamHandler("", always(p.overview.load)))
	h.mux.HandleFunc("GET /policies", p.policies.serve)
	h.mux.HandleFunc("GET /notifications", h.pageHandler("notifications", always(p.notifications.load), notificationDone))
	h.mux.HandleFunc("GET /live/notifications", h.streamHandler("", always(p.notifications.load)))
	h.mux.HandleFunc("GET /notifications/{notifier}/test", p.notifications.confirmTest)
	h.mux.HandleFunc("POST /notifications/{notifier}/test", p.notifications.sendTest)
	h.mux.HandleFunc("GET /runs", p.runs.serve)
	h.mux.HandleFunc("GET /bulk/{action}", p.bulk.confirm)
	h.mux.HandleFunc("POST /bulk/{action}", p.bulk.act)
	h.mux.HandleFunc("GET /runs/{id}", p.run.serve)
	h.mux.HandleFunc("GET /runs/{id}/{action}", p.runActions.confirm)
	h.mux.HandleFunc("POST /runs/{id}/{action}", p.runActions.act)
	h.mux.HandleFunc("GET /dead", p.dead.serve)
	h.mux.HandleFunc("GET /dead/retry", p.bulk.confirmGroup)
	h.mux.HandleFunc("POST /dead/retry", p.bulk.retryGroup)
	h.mux.HandleFunc("GET /live/runs", p.runs.live)
	h.mux.HandleFunc("GET /live/runs/{id}", p.run.live)
	h.mux.HandleFunc("GET /live/dead", p.dead.live)
	if h.clustered() {
		h.mux.HandleFunc("GET /cluster", h.pageHandler("cluster", always(p.cluster.load), nil))
		h.mux.HandleFunc("GET /live/cluster", h.streamHandler("", always(p.cluster.load)))
	}
	if h.control.Sessions != nil {
		h.mux.HandleFunc("GET /sessions", h.pageHandler("sessions", always(p.sessions.loadList), sessionDone))
		h.mux.HandleFunc("GET /sessions/{session}", h.pageHandler("session", p.sessions.loader, sessionDone))
		h.mux.HandleFunc("GET /live/sessions/{session}", h.streamHandler("", p.sessions.loader))
		h.mux.HandleFunc("GET /sessions/{session}/{action}", p.sessions.confirm)
		h.mux.HandleFunc("POST /sessions/{session}/{action}", p.sessions.act)
		h.mux.HandleFunc("GET /live/sessions", h.streamHandler("", always(p.sessions.loadList)))
	}
}

// Has implements [Site].
func (h *site) Has(r *http.Request) bool {
	_, pattern := h.mux.Handler(r)
	return pattern != "" && pattern != noPage
}

// home returns the URL of the first page.
func (h *site) home() string {
	if !h.hasEngine() {
		return "/providers"
	}
	return "/overview"
}

// maxBody limits the body of a form: the largest payload of an engine, which the encoding of forms
// makes up to three times as long.
const maxBody = 2 << 20

// requestTimeout is how long a page of a cluster waits for the owner of a run: long enough for
// another process to take it over.
const requestTimeout = 20 * time.Second

func (h *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", contentPolicy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if h.clustered() && !strings.HasPrefix(r.URL.Path, "/live/") {
		ctx, cancel := context.WithTimeout(r.Context(), h.requestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	h.mux.ServeHTTP(w, r)
}

// fromHTMX reports whether the browser requests a part of a page instead of a page.
func fromHTMX(r *http.Request) bool { return r.Header.Get("HX-Request") == "true" }

// problem is the page of an error.
type problem struct {
	Status int
	Text   string
	Back   string
}

// failWith answers with an error and its status.
func (h *site) failWith(w http.ResponseWriter, r *http.Request, err error) {
	h.fail(w, r, statusOf(err), err)
}

// fail answers with an error and a status.
func (h *site) fail(w http.ResponseWriter, r *http.Request, status int, err error) {
	p := problem{Status: status, Text: h.redact(err.Error()), Back: h.home()}
	if id := r.PathValue("id"); id != "" && status != http.StatusNotFound {
		p.Back = runURL(id)
	}
	if r.PathValue("session") != "" {
		p.Back = "/sessions"
	}
	if r.PathValue("provider") != "" {
		p.Back = "/providers"
	}
	if r.PathValue("notifier") != "" {
		p.Back = "/notifications"
	}
	name := "problem"
	if fromHTMX(r) {
		name = "problem-part"
	}
	h.show(w, r, status, name, page{Title: http.StatusText(status), Body: p})
}

// statusOf returns the status of an error: the same one with which the API answers it.
func statusOf(err error) int { return control.AsError(err).Status }

// runURL returns the URL of a run. URLs are built in Go, never in a template.
func runURL(id string) string { return "/runs/" + url.PathEscape(id) }

// actionURL returns the URL of an action on a run.
func actionURL(id, action string) string { return runURL(id) + "/" + url.PathEscape(action) }
