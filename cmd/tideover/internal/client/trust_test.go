package client

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/certtest"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
)

// overTLS starts a TLS server whose certificate expires at the time until, and returns its address. It
// answers every request as a health check.
func overTLS(t *testing.T, a *certtest.Authority, until time.Time, names ...string) string {
	t.Helper()
	p := a.Issue(t, until, names...)
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(httpserver.APIHeader, "1")
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "https://")
}

func TestServersWithTLS(t *testing.T) {
	t.Parallel()
	a := certtest.New(t)
	good, old, other := overTLS(t, a, time.Now().Add(time.Hour), "127.0.0.1"), overTLS(t, a, time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC), "127.0.0.1"), overTLS(t, a, time.Now().Add(time.Hour), "box.example")
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for _, c := range []struct{ name, server, ca, want string }{
		{"one that is known", "https://" + good, a.File, ""},
		{"an authority that is not known", "https://" + good, "", "https://" + good + ": its certificate is from an authority that is not known here: set TIDEOVER_CA to"},
		{"without TLS", "http://" + good, a.File, "http://" + good + ": the server speaks TLS: write https:// in place of http://"},
		{"TLS where there is none", "https://" + plain.Listener.Addr().String(), a.File, "the server does not speak TLS: write http:// in place of https://"},
		{"one that has expired", "https://" + old, a.File, "its certificate is valid from 2019-11-05 04:05 UTC to 2020-02-03 04:05 UTC: renew it, or set the clock"},
		{"another name", "https://" + other, a.File, "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs: use a name of its certificate in --server"},
	} {
		target, err := TargetOf(c.server, func(name string) string { return map[string]string{CAVar: c.ca}[name] })
		if err != nil {
			t.Fatal(err)
		}
		client, err := Dial(target)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		for name, ask := range map[string]func() error{
			"healthy": func() error { _, err := client.Healthy(t.Context()); return err },
			"follow":  func() error { _, err := client.Follow(t.Context(), "x", nil); return err },
		} {
			if c.want == "" && name == "follow" {
				continue // the test server has no event stream
			}
			err := ask()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s: %v, want %q", c.name, name, err, c.want)
			}
		}
	}
}

func TestAuthoritiesThatCantBeRead(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{empty: "TIDEOVER_CA: there is no certificate in " + empty, empty + "x": "TIDEOVER_CA: open " + empty + "x"} {
		env := func(name string) string { return map[string]string{CAVar: path}[name] }
		if _, err := TargetOf("https://box.example", env); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
		if _, err := TargetOf("http://127.0.0.1:1", env); err != nil {
			t.Errorf("without TLS it is not needed: %v", err)
		}
	}
}
