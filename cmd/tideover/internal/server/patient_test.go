package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// hasty is a server whose limits are short.
func hasty(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(patient(h, 300*time.Millisecond))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// client speaks one protocol.
func client(t *testing.T, two bool) *http.Client {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!two)
	tr.Protocols.SetUnencryptedHTTP2(two)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestSlowUploadsAndLongStreamsGetThrough(t *testing.T) {
	t.Parallel()
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
		resp, err := client(t, two).Post(s.URL, "text/plain", body)
		if err != nil {
			t.Fatalf("HTTP/2 %v: %v", two, err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(text) != strings.Repeat("aaaaa ", 5) {
			t.Errorf("HTTP/2 %v: %s %q, %v", two, resp.Status, text, err)
		}
	}
}

func TestAStreamMayBeSilent(t *testing.T) {
	t.Parallel()
	s := hasty(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Second) // more than any deadline that a write has
		_, _ = io.WriteString(w, "b")
	})
	for _, two := range []bool{false, true} {
		resp, err := client(t, two).Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(text) != "ab" {
			t.Errorf("HTTP/2 %v: %q, %v", two, text, err)
		}
	}
}

func TestACallerThatSendsNothingMoreIsGone(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	s := hasty(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		failed <- err
	})
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
	if err := <-failed; err == nil {
		t.Error("the whole body was read, and there was none")
	}
}

// A handler that refuses a request does not read its body. The server does, to keep
// the connection.
func TestACallerThatIsRefusedHoldsNothing(t *testing.T) {
	t.Parallel()
	s := hasty(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
	if text, err := io.ReadAll(c); err != nil {
		t.Errorf("read %q, %v, want the end", text, err)
	}
}

func TestACallerThatTakesNothingIsGone(t *testing.T) {
	t.Parallel()
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
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if err := <-failed; err == nil {
		t.Error("a gigabyte was written to somebody who reads nothing")
	}
}
