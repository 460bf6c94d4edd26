package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
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

// Site is the handler of all pages. Each page is a type of its own.
type Site struct {
	*layout
	streams  *streams
	mux      *http.ServeMux
	assets   assets
	findings findingsCache
	cluster  clusterCache
	ended    endedCache
	jobs     bulkJobs
	samples  waitSamples
	began    time.Time

	requestTimeout time.Duration // how long a page of a cluster waits for other members
}

// New returns the handler of all pages. It reads the engine's events in the background until the
// engine is closed. Without an engine there are only the pages of providers and health.
func New(o Options) *Site {
	l := &layout{runData: newRunData(o.Control, o.Redact), templates: loadTemplates()}
	h := &Site{
		layout: l, streams: &streams{layout: l, pace: 500 * time.Millisecond, beat: 10 * time.Second}, mux: http.NewServeMux(), assets: loadAssets(),
		jobs: bulkJobs{wait: time.Second}, requestTimeout: requestTimeout, began: time.Now(),
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
	providers := providersPage{h.runData}
	h.live("/providers", "", always(providers.loadList), providerTexts)
	h.live("/providers/{provider}", "", byName("provider", providers.load), nil)
	h.form("/providers/{provider}/{action}", providers.question, providers.act)
	requests := requestsPage{h.streams}
	h.mux.HandleFunc("GET /requests", requests.serve)
	h.mux.HandleFunc("GET /live/requests", requests.live)
	h.live("/requests/{call}", "", byName("call", requests.load), nil)
	h.live("/health", unrelated, always(healthPage{h.runData, &h.findings, h.streams, h.began}.load), nil)
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
	notifications, bulk := notificationsPage{h.runData}, bulkActions{h.runData, &h.jobs}
	h.live("/overview", "", func(r *http.Request) loader { return overviewPage{h.runData, &h.findings, chartRange(r)}.load }, nil)
	h.mux.HandleFunc("GET /policies", policiesPage{h.layout, &h.samples}.serve)
	h.live("/notifications", "", always(notifications.load), notificationTexts)
	h.form("/notifications/{notifier}/test", notifications.question, notifications.sendTest)
	h.mux.HandleFunc("GET /runs", runsPage{h.streams}.serve)
	h.mux.HandleFunc("GET /live/runs", runsPage{h.streams}.live)
	h.form("/bulk/{action}", bulk.question, bulk.act)
	h.form("/bulk/chosen", bulk.chosenQuestion, bulk.actOnChosen)
	h.live("/progress/{job}", unrelated, byName("job", progressPage{h.runData, &h.jobs}.load), nil)
	h.mux.HandleFunc("GET /runs/{id}", runPage{h.streams}.serve)
	h.mux.HandleFunc("GET /live/runs/{id}", runPage{h.streams}.live)
	h.mux.HandleFunc("GET /runs/{id}/output", outputPage{h.layout}.serve)
	h.mux.HandleFunc("GET /runs/{id}/output.txt", outputPage{h.layout}.download)
	h.form("/runs/{id}/{action}", runActions{h.runData}.question, runActions{h.runData}.act)
	h.mux.HandleFunc("GET /dead", deadPage{h.streams}.serve)
	h.mux.HandleFunc("GET /live/dead", deadPage{h.streams}.live)
	h.form("/dead/retry", bulk.groupQuestion, bulk.retryGroup)
	h.workflowRoutes()
	if h.clustered() {
		h.live("/cluster", "", always(clusterPage{h.runData, &h.cluster}.load), nil)
	}
	if h.control.Sessions != nil {
		sessions := sessionsPage{h.runData}
		h.live("/sessions", "", always(sessions.loadList), sessionTexts)
		h.live("/sessions/{session}", "", byName("session", sessions.load), sessionTexts)
		h.form("/sessions/{session}/{action}", sessions.question, sessions.act)
	}
}

func (h *Site) workflowRoutes() {
	workflows, schedules, start := workflowsPage{runData: h.runData, ended: &h.ended}, schedulesPage{h.runData}, startPage{h.layout}
	h.live("/workflows", "", always(workflows.loadList), nil)
	h.live("/workflows/{workflow}", "", func(r *http.Request) loader {
		return byName("workflow", workflowsPage{h.runData, &h.ended, chartRange(r)}.load)(r)
	}, workflowTexts)
	h.form("/workflows/{workflow}/{action}", workflows.question, workflows.act)
	h.mux.HandleFunc("GET /workflows/{workflow}/start", start.serve)
	h.mux.HandleFunc("POST /workflows/{workflow}/start", start.start)
	h.live("/schedules", "", always(schedules.load), scheduleTexts)
	h.form("/schedules/{schedule}/{action}", schedules.question, schedules.act)
}

// live adds the routes of a page and of the stream that updates it. The page is updated after each
// event of the run; "" means the events of all runs. texts has the sentence to show after each
// action, by the value of the query parameter did.
func (h *Site) live(path, run string, of loaderOf, texts map[string]string) {
	h.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		p, err := of(r)(r.Context(), time.Now())
		if err != nil {
			h.fail(w, r, err)
			return
		}
		p.data.Flash = texts[r.URL.Query().Get("did")]
		h.show(w, r, http.StatusOK, p.template, p.data)
	})
	h.mux.HandleFunc("GET /live"+path, func(w http.ResponseWriter, r *http.Request) { h.streams.stream(w, r, run, of(r)) })
}

// form adds the routes of an action: GET shows the question that ask returns, POST calls do. After an
// [*inputError] it shows the question again, with the problem.
func (h *Site) form(path string, ask func(*http.Request) (*question, error), do action) {
	h.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		q, err := ask(r)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		h.showQuestion(w, r, http.StatusOK, q)
	})
	h.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		if err := parseForm(r); err != nil {
			h.fail(w, r, err)
			return
		}
		did, to, err := do(r)
		var q *question
		wrong, again := errors.AsType[*inputError](err)
		if again {
			q, err = ask(r)
		}
		switch {
		case err != nil:
			h.fail(w, r, err)
		case again:
			if q.Problem = wrong.problem; q.Input != nil {
				q.Input = &wrong.text
			}
			h.showQuestion(w, r, http.StatusUnprocessableEntity, q)
		case did != "" && fromHTMX(r):
			h.flash(w, r, did)
		default:
			forward(w, r, to)
		}
	})
}

// Has reports whether the path of the request belongs to a page or an action. It does not check
// whether the run or the provider in the path exists.
func (h *Site) Has(r *http.Request) bool {
	_, pattern := h.mux.Handler(r)
	return pattern != "" && pattern != noPage
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
