package engine

import (
	"context"
	"time"
)

// CallFunctions calls the functions of all runs that are suspended, as the end of a wait does.
func (e *Engine) CallFunctions(ctx context.Context) error {
	return e.alone.do(ctx, func(t recorder) error {
		for _, run := range t.State().All() {
			if run.IsSuspended() {
				t.State().CallAgain(run)
			}
		}
		return nil
	})
}

// ForVirtualTime prepares a configuration with a folder for a test in virtual time: the uptime of the
// machine does not count.
func ForVirtualTime(cfg *Config) { cfg.uptime = func() (time.Duration, string) { return 0, "" } }
