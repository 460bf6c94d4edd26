package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener in memory, because a goroutine that waits for a socket keeps the
// clock of a bubble from advancing.
type pipes struct {
	accepted chan net.Conn
	close    sync.Once
	closed   chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.accepted <- server
	return client, nil
}

// hasty serves a handler that gives each read and write 300 to 600 ms. It runs in a
// bubble.
func hasty(t *testing.T, h http.HandlerFunc) *pipes {
	t.Helper()
	p := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	s := &httptest.Server{Listener: p, Config: &http.Server{Handler: patient(h, 300*time.Millisecond), Protocols: new(http.Protocols)}}
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return p
}

// connect returns a connection without a client, and sends the text.
func (p *pipes) connect(t *testing.T, text string) net.Conn {
	t.Helper()
	c, _ := p.dial(t.Context(), "", "")
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

const address = "http://127.0.0.1"

// client speaks one protocol.
func (p *pipes) client(t *testing.T, two bool) *http.Client {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: p.dial}
	tr.Protocols.SetHTTP1(!two)
	tr.Protocols.SetUnencryptedHTTP2(two)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestSlowUploadsAndLongStreamsGetThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := hasty(t, func(w http.ResponseWriter, r *http.Request) {
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
		for _, two := range []bool{false, true} {
			body, in := io.Pipe()
			go func() {
				for range 5 {
					_, _ = io.WriteString(in, "a")
					time.Sleep(80 * time.Millisecond)
				}
				_ = in.Close()
			}()
			resp, err := s.client(t, two).Post(address, "text/plain", body)
			if err != nil {
				t.Fatalf("HTTP/2 %v: %v", two, err)
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || string(text) != strings.Repeat("aaaaa ", 5) {
				t.Errorf("HTTP/2 %v: %s %q, %v", two, resp.Status, text, err)
			}
		}
	})
}

func TestAStreamMayBeSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := hasty(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second) // more than any deadline that a write has
			_, _ = io.WriteString(w, "b")
		})
		for _, two := range []bool{false, true} {
			resp, err := s.client(t, two).Get(address)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || string(text) != "ab" {
				t.Errorf("HTTP/2 %v: %q, %v", two, text, err)
			}
		}
	})
}

func TestACallerThatSendsNothingMoreIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan error, 1)
		s := hasty(t, func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			failed <- err
		})
		s.connect(t, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
		if err := <-failed; err == nil {
			t.Error("the whole body was read, and there was none")
		}
	})
}

// A handler that refuses a request does not read its body. The server does, to keep
// the connection.
func TestACallerThatIsRefusedHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := hasty(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
		c := s.connect(t, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
		if text, err := io.ReadAll(c); err != nil {
			t.Errorf("read %q, %v, want the end", text, err)
		}
	})
}

func TestACallerThatTakesNothingIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan error, 1)
		s := hasty(t, func(w http.ResponseWriter, _ *http.Request) {
			piece := make([]byte, 1<<20)
			for range 1 << 10 {
				if _, err := w.Write(piece); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		})
		s.connect(t, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if err := <-failed; err == nil {
			t.Error("a gigabyte was written to somebody who reads nothing")
		}
	})
}
