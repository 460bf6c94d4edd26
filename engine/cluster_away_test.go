package engine

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/engine/journal/memlog"
)

func TestClusterShardsThatDidNotAnswerAreNamed(t *testing.T) {
	t.Parallel()
	for want, silent := range map[string][]int{"shard 3 did not answer": {3}, "shards 3, 7 did not answer": {3, 7}} {
		synctest.Test(t, func(t *testing.T) {
			s := &memlog.Store{Shards: 8}
			w := must(NewWorkflow("w", nothing()))
			a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Dir: t.TempDir()})
			settled(t, a)
			for _, n := range silent { // no process has it, and none accepts the call
				a.cluster.remove(a.cluster.get(n))
			}
			a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
				if op.Name == "call" {
					f.Before = errors.New("no route")
				}
				return f
			})
			_, err := a.Find(t.Context(), "nothing", 10)
			if !errors.Is(err, ErrAway) || err.Error() != `find "nothing": `+want {
				t.Errorf("Find = %v; want %q", err, want)
			}
			if _, err := a.Schedules(t.Context()); !errors.Is(err, ErrAway) || err.Error() != "schedules: "+want {
				t.Errorf("Schedules = %v; want %q", err, want)
			}
		})
	}
}
