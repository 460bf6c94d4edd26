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

// origin says where messages come from.
func origin() notify.Place {
	host, _ := os.Hostname() // or they don't say
	return notify.Place{Host: host}
}

// noNotifier says that there is no notifier of the name in the configuration that the
// flags lead to.
func noNotifier(cfg *config.Config, flags configFlags, name string) string {
	src, err := flags.source(new(secret.Redactor))
	if err != nil || src.Path == "" {
		return fmt.Sprintf("there is no notifier %q: no configuration was found; name one with --config", name)
	}
	names := slices.Sorted(maps.Keys(cfg.Notifiers))
	return fmt.Sprintf("there is no notifier %q in %s; there are %s", name, visible(src.Path), cmp.Or(strings.Join(names, ", "), "none"))
}

// trail is the audit trail, or nothing.
type trail struct{ *audit.Sink }

// openTrail opens the audit trail at the path, unless it is switched off.
func openTrail(cfg *config.Config, path string, redactor *secret.Redactor, logger *slog.Logger) (trail, error) {
	if cfg.Audit.Off {
		return trail{}, nil
	}
	sink, err := audit.Open(audit.Config{
		Path: path, MaxSize: cfg.Audit.MaxSize, Keep: cfg.Audit.Keep, Redactor: redactor, Logger: logger,
	})
	if err != nil {
		return trail{}, fmt.Errorf("audit trail: %w", err)
	}
	return trail{sink}, nil
}

// Observe writes an event.
func (t trail) Observe(ev retry.Event) {
	if t.Sink != nil {
		t.Sink.Observe(ev)
	}
}

// Close ends the writing.
func (t trail) Close() error {
	if t.Sink == nil {
		return nil
	}
	return t.Sink.Close()
}
