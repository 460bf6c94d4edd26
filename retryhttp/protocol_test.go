package retryhttp_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

func TestG16UpgradeReturnsTheRawConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addr := listen(t, func(_ int, c net.Conn) {
			r := bufio.NewReader(c)
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			time.Sleep(80 * time.Millisecond) // longer than the timeout
			_, _ = io.Copy(c, r)
		})
		for _, policy := range []string{quick, quick + " attempt-timeout=50ms"} {
			g := newRig(t, policy)
			req := request(t, "GET", "http://"+addr, nil)
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "echo")
			resp, err := g.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			conn, ok := resp.Body.(io.ReadWriteCloser)
			if !ok || resp.StatusCode != 101 {
				t.Fatalf("%s: %s with a body of type %T, want an io.ReadWriteCloser", policy, resp.Status, resp.Body)
			}
			_, _ = io.WriteString(conn, "hello")
			if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Errorf("%s: CloseWrite = %v", policy, err)
			}
			if echo, err := io.ReadAll(conn); string(echo) != "hello" || err != nil {
				t.Errorf("%s: echo %q, %v", policy, echo, err)
			}
			_ = conn.Close()
		}
	})
}

func TestG16TrailersBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			got = append(got, r.Trailer.Get("X-Late"))
			w.Header().Set("Trailer", "X-Sum")
			if len(got) == 1 {
				w.WriteHeader(503)
			}
			_, _ = io.WriteString(w, "x")
			w.Header().Set("X-Sum", "1")
		})
		g := newRig(t, quick)
		req := request(t, "PUT", s.URL, nil)
		req.Trailer = http.Header{"X-Late": nil}
		req.Body = track(io.MultiReader(strings.NewReader("x"), readerFunc(func([]byte) (int, error) {
			req.Trailer.Set("X-Late", "known at the end")
			return 0, io.EOF
		})))
		resp, _ := g.send(t, req)
		if want := []string{"known at the end", "known at the end"}; !slices.Equal(got, want) || resp.Trailer.Get("X-Sum") != "1" {
			t.Errorf("the server got trailers %q, the client %v", got, resp.Trailer)
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestB8RedirectLoopIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, answer{302, "Location: /again", ""})
		client := &http.Client{Transport: newRig(t, quick)}
		resp, err := client.Get(s.URL)
		if err == nil || s.asked() != 10 {
			t.Errorf("Get = %v after %d requests, want an error after the client's 10", err, s.asked())
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
	})
}

func TestG16HTTP2(t *testing.T) {
	n := 0
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if n++; n < 3 {
			w.WriteHeader(503)
		}
		_, _ = io.WriteString(w, r.Proto+" "+string(b))
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	for _, policy := range []string{quick, quick + " attempt-timeout=1m"} {
		n = 0
		p, _ := retry.Parse(policy)
		tr, err := retryhttp.New(p, s.Client().Transport)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(request(t, "PUT", s.URL, track(strings.NewReader("hello"))))
		if err != nil {
			t.Fatal(err)
		}
		if body := read(t, resp); body != "HTTP/2.0 hello" || n != 3 {
			t.Errorf("%s: %q after %d requests", policy, body, n)
		}
	}
}

// TestG16RefusedStreamIsNotOurs has a server that refuses the first stream of HTTP/2.
// net/http itself repeats the request, because there is a GetBody.
func TestG16RefusedStreamIsNotOurs(t *testing.T) {
	streams := make(chan uint32, 10)
	l, err := net.Listen("tcp", "127.0.0.1:0") // both sides write at the same time, which needs the buffers of a real socket
	if err != nil {
		t.Fatal(err)
	}
	addr := serveRaw(t, l, func(_ int, c net.Conn) {
		_, _ = io.CopyN(io.Discard, c, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
		_, _ = c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // SETTINGS
		for {
			var h [9]byte
			if _, err := io.ReadFull(c, h[:]); err != nil {
				return
			}
			_, _ = io.CopyN(io.Discard, c, int64(h[0])<<16|int64(h[1])<<8|int64(h[2]))
			switch id := h[5:9]; {
			case h[3] == 4 && h[4] == 0: // SETTINGS
				_, _ = c.Write([]byte{0, 0, 0, 4, 1, 0, 0, 0, 0})
			case h[3] == 1 && len(streams) == 0: // the first HEADERS
				streams <- uint32(id[3])
				_, _ = c.Write(append(append([]byte{0, 0, 4, 3, 0}, id...), 0, 0, 0, 7)) // REFUSED_STREAM
			case h[3] == 1:
				streams <- uint32(id[3])
				_, _ = c.Write(append(append([]byte{0, 0, 1, 1, 5}, id...), 0x88)) // :status 200
			}
		}
	})
	g := newRig(t, quick)
	g.net.DialContext = nil // use a real socket
	g.net.Protocols.SetHTTP1(false)
	g.net.Protocols.SetUnencryptedHTTP2(true)
	resp, _ := g.send(t, request(t, "POST", "http://"+addr, track(strings.NewReader("hello"))))
	if resp.StatusCode != 200 || len(streams) != 2 || g.count(retry.Waiting) != 0 {
		t.Errorf("%s after %d streams and %d retries of ours, want 200 after 2 and 0", resp.Status, len(streams), g.count(retry.Waiting))
	}
	g.net.CloseIdleConnections()
}
