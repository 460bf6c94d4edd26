package server

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/certtest"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
)

// saying returns a log without times, and its text.
func saying() (*slog.Logger, *bytes.Buffer) {
	var text bytes.Buffer
	return slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), &text
}

func overwrite(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestACertificateIsRenewed changes the files in the ways in which they are changed.
func TestACertificateIsRenewed(t *testing.T) {
	t.Parallel()
	a, dir, now := certtest.New(t), t.TempDir(), time.Now()
	logger, text := saying()
	var files config.ServerTLS
	files.Cert, files.Key = a.Issue(t, now.Add(time.Hour), "first").Write(t, dir)
	c, err := newCertificate(files, logger)
	if err != nil {
		t.Fatal(err)
	}
	second, third := a.Issue(t, now.Add(time.Hour), "second"), a.Issue(t, now.Add(time.Hour), "third")
	const loaded, stays = "level=INFO msg=\"certificate loaded\"", "level=ERROR msg=\"the certificate stays as it was\" error=\"server.tls."
	for _, step := range []struct {
		name   string
		change func()
		shows  string
		says   string // the beginning of the line; empty means none
	}{
		{"nothing", func() {}, "first", ""},
		{"the certificate is written", func() { overwrite(t, files.Cert, second.Cert) }, "first", ""},
		{"and then the key", func() { overwrite(t, files.Key, second.Key) }, "second", loaded},
		{"nothing again", func() {}, "second", ""},
		{"the key is written first", func() { overwrite(t, files.Key, third.Key) }, "second", ""},
		{"and the certificate does not come", func() {}, "second", stays + "key: " + files.Key + ": private key does not match public key\""},
		{"which is said once", func() {}, "second", ""},
		{"and then it does", func() { overwrite(t, files.Cert, third.Cert) }, "third", loaded},
		{"a file is gone", func() { _ = os.Remove(files.Cert) }, "third", ""},
		{"for long", func() {}, "third", stays + "cert: " + files.Cert + ": no such file or directory\""},
		{"both are gone", func() { _ = os.Remove(files.Key) }, "third", ""},
		{"the files are as they were", func() { third.Write(t, dir) }, "third", loaded},
		{"nothing at all", func() {}, "third", ""},
	} {
		text.Reset()
		step.change()
		c.look(now)
		pair, refused := c.shown()
		if pair.Leaf.VerifyHostname(step.shows) != nil {
			t.Errorf("%s: it shows %v, want %s", step.name, pair.Leaf.DNSNames, step.shows)
		}
		if got := text.String(); step.says == "" && got != "" || !strings.HasPrefix(got, step.says) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: it says %q, want %q", step.name, got, step.says)
		}
		if step.says == loaded && refused != nil {
			t.Errorf("%s: it is still refused: %v", step.name, refused)
		}
	}
}

func TestACertificateMustBeGoodAtTheStart(t *testing.T) {
	t.Parallel()
	logger, _ := saying()
	if _, err := newCertificate(config.ServerTLS{Cert: "/nowhere/a", Key: "/nowhere/b"}, logger); err == nil || !strings.Contains(err.Error(), "server.tls.key: /nowhere/b:") {
		t.Errorf("newCertificate = %v", err)
	}
}

// TestTheEndOfACertificateIsSaidDaily lets three days pass.
func TestTheEndOfACertificateIsSaidDaily(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var files config.ServerTLS
		a := certtest.New(t)
		files.Cert, files.Key = a.Issue(t, time.Now().Add(16*24*time.Hour), "a.example").Write(t, t.TempDir())
		logger, text := saying()
		c, err := newCertificate(files, logger)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		looks := 0
		go func() {
			done <- c.run(ctx, func() doctor.Door {
				looks++
				time.Sleep(time.Hour) // so that days have few looks
				pair, _ := c.shown()
				return doctor.Door{Certificate: pair.Leaf, Refused: fmt.Errorf("which is said elsewhere")}
			})
		}()
		time.Sleep(4*24*time.Hour + 12*time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := strings.Count(text.String(), "\n"); got != 3 || looks < 50 || strings.Count(text.String(), "the certificate ends in 1") != 3 {
			t.Errorf("%d lines in %d looks: %s", got, looks, text)
		}
	})
}

func TestThePageGoesByANameOfItsCertificate(t *testing.T) {
	t.Parallel()
	a := certtest.New(t)
	for _, c := range []struct {
		name, address string
		hosts         []string
		cert          string // "" means no TLS
		want          string
	}{
		{"as it is asked for", "127.0.0.1:7878", nil, "", "http://127.0.0.1:7878/"},
		{"version 6", "[::1]:7878", []string{"a.example"}, "", "http://[::1]:7878/"},
		{"all addresses", "0.0.0.0:80", []string{"a.example", "b.example"}, "", "http://a.example:80/"},
		{"all addresses, no name", "[::]:80", nil, "", "http://[::]:80/"},
		{"an address in the certificate", "127.0.0.1:7878", []string{"a.example"}, "127.0.0.1", "https://127.0.0.1:7878/"},
		{"localhost in the certificate", "127.0.0.1:7878", []string{"a.example"}, "localhost", "https://localhost:7878/"},
		{"a host in the certificate", "127.0.0.1:7878", []string{"a.example", "b.example"}, "b.example", "https://b.example:7878/"},
		{"a host of several", "0.0.0.0:443", []string{"a.example", "b.c.example"}, "*.c.example", "https://b.c.example:443/"},
		{"a name that nobody asks for", "127.0.0.1:7878", nil, "z.example", "https://127.0.0.1:7878/"},
	} {
		s := &server{cfg: &config.Config{Server: config.Server{Hosts: c.hosts}}}
		if c.cert != "" {
			var files config.ServerTLS
			files.Cert, files.Key = a.Issue(t, time.Now().Add(time.Hour), c.cert).Write(t, t.TempDir())
			var err error
			if s.certificate, err = newCertificate(files, slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
		}
		addr, err := net.ResolveTCPAddr("tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.publicAddress(addr); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestAHandshakeThatFailsIsNoNews(t *testing.T) {
	t.Parallel()
	to, text := saying()
	var rest bytes.Buffer
	l := complaints(to, log.New(&rest, "", 0))
	l.Print("http: TLS handshake error from 192.0.2.1:5: EOF")
	l.Print("http: panic serving 192.0.2.1:5: oops")
	if got, want := text.String()+rest.String(), "http: panic serving 192.0.2.1:5: oops\n"; got != want {
		t.Errorf("the log has %q, want %q", got, want)
	}
}
