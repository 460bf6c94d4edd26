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
