package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The gateway can't tell a caller that closes its sending half from one that has
// disconnected, so it ends the request. The answer says so, whenever the server notices it.
func TestAHalfClosedCallerReadsWhyItsRequestEnds(t *testing.T) {
	u := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(u.Close)
	g, s := newSocketGateway(t, spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=3")))
	const requests = 50
	for i := range requests { // the server may notice it before or after the request is sent
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /p/it/%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", i)
		_ = c.(*net.TCPConn).CloseWrite()
		text, _ := io.ReadAll(c)
		_ = c.Close()
		if !strings.HasPrefix(string(text), "HTTP/1.1 499 ") || !strings.Contains(string(text), codeGone) {
			t.Fatalf("request %d: got %q, want 499", i, text)
		}
	}
	if n := totalsOf(t, g, "it"); n.Canceled != requests {
		t.Errorf("%d of %d requests count as canceled: %+v", n.Canceled, requests, n)
	}
}
