package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/journal/memlog"
)

func TestClusterShardsThatDidNotAnswerAreNamed(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := must(NewWorkflow("w", nothing()))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Dir: t.TempDir()})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}, Dir: t.TempDir()})
		settled(t, a, b)
		var silent []string
		for n := range 8 {
			if b.shardAt(n) != nil {
				silent = append(silent, fmt.Sprint(n))
			}
		}
		want := "shards " + strings.Join(silent, ", ") + " did not answer"
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
