package engine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

// CallFunctions calls the functions of all runs that are suspended, as the end of a wait does.
func (e *Engine) CallFunctions(ctx context.Context) error {
	return e.shard().do(ctx, func(t recorder) error {
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
func (e *Engine) shard() *shard { return e.router.shards()[0] }

// shardAt returns a shard of the engine; nil if another process has it.
func (e *Engine) shardAt(number int) *shard {
	for _, sh := range e.router.shards() {
		if sh.number == number {
			return sh
		}
	}
	return nil
}

// inOwner has the owner of a shard call f, and returns its result.
func inOwner[T any](t *testing.T, sh *shard, f func(recorder) T) (v T) {
	t.Helper()
	if err := sh.do(t.Context(), func(r recorder) error { v = f(r); return nil }); err != nil {
		t.Fatal(err)
	}
	return v
}

// hasTrouble reports whether the engine has a trouble with this text.
func hasTrouble(e *Engine, what string) bool {
	return slices.ContainsFunc(e.Troubles(), func(t Trouble) bool { return strings.Contains(t.What, what) })
}
