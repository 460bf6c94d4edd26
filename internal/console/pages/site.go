package pages

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

// Options configures the pages. Every field may be zero.
type Options struct {
	Control *control.Engine // operations on an engine; nil means that there are no pages about runs

	// Base is the path below which the pages are, such as "/admin/tasks", without a slash at the end. It is empty if
	// they begin at the root.
	Base string

	Program   string // name and version, for the end of each page
	Clustered bool   // the engine shares its work with other processes
	File      bool   // workflows and schedules are in a configuration file

	Redact      func(string) string           // removes secrets from all text that is shown; nil removes none
	CallerOf    func(*http.Request) Caller    // who sends a request; nil means that everyone may only look
	LongRequest LongRequest                   // prepares the response of a stream; nil removes the write deadline
	Storms      func() []Storm                // retry storms at the moment; nil means none
	Outputs     func(*engine.Info) FindOutput // finds the outputs of the attempts of a run; nil means that there are none
	Trends      FindTrends                    // finds the charts of a workflow; nil means that there are none

	// Of further pages, which call Site.Live, Site.Form and Site.Handle.
	Menu      []MenuEntry       // all entries; nil means those of an engine
	Templates fs.FS             // more templates; nil means none
	Lists     map[string]string // by the wildcard of a path, the URL of the list to which an error leads back
	States    map[string]State  // more states that the templates name
}

// LongRequest prepares the response to a request that may take as long as the browser shows the page. The context
// ends when the browser or the server ends the request.
type LongRequest func(http.ResponseWriter, *http.Request) (context.Context, context.CancelFunc)

// FindTrends returns the data of the template "trends" for the page of a workflow, and the query of its URL that
// chooses them, such as "?range=day". charts is nil if there are none.
type FindTrends func(r *http.Request, workflow string) (charts any, query string, err error)

// Caller is the user who sends a request.
type Caller struct {
	Name     string // empty means unknown
	IsUser   bool   // Name is that of a person, and in the history of runs; "page" is there otherwise
	ReadOnly bool   // may not change anything
}

// Storm is a layer whose retries multiply the load at the moment.
type Storm struct {
	Layer, Name   string
	Amplification float64   // attempts per unit of work
	Since         time.Time // zero means unknown
}

// contentPolicy is the Content-Security-Policy of all pages: they can load files only from this
// server.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Site is the handler of all pages. Each page is a type of its own.
type Site struct {
	*Streams
	mux   *http.ServeMux
	ended endedCache
	jobs  bulkJobs

	RequestTimeout time.Duration // how long a page of a cluster waits for other members
}

// New returns the handler of the pages about runs. It reads the engine's events in the background until the engine is
// closed.
func New(o Options) *Site {
	o.Control = cmp.Or(o.Control, &control.Engine{})
	if o.Redact == nil {
		o.Redact = func(s string) string { return s }
	}
	if o.CallerOf == nil {
		o.CallerOf = func(*http.Request) Caller { return Caller{ReadOnly: true} }
	}
	if o.LongRequest == nil {
		o.LongRequest = withoutDeadline
	}
	l := &Layout{Data: newData(&o), options: o, templates: newTemplates(&o)}
	h := &Site{
		Streams: &Streams{Layout: l, Pace: 500 * time.Millisecond, Beat: 10 * time.Second}, mux: http.NewServeMux(),
		jobs: bulkJobs{wait: time.Second}, RequestTimeout: requestTimeout,
	}
	h.routes()
	return h
}

// withoutDeadline is the [LongRequest] of a server with an ordinary write timeout.
func withoutDeadline(w http.ResponseWriter, r *http.Request) (context.Context, context.CancelFunc) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // not all writers support deadlines
	_ = rc.SetWriteDeadline(time.Time{})
	return context.WithCancel(r.Context())
}

// noPage is the pattern that matches all paths without a page.
const noPage = "/"

func (h *Site) routes() {
	h.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { h.Redirect(w, r, h.home()) })
	if h.HasEngine() {
		h.runRoutes()
		h.workflowRoutes()
	}
	h.mux.HandleFunc("GET /keys", h.serveKeys)
	h.mux.HandleFunc("GET /display", h.setDisplay)
	h.mux.Handle("GET /static/", loadAssets())
	h.mux.HandleFunc(noPage, func(w http.ResponseWriter, r *http.Request) {
		text := "there is no page at this address"
		if !h.HasEngine() {
			text += ": this server has no engine, only providers"
		}
		h.Fail(w, r, control.NewError(control.CodeNotFound, text, ""))
	})
}

func (h *Site) runRoutes() {
	bulk := bulkActions{h.Data, &h.jobs}
	h.Handle("GET /runs", runsPage{h.Streams}.serve)
	h.Handle("GET /live/runs", runsPage{h.Streams}.live)
	h.Form("/bulk/{action}", bulk.question, bulk.act)
	h.Form("/bulk/chosen", bulk.chosenQuestion, bulk.actOnChosen)
	h.Live("/progress/{job}", Unrelated, ByName("job", progressPage{h.Data, &h.jobs}.load), nil)
	h.Handle("GET /runs/{id}", runPage{h.Streams}.serve)
	h.Handle("GET /live/runs/{id}", runPage{h.Streams}.live)
	h.Form("/runs/{id}/{action}", runActions{h.Data}.question, runActions{h.Data}.act)
	h.Handle("GET /dead", deadPage{h.Streams}.serve)
	h.Handle("GET /live/dead", deadPage{h.Streams}.live)
	h.Form("/dead/retry", bulk.groupQuestion, bulk.retryGroup)
}

func (h *Site) workflowRoutes() {
	workflows, schedules, start := workflowsPage{h.Data, h.options.Trends, &h.ended}, schedulesPage{h.Data}, startPage{h.Layout}
	h.Live("/workflows", "", Always(workflows.loadList), nil)
	h.Live("/workflows/{workflow}", "", workflows.load, workflowTexts)
	h.Form("/workflows/{workflow}/{action}", workflows.question, workflows.act)
	h.handleQuestion("GET /workflows/{workflow}/start", start.serve)
	h.Handle("POST /workflows/{workflow}/start", start.start)
	h.Live("/schedules", "", Always(schedules.load), scheduleTexts)
	h.Form("/schedules/{schedule}/{action}", schedules.question, schedules.act)
}

// Handle adds a handler for a pattern of [http.ServeMux].
func (h *Site) Handle(pattern string, serve http.HandlerFunc) { h.mux.HandleFunc(pattern, serve) }

// handleQuestion adds a handler that asks about a change. Users who may only look get an error.
func (h *Site) handleQuestion(pattern string, serve http.HandlerFunc) {
	h.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if CallerOf(r.Context()).ReadOnly {
			h.Fail(w, r, control.NewError(control.CodeForbidden, control.OnlyLook, ""))
			return
		}
		serve(w, r)
	})
}

// Unrelated is an id that no run has. A page that subscribes to its events is updated at every
// heartbeat instead of at every event.
const Unrelated = "-"

// Live adds the routes of a page and of the stream that updates it. The page is updated after each
// event of the run; "" means the events of all runs. texts has the sentence to show after each
// action, by the value of the query parameter did.
func (h *Site) Live(path, run string, of LoaderOf, texts map[string]string) {
	h.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		p, err := of(r)(r.Context(), time.Now())
		if err != nil {
			h.Fail(w, r, err)
			return
		}
		p.Data.Flash = texts[r.URL.Query().Get("did")]
		h.Show(w, r, http.StatusOK, p.Template, p.Data)
	})
	h.mux.HandleFunc("GET /live"+path, func(w http.ResponseWriter, r *http.Request) { h.Stream(w, r, run, of(r)) })
}

// Form adds the routes of an action: GET shows the question that ask returns, POST calls do. After an
// [*inputError] it shows the question again, with the problem.
func (h *Site) Form(path string, ask func(*http.Request) (*Question, error), do Action) {
	h.handleQuestion("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		q, err := ask(r)
		if err != nil {
			h.Fail(w, r, err)
			return
		}
		h.showQuestion(w, r, http.StatusOK, q)
	})
	h.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		if err := parseForm(r); err != nil {
			h.Fail(w, r, err)
			return
		}
		did, to, err := do(r)
		var q *Question
		wrong, again := errors.AsType[*inputError](err)
		if again {
			q, err = ask(r)
		}
		switch {
		case err != nil:
			h.Fail(w, r, err)
		case again:
			if q.Problem = wrong.problem; q.Input != nil {
				q.Input = &wrong.text
			}
			h.showQuestion(w, r, http.StatusUnprocessableEntity, q)
		case did != "" && fromHTMX(r):
			h.flash(w, r, did)
		default:
			h.forward(w, r, to)
		}
	})
}

// Has reports whether the path of the request belongs to a page or an action. It does not check
// whether the run or the provider in the path exists.
func (h *Site) Has(r *http.Request) bool {
	_, pattern := h.mux.Handler(r)
	return pattern != "" && pattern != noPage
}

// MaxBody limits the body of a form, in bytes. It is large enough for the largest payload of an
// engine, although the encoding of forms makes it up to three times as long.
const MaxBody = 2 << 20

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
	r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
	caller := h.options.CallerOf(r)
	if caller.ReadOnly && r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, control.OnlyLook, http.StatusForbidden)
		return
	}
	ctx := context.WithValue(control.LimitStoring(r.Context()), callerKey{}, caller)
	if h.Clustered() && !strings.HasPrefix(r.URL.Path, h.options.Base+"/live/") {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.RequestTimeout)
		defer cancel()
	}
	h.belowBase(w, r.WithContext(ctx))
}

// belowBase serves a request whose path is below the base. A path that is not clean leads to the clean one:
// [http.ServeMux] would redirect to it without the base.
func (h *Site) belowBase(w http.ResponseWriter, r *http.Request) {
	base := h.options.Base
	rest, below := strings.CutPrefix(r.URL.Path, base)
	clean := path.Clean("/" + rest)
	if strings.HasSuffix(rest, "/") && clean != "/" {
		clean += "/"
	}
	switch {
	case base == "":
		h.mux.ServeHTTP(w, r)
	case !below || rest != "" && rest[0] != '/':
		h.Fail(w, r, control.NewError(control.CodeNotFound, "there is no page at this address", ""))
	case rest != clean:
		u := url.URL{Path: clean, RawQuery: r.URL.RawQuery}
		h.Redirect(w, r, u.RequestURI())
	default:
		http.StripPrefix(base, h.mux).ServeHTTP(w, r)
	}
}
