package httpserver

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/memnet"
)

// startServer starts a server with a [ProgressTimeout] of 300 ms, so that a read or write
// may take 300 to 600 ms. It must be called in a synctest bubble.
func startServer(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := memnet.NewUnstartedServer(ProgressTimeout(h, 300*time.Millisecond))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// connect opens a raw connection to the server, and sends the text.
func connect(t *testing.T, s *httptest.Server, text string) net.Conn {
	t.Helper()
	c, err := memnet.Dial(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// newClient returns a client that speaks HTTP/1.1 or HTTP/2.
func newClient(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: memnet.Dial}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestSlowUploadsAndLongStreamsGetThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			for range 5 {
				fmt.Fprintf(w, "%s ", b)
				_ = http.NewResponseController(w).Flush()
				time.Sleep(80 * time.Millisecond)
			}
		})
		for _, http2 := range []bool{false, true} {
			body, in := io.Pipe()
			go func() {
				for range 5 {
					_, _ = io.WriteString(in, "a")
					time.Sleep(80 * time.Millisecond)
				}
				_ = in.Close()
			}()
			resp, err := newClient(t, http2).Post(s.URL, "text/plain", body)
			if err != nil {
				t.Fatalf("HTTP/2 %v: %v", http2, err)
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || string(text) != strings.Repeat("aaaaa ", 5) {
				t.Errorf("HTTP/2 %v: %s %q, %v", http2, resp.Status, text, err)
			}
		}
	})
}

func TestAStreamMayBeSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second) // longer than the deadline of any write
			_, _ = io.WriteString(w, "b")
		})
		for _, http2 := range []bool{false, true} {
			resp, err := newClient(t, http2).Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || string(text) != "ab" {
				t.Errorf("HTTP/2 %v: %q, %v", http2, text, err)
			}
		}
	})
}

func TestACallerThatSendsNothingMoreIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan error, 1)
		s := startServer(t, func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			failed <- err
		})
		connect(t, s, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
		if err := <-failed; err == nil {
			t.Error("the whole body was read, and there was none")
		}
	})
}

// A handler that rejects a request may not read its body. net/http then reads the rest, to
// keep the connection; a client that sends nothing must not block that forever.
func TestACallerThatIsRefusedHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
		c := connect(t, s, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
		if text, err := io.ReadAll(c); err != nil {
			t.Errorf("read %q, %v, want the end", text, err)
		}
	})
}

func TestACallerThatTakesNothingIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan error, 1)
		s := startServer(t, func(w http.ResponseWriter, _ *http.Request) {
			piece := make([]byte, 1<<20)
			for range 1 << 10 {
				if _, err := w.Write(piece); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		})
		connect(t, s, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if err := <-failed; err == nil {
			t.Error("a gigabyte was written to a client that reads nothing")
		}
	})
}

// A transport that forwards the body may still read it after the handler has returned, since
// HTTP/2 can answer before the whole request has arrived. Setting a deadline would panic then.
func TestABodyMayBeReadAfterTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answered, read := make(chan struct{}), make(chan any)
		s := startServer(t, func(w http.ResponseWriter, r *http.Request) {
			go func() {
				defer func() { read <- recover() }()
				<-answered
				_, _ = r.Body.Read(make([]byte, 1))
			}()
			w.WriteHeader(http.StatusOK)
		})
		body, end := io.Pipe()
		defer end.Close()
		resp, err := newClient(t, true).Post(s.URL, "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		close(answered)
		if failure := <-read; failure != nil {
			t.Errorf("reading the body after the answer panicked: %v", failure)
		}
	})
}
