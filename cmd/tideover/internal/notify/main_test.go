package notify_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/internal/secret"
)

// at is the time of all messages.
var at = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func message() notify.Message {
	return notify.Message{
		ID: "0123456789abcdef", Event: notify.GaveUp, Subject: "nightly", Title: "nightly gave up",
		Text: "5 attempts in 42m; last: exit code 1", Run: "01K9", Step: "fetch", Attempt: 5, Attempts: 8, Reason: "attempts",
		Line: "exit code 1", URL: "http://127.0.0.1:7878/runs/01K9", Time: at, Host: "box",
	}
}

// load returns the notifier that a line of YAML configures.
func load(t testing.TB, yaml string, environ ...string) (*notify.Spec, notify.Env) {
	t.Helper()
	red := new(secret.Redactor)
	cfg, err := config.Load(config.Source{
		Path: filepath.Join(t.TempDir(), "tideover.yaml"), Data: []byte("version: 1\nnotify:\n  phone: " + yaml + "\n"),
		Environ: append([]string{"HOME=/home/me"}, environ...), Redactor: red,
	})
	if err != nil {
		t.Fatal(err)
	}
	n := cfg.Notifiers["phone"]
	if !strings.Contains(yaml, "timeout: ") {
		n.Timeout = time.Hour // the default is too short for a slow machine
	}
	return n, notify.Env{Secrets: cfg.Secrets()}
}

// sender returns the sender of the notifier that a line of YAML configures.
func sender(t testing.TB, yaml string, environ ...string) *notify.Sender {
	t.Helper()
	n, env := load(t, yaml, environ...)
	return open(t, n, env)
}

func open(t testing.TB, n *notify.Spec, env notify.Env) *notify.Sender {
	t.Helper()
	s, err := notify.New(n, env)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func send(s *notify.Sender) error { return s.Send(context.Background(), message()) }

// wantError checks that the error contains the parts and no secret.
func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("Send = nil, want an error")
	}
	if strings.Contains(fmt.Sprintf("%v %+v %#v %q", err, err, err, err), "PLANTED") {
		t.Errorf("a secret is in the error: %v", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("Send = %v, want %q in it", err, part)
		}
	}
}
