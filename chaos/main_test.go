package chaos

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
)

// TestMain fails if the tests leak a goroutine of this package.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if left := testwait.Goroutines("tideover/chaos.", "net/http.("); left != "" {
			fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
			code = 1
		}
	}
	os.Exit(code)
}

// serve starts a server that is closed at the end of the test.
func serve(t *testing.T, spec string, opts ...Option) *Server {
	t.Helper()
	parsed, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(parsed, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// The protocols of a client.
const (
	http1  = "HTTP/1.1"
	http1s = "HTTP/1.1 over TLS"
	h2c    = "HTTP/2 without TLS"
	h2     = "HTTP/2"
)

// client returns a client of the server that uses only this protocol.
func client(t *testing.T, s *Server, proto string) *http.Client {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols), MaxResponseHeaderBytes: 64 << 10}
	tr.Protocols.SetHTTP1(proto == http1 || proto == http1s)
	tr.Protocols.SetHTTP2(proto == h2)
	tr.Protocols.SetUnencryptedHTTP2(proto == h2c)
	if cert := s.Certificate(); cert != nil {
		tr.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
		tr.TLSClientConfig.RootCAs.AddCert(cert)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// spy is a connection that records its error, because an error is returned only once, to
// the first reader or writer.
type spy struct {
	net.Conn
	failed func(error)
}

// Read implements [net.Conn].
func (s spy) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.failed(err)
	return n, err
}

// Write implements [net.Conn].
func (s spy) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	s.failed(err)
	return n, err
}

// resets counts the connections of a client that end with a TCP RST.
func resets(c *http.Client) *atomic.Int32 {
	n := new(atomic.Int32)
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return spy{conn, func(err error) {
			if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
				n.Add(1)
			}
		}}, nil
	}
	return n
}

// serveProto starts a server for the protocol, and returns a client for it.
func serveProto(t *testing.T, proto, spec string) (*Server, *http.Client) {
	t.Helper()
	var opts []Option
	if proto == http1s || proto == h2 {
		opts = append(opts, WithTLS())
	}
	s := serve(t, spec, opts...)
	return s, client(t, s, proto)
}

// do makes a request and reads as much of the answer as it can.
func do(t *testing.T, c *http.Client, method, url, body string, headers ...string) (*http.Response, string, error) {
	t.Helper()
	return doWith(t.Context(), t, c, method, url, body, headers...)
}

func doWith(ctx context.Context, t *testing.T, c *http.Client, method, url, body string, headers ...string) (*http.Response, string, error) {
	t.Helper()
	var r io.Reader = http.NoBody
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, r)
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody = nil // so that the client does not repeat the request by itself
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

// get makes a GET request, and fails the test if there is no answer.
func get(t *testing.T, s *Server, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	resp, text, err := do(t, client(t, s, http1), http.MethodGet, s.URL()+path, "", headers...)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return resp, text
}

// wire is a raw connection to a server.
type wire struct {
	*net.TCPConn
	t *testing.T
	r *bufio.Reader
}

func dial(t *testing.T, s *Server) *wire {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &wire{c.(*net.TCPConn), t, bufio.NewReader(c)}
}

func (w *wire) send(text string) {
	w.t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		w.t.Fatalf("sending %.40q: %v", text, err)
	}
}

const getRequest = "GET /x HTTP/1.1\r\nHost: chaos\r\n\r\n"

// rest reads until the connection ends.
func (w *wire) rest() (string, error) {
	text, err := io.ReadAll(w.r)
	return string(text), err
}

// answer reads one response.
func (w *wire) answer() (*http.Response, string) {
	w.t.Helper()
	resp, err := http.ReadResponse(w.r, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(text)
}
