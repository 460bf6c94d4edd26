package logsample

import (
	"context"
	"log/slog"
	"strings"
)

// handler samples the warnings and errors of another handler.
type handler struct {
	slog.Handler
	sampler *Sampler[string]
}

// NewHandler returns a handler that passes records to h, except warnings and errors that
// the sampler suppresses. The key of a record is its message and its attributes;
// attributes of [slog.Logger.With] are not part of the key.
func NewHandler(h slog.Handler, s *Sampler[string]) slog.Handler { return handler{h, s} }

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		if ok, _ := h.sampler.Allow(key(&r), r.Time); !ok {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.sampler}
}

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.sampler}
}

func key(r *slog.Record) string {
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		b.WriteString(" " + a.String())
		return true
	})
	return b.String()
}
