package cli

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/audit"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// messageOrigin returns the host name, which messages state as their origin.
func messageOrigin() notify.Place {
	host, _ := os.Hostname() // an empty name is left out
	return notify.Place{Host: host}
}

// unknownNotifier returns the message for a notifier that is not in the configuration, with the
// names that are.
func unknownNotifier(cfg *config.Config, flags configFlags, name string) string {
	src, err := flags.source(new(secret.Redactor))
	if err != nil || src.Path == "" {
		return fmt.Sprintf("unknown notifier %q: no configuration was found: name a file with --config", name)
	}
	names := slices.Sorted(maps.Keys(cfg.Notifiers))
	return fmt.Sprintf("unknown notifier %q: %s defines %s", name, visible(src.Path), cmp.Or(strings.Join(names, ", "), "none"))
}

// trail is the audit log. The zero value drops all events.
type trail struct{ *audit.Sink }

// openTrail opens the audit log at path, unless the configuration disables it.
func openTrail(cfg *config.Config, path string, redactor *secret.Redactor, logger *slog.Logger) (trail, error) {
	if cfg.Audit.Off {
		return trail{}, nil
	}
	sink, err := audit.Open(audit.Config{
		Path: path, MaxSize: cfg.Audit.MaxSize, Keep: cfg.Audit.Keep, Redactor: redactor, Logger: logger,
	})
	if err != nil {
		return trail{}, fmt.Errorf("audit log: %w", err)
	}
	return trail{sink}, nil
}

// Observe writes an event.
func (t trail) Observe(ev retry.Event) {
	if t.Sink != nil {
		t.Sink.Observe(ev)
	}
}

// Close closes the file.
func (t trail) Close() error {
	if t.Sink == nil {
		return nil
	}
	return t.Sink.Close()
}
