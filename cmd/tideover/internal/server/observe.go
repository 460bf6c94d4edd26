package server

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/metrics"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/retry"
)

// observe logs what an operator wants to know: each failure with the wait that
// follows, and each end.
func (s *server) observe(ev retry.Event) {
	s.record(ev)
	s.tally.Observe(ev)
	s.outbox.Observe(ev)
	if strings.HasPrefix(ev.Name, gateway.EventPrefix) {
		return // which logs by itself
	}
	level, text := slog.LevelDebug, ev.Kind.String()
	switch ev.Kind {
	case retry.Waiting:
		level, text = slog.LevelInfo, "waiting"
	case retry.AttemptFailed:
		level, text = slog.LevelInfo, "attempt failed"
	case retry.GaveUp:
		if ev.Step != "" {
			level = slog.LevelDebug // the run's own follows, with the same error
		} else {
			level = slog.LevelError
		}
	case retry.AttemptLost, retry.NeedsHandler, retry.AttemptStuck:
		level = slog.LevelWarn
	default:
	}
	ctx := context.Background()
	if !s.Log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("workflow", ev.Name), slog.String("run", ev.Run)}
	add := func(ok bool, a slog.Attr) {
		if ok {
			attrs = append(attrs, a)
		}
	}
	add(ev.Step != "", slog.String("step", ev.Step))
	add(ev.Attempt > 0, slog.Int("attempt", ev.Attempt))
	add(ev.Kind == retry.Waiting, slog.Duration("delay", ev.Delay.Round(time.Millisecond)))
	add(ev.Kind == retry.Waiting, slog.String("set_by", ev.By.String()))
	add(ev.Reason != 0, slog.String("reason", ev.Reason.String()))
	add(ev.Err != nil, slog.String("error", firstLine(ev.Err)))
	add(ev.Note != "", slog.String("note", ev.Note))
	s.Log.LogAttrs(ctx, level, text, attrs...)
}

// firstLine returns what an error says first: the stack of a panic is on the run's
// page.
func firstLine(err error) string {
	if err == nil {
		return ""
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// attempts returns the attempts of all layers since the start.
func (s *server) attempts() map[storm.Subject]storm.Count {
	counts := s.tally.Counts()
	for name, l := range s.gateway.Loads() {
		counts[storm.Subject{Layer: metrics.Provider, Name: name}] = storm.Count{Attempts: l.Sent, First: l.Requests}
	}
	return counts
}

// stormy puts a storm into the stream of events, and into the log.
func (s *server) stormy(c storm.Change) {
	text := "retry storm"
	if c.Ended {
		text = "the retry storm is over"
	}
	s.Log.Warn(text, "layer", c.Layer, "name", c.Name, "amplification", c.Amplification, "attempts", c.Attempts, "since", c.Since)
	name := metrics.WorkflowOf(c.Subject)
	if c.Layer == metrics.Provider {
		name = gateway.EventPrefix + c.Name
	}
	s.tell(c.Event(name, time.Now()))
}
