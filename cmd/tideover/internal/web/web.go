package web

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/nostr"
)

// Options say what the page shows and for whom.
type Options struct {
	Engine  *engine.Engine             // nil means that there is none: the page has providers only
	Redact  func(string) string        // applied to all text that is shown; nil means none
	Version string                     // shown at the bottom of every page
	Actor   func(*http.Request) string // who asks, for the history of a run; nil means "page"

	Clustered bool          // the engine shares its work with others, and there is a page for them
	Sessions  api.Sessions  // have a page of their own; nil means that there is none
	Providers api.Providers // of the gateway; nil means that there are none
	Logger    *slog.Logger  // is told who told a provider what; nil means slog.Default

	// What is known of the server around the page. Each may be nil: the page is
	// shown without it then.
	Config func() *config.Config       // as it is in effect
	Reload func() (time.Time, error)   // when the file was last read again, and why it was not taken over
	Place  func() notify.Place         // where messages come from
	Relays func() []nostr.RelayStatus  // of NIP-90
	Storms func(now time.Time) []Storm // layers that make far more attempts than there is work

	Findings func() []doctor.Finding // what is wrong with how the server is asked
}

// Storm is a layer that makes far more attempts than there is work.
type Storm struct {
	Layer string    // workflow or provider
	Name  string    // which one
	Ratio float64   // attempts for each piece of work
	Since time.Time // when it began
}

// policy lets a page load what this package serves, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

type handler struct {
	Options
	mux       *http.ServeMux
	templates *template.Template
	assets    assets
	feed      *feed
	streams   atomic.Int64
	setters   setters
	glimpse   glimpse // of the cluster
	samples   samples // of waits that were used
	checkup   checkup // of the machine
	began     time.Time

	askTime time.Duration // how long a page of a cluster waits for other processes
	pace    time.Duration // least time between two updates of a page
	beat    time.Duration // time between two signs of life in a stream
}

//go:embed templates
var templates embed.FS

// loadTemplates parses the templates once for all pages of the process.
var loadTemplates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(templateFuncs(loadAssets())).ParseFS(templates, "templates/*.html"))
})

// Site is the page, and knows what belongs to it.
type Site interface {
	http.Handler

	// Has reports whether there is something for the request, be it only a question
	// whether what is named in it is there.
	Has(r *http.Request) bool
}

// New returns the page. It reads the engine's events until the engine is closed.
// Without an engine there are only providers.
func New(o Options) Site { return newHandler(o) }

func newHandler(o Options) *handler {
	h := &handler{Options: o, mux: http.NewServeMux(), assets: loadAssets(), templates: loadTemplates(), askTime: askTime, pace: 500 * time.Millisecond, beat: 10 * time.Second, began: time.Now()}
	if h.Redact == nil {
		h.Redact = func(s string) string { return s }
	}
	if h.Actor == nil {
		h.Actor = func(*http.Request) string { return "page" }
	}
	h.Logger = cmp.Or(h.Logger, slog.Default())
	h.feed = follow(o.Engine)
	h.routes()
	return h
}

// nowhere is the pattern of all that is at no page.
const nowhere = "/"

func (h *handler) routes() {
	h.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, h.home(), http.StatusSeeOther) })
	if h.Engine != nil {
		h.engineRoutes()
	}
	h.mux.HandleFunc("GET /providers", h.providers)
	h.mux.HandleFunc("GET /providers/{provider}", h.provider)
	h.mux.HandleFunc("GET /providers/{provider}/{action}", h.askProvider)
	h.mux.HandleFunc("POST /providers/{provider}/{action}", h.actProvider)
	h.mux.HandleFunc("GET /live/providers", h.liveProviders)
	h.mux.HandleFunc("GET /live/providers/{provider}", h.liveProvider)
	h.mux.HandleFunc("GET /health", h.health)
	h.mux.HandleFunc("GET /live/health", h.liveHealth)
	h.mux.HandleFunc("GET /keys", h.keys)
	h.mux.Handle("GET /static/", h.assets)
	h.mux.HandleFunc(nowhere, func(w http.ResponseWriter, r *http.Request) {
		text := "there is no such page"
		if h.Engine == nil {
			text += ": there is no engine here, only providers"
		}
		h.fail(w, r, http.StatusNotFound, errors.New(text))
	})
}

func (h *handler) engineRoutes() {
	h.mux.HandleFunc("GET /overview", h.overview)
	h.mux.HandleFunc("GET /live/overview", h.liveOverview)
	h.mux.HandleFunc("GET /policies", h.policies)
	h.mux.HandleFunc("GET /notifications", h.notifications)
	h.mux.HandleFunc("GET /live/notifications", h.liveNotifications)
	h.mux.HandleFunc("GET /notifications/{notifier}/test", h.askTest)
	h.mux.HandleFunc("POST /notifications/{notifier}/test", h.sendTest)
	h.mux.HandleFunc("GET /runs", h.runs)
	h.mux.HandleFunc("GET /bulk/{action}", h.askBulk)
	h.mux.HandleFunc("POST /bulk/{action}", h.doBulk)
	h.mux.HandleFunc("GET /runs/{id}", h.run)
	h.mux.HandleFunc("GET /runs/{id}/{action}", h.ask)
	h.mux.HandleFunc("POST /runs/{id}/{action}", h.act)
	h.mux.HandleFunc("GET /dead", h.dead)
	h.mux.HandleFunc("GET /dead/retry", h.askAll)
	h.mux.HandleFunc("POST /dead/retry", h.retryAll)
	h.mux.HandleFunc("GET /live/runs", h.liveRuns)
	h.mux.HandleFunc("GET /live/runs/{id}", h.liveRun)
	h.mux.HandleFunc("GET /live/dead", h.liveDead)
	if h.Clustered {
		h.mux.HandleFunc("GET /cluster", h.cluster)
		h.mux.HandleFunc("GET /live/cluster", h.liveCluster)
	}
	if h.Sessions != nil {
		h.mux.HandleFunc("GET /sessions", h.sessions)
		h.mux.HandleFunc("GET /sessions/{session}", h.session)
		h.mux.HandleFunc("GET /live/sessions/{session}", h.liveSession)
		h.mux.HandleFunc("GET /sessions/{session}/{action}", h.askSession)
		h.mux.HandleFunc("POST /sessions/{session}/{action}", h.actSession)
		h.mux.HandleFunc("GET /live/sessions", h.liveSessions)
	}
}

// Has implements [Site].
func (h *handler) Has(r *http.Request) bool {
	_, pattern := h.mux.Handler(r)
	return pattern != "" && pattern != nowhere
}

// home returns the address of the first page.
func (h *handler) home() string {
	if h.Engine == nil {
		return "/providers"
	}
	return "/overview"
}

// maxBody bounds what a form may send: the largest payload of an engine, which
// the encoding of forms makes up to three times as long.
const maxBody = 2 << 20

// askTime is how long a page waits for the process that has a run: long enough for
// another to take it over.
const askTime = 20 * time.Second

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if h.Clustered && !strings.HasPrefix(r.URL.Path, "/live/") {
		ctx, cancel := context.WithTimeout(r.Context(), h.askTime)
		defer cancel()
		r = r.WithContext(ctx)
	}
	h.mux.ServeHTTP(w, r)
}

// fromHTMX reports whether a part of a page is wanted instead of a page.
func fromHTMX(r *http.Request) bool { return r.Header.Get("HX-Request") == "true" }

// problem is why something can't be shown or done.
type problem struct {
	Status int
	Text   string
	Back   string
}

// fail answers with what went wrong.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, status int, err error) {
	p := problem{Status: status, Text: h.Redact(err.Error()), Back: h.home()}
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

// statusOf returns the status that an error of the engine is answered with.
func statusOf(err error) int {
	var long *http.MaxBytesError
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p.Status
	}
	switch {
	case errors.Is(err, engine.ErrNotFound), errors.Is(err, session.ErrUnknown):
		return http.StatusNotFound
	case errors.Is(err, engine.ErrState), errors.Is(err, engine.ErrConflict):
		return http.StatusConflict
	case errors.Is(err, engine.ErrTooLarge), errors.As(err, &long):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, engine.ErrClosed), errors.Is(err, context.DeadlineExceeded): // the latter: nobody could be asked
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// runURL returns the address of a run. Addresses are built here and in query.go,
// never in a template.
func runURL(id string) string { return "/runs/" + url.PathEscape(id) }

// actionURL returns the address of something that can be done with a run.
func actionURL(id, action string) string { return runURL(id) + "/" + url.PathEscape(action) }
