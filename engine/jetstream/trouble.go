package jetstream

import (
	"context"
	"log/slog"
	"sync"
)

// troubleLog logs a problem once when it begins, and once when it is over. Operations
// that are repeated every second would fill the log otherwise.
type troubleLog struct {
	life   context.Context //nolint:containedctx // nothing is logged after its end
	logger *slog.Logger
	redact func(string) string

	mu      sync.Mutex
	present map[string]bool
}

func newTroubleLog(b *backend) *troubleLog {
	return &troubleLog{life: b.life, logger: b.cfg.Logger, redact: b.cfg.redact, present: map[string]bool{}}
}

// report reports the result of an operation that is repeated again and again. problem is
// the text for its failure; err is nil if the operation succeeded.
func (t *troubleLog) report(problem string, err error) {
	if t.life.Err() != nil {
		return
	}
	t.mu.Lock()
	known := t.present[problem]
	t.present[problem] = err != nil
	t.mu.Unlock()
	switch {
	case err != nil && !known:
		t.logger.Warn(problem, "error", t.redact(err.Error()))
	case err == nil && known:
		t.logger.Info("resolved: " + problem)
	}
}
