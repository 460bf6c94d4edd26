package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
)

// server answers requests.
type server struct {
	engine  *engine.Engine
	version string
	data    string
	started time.Time
	boot    string // tells the numbers of events of this process from another's
	logger  *slog.Logger
	streams chan struct{} // has a place for each stream over TCP
	local   chan struct{} // has a place for each stream over the socket

	sessions  Sessions
	providers Providers
	storms    func() []storm.Storm
	config    func() ConfigFile
	look      func() Diagnosis
}

// MaxStreams is how many streams of events there may be at once over TCP, and as
// many over the socket, if nothing is said.
const MaxStreams = 256

// New returns the handler of everything under [Prefix], behind a [Guard]. From
// then on the engine keeps its latest events for those who come late. Without an
// engine there are only providers and healthz.
func New(o Options) http.Handler {
	s := &server{
		engine: o.Engine, version: versionOf(o.Version), data: o.Data, started: time.Now(), logger: cmp.Or(o.Logger, slog.Default()),
		boot: strconv.FormatUint(rand.Uint64N(1<<40), 36), streams: make(chan struct{}, cmp.Or(o.Streams, MaxStreams)), local: make(chan struct{}, cmp.Or(o.LocalStreams, MaxStreams)),
		sessions:  cmp.Or[Sessions](o.Sessions, new(session.Manager)), // which has none
		providers: cmp.Or[Providers](o.Providers, noProviders{}), storms: o.Storms, config: o.Config, look: o.Doctor,
	}
	if s.storms == nil {
		s.storms = func() []storm.Storm { return []storm.Storm{} }
	}
	if s.config == nil {
		s.config = func() ConfigFile { return ConfigFile{} }
	}
	if s.engine != nil {
		s.latest() // a reader makes it keep them
	}
	return Guard(o, s)
}

// versionOf returns the version alone of what a program says of itself, such as
// "tideover v1.2.3 0123abcd, go1.26".
func versionOf(text string) string {
	version, _, _ := strings.Cut(strings.TrimPrefix(text, "tideover "), " ")
	return strings.TrimSuffix(version, ",")
}

// handler does what a request asks for. The id is the part of the path that names
// a run, a session or a provider. An error is answered as a [Problem].
type handler func(s *server, w http.ResponseWriter, r *http.Request, id string) error

type route struct {
	method, path string
	handler      handler
}

// answerTime is how long the engine may take for what is answered at once. Another
// process that it must ask may be away.
const answerTime = 45 * time.Second

// long reports whether the answer takes as long as somebody wants it to.
func (t *route) long() bool {
	return slices.Contains([]string{"events", "backup", "runs/retry", "runs/cancel", "runs/{id}/result", "runs/{id}/events"}, t.path)
}

// routes are tried in order.
func routes() []route {
	return []route{
		{"GET", "healthz", (*server).health},
		{"GET", "openapi.yaml", (*server).openapi},
		{"GET", "status", (*server).status},
		{"GET", "cluster", (*server).cluster},
		{"GET", "doctor", (*server).doctor},
		{"GET", "workflows", (*server).workflows},
		{"GET", "schedules", (*server).schedules},
		{"GET", "dead", (*server).dead},
		{"GET", "events", (*server).events},
		{"POST", "backup", (*server).backup},
		{"GET", "runs", (*server).list},
		{"POST", "runs", (*server).start},
		{"POST", "runs/retry", (*server).retryMany},
		{"POST", "runs/cancel", (*server).cancelMany},
		{"GET", "runs/{id}", (*server).show},
		{"GET", "runs/{id}/result", (*server).result},
		{"GET", "runs/{id}/events", (*server).follow},
		{"POST", "runs/{id}/cancel", (*server).cancel},
		{"POST", "runs/{id}/retry", (*server).retry},
		{"POST", "runs/{id}/wake", (*server).wake},
		{"POST", "runs/{id}/replay", (*server).replay},
		{"POST", "runs/{id}/rerun", (*server).rerun},
		{"POST", "runs/{id}/retry-latest", (*server).retryLatest},
		{"GET", "sessions", (*server).listSessions},
		{"GET", "sessions/{id}", (*server).showSession},
		{"GET", "sessions/{id}/output", (*server).sessionOutput},
		{"POST", "sessions/{id}/pause", (*server).pauseSession},
		{"POST", "sessions/{id}/resume", (*server).resumeSession},
		{"POST", "sessions/{id}/retry-now", (*server).retrySession},
		{"POST", "sessions/{id}/stop", (*server).stopSession},
		{"POST", "sessions/{id}/reset", (*server).resetSession},
		{"POST", "sessions/{id}/limit", (*server).reportSessionLimit},
		{"GET", "providers", (*server).listProviders},
		{"GET", "providers/{id}", (*server).showProvider},
		{"POST", "providers/{id}/open", tellProvider(gateway.Open)},
		{"POST", "providers/{id}/close", tellProvider(gateway.Close)},
		{"POST", "providers/{id}/reset", tellProvider(gateway.Reset)},
		{"POST", "providers/{id}/drain", tellProvider(gateway.Drain)},
	}
}

// needsEngine reports whether there is nothing at the path without an engine.
func (t *route) needsEngine() bool {
	return t.path != "healthz" && t.path != "openapi.yaml" && t.path != "providers" && !strings.HasPrefix(t.path, "providers/")
}

// match reports whether the path is the route's, and what it names. The path
// is still escaped: a key may have slashes.
func (t *route) match(path string) (id string, ok bool) {
	want, got := strings.Split(t.path, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return "", false
	}
	for i, part := range want {
		if part == "{id}" {
			var err error
			if id, err = url.PathUnescape(got[i]); err != nil || id == "" {
				return "", false
			}
		} else if part != got[i] {
			return "", false
		}
	}
	return id, true
}

// ServeHTTP implements [http.Handler].
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.serve(w, r); err != nil {
		p := problem(err)
		if p.Status == http.StatusInternalServerError {
			s.logger.Error("a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		}
		p.write(w)
	}
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) error {
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), Prefix)
	if !ok {
		path = beside(r.URL.Path)
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var allowed []string
	for _, t := range routes() {
		id, ok := t.match(path)
		switch {
		case !ok:
		case s.engine == nil && t.needsEngine():
			return &Problem{Status: http.StatusNotFound, Code: CodeNoEngine, Message: "there is no engine here", Hint: "this is a gateway alone, which has providers: tideover providers, and audit.jsonl in its data folder; runs and events are at a tideover serve"}
		case t.method != method:
			allowed = append(allowed, t.method)
		case t.long():
			return t.handler(s, w, r, id)
		default:
			ctx, cancel := context.WithTimeout(r.Context(), answerTime)
			defer cancel()
			return t.handler(s, w, r.WithContext(ctx), id)
		}
	}
	if len(allowed) == 0 {
		return &Problem{Status: http.StatusNotFound, Code: CodeNotFound, Message: "there is nothing at " + excerpt(r.URL.Path)}
	}
	slices.Sort(allowed)
	allow := strings.Join(slices.Compact(allowed), ", ")
	w.Header().Set("Allow", allow)
	return &Problem{Status: http.StatusMethodNotAllowed, Code: CodeMethod, Message: r.Method + " is not possible here", Hint: "use " + allow}
}

// answer sends a value.
func answer(w http.ResponseWriter, status int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // to somebody who may be gone
	return nil
}

// byHeader says who asks, for the history of a run.
const byHeader = "Tideover-By"

// by returns who asks.
func by(r *http.Request) (string, error) {
	who := r.Header.Get(byHeader)
	if len(who) > 64 || strings.ContainsFunc(who, func(c rune) bool { return c < ' ' || c > '~' }) {
		return "", bad(byHeader, "must have at most 64 printable ASCII characters")
	}
	switch {
	case who != "":
		return who, nil
	case r.Context().Value(sessionKey) != nil:
		return "page", nil
	default:
		return "api", nil
	}
}

// find returns the id of the run that is meant: by its id, the beginning of it,
// or its key.
func (s *server) find(ctx context.Context, text string) (string, error) {
	ids, err := s.engine.Find(ctx, text, 11)
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", fmt.Errorf("%w: %s", engine.ErrNotFound, excerpt(text))
	case len(ids) > 1:
		p := &Problem{Status: http.StatusConflict, Code: CodeAmbiguous, Message: fmt.Sprintf("%q may stand for several runs", excerpt(text))}
		p.Candidates = ids[:min(len(ids), 10)]
		p.Hint = "use more of the id"
		return "", p
	}
	return ids[0], nil
}

// get returns the run that is meant.
func (s *server) get(ctx context.Context, text string) (*engine.Info, error) {
	id, err := s.find(ctx, text)
	if err != nil {
		return nil, err
	}
	return s.engine.Get(ctx, id)
}

func (s *server) health(w http.ResponseWriter, _ *http.Request, _ string) error {
	h := Health{OK: true}
	if s.engine == nil {
		return answer(w, http.StatusOK, h) // a gateway works as long as it answers
	}
	for _, t := range s.engine.Troubles() {
		h.Troubles = append(h.Troubles, t.What)
	}
	for _, t := range s.engine.Warnings() {
		h.Warnings = append(h.Warnings, t.What)
	}
	if s.engine.Err() != nil {
		h.Troubles = append(h.Troubles, "the engine has stopped")
	}
	status := http.StatusOK
	if h.OK = len(h.Troubles) == 0; !h.OK {
		status = http.StatusServiceUnavailable
	}
	return answer(w, status, h)
}

func (s *server) status(w http.ResponseWriter, r *http.Request, _ string) error {
	if _, err := queryOf(r); err != nil {
		return err
	}
	stats, err := s.engine.Stats(r.Context())
	if err != nil {
		return err
	}
	out := Status{
		Version: s.version, Started: s.started, Uptime: time.Since(s.started).Seconds(), Workflows: []WorkflowCounts{},
		Timers: stats.Waiting, Running: stats.Running, Stuck: stats.Stuck, NeedsHandler: stats.Missing,
		ViewBehind: stats.Behind, Next: stats.Next, Troubles: stats.Troubles, Warnings: stats.Warnings, Storms: s.storms(), Config: s.config(), Silent: stats.Silent,
	}
	for _, c := range stats.Workflows {
		out.Workflows = append(out.Workflows, WorkflowCounts{c.Name, c.States, Totals(c.Totals)})
	}
	if out.Troubles == nil {
		out.Troubles = []engine.Trouble{}
	}
	return answer(w, http.StatusOK, out)
}

func (s *server) workflows(w http.ResponseWriter, r *http.Request, _ string) error {
	q, err := queryOf(r, "internal")
	if err != nil {
		return err
	}
	internal, err := q.yes("internal")
	if err != nil {
		return err
	}
	all := Workflows{Workflows: []Workflow{}}
	// What can be started this server knows by itself.
	schedules, err := s.engine.Schedules(r.Context())
	switch {
	case errors.Is(err, engine.ErrAway):
		all.Missing = err.Error()
	case err != nil:
		return err
	}
	for _, flow := range s.engine.Workflows() {
		if Internal(flow.Name()) && !internal {
			continue
		}
		out := Workflow{Name: flow.Name(), Timeout: flow.Timeout()}
		for _, step := range flow.Steps() {
			out.Steps = append(out.Steps, Step{step.Name, step.Needs, step.Policy, step.Handler, step.MaxLost})
		}
		for _, c := range schedules {
			if c.Workflow != out.Name {
				continue
			}
			out.Schedules = append(out.Schedules, c.Name)
			if out.Next == nil || c.Next.Before(*out.Next) {
				out.Next = &c.Next
			}
		}
		slices.Sort(out.Schedules)
		all.Workflows = append(all.Workflows, out)
	}
	slices.SortFunc(all.Workflows, func(a, b Workflow) int { return cmp.Compare(a.Name, b.Name) })
	return answer(w, http.StatusOK, all)
}

func (s *server) schedules(w http.ResponseWriter, r *http.Request, _ string) error {
	if _, err := queryOf(r); err != nil {
		return err
	}
	list, err := s.engine.Schedules(r.Context())
	if err != nil {
		return err
	}
	if list == nil {
		list = []engine.Schedule{}
	}
	slices.SortFunc(list, func(a, b engine.Schedule) int { return cmp.Compare(a.Name, b.Name) })
	return answer(w, http.StatusOK, map[string]any{"schedules": list})
}

func (s *server) dead(w http.ResponseWriter, r *http.Request, _ string) error {
	q, err := queryOf(r, "limit", "internal")
	if err != nil {
		return err
	}
	f := Filter{}
	if f.Internal, err = q.yes("internal"); err != nil {
		return err
	}
	limit, err := q.number("limit", defaultLimit, maxLimit)
	if err != nil {
		return err
	}
	dead, err := s.engine.FreshDeadGroups(r.Context(), limit, f.exclude()...)
	if err != nil {
		return err
	}
	out := Dead{Groups: []Group{}, Silent: dead.Silent}
	for _, g := range dead.Groups {
		out.Groups = append(out.Groups, Group(g))
	}
	return answer(w, http.StatusOK, out)
}
