package server

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// seldom passes on to the log what was not said lately. While NATS is away, every
// shard finds that out again and again, and there are many.
type seldom struct {
	slog.Handler
	said *said
}

// said is what was said, by all that share it.
type said struct {
	mu   sync.Mutex
	last map[string]time.Time
}

const (
	lately  = time.Minute
	maxSaid = 4096 // a program that says more different things has other trouble
)

func newSeldom(log *slog.Logger) *slog.Logger {
	return slog.New(seldom{log.Handler(), &said{last: map[string]time.Time{}}})
}

// Handle implements [slog.Handler].
func (s seldom) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && s.said.before(&r) {
		return nil
	}
	return s.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (s seldom) WithAttrs(attrs []slog.Attr) slog.Handler {
	return seldom{s.Handler.WithAttrs(attrs), s.said}
}

// WithGroup implements [slog.Handler].
func (s seldom) WithGroup(name string) slog.Handler { return seldom{s.Handler.WithGroup(name), s.said} }

// before reports whether the same was said lately, and notes that it is said now if
// it was not.
func (s *said) before(r *slog.Record) bool {
	var text strings.Builder
	text.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		text.WriteString(" " + a.String())
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.last[text.String()]; ok && r.Time.Sub(at) < lately {
		return true
	}
	if len(s.last) >= maxSaid {
		clear(s.last)
	}
	s.last[text.String()] = r.Time
	return false
}
