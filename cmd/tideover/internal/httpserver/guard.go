package httpserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
)

// APIPrefix is the path under which the API is served.
const APIPrefix = "/api/v1/"

// MetricsPath is the path of the metrics for Prometheus. It requires the token. The answer to a
// request without a token is written for programs, not for users of a browser.
const MetricsPath = "/metrics"

// APIHeader is a header of every response of a [Guard], so that a client can distinguish a tideover
// server from other servers. Its value is the version of the API.
const APIHeader = "X-Tideover-Api"

// ByHeader is the header of a request that names the user or program that sends it, for the history
// of runs.
const ByHeader = "Tideover-By"

// DefaultMaxBody is the default limit of request bodies, in bytes.
const DefaultMaxBody = 1 << 20

// CallbackPrefix is the beginning of the paths of callback URLs. They need no token: each is signed.
const CallbackPrefix = "/callbacks/"

// GuardOptions configures a [Guard].
type GuardOptions struct {
	// Token is required of requests over TCP. Without a token all requests over TCP are
	// rejected. Requests over the Unix socket need none.
	Token secret.String

	// Users have tokens of their own, which are accepted like Token.
	Users []User

	// Hosts are values of the Host header that are accepted over TCP, with or without a port, in
	// addition to the names of the loopback interface.
	Hosts []string

	// MaxBody limits request bodies, in bytes. 0 means DefaultMaxBody.
	MaxBody int64

	// Public reports whether a path needs no token over TCP. Nil means that no path is public,
	// except the health check and callback URLs.
	Public func(path string) bool

	// Audit gets each request that was refused, and each login. It must not block. Nil means that
	// they are not recorded.
	Audit func(Access)

	// Command is the command that prints the link with the token, for error messages. Empty means
	// "tideover serve".
	Command string
}

// User is a user who has a token of their own.
type User struct {
	Name     string
	Token    secret.String
	ReadOnly bool // the user may not change anything
}

// Access is a request that was refused, or a login.
type Access struct {
	Login  bool   // a browser session began; otherwise the request was refused
	By     string // the name of the [Caller]; "" if it is unknown
	From   string // address of the client; "socket" for the Unix socket
	Method string
	Path   string // without the query, which may have a token, and without the signature of a callback URL
	Status int
	Reason string // why the request was refused
}

// maxAuditPath is how many bytes of a path an [Access] has.
const maxAuditPath = 200

// NewAccess returns a request that was refused.
func NewAccess(r *http.Request, by string, status int, reason string) Access {
	a := Access{By: by, From: r.RemoteAddr, Method: textfmt.TruncateMark(r.Method, 20, "…"), Path: r.URL.Path, Status: status, Reason: reason}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		a.From = host
	}
	if Local(r.Context()) {
		a.From = "socket"
	}
	if strings.HasPrefix(a.Path, CallbackPrefix) {
		a.Path = CallbackPrefix + "…"
	}
	a.Path = textfmt.TruncateMark(a.Path, maxAuditPath, "…")
	return a
}

// refusedStatus has the statuses of refused requests, with the reason if the handler gives none.
var refusedStatus = map[int]string{
	http.StatusUnauthorized: "no valid token", http.StatusForbidden: "forbidden", http.StatusMisdirectedRequest: "unknown host",
}

// statusWriter records the status of a response, and why the request was refused.
type statusWriter struct {
	http.ResponseWriter
	status int
	reason string // "" means that the status says it
}

// WriteHeader implements [http.ResponseWriter].
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap gives an [http.ResponseController] access to the other methods of the writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// explain records why a request was refused, for its [Access].
func explain(w http.ResponseWriter, reason string) {
	if s, ok := w.(*statusWriter); ok {
		s.reason = reason
	}
}

// Caller is the sender of a request, as far as the server has verified it. A request can't choose
// it.
type Caller struct {
	// Name is that of the [User]. It is "cli:NAME" with the name of the operating system's user for
	// a request over the Unix socket, and "api" or "page" for a program or a browser with the token
	// of the server. It is empty for a request that needs no token.
	Name string

	IsUser   bool // Name is that of a User
	ReadOnly bool // the caller may not change anything
}

// CallerOf returns the sender of the request that has the context.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey).(Caller)
	return c
}

// LocalName returns the name of [Caller] for the user of this process: only that user can open the
// Unix socket.
var LocalName = sync.OnceValue(func() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	name = strings.Join(strings.FieldsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }), "")
	return "cli:" + name[:min(len(name), 60)]
})

type contextKey int

const (
	localKey contextKey = iota
	guardedKey
	browserKey
	stoppingKey
	connectionKey // the context of the request that net/http has made
	callerKey
)

// Local reports whether a request came over the Unix socket. The file mode of the socket
// already limits who can connect.
func Local(ctx context.Context) bool { return ctx.Value(localKey) != nil }

// FromBrowser reports whether a request was accepted because of the cookie of a browser session.
func FromBrowser(ctx context.Context) bool { return ctx.Value(browserKey) != nil }

// guard checks requests before a handler gets them.
type guard struct {
	next    http.Handler
	token   secret.String
	users   []User // the first has the token of the server, and no name
	hosts   hosts.Set
	maxBody int64
	cross   *http.CrossOriginProtection
	public  func(path string) bool
	audit   func(Access)
	command string // the command that prints the link with the token
}

// Guard returns a handler that passes authorized requests to next and rejects all others. A request
// over the Unix socket is always authorized. A request over TCP needs the token in its Authorization
// header, or the cookie of a browser session, which a link with ?token= starts.
//
// Guard rejects unknown values of the Host header, which prevents DNS rebinding, and changes that a
// page of another site requests. It limits request bodies. It sets headers that forbid a browser to
// load or run anything; a page that needs more sets its own Content-Security-Policy.
//
// If Guards are nested, only the outermost one checks the request.
func Guard(o GuardOptions, next http.Handler) http.Handler {
	g := &guard{
		next: next, token: o.Token, maxBody: cmp.Or(o.MaxBody, DefaultMaxBody), cross: http.NewCrossOriginProtection(),
		public: o.Public, audit: o.Audit, command: cmp.Or(o.Command, "tideover serve"), hosts: hosts.New(o.Hosts), users: append([]User{{Token: o.Token}}, o.Users...),
	}
	g.cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		const why = "the request comes from the page of another site"
		explain(w, why)
		rejection{Status: http.StatusForbidden, Code: "forbidden", Message: why}.write(w)
	}))
	return g
}

// rejection is a response in the form of the API's errors.
type rejection struct {
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Message string `json:"error"`
	Hint    string `json:"hint,omitempty"`
}

func (p rejection) write(w http.ResponseWriter) { WriteProblem(w, p.Status, p) }

// WriteProblem sends v, encoded as JSON, as a response of the type application/problem+json.
func WriteProblem(w http.ResponseWriter, status int, v any) {
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	const kind = "application/problem+json"
	if err := WriteJSON(w, status, kind, v); err != nil {
		_ = WriteJSON(w, status, kind, struct{}{})
	}
}

// WriteJSON sends v, encoded as JSON, as a response of the media type kind. If v can't be encoded,
// it returns the error and sends nothing.
func WriteJSON(w http.ResponseWriter, status int, kind string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the response: %w", err)
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client may have disconnected
	return nil
}

// WriteDownload sends text that a browser saves to a file, even if the text is HTML, or the part of
// it that the header Range of the request names.
func WriteDownload(w http.ResponseWriter, r *http.Request, name string, text []byte) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}

// ServeHTTP implements [http.Handler].
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Context().Value(guardedKey) != nil {
		g.next.ServeHTTP(w, r)
		return
	}
	forbid(w.Header())
	w.Header().Set(APIHeader, "1")
	ctx := context.WithValue(r.Context(), guardedKey, true)
	if g.audit != nil {
		own := &statusWriter{ResponseWriter: w}
		w = own
		defer func() { // handlers refuse requests, too
			if why, refused := refusedStatus[own.status]; refused {
				g.audit(NewAccess(r, CallerOf(ctx).Name, own.status, cmp.Or(own.reason, why)))
			}
		}()
	}
	if Local(ctx) {
		ctx = context.WithValue(ctx, callerKey, Caller{Name: LocalName()})
	} else {
		var ok bool
		if ctx, ok = g.admit(ctx, w, r); !ok {
			return
		}
	}
	if !g.permit(CallerOf(ctx), w, r) {
		return
	}
	r = r.WithContext(ctx)
	r.Body = http.MaxBytesReader(w, r.Body, g.maxBody)
	g.cross.Handler(g.next).ServeHTTP(w, r)
}

// forbid sets headers that forbid a browser to run, embed, store or share the response.
func forbid(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// admit reports whether a request over TCP is authorized, and returns the context for the handler.
// If it is not, admit has sent the response.
func (g *guard) admit(ctx context.Context, w http.ResponseWriter, r *http.Request) (context.Context, bool) {
	if !g.hosts.Has(r.Host) {
		rejection{
			Status: http.StatusMisdirectedRequest, Code: "unknown-host", Message: "the host " + textfmt.TruncateMark(r.Host, 60, "…") + " is not a name of this server",
			Hint: "use its address or localhost, or add the name to server.hosts",
		}.write(w)
		return ctx, false
	}
	if IsHealthPath(r.URL.Path) || strings.HasPrefix(r.URL.Path, CallbackPrefix) {
		return ctx, true
	}
	isAPI := strings.HasPrefix(r.URL.Path, "/api/")
	if r.URL.Query().Has("token") && !isAPI && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		g.login(w, r)
		return ctx, false
	}
	if g.public != nil && g.public(r.URL.Path) {
		return ctx, true
	}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		if u := g.withToken(strings.TrimSpace(token)); u != nil {
			return context.WithValue(ctx, callerKey, u.caller("api")), true
		}
		explain(w, "wrong token")
	} else if cookie, err := r.Cookie(g.cookieName()); err == nil {
		if u := g.withSession(cookie.Value, time.Now()); u != nil {
			ctx = context.WithValue(ctx, browserKey, true)
			return context.WithValue(ctx, callerKey, u.caller("page")), true
		}
		explain(w, "wrong or expired session")
	}
	g.refuse(w, r)
	return ctx, false
}

// caller returns the user as the sender of a request. unnamed is the name if the user has the token
// of the server.
func (u *User) caller(unnamed string) Caller {
	return Caller{Name: cmp.Or(u.Name, unnamed), IsUser: u.Name != "", ReadOnly: u.ReadOnly}
}

// permit reports whether the caller may send the request. If not, it has sent the response.
func (g *guard) permit(c Caller, w http.ResponseWriter, r *http.Request) bool {
	message, hint := "", ""
	claimed := r.Header.Get(ByHeader)
	switch {
	case c.ReadOnly && r.Method != http.MethodGet && r.Method != http.MethodHead:
		message, hint = "the token of "+c.Name+" may only read", "use another token, or remove read-only of this user in server.users"
	case claimed != "" && claimed != c.Name && slices.ContainsFunc(g.users, func(u User) bool { return u.Name == claimed }):
		message, hint = ByHeader+": "+claimed+" is a user of this server", "send the token of that user instead"
	default:
		return true
	}
	explain(w, message)
	if strings.HasPrefix(r.URL.Path, "/api/") {
		rejection{Status: http.StatusForbidden, Code: "forbidden", Message: message, Hint: hint}.write(w)
	} else {
		http.Error(w, message+"; "+hint, http.StatusForbidden)
	}
	return false
}

// withToken returns the user with the token, or nil. It compares in constant time. A user without a
// token has none.
func (g *guard) withToken(token string) (found *User) {
	for i := range g.users {
		if u := &g.users[i]; !u.Token.IsZero() && u.Token.Equal(token) && found == nil {
			found = u
		}
	}
	return found
}

// tokenPlace describes where the token is stored. It does not contain the path of the data folder,
// which a client without a token must not learn.
const tokenPlace = "in the file 'token' of the data folder (server.data), unless server.token refers to another"

// refuse answers a request without a valid token with status 401.
func (g *guard) refuse(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="tideover"`)
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, "/api/"):
		rejection{
			Status: http.StatusUnauthorized, Code: "unauthorized", Message: "the request has no valid token",
			Hint: "send Authorization: Bearer TOKEN, or use the unix socket",
		}.write(w)
	case path == MetricsPath:
		http.Error(w, "The request has no valid token: send Authorization: Bearer TOKEN. The token is "+tokenPlace+".", http.StatusUnauthorized)
	case wantsLoginPage(r):
		g.sendLoginPage(w, r)
	default:
		http.Error(w, "This page needs a token.\n\nFollow the link that '"+g.command+"' has printed, or put ?token=TOKEN behind the address. The token is "+tokenPlace+".",
			http.StatusUnauthorized)
	}
}

// login starts a browser session for a link with the token, and redirects to the same page
// without the token, so that the browser's history does not keep it.
func (g *guard) login(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	u := g.withToken(q.Get("token"))
	if len(q["token"]) != 1 || u == nil {
		explain(w, "login with a wrong token")
		g.refuse(w, r)
		return
	}
	if g.audit != nil {
		a := NewAccess(r, u.caller("page").Name, http.StatusSeeOther, "")
		a.Login = true
		g.audit(a)
	}
	http.SetCookie(w, g.session(u, time.Now(), r.TLS != nil))
	q.Del("token")
	// A path that begins with two slashes would be the address of another server.
	to := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/\\"), RawQuery: q.Encode()}
	w.Header().Set("Location", to.String())
	w.WriteHeader(http.StatusSeeOther)
}

// IsHealthPath reports whether the path is that of the health check, which needs no token.
func IsHealthPath(path string) bool { return path == "/healthz" || path == APIPrefix+"healthz" }

// sessionAge is how long a browser session lasts.
const sessionAge = 30 * 24 * time.Hour

// cookieName returns the name of the session cookie. It differs between servers, since browsers send
// a cookie to all ports of a host.
func (g *guard) cookieName() string { return "tideover-" + mac(g.token, "cookie")[:8] }

// session returns the cookie of a session of the user that starts now. Its value is derived from the
// token, but does not contain it: a stolen cookie expires and can't be used as a bearer token.
func (g *guard) session(u *User, now time.Time, secure bool) *http.Cookie {
	until := strconv.FormatInt(now.Add(sessionAge).Unix(), 10)
	return &http.Cookie{
		Name: g.cookieName(), Value: until + "." + mac(u.Token, "session "+until), Path: "/", MaxAge: int(sessionAge / time.Second),
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	}
}

// withSession returns the user to whom the value of a session cookie belongs, or nil.
func (g *guard) withSession(value string, now time.Time) (found *User) {
	until, sum, ok := strings.Cut(value, ".")
	if !ok {
		return nil
	}
	for i := range g.users {
		if u := &g.users[i]; !u.Token.IsZero() && hmac.Equal([]byte(sum), []byte(mac(u.Token, "session "+until))) && found == nil {
			found = u
		}
	}
	if end, err := strconv.ParseInt(until, 10, 64); err != nil || now.Unix() >= end {
		return nil
	}
	return found
}

func mac(token secret.String, what string) string {
	m := hmac.New(sha256.New, []byte(token.Reveal()))
	m.Write([]byte("tideover " + what))
	return hex.EncodeToString(m.Sum(nil))
}
