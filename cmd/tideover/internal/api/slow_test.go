package api

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
)

// TestIncompleteBodyTimesOut sends half of a body, with the right token and with a wrong one. The
// server closes both connections.
func TestIncompleteBodyTimesOut(t *testing.T) {
	t.Parallel()
	f := serve(t)
	o := newOptions(admin.Config{Engine: f.engine, Logger: quiet()})
	page := httpserver.Guard(o.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			http.Error(w, "late", http.StatusRequestTimeout)
		}
	}))
	for name, h := range map[string]http.Handler{"the API": New(o), "a page": page} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := httpserver.NewServer(httpserver.TimelyWithin(h, 200*time.Millisecond, time.Minute))
		ended := make(chan struct{})
		go func() { defer close(ended); _ = s.Serve(l) }()
		for _, who := range []string{token, "wrong token"} {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = fmt.Fprintf(c, "POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{", who)
			text, err := io.ReadAll(c) // returns when the server closes the connection
			t.Logf("%s, asked by %s: read %q, %v", name, who, text, err)
			_ = c.Close()
		}
		_ = s.Close()
		<-ended
	}
}

func TestTheServerHasLimits(t *testing.T) {
	t.Parallel()
	s := httpserver.NewServer(http.NotFoundHandler())
	if s.ReadHeaderTimeout <= 0 || s.ReadHeaderTimeout > 10*time.Second || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= 0 || s.MaxHeaderBytes > 64<<10 {
		t.Errorf("headers within %v, %d bytes of them, idle for %v", s.ReadHeaderTimeout, s.MaxHeaderBytes, s.IdleTimeout)
	}
}
