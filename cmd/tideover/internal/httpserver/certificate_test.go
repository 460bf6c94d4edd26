package httpserver_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/certtest"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
)

// saying returns a logger that prints no times, and its output.
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

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// TestACertificateIsRenewed replaces the files of a certificate in different ways, and checks which
// certificate is in use and what is logged.
func TestACertificateIsRenewed(t *testing.T) {
	t.Parallel()
	a, dir, now := certtest.New(t), t.TempDir(), time.Now()
	logger, text := saying()
	var files config.ServerTLS
	files.Cert, files.Key = a.Issue(t, now.Add(time.Hour), "first").Write(t, dir)
	c, err := httpserver.NewCertificate(files, logger)
	if err != nil {
		t.Fatal(err)
	}
	second, third := a.Issue(t, now.Add(time.Hour), "second"), a.Issue(t, now.Add(time.Hour), "third")
	const loaded, stays = "level=INFO msg=\"certificate loaded\"", "level=ERROR msg=\"the certificate was not reloaded\" error=\"server.tls."
	for _, step := range []struct {
		name   string
		change func()
		shows  string
		says   string // beginning of the expected log line; empty means none
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
		{"both are gone", func() { _ = os.Remove(files.Key) }, "third", stays + "cert: " + files.Cert + ": no such file or directory\" more=1"},
		{"the files are as they were", func() { third.Write(t, dir) }, "third", loaded},
		{"nothing at all", func() {}, "third", ""},
		{"others can read the new key", func() { second.Write(t, dir); chmod(t, files.Key, 0o644) }, "third", ""},
		{"which is refused", func() {}, "third", stays + "key: " + files.Key + ": other users can read it"},
		{"only the mode changes", func() { chmod(t, files.Key, 0o600) }, "second", loaded},
	} {
		text.Reset()
		step.change()
		c.Poll(now)
		pair, refused := c.Current()
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
	if _, err := httpserver.NewCertificate(config.ServerTLS{Cert: "/nowhere/a", Key: "/nowhere/b"}, logger); err == nil || !strings.Contains(err.Error(), "server.tls.key: /nowhere/b:") {
		t.Errorf("NewCertificate = %v", err)
	}
}

// TestTheEndOfACertificateIsSaidDaily lets three days pass shortly before a certificate expires. The
// warning must be logged once a day.
func TestTheEndOfACertificateIsSaidDaily(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var files config.ServerTLS
		a := certtest.New(t)
		files.Cert, files.Key = a.Issue(t, time.Now().Add(16*24*time.Hour), "a.example").Write(t, t.TempDir())
		logger, text := saying()
		c, err := httpserver.NewCertificate(files, logger)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		looks := 0
		go func() {
			done <- c.Run(ctx, func() (list []httpserver.Warning) {
				looks++
				time.Sleep(time.Hour) // makes Run poll only once an hour, so that the test is fast
				pair, _ := c.Current()
				for _, f := range (doctor.Door{Certificate: pair.Leaf}).Check(time.Now()) {
					list = append(list, httpserver.Warning{What: f.What, Do: f.Do})
				}
				return list
			})
		}()
		time.Sleep(4*24*time.Hour + 12*time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := strings.Count(text.String(), "\n"); got != 3 || looks < 50 || strings.Count(text.String(), "the certificate expires in 1") != 3 {
			t.Errorf("%d lines in %d looks: %s", got, looks, text)
		}
	})
}
