package api

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/internal/secret"
)

// MetricsPath is where Prometheus reads. What is there wants the token as the API
// does, and is no page.
const MetricsPath = "/metrics"

// DefaultMaxBody is the largest body of a request when nothing is said.
const DefaultMaxBody = 1 << 20

// Options says what is served, and to whom.
type Options struct {
	// Engine does what is asked for. nil means that there is none: whatever needs
	// one is answered with 404.
	Engine *engine.Engine

	// Sessions are what can be asked for by name. nil means that there are none.
	Sessions Sessions

	// Providers are those of the gateway. nil means that there are none.
	Providers Providers

	// Storms returns the retry storms that go on. nil means that nobody looks for
	// any.
	Storms func() []storm.Storm

	// Config returns what became of the file of the configuration. nil means that
	// nobody reads it again.
	Config func() ConfigFile

	// Doctor returns what makes the promise of the server weaker. nil means that it
	// does not look.
	Doctor func() Diagnosis

	// Token is what requests over TCP must have. Without one there is no way in
	// over TCP; the unix socket needs none.
	Token secret.String

	// Hosts are names under which the server may be asked over TCP, with or without
	// port, in addition to those of the loopback interface.
	Hosts []string

	// Data is the folder of the server's state, into which no backup is made. Empty
	// means that nobody knows.
	Data string

	// Streams is how many streams of events there may be at once over TCP, and
	// LocalStreams over the unix socket. 0 means MaxStreams.
	Streams, LocalStreams int

	// MaxBody is the size of the largest body. 0 means DefaultMaxBody.
	MaxBody int64

	// Version is told with the status.
	Version string

	// Logger gets the errors that are ours. nil means slog.Default.
	Logger *slog.Logger
}

type contextKey int

const (
	localKey contextKey = iota
	guardedKey
	sessionKey
	stoppingKey
)

// Local reports whether the request came over the unix socket, whose file mode
// says who may ask.
func Local(ctx context.Context) bool { return ctx.Value(localKey) != nil }

// guard is what stands before a handler.
type guard struct {
	next    http.Handler
	token   secret.String
	hosts   hosts.Set
	maxBody int64
	cross   *http.CrossOriginProtection
	command string // that serves
}

// Guard lets through to the handler only requests of those who may ask: over the
// unix socket everybody who can open it, over TCP whoever has the token, in a
// header or, in a browser, as a session that a link with ?token= begins. It refuses
// hosts that are not ours, which is what DNS rebinding needs, and changes that
// another site's page wants. It limits bodies, and sets headers that forbid
// everything to a browser; a page that needs more sets its own
// Content-Security-Policy.
//
// A handler that is guarded already is not guarded twice.
func Guard(o Options, next http.Handler) http.Handler {
	g := &guard{
		next: next, token: o.Token, maxBody: cmp.Or(o.MaxBody, DefaultMaxBody), cross: http.NewCrossOriginProtection(),
		command: "tideover serve", hosts: hosts.New(o.Hosts),
	}
	if o.Engine == nil {
		g.command = "tideover gateway"
	}
	g.cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		(&Problem{Status: http.StatusForbidden, Code: CodeForbidden, Message: "the request comes from the page of another site"}).write(w)
	}))
	return g
}

// ServeHTTP implements [http.Handler].
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Context().Value(guardedKey) != nil {
		g.next.ServeHTTP(w, r)
		return
	}
	forbid(w.Header())
	w.Header().Set(ourHeader, "1")
	ctx := context.WithValue(r.Context(), guardedKey, true)
	if !Local(ctx) {
		var ok bool
		if ctx, ok = g.admit(ctx, w, r); !ok {
			return
		}
	}
	r = r.WithContext(ctx)
	r.Body = http.MaxBytesReader(w, r.Body, g.maxBody)
	g.cross.Handler(g.next).ServeHTTP(w, r)
}

// ourHeader is on every answer, so that others are not taken for ours. Its value is
// the version of the API.
const ourHeader = "X-Tideover-Api"

// forbid tells browsers to do nothing with what they get.
func forbid(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// admit decides about a request over TCP, and answers those it refuses.
func (g *guard) admit(ctx context.Context, w http.ResponseWriter, r *http.Request) (context.Context, bool) {
	if !g.hosts.Has(r.Host) {
		(&Problem{
			Status: http.StatusMisdirectedRequest, Code: CodeHost, Message: "this server is not " + excerpt(r.Host),
			Hint: "use its address, or localhost",
		}).write(w)
		return ctx, false
	}
	if isHealth(r.URL.Path) {
		return ctx, true
	}
	isAPI := strings.HasPrefix(r.URL.Path, "/api/")
	if r.URL.Query().Has("token") && !isAPI && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		g.login(w, r)
		return ctx, false
	}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		if g.valid(strings.TrimSpace(token)) {
			return ctx, true
		}
	} else if cookie, err := r.Cookie(g.cookieName()); err == nil && g.validSession(cookie.Value, time.Now()) {
		return context.WithValue(ctx, sessionKey, true), true
	}
	g.refuse(w, r)
	return ctx, false
}

// valid compares in constant time, and knows no empty token.
func (g *guard) valid(token string) bool { return !g.token.IsZero() && g.token.Equal(token) }

// tokenPlace is where the token is. Who has none need not learn where our folders
// are.
const tokenPlace = "in the file 'token' of the data folder (server.data), unless server.token refers to another"

// refuse answers somebody without a token.
func (g *guard) refuse(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="tideover"`)
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, "/api/"):
		(&Problem{
			Status: http.StatusUnauthorized, Code: CodeUnauthorized, Message: "the request has no valid token",
			Hint: "send Authorization: Bearer TOKEN, or use the unix socket",
		}).write(w)
	case path == MetricsPath:
		http.Error(w, "The request has no valid token: send Authorization: Bearer TOKEN. The token is "+tokenPlace+".", http.StatusUnauthorized)
	default:
		http.Error(w, "This page needs a token.\n\nFollow the link that '"+g.command+"' has printed, or put ?token=TOKEN behind the address. The token is "+tokenPlace+".",
			http.StatusUnauthorized)
	}
}

// login begins a session for whoever follows a link with the token, and leads on
// to the same page without it, so that it stays in no history.
func (g *guard) login(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if len(q["token"]) != 1 || !g.valid(q.Get("token")) {
		g.refuse(w, r)
		return
	}
	http.SetCookie(w, g.session(time.Now(), r.TLS != nil))
	q.Del("token")
	// More than one slash at the beginning would lead to another server.
	to := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/\\"), RawQuery: q.Encode()}
	w.Header().Set("Location", to.String())
	w.WriteHeader(http.StatusSeeOther)
}

func isHealth(path string) bool { return path == "/healthz" || path == Prefix+"healthz" }
