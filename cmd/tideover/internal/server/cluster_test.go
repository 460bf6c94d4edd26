package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/outbox"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/retry"
)

func TestAFolderWithRunsIsRejected(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := checkNoRuns(filepath.Join(dir, "none")); err != nil {
		t.Errorf("no folder: %v", err)
	}
	if err := checkNoRuns(dir); err != nil {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "log.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkNoRuns(dir); err == nil || !strings.Contains(err.Error(), "tideover move") {
		t.Errorf("a folder with runs: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "moved"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := checkNoRuns(dir); err != nil {
		t.Errorf("a folder whose runs were moved: %v", err)
	}
}

// A step that names an unknown provider or notifier waits instead of failing: another process of the
// cluster may know it.
func TestStepsWithAMissingProviderWait(t *testing.T) {
	t.Parallel()
	oops := errors.New("oops")
	failing := func(err error) engine.Handler {
		return func(context.Context, *engine.Task) ([]byte, error) { return nil, err }
	}
	handlers := map[string]engine.Handler{
		"succeeding": func(context.Context, *engine.Task) ([]byte, error) { return []byte("1"), nil },
		"failing":    failing(oops),
		"provider":   failing(retry.Permanent(fmt.Errorf("%w: p", gateway.ErrUnknownProvider))),
		"notifier":   failing(retry.Permanent(fmt.Errorf("n %w", outbox.ErrUnknown))),
	}
	snoozeMissing(handlers)
	if out, err := handlers["succeeding"](t.Context(), nil); string(out) != "1" || err != nil {
		t.Errorf("succeeding: %q, %v", out, err)
	}
	if _, err := handlers["failing"](t.Context(), nil); !errors.Is(err, oops) {
		t.Errorf("failing: %v", err)
	}
	for _, name := range []string{"provider", "notifier"} {
		_, err := handlers[name](t.Context(), nil)
		if err == nil || retry.OutcomeOf(err).Class == retry.ClassPermanent {
			t.Errorf("%s: %v is permanent", name, err)
		}
	}
}
