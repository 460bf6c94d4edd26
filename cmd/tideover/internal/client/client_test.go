package client

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/secret"
)

func TestTargets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, flag string
		env        map[string]string
		want, bad  string
	}{
		{"the state folder", "", map[string]string{"XDG_STATE_HOME": "/state", "HOME": "/h"}, "/state/tideover/tideover.sock", ""},
		{"a relative one does not count", "", map[string]string{"XDG_STATE_HOME": "state", "HOME": "/h"}, "/h/.local/state/tideover/tideover.sock", ""},
		{"the home folder", "", map[string]string{"HOME": "/h"}, "/h/.local/state/tideover/tideover.sock", ""},
		{"no folder at all", "", nil, "", "HOME is not set"},
		{"the variable", "", map[string]string{ServerVar: "unix:/x", "HOME": "/h"}, "/x", ""},
		{"the flag counts more", "http://127.0.0.1:1/", map[string]string{ServerVar: "unix:/x"}, "http://127.0.0.1:1", ""},
		{"the form of addresses", "unix:///x", nil, "/x", ""},
		{"no path", "unix:", nil, "", "the path of the socket is missing"},
		{"no scheme", "127.0.0.1:7878", nil, "", "must be unix:"},
		{"another scheme", "ftp://x", nil, "", "must be unix:"},
		{"a path", "http://x/y", nil, "", "must be unix:"},
		{"a password", "http://u:p@x", nil, "", "must be unix:"},
	} {
		target, err := TargetOf(c.flag, func(name string) string { return c.env[name] })
		var client *Client
		if err == nil {
			client, err = Dial(target)
		}
		switch {
		case c.bad != "":
			if err == nil || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%s: %v, want %q", c.name, err, c.bad)
			}
		case err != nil || client.Where() != c.want:
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

func TestAServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	for _, server := range []string{"unix:" + path, "http://" + l.Addr().String()} {
		c, err := Dial(Target{Server: server})
		if err != nil {
			t.Fatal(err)
		}
		want := "no tideover serve at " + c.Where() + ": start one with `tideover serve`, or name another with --server"
		for name, ask := range map[string]func() error{
			"status": func() error { _, err := c.Status(t.Context()); return err },
			"result": func() error { _, err := c.Result(t.Context(), "x"); return err },
			"follow": func() error { _, err := c.Follow(t.Context(), "x", nil); return err },
			"events": func() error { return c.Events(t.Context(), EventFilter{}, nil, nil) },
		} {
			if err := ask(); err == nil || err.Error() != want {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
		}
	}
}

func TestAServerThatIsAnother(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	c, _ := Dial(Target{Server: "http://" + l.Addr().String(), Token: secret.New("a token")})
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "does not look like tideover") {
		t.Errorf("status: %v", err)
	}
	c.Close()
	_ = s.Shutdown(context.Background())
	<-done
	if len(asked) != 1 {
		t.Errorf("asked for %q: the token went elsewhere", asked)
	}
}
