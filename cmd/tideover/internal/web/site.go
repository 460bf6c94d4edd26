package web

import (
	"embed"
	"net/http"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/internal/console/pages"
)

// Options configures the pages.
type Options struct {
	Control *admin.Service
	Redact  func(string) string // removes secrets from all text that is shown; nil removes none
}

// Site is the handler of all pages: those about runs, which package pages has, and those about the
// server.
type Site struct {
	*pages.Site
	server   server
	findings findingsCache
	cluster  clusterCache
	samples  waitSamples
	began    time.Time

	caller func(*http.Request) pages.Caller
}

//go:embed templates
var templates embed.FS

// New returns the handler of all pages. It reads the engine's events in the background until the
// engine is closed. Without an engine there are only the pages of providers, requests and health.
func New(o Options) *Site {
	if o.Redact == nil {
		o.Redact = func(s string) string { return s }
	}
	h := &Site{began: time.Now(), caller: callerOf}
	h.server = server{control: o.Control, redact: o.Redact}
	h.Site = pages.New(pages.Options{
		Control: o.Control.Engine, Program: program(o.Control), Clustered: o.Control.System.Clustered(), File: true, Redact: o.Redact,
		CallerOf: func(r *http.Request) pages.Caller { return h.caller(r) }, LongRequest: longRequest, Storms: h.server.storms, Outputs: h.server.outputs, Trends: h.server.trends,
		Menu: h.server.menu(), Templates: templates, States: states,
		Lists: map[string]string{"session": "/sessions", "provider": "/providers", "call": "/requests", "notifier": "/notifications"},
	})
	h.server.Streams = h.Site.Streams
	h.routes()
	return h
}

func (h *Site) routes() {
	if h.HasEngine() {
		h.engineRoutes()
	}
	providers := providersPage{h.server}
	h.Live("/providers", "", pages.Always(providers.loadList), providerTexts)
	h.Live("/providers/{provider}", "", pages.ByName("provider", providers.load), nil)
	h.Form("/providers/{provider}/{action}", providers.question, providers.act)
	requests := requestsPage{h.server}
	h.Handle("GET /requests", requests.serve)
	h.Handle("GET /live/requests", requests.live)
	h.Live("/requests/{call}", "", pages.ByName("call", requests.load), nil)
	h.Live("/health", pages.Unrelated, pages.Always(healthPage{h.server, &h.findings, h.began}.load), nil)
}

func (h *Site) engineRoutes() {
	notifications, outputs := notificationsPage{h.server}, outputPage{h.server}
	h.Live("/overview", "", func(r *http.Request) pages.Loader { return overviewPage{h.server, &h.findings, chartRange(r)}.load }, nil)
	h.Handle("GET /policies", policiesPage{h.server, &h.samples}.serve)
	h.Live("/notifications", "", pages.Always(notifications.load), notificationTexts)
	h.Form("/notifications/{notifier}/test", notifications.question, notifications.sendTest)
	h.Handle("GET /runs/{id}/output", outputs.serve)
	h.Handle("GET /runs/{id}/output.txt", outputs.download)
	if h.Clustered() {
		h.Live("/cluster", "", pages.Always(clusterPage{h.server, &h.cluster}.load), nil)
	}
	if h.server.control.Sessions != nil {
		sessions := sessionsPage{h.server}
		h.Live("/sessions", "", pages.Always(sessions.loadList), sessionTexts)
		h.Live("/sessions/{session}", "", pages.ByName("session", sessions.load), sessionTexts)
		h.Form("/sessions/{session}/{action}", sessions.question, sessions.act)
	}
}
