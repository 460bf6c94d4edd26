package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal/memlog"
)

// TestOwnStatsAddUp checks that the OwnStats of two processes together count everything once.
func TestOwnStatsAddUp(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(ctx context.Context, _ int) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Concurrency: 1})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}, Concurrency: 1})
		settled(t, a, b)
		for i := range 40 { // in shards of both
			started(t, a.Engine, w, i, Key(fmt.Sprint(i)))
		}
		time.Sleep(time.Minute)
		var queued, running, shards int
		for _, m := range []*member{a, b} {
			own, n, err := m.Operator().OwnStats(t.Context())
			if err != nil || n == 0 || own.Running != 1 || own.Oldest == nil || time.Since(*own.Oldest) < time.Minute {
				t.Errorf("%s: %+v of %d shards, %v", m.log.Member(), own, n, err)
			}
			queued, running, shards = queued+own.Queued, running+own.Running, shards+n
		}
		all := must(a.Stats(t.Context()))
		if shards != 8 || queued != 38 || all.Queued != queued || all.Running != running {
			t.Errorf("%d queued and %d running in %d shards; all are %+v", queued, running, shards, all)
		}
	})
}

func TestOwnStatsOfOneAreAll(t *testing.T) {
	t.Parallel()
	e := must(Open(t.Context(), Config{Dir: t.TempDir(), Logger: quiet()}))
	defer func() { _ = e.Close(context.Background()) }()
	if s, shards, err := e.Operator().OwnStats(t.Context()); err != nil || shards != 1 || s.Queued != 0 || s.Oldest != nil {
		t.Errorf("OwnStats() = %+v, %d, %v", s, shards, err)
	}
}
