package server

import (
	"bytes"
	"log"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/certtest"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
)

// newTextLog returns a logger that prints no times, and its output.
func newTextLog() (*slog.Logger, *bytes.Buffer) {
	var text bytes.Buffer
	return slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), &text
}

func TestPublicURLUsesANameInTheCertificate(t *testing.T) {
	t.Parallel()
	a := certtest.New(t)
	for _, c := range []struct {
		name, address string
		hosts         []string
		cert          string // "" means no TLS
		want          string
	}{
		{"the address itself", "127.0.0.1:7878", nil, "", "http://127.0.0.1:7878/"},
		{"IPv6", "[::1]:7878", []string{"a.example"}, "", "http://[::1]:7878/"},
		{"all addresses", "0.0.0.0:80", []string{"a.example", "b.example"}, "", "http://a.example:80/"},
		{"all addresses, no name", "[::]:80", nil, "", "http://[::]:80/"},
		{"an address in the certificate", "127.0.0.1:7878", []string{"a.example"}, "127.0.0.1", "https://127.0.0.1:7878/"},
		{"localhost in the certificate", "127.0.0.1:7878", []string{"a.example"}, "localhost", "https://localhost:7878/"},
		{"a host in the certificate", "127.0.0.1:7878", []string{"a.example", "b.example"}, "b.example", "https://b.example:7878/"},
		{"a host of several", "0.0.0.0:443", []string{"a.example", "b.c.example"}, "*.c.example", "https://b.c.example:443/"},
		{"a name in the certificate that is not configured", "127.0.0.1:7878", nil, "z.example", "https://127.0.0.1:7878/"},
	} {
		addresses := &addresses{cfg: &config.Config{Server: config.Server{Hosts: c.hosts}}}
		if c.cert != "" {
			var files config.ServerTLS
			files.Cert, files.Key = a.Issue(t, time.Now().Add(time.Hour), c.cert).Write(t, t.TempDir())
			var err error
			if addresses.certificate, err = httpserver.NewCertificate(files, slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
		}
		addr, err := net.ResolveTCPAddr("tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		if got := addresses.publicURL(addr); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestFailedHandshakesAreNotLogged(t *testing.T) {
	t.Parallel()
	debug, text := newTextLog()
	var rest bytes.Buffer
	l := newErrorLog(debug, log.New(&rest, "", 0))
	l.Print("http: TLS handshake error from 192.0.2.1:5: EOF")
	l.Print("http: panic serving 192.0.2.1:5: oops")
	if got, want := text.String()+rest.String(), "http: panic serving 192.0.2.1:5: oops\n"; got != want {
		t.Errorf("the log has %q, want %q", got, want)
	}
}
