package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/surrogate"
)

// Prefix is the path under which the API is served.
const Prefix = httpserver.APIPrefix

// MaxStreams is the default limit of concurrent event streams. It applies to TCP and to the Unix
// socket separately.
const MaxStreams = 256

// Options configures the API.
type Options struct {
	Control *admin.Service
	Guard   httpserver.GuardOptions // who may send requests

	// Streams and LocalStreams limit the concurrent event streams over TCP and over the Unix
	// socket. 0 means MaxStreams.
	Streams, LocalStreams int

	Logger *slog.Logger // gets errors with the status 500; nil means slog.Default
}

// router calls the handler of each request.
type router struct {
	engine bool // the server has an engine
	logger *slog.Logger
	table  []route

	runs      runsHandler
	workflows workflowsHandler
	schedules schedulesHandler
	signals   signalsHandler
	events    eventStream
	sessions  sessionsHandler
	providers providersHandler
	requests  requestsHandler
	charts    chartsHandler
	system    systemHandler
}

// New returns the handler for all paths under [Prefix], behind a [httpserver.Guard]. Without an
// engine it serves only the providers, the health check and the OpenAPI description.
func New(o Options) http.Handler {
	c := o.Control
	a := &router{
		engine: c.Runs != nil, logger: cmp.Or(o.Logger, slog.Default()),
		runs: runsHandler{c.Runs, c.Outputs}, workflows: workflowsHandler{c.Workflows}, schedules: schedulesHandler{c.Schedules}, signals: signalsHandler{c.Runs, c.Callbacks}, providers: providersHandler{c.Providers, c.System}, requests: requestsHandler{c.Requests}, charts: chartsHandler{c.Charts, c.Workflows}, system: systemHandler{c.System},
		sessions: sessionsHandler{cmp.Or(c.Sessions, &admin.Sessions{SessionManager: new(session.Manager)})}, // an empty manager has no sessions
	}
	if a.engine {
		a.events = newEventStream(c.Runs, cmp.Or(o.Streams, MaxStreams), cmp.Or(o.LocalStreams, MaxStreams))
	}
	a.table = a.routes()
	return httpserver.Guard(o.Guard, a)
}

// request is a request that a route handles, and the writer of its response.
type request struct {
	*http.Request
	w  http.ResponseWriter
	id string // the part of the path that names a run, a session or a provider

	values map[string]string // the parts of the path that have names in the path of the route
}

// handler handles a request. It returns the value to encode as the response, a [reply] if the
// status is not 200, or [alreadyAnswered].
type handler func(r *request) (any, error)

// reply is a response with a status other than 200.
type reply struct {
	status int
	value  any
}

// alreadyAnswered is returned by a handler that has written the response itself.
type alreadyAnswered struct{}

type route struct {
	method, path string
	handler      handler
}

// get returns a handler that answers with the result of load. The request must not have a query.
func get[T any](load func(ctx context.Context) (T, error)) handler {
	return getOne(func(ctx context.Context, _ string) (T, error) { return load(ctx) })
}

// getOne is like get for a path that contains an id. It passes the id to load.
func getOne[T any](load func(ctx context.Context, id string) (T, error)) handler {
	return func(r *request) (any, error) {
		if err := r.query().err; err != nil {
			return nil, err
		}
		return load(r.Context(), r.id)
	}
}

// answerTimeout limits how long a handler may take, so that a request does not wait forever for a
// process of the cluster that does not answer. It does not apply if isLong is true.
const answerTimeout = 45 * time.Second

// isLong reports whether a request to the route may take longer than answerTimeout: a stream, a wait
// for a run, a backup, or a change of many runs.
func (t *route) isLong() bool {
	return slices.Contains([]string{"events", "backup", "runs/retry", "runs/cancel", "runs/{id}/result", "runs/{id}/events"}, t.path)
}

// routes returns the routes in the order in which they are matched.
func (a *router) routes() []route {
	return []route{
		{"GET", "healthz", a.system.health},
		{"GET", "openapi.yaml", a.system.openapi},
		{"GET", "status", get(a.system.system.Status)},
		{"GET", "cluster", get(a.system.system.Cluster)},
		{"GET", "doctor", get(a.system.doctor)},
		{"GET", "workflows", a.workflows.list},
		{"POST", "workflows/{workflow}/pause", a.workflows.change((*control.Definitions).Pause)},
		{"POST", "workflows/{workflow}/resume", a.workflows.change((*control.Definitions).Resume)},
		{"GET", "charts", a.charts.show},
		{"GET", "schedules", get(a.schedules.list)},
		{"POST", "schedules/{id}/pause", a.schedules.change((*control.Schedules).Pause)},
		{"POST", "schedules/{id}/resume", a.schedules.change((*control.Schedules).Resume)},
		{"POST", "schedules/{id}/run", a.schedules.run},
		{"GET", "dead", a.runs.dead},
		{"GET", "events", a.events.events},
		{"POST", "backup", a.system.backup},
		{"GET", "runs", a.runs.list},
		{"POST", "runs", a.runs.start},
		{"POST", "runs/retry", a.runs.bulk(control.BulkRetry)},
		{"POST", "runs/cancel", a.runs.bulk(control.BulkCancel)},
		{"GET", "runs/{id}", getOne(a.runs.runs.Lookup)},
		{"GET", "runs/{id}/history", getOne(a.runs.runs.History)},
		{"GET", "runs/{id}/result", a.runs.result},
		{"GET", "runs/{id}/events", a.events.follow},
		{"GET", "runs/{id}/output", a.runs.output},
		{"POST", "runs/{id}/cancel", a.runs.change((*control.Runs).Cancel)},
		{"POST", "runs/{id}/abandon", a.runs.change((*control.Runs).Abandon)},
		{"POST", "runs/{id}/undo", a.runs.change((*control.Runs).Undo)},
		{"POST", "runs/{id}/retry", a.runs.change((*control.Runs).Retry)},
		{"POST", "runs/{id}/wake", a.runs.change((*control.Runs).Wake)},
		{"POST", "runs/{id}/signals/{name}", a.signals.signal},
		{"POST", "workflows/{workflow}/keys/{key}/signals/{name}", a.signals.signalKey},
		{"POST", "runs/{id}/answers/{question}", a.signals.answer},
		{"POST", "runs/{id}/callbacks/{name}", a.signals.callback},
		{"POST", "/callbacks/{token}", a.signals.accept},
		{"POST", "runs/{id}/replay", a.runs.replay},
		{"POST", "runs/{id}/rerun", a.runs.rerun},
		{"POST", "runs/{id}/retry-latest", a.runs.retryLatest},
		{"GET", "sessions", get(a.sessions.list)},
		{"GET", "sessions/{id}", getOne(a.sessions.show)},
		{"GET", "sessions/{id}/output", a.sessions.output},
		{"POST", "sessions/{id}/pause", a.sessions.pause},
		{"POST", "sessions/{id}/resume", a.sessions.change((*admin.Sessions).Resume)},
		{"POST", "sessions/{id}/wake", a.sessions.change((*admin.Sessions).RetryNow)},
		{"POST", "sessions/{id}/retry-now", a.sessions.change((*admin.Sessions).RetryNow)}, // former name
		{"POST", "sessions/{id}/stop", a.sessions.stop},
		{"POST", "sessions/{id}/reset", a.sessions.change((*admin.Sessions).Reset)},
		{"POST", "sessions/{id}/limit", a.sessions.reportLimit},
		{"GET", "providers", get(a.providers.list)},
		{"GET", "providers/{id}", getOne(a.providers.show)},
		{"POST", "providers/{id}/open", a.providers.apply(gateway.Open)},
		{"POST", "providers/{id}/close", a.providers.apply(gateway.Close)},
		{"POST", "providers/{id}/reset", a.providers.apply(gateway.Reset)},
		{"POST", "providers/{id}/drain", a.providers.apply(gateway.Drain)},
		{"GET", "requests", a.requests.list},
		{"GET", "requests/{id}", getOne(a.requests.show)},
	}
}

// needsEngine reports whether the route exists only on a server with an engine.
func (t *route) needsEngine() bool {
	first, _, _ := strings.Cut(t.path, "/")
	return !slices.Contains([]string{"healthz", "openapi.yaml", "providers", "requests"}, first)
}

// match reports whether the route matches the path, and returns the parts of the path that have names
// in the path of the route, such as {id}. The path must still be escaped, since the key of a run may
// contain slashes.
func (t *route) match(path string) (values map[string]string, ok bool) {
	want, got := strings.Split(t.path, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return nil, false
	}
	values = map[string]string{}
	for i, part := range want {
		if !strings.HasPrefix(part, "{") {
			if part != got[i] {
				return nil, false
			}
			continue
		}
		text, err := url.PathUnescape(got[i])
		if err != nil || text == "" {
			return nil, false
		}
		values[strings.Trim(part, "{}")] = text
	}
	return values, true
}

// ServeHTTP implements [http.Handler].
func (a *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v, err := a.serve(w, r)
	if err == nil {
		err = answer(w, v)
	}
	if err != nil {
		e := control.AsError(err)
		if e.Status == http.StatusInternalServerError {
			a.logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		}
		httpserver.WriteProblem(w, e.Status, e)
	}
}

func (a *router) serve(w http.ResponseWriter, r *http.Request) (any, error) {
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), Prefix)
	if !ok {
		path = cmp.Or(unversioned[r.URL.Path], r.URL.Path)
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var allowed []string
	for i := range a.table {
		t := &a.table[i]
		values, ok := t.match(path)
		switch {
		case !ok:
		case !a.engine && t.needsEngine():
			return nil, control.NewError(control.CodeNoEngine, "this server has no engine",
				"a gateway has only providers (tideover providers), requests (tideover requests) and audit.jsonl in its data folder; for runs and events use the address of a tideover serve")
		case t.method != method:
			allowed = append(allowed, t.method)
		case t.isLong():
			return t.handler(&request{r.WithContext(control.LimitStoring(r.Context())), w, values["id"], values})
		default:
			ctx, cancel := context.WithTimeout(control.LimitStoring(r.Context()), answerTimeout)
			defer cancel()
			return t.handler(&request{r.WithContext(ctx), w, values["id"], values})
		}
	}
	if len(allowed) == 0 {
		return nil, control.NewError(control.CodeNotFound, "no such path: "+control.Excerpt(r.URL.Path), "")
	}
	slices.Sort(allowed)
	allow := strings.Join(slices.Compact(allowed), ", ")
	w.Header().Set("Allow", allow)
	return nil, control.NewError(control.CodeMethod, "method "+r.Method+" is not allowed here", "use "+allow)
}

// unversioned maps paths outside of [Prefix] to routes. A client can request these before it knows
// the version of the API.
var unversioned = map[string]string{"/healthz": "healthz", "/api/openapi.yaml": "openapi.yaml"}

// answer writes the result of a [handler] as JSON.
func answer(w http.ResponseWriter, v any) error {
	status := http.StatusOK
	switch r := v.(type) {
	case alreadyAnswered:
		return nil
	case reply:
		status, v = r.status, r.value
	}
	return httpserver.WriteJSON(w, status, "application/json", v)
}

// by returns the name of the sender: that of the user whose token the request has, the header
// [httpserver.ByHeader], or else "page" for a browser and "api" for any other client.
func (r *request) by() (string, error) {
	if caller := httpserver.CallerOf(r.Context()); caller.IsUser {
		return caller.Name, nil
	}
	who := r.Header.Get(httpserver.ByHeader)
	if len(who) > 64 || strings.ContainsFunc(who, func(c rune) bool { return c < ' ' || c > '~' }) {
		return "", control.Invalid(httpserver.ByHeader, "must have at most 64 printable ASCII characters")
	}
	switch {
	case who != "":
		return who, nil
	case httpserver.FromBrowser(r.Context()):
		return "page", nil
	default:
		return "api", nil
	}
}

// change returns the name of the sender and the parsed body of a request.
func (r *request) change() (who string, o object, err error) {
	if who, err = r.by(); err == nil {
		o, err = r.body()
	}
	return who, o, err
}

// plainChange is like change, but a query is an error.
func (r *request) plainChange() (who string, o object, err error) {
	if err := r.query().err; err != nil {
		return "", nil, err
	}
	return r.change()
}

// read decodes the body of a request that must not have a query, and returns the name of the
// sender. fields alternates names and pointers, as in [object.fields].
func (r *request) read(fields ...any) (who string, err error) {
	who, o, err := r.plainChange()
	if err == nil {
		err = o.fields(fields...)
	}
	return who, err
}

// object is a JSON object that was parsed strictly: a name must not occur twice, and names are case
// sensitive. encoding/json would use the last of two values and accept "Timeout" for "timeout", so
// that a run could start with another value than the client meant.
type object map[string]json.RawMessage

// body parses the body of a request, which must be a JSON object. A missing body is an empty
// object.
func (r *request) body() (object, error) {
	data, err := r.readJSON()
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return object{}, nil
	}
	return parseObject(data)
}

// readJSON reads the body of a request, which must be JSON according to its Content-Type, or empty.
func (r *request) readJSON() ([]byte, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return nil, err
		}
		return nil, control.Invalid("", "the body can't be read: %v", err)
	}
	if len(data) == 0 {
		return nil, nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, control.NewError(control.CodeMediaType, "the body must have the Content-Type application/json", "curl: -H 'Content-Type: application/json'")
	}
	return data, nil
}

func parseObject(data []byte) (object, error) {
	if !utf8.Valid(data) {
		return nil, control.Invalid("", "the body is not UTF-8")
	}
	var o object
	if err := json.Unmarshal(data, &o); err != nil || o == nil {
		if _, other := errors.AsType[*json.UnmarshalTypeError](err); err == nil || other {
			return nil, control.Invalid("", "the body is not a JSON object")
		}
		return nil, control.Invalid("", "the body is not a JSON object: %v", err)
	}
	if field, twice := control.Duplicate(data); twice {
		return nil, control.Invalid(field, "is given twice")
	}
	return o, nil
}

// decode decodes a field into v, and removes the field from the object. A missing field leaves v
// unchanged.
func (o object) decode(name string, v any) error {
	text, ok := o[name]
	if !ok {
		return nil
	}
	delete(o, name)
	if raw, ok := v.(*json.RawMessage); ok {
		*raw = text
		return nil
	}
	if string(text) == "null" {
		return control.Invalid(name, "is null; leave it out instead")
	}
	if at, half := surrogate.Next(text); at >= 0 {
		return control.Invalid(name, `\u%04x is only half of a surrogate pair: send both halves, or the character itself`, half)
	}
	if err := json.Unmarshal(text, v); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			err = fmt.Errorf("%s is of the wrong type", control.Excerpt(text))
		}
		return control.Invalid(name, "%v", err)
	}
	return nil
}

// fields decodes all fields of the object. targets alternates the name of a field and a pointer to
// its value. A field that is not in targets is an error.
func (o object) fields(targets ...any) error {
	var known []string
	for i := 0; i < len(targets); i += 2 {
		name, _ := targets[i].(string)
		known = append(known, name)
		if err := o.decode(name, targets[i+1]); err != nil {
			return err
		}
	}
	if len(o) == 0 {
		return nil
	}
	return unknown(slices.Min(slices.Collect(maps.Keys(o))), "field", known)
}

// unknown returns the error for an unknown name. what is "field" or "parameter".
func unknown(name, what string, known []string) error {
	e := control.Invalid(name, "unknown %s", what)
	if len(known) > 0 {
		e.Hint = "want one of " + strings.Join(known, ", ")
	}
	return e
}
