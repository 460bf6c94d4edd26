package server

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/audit"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testwait"
)

// TestQuestionsAreInTheAuditTrail checks that the audit trail says who has sent a signal, what was asked,
// and who has answered with which words.
func TestQuestionsAreInTheAuditTrail(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	sink, err := audit.Open(audit.Config{Path: path, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w := engine.MustFlow("deploy", func(f *engine.Flow, _ int) (string, error) {
		if _, err := engine.Await[int](f, "built"); err != nil {
			return "", err
		}
		a, err := engine.Ask(f, "roll", engine.Question{Text: "Roll out?"})
		return a.Choice, err
	})
	b := &observer{audit: sink}
	e, err := engine.Open(t.Context(), engine.Config{Dir: t.TempDir(), Durability: engine.OS, Workflows: []*engine.Workflow{w}, Observer: b.record, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	run, err := e.Start(t.Context(), w, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Signal(t.Context(), run.ID, "built", 7, engine.SentBy("ci")); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the run asks", func() bool {
		i, err := e.Get(t.Context(), run.ID)
		return err == nil && i.Asking
	})
	if err := e.Answer(t.Context(), run.ID, "roll", engine.Answer{Choice: "approve", By: "ada", Words: "go on"}); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"built from ci"`, `"Roll out? (approve, reject)"`, `"roll answered by ada: approve: go on"`, `"kind":"signaled"`, `"kind":"asked"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the audit trail has no %s:\n%s", want, text)
		}
	}
}

func TestTheKeyOfCallbacks(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{Server: config.Server{Data: t.TempDir()}}
	first, err := loadCallbackKey(cfg)
	if err != nil || len(first.Reveal()) != 2*callbackKeySize {
		t.Fatalf("a key of %d characters, %v", len(first.Reveal()), err)
	}
	path := filepath.Join(cfg.Server.Data, "callback.key")
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if again, err := loadCallbackKey(cfg); err != nil || again.Reveal() != first.Reveal() {
		t.Errorf("after a restart the key is another: %v", err)
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadCallbackKey(cfg); err == nil || !strings.Contains(err.Error(), "has 5 characters, at least 64 are needed") {
		t.Errorf("a short key: %v", err)
	}
}
