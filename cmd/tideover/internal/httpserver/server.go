package httpserver

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/connlimit"
)

// writeTimeout is the default limit for writing a response. Streams and long waits extend it.
const writeTimeout = time.Minute

// NewServer returns a server that can serve several listeners. It records which connections come
// over a Unix socket (see [Local]), limits the time for reading headers, and ends the contexts of
// [LongRequest] when it shuts down. It does not limit the time of whole requests; use [Timely] for
// the handlers that need it, since it costs time for each request.
func NewServer(h http.Handler) *http.Server {
	stopping, stop := context.WithCancel(context.Background())
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnState:         connlimit.ConnState,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			ctx = context.WithValue(ctx, stoppingKey, stopping)
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn()
			}
			if c.LocalAddr().Network() == "unix" {
				ctx = context.WithValue(ctx, localKey, true)
			}
			return ctx
		},
	}
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true) // for callers on this machine, which use no TLS
	s.RegisterOnShutdown(stop)
	return s
}

// readTimeout is how long a request body may take to arrive.
const readTimeout = 30 * time.Second

// Timely returns a handler that limits how long a request body may take to arrive (30 s), and how
// long the response may take (1 min). A client that closes its sending half gets its answer: the
// context of the request continues for as long as the response may take. net/http ends it at once,
// because it can't tell such a client from one that has disconnected.
func Timely(h http.Handler) http.Handler { return TimelyWithin(h, readTimeout, writeTimeout) }

// TimelyWithin is like [Timely], but with the given limits.
func TimelyWithin(h http.Handler, read, write time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.Body != nil && r.Body != http.NoBody {
			_ = rc.SetReadDeadline(time.Now().Add(read)) // not all writers support deadlines
		}
		_ = rc.SetWriteDeadline(time.Now().Add(write))
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
		defer cancel()
		stop := context.AfterFunc(r.Context(), func() { time.AfterFunc(write, cancel) })
		defer stop()
		h.ServeHTTP(w, r.WithContext(context.WithValue(ctx, connectionKey, r.Context())))
	})
}

// LongRequest replaces the deadlines of [Timely] for a handler that may take as long as wait to
// answer: it removes the read deadline, and moves the write deadline to wait plus one minute from
// now. The context that it returns ends when the client disconnects or closes its sending half, and
// when the server shuts down.
func LongRequest(w http.ResponseWriter, r *http.Request, wait time.Duration) (context.Context, context.CancelFunc) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // not all writers support deadlines
	_ = rc.SetWriteDeadline(time.Now().Add(wait + writeTimeout))
	ctx, cancel := context.WithCancel(r.Context())
	var undo []func() bool
	for _, key := range []contextKey{connectionKey, stoppingKey} {
		if other, ok := ctx.Value(key).(context.Context); ok {
			undo = append(undo, context.AfterFunc(other, cancel))
		}
	}
	return ctx, func() {
		for _, f := range undo {
			f()
		}
		cancel()
	}
}
