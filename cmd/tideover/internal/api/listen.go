package api

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/connlimit"
)

// writeTimeout is how long an answer may take. Streams and long waits set their
// own, again and again.
const writeTimeout = time.Minute

// NewServer returns a server for the handler, for any number of listeners. It
// knows which connections come over a unix socket, has limits for clients that
// are slow, and ends streams when it is shut down. Limits on the time of whole
// requests cost a little for each of them, and are left to [Timely].
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
	s.Protocols.SetUnencryptedHTTP2(true) // callers on this machine have no TLS
	s.RegisterOnShutdown(stop)
	return s
}

// readTimeout is how long a request may take to come in.
const readTimeout = 30 * time.Second

// Timely gives every request of the handler its time: to come in, and to be
// answered.
func Timely(h http.Handler) http.Handler { return timely(h, readTimeout, writeTimeout) }

func timely(h http.Handler, read, write time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.Body != nil && r.Body != http.NoBody {
			_ = rc.SetReadDeadline(time.Now().Add(read)) // not all writers have one
		}
		_ = rc.SetWriteDeadline(time.Now().Add(write))
		h.ServeHTTP(w, r)
	})
}

// patient returns the request's context, which ends when the server is shut down
// too, and lifts the deadlines that are for answers which come at once.
func patient(w http.ResponseWriter, r *http.Request, wait time.Duration) (context.Context, context.CancelFunc) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // not all writers have one
	_ = rc.SetWriteDeadline(time.Now().Add(wait + writeTimeout))
	ctx, cancel := context.WithCancel(r.Context())
	if stopping, ok := r.Context().Value(stoppingKey).(context.Context); ok {
		undo := context.AfterFunc(stopping, cancel)
		return ctx, func() { undo(); cancel() }
	}
	return ctx, cancel
}
