package cluster

import (
	"context"
	"log/slog"
	"time"

	"github.com/tideover/tideover/engine/jetstream"
)

// checkTime is how long the servers have to show what they promise.
const checkTime = 30 * time.Second

// Report logs what makes the promise of the cluster weaker than it could be, a line
// each.
func Report(ctx context.Context, l *jetstream.Log, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	findings, err := l.Check(ctx)
	if err != nil {
		log.Warn("it can't be checked what the cluster promises", "error", err, "hint", "tideover doctor")
		return
	}
	for _, f := range findings {
		attrs := []any{"what", f.What, "why", f.Why, "do", f.Do}
		switch f.Severity {
		case jetstream.Broken:
			log.Error("the cluster does not keep its promise", attrs...)
		case jetstream.Weak:
			log.Warn("the cluster promises less than it could", attrs...)
		}
	}
}
