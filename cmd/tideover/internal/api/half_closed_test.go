package api

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
)

// TestAHalfClosedClientGetsItsAnswer sends requests like `printf … | nc -N`: the client closes its
// sending half and then reads the answer.
func TestAHalfClosedClientGetsItsAnswer(t *testing.T) {
	t.Parallel()
	f := serve(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httpserver.NewServer(httpserver.Timely(New(newOptions(admin.Config{Engine: f.engine, Logger: quiet()}))))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-ended })
	for i := range 50 { // the server may be faster than the end of the request
		body := fmt.Sprintf(`{"workflow":"echo","key":"half-closed-%d","input":{}}`, i)
		for _, request := range []string{
			"POST /api/v1/runs HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: " + fmt.Sprint(len(body)),
			"GET /api/v1/runs HTTP/1.1",
			"GET /api/v1/status HTTP/1.1",
		} {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			text := request + "\r\nHost: localhost\r\nAuthorization: Bearer " + token + "\r\n\r\n"
			if strings.HasPrefix(request, "POST") {
				text += body
			}
			_, _ = c.Write([]byte(text))
			_ = c.(*net.TCPConn).CloseWrite()
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatalf("%s: %v", request, err)
			}
			if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusAccepted {
				t.Errorf("%.30s: %s", request, resp.Status)
			}
			_ = resp.Body.Close()
			_ = c.Close()
		}
	}
}
