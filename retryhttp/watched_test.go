package retryhttp_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/memnet"
	"github.com/tideover/tideover/retryhttp"
)

func TestE13StreamsArriveAsTheyAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := make(chan struct{}, 1)
		s := behindDeadline(t, retryhttp.DeadlineConfig{}, func(w http.ResponseWriter, _ *http.Request) {
			rc := http.NewResponseController(w)
			for i := range 3 {
				<-next
				fmt.Fprintf(w, "event %d\n", i)
				if err := rc.Flush(); err != nil {
					t.Errorf("Flush = %v", err)
				}
			}
		})
		next <- struct{}{}
		resp, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for i := range 3 {
			if !lines.Scan() || lines.Text() != fmt.Sprintf("event %d", i) {
				t.Fatalf("got %q, %v, want event %d", lines.Text(), lines.Err(), i)
			}
			next <- struct{}{} // not before the event has arrived
		}
	})
}

func TestG16UpgradesPassADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, hijack := range map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
			"by the interface": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() },
			"by the controller": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
				return http.NewResponseController(w).Hijack()
			},
		} {
			s := behindDeadline(t, retryhttp.DeadlineConfig{}, func(w http.ResponseWriter, r *http.Request) {
				c, rw, err := hijack(w)
				if err != nil {
					t.Errorf("%s: Hijack = %v", name, err)
					return
				}
				defer c.Close()
				rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
				rw.Flush()
				<-r.Context().Done() // nothing may be written to the connection now
				line, _ := rw.ReadString('\n')
				rw.WriteString("echo " + line)
				rw.Flush()
			})
			c, err := memnet.Dial(t.Context(), "tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Request-Timeout-Ms: 15\r\n\r\nhello\n")
			all, err := io.ReadAll(c)
			c.Close()
			if err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 101 ") || !strings.HasSuffix(string(all), "\r\n\r\necho hello\n") {
				t.Errorf("%s: got %q, %v", name, all, err)
			}
		}
	})
}

func TestE13ResponseControllerWorks(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		d, err := retryhttp.NewDeadline(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			rc := http.NewResponseController(w)
			err := errors.Join(rc.SetReadDeadline(time.Now().Add(time.Minute)), rc.SetWriteDeadline(time.Now().Add(time.Minute)), rc.EnableFullDuplex())
			c, _, refused := rc.Hijack()
			if http2 != errors.Is(refused, http.ErrNotSupported) {
				err = errors.Join(err, fmt.Errorf("Hijack = %v", refused))
			}
			if c != nil {
				c.Close()
			}
			if err != nil {
				t.Errorf("HTTP/2 %v: %v", http2, err)
			}
		}), retryhttp.DeadlineConfig{})
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(d)
		s.EnableHTTP2 = http2
		s.StartTLS()
		resp, err := s.Client().Get(s.URL)
		if http2 && (err != nil || resp.StatusCode != 200 || resp.ProtoMajor != 2) {
			t.Errorf("after a Hijack that is not possible: %v, %v", resp, err)
		}
		if err == nil {
			resp.Body.Close()
		}
		s.Close()
	}
}

func TestE13FilesAreSentAsFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := pattern(1 << 20)
		path := t.TempDir() + "/file"
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := behindDeadline(t, retryhttp.DeadlineConfig{}, func(w http.ResponseWriter, r *http.Request) {
			if _, ok := w.(io.ReaderFrom); !ok {
				t.Error("the writer has no ReadFrom")
			}
			http.ServeFile(w, r, path)
		})
		if resp, body := ask(t, s, "X-Other: 1"); resp.StatusCode != 200 || body != string(data) || resp.ContentLength != 1<<20 {
			t.Errorf("%s with %d bytes", resp.Status, len(body))
		}
	})
}
