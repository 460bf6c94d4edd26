package retry

import (
	"context"
	"log/slog"
)

// logTo returns an observer that logs what a person on call wants to know:
// retries and the end of hope, but no successes.
func logTo(l *slog.Logger) func(Event) {
	return func(e Event) {
		attrs := make([]slog.Attr, 0, 9)
		if e.Name != "" {
			attrs = append(attrs, slog.String("name", e.Name))
		}
		attrs = append(attrs, slog.Int("attempt", e.Attempt), slog.String("attempts", formatAttempts(e.Attempts)))
		level, msg := slog.LevelWarn, e.Kind.String()
		switch e.Kind {
		case Waiting:
			msg = "retrying"
			attrs = append(attrs, slog.Duration("delay", e.Delay), slog.String("delay_by", e.By.String()))
		case GaveUp:
			level, msg = slog.LevelError, "gave up"
			attrs = append(attrs, slog.String("reason", e.Reason.String()), slog.Duration("elapsed", e.Elapsed))
		case HookFailed, AttemptStuck:
		default:
			return
		}
		if e.Note != "" {
			attrs = append(attrs, slog.String("note", e.Note))
		}
		if e.Err != nil {
			attrs = append(attrs, slog.Any("error", e.Err))
		}
		l.LogAttrs(context.Background(), level, msg, attrs...)
	}
}
