package engine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
)

// CallFunctions calls the functions of all runs that are suspended, as the end of a wait does.
func (e *Engine) CallFunctions(ctx context.Context) error {
	return e.shard().Do(ctx, func(t shard.Recorder) error {
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

// shard returns the first shard of the engine: the only one without a cluster.
func (e *Engine) shard() *shard.Shard { return e.router.Shards()[0] }

// shardAt returns a shard of the engine; nil if another process has it.
func (e *Engine) shardAt(number int) *shard.Shard {
	for _, sh := range e.router.Shards() {
		if sh.Number == number {
			return sh
		}
	}
	return nil
}

// inOwner has the owner of a shard call f, and returns its result.
func inOwner[T any](t *testing.T, sh *shard.Shard, f func(shard.Recorder) T) (v T) {
	t.Helper()
	if err := sh.Do(t.Context(), func(r shard.Recorder) error { v = f(r); return nil }); err != nil {
		t.Fatal(err)
	}
	return v
}

// hasTrouble reports whether the engine has a trouble with this text.
func hasTrouble(e *Engine, what string) bool {
	return slices.ContainsFunc(e.Troubles(), func(t Trouble) bool { return strings.Contains(t.What, what) })
}
