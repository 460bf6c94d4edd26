package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

func TestTransientErrorsAreRetried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		wait bool
	}{
		"no server answers":       {&retry.Error{Reason: retry.StopTotalTimeout, Last: errors.New("no servers")}, true},
		"an attempt was cut off":  {fmt.Errorf("open log: %w", &retry.Error{Reason: retry.StopDeadline}), true},
		"it was refused":          {retry.Permanent(errors.New("authorization violation")), false},
		"it was refused, wrapped": {&retry.Error{Reason: retry.StopPermanent, Last: errors.New("authorization violation")}, false},
		"it is wrong":             {errors.New("shards: cluster a has 4, not 8"), false},
	} {
		if got := outcome(c.err).Class != retry.ClassPermanent; got != c.wait {
			t.Errorf("%s: waits %v", name, got)
		}
	}
}

// options returns the options of a cluster, and a function that returns the log so far. No
// server listens at the address.
func options(t *testing.T, address string) (o Options, log func() string) {
	t.Helper()
	parsed, err := template.Parse(address, template.WithRefs, template.Fields{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := &Config{Name: jetstream.DefaultName, NATS: []*template.SecretText{template.NewSecretText(parsed, "/")}}
	secrets := secret.Resolver{LookupEnv: func(string) (string, bool) { return "PLANTED", true }}
	var mu sync.Mutex
	var text bytes.Buffer
	w := writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return text.Write(p)
	})
	redact := func(s string) string { return strings.ReplaceAll(s, "PLANTED", "***") }
	return Options{Config: cfg, Secrets: secrets, Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(w, nil)), Redact: redact}, func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestJoinWaitsUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	o, log := options(t, "nats://me:${env:PW}@127.0.0.1:1")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := Join(ctx, o)
		done <- err
	}()
	testwait.Until(t, "the log says that it waits", func() bool {
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		return strings.Contains(log(), "the cluster can't be joined yet; waiting for NATS")
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Join = %v", err)
	}
	// Usually the connection is refused. Just before the deadline of an attempt, the dial times out.
	if text := log(); strings.Contains(text, "PLANTED") || !strings.Contains(text, "connect to NATS at 127.0.0.1:1: ") || !strings.Contains(text, "dial tcp 127.0.0.1:1: ") {
		t.Errorf("the log says %s", text)
	}
}

func TestPermanentErrorsAreNotRetried(t *testing.T) {
	t.Parallel()
	o, _ := options(t, "127.0.0.1:1")
	o.Config.Name = "Not A Name"
	for name, do := range map[string]func(context.Context, Options) error{
		"join":    func(ctx context.Context, o Options) error { _, err := Join(ctx, o); return err },
		"examine": func(ctx context.Context, o Options) error { _, err := Examine(ctx, o); return err },
		"visit":   func(ctx context.Context, o Options) error { _, err := Visit(ctx, o, nil); return err },
	} {
		if err := do(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), "engine: name: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServersThatAreAwayAreAFinding(t *testing.T) {
	t.Parallel()
	o, _ := options(t, "nats://me:${env:PW}@127.0.0.1:1")
	found, err := Examine(t.Context(), o)
	if err != nil || len(found) != 1 || found[0].Severity != journal.Broken || strings.Contains(found[0].What, "PLANTED") || !strings.Contains(found[0].What, "127.0.0.1:1") {
		t.Errorf("Examine = %+v, %v", found, err)
	}
}
