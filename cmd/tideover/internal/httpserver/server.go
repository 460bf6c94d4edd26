package httpserver

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/connlimit"
)

// writeTimeout is how long a response may take. Streams and long waits extend it as they go.
const writeTimeout = time.Minute

// NewServer returns a server for the handler, for any number of listeners. It records which
// connections come over a Unix socket (see [Local]), limits slow clients, and ends the contexts
// of [LongRequest] when it is shut down. It does not limit the time of whole requests, which
// costs a little for each: that is the task of [Timely].
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

// readTimeout is how long a request body may take to arrive.
const readTimeout = 30 * time.Second

// Timely limits how long every request of the handler may take to arrive and to be answered.
func Timely(h http.Handler) http.Handler { return TimelyWithin(h, readTimeout, writeTimeout) }

// TimelyWithin is [Timely] with other limits.
func TimelyWithin(h http.Handler, read, write time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.Body != nil && r.Body != http.NoBody {
			_ = rc.SetReadDeadline(time.Now().Add(read)) // not all writers have one
		}
		_ = rc.SetWriteDeadline(time.Now().Add(write))
		h.ServeHTTP(w, r)
	})
}

// LongRequest removes the deadlines of [Timely] from a request whose response may take as long
// as wait. The context that it returns ends with the request and with the server.
func LongRequest(w http.ResponseWriter, r *http.Request, wait time.Duration) (context.Context, context.CancelFunc) {
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
