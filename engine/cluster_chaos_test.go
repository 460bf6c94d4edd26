package engine

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// TestClusterGetsThrough kills, freezes and disconnects processes at random, and makes appends and
// calls fail in every way, while other processes start runs. Then it checks the logs and the calls
// of the handlers, without the code of the engine.
func TestClusterGetsThrough(t *testing.T) {
	t.Parallel()
	acked := 0
	for seed := range *chaosSeeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Helper()
				c := &chaos{storm: newStorm(t, seed), keys: map[string]string{}}
				c.cfg = func(w *Workflow) Config { return Config{Workflows: []*Workflow{w}} }
				c.begun = func(context.Context, int) time.Duration { return time.Duration(c.draw(4000)) * time.Millisecond }
				c.rage(func() { c.startRuns(0) }, func() { c.startRuns(1) }, func() { c.startRuns(2) }, func() { c.startRuns(3) })
				c.judge()
				acked += len(c.acked)
			})
		})
	}
	if least := 5 * *chaosSeeds; acked < least {
		t.Errorf("%d starts were acknowledged, which is too few to learn from", acked)
	}
}

type chaos struct {
	storm

	acked   []string          // starts that were acknowledged
	keys    map[string]string // run id of each acknowledged start with a key
	unknown int               // starts whose outcome is not known
}

// startRuns starts runs until the failures end.
func (c *chaos) startRuns(caller int) {
	for n := 0; ; n++ {
		time.Sleep(time.Duration(c.draw(400)) * time.Millisecond)
		m, calm := c.any()
		if calm {
			return
		}
		var opts []StartOption
		key := ""
		if n%2 == 0 {
			key = fmt.Sprint("key ", caller/2, " ", n) // two callers have the same ones
			opts = append(opts, Key(key))
		}
		w, _ := m.Workflow("one")
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		s, err := m.Start(ctx, w, n, opts...)
		cancel()
		c.mu.Lock()
		if err != nil {
			c.unknown++
		} else {
			c.acked = append(c.acked, s.ID)
			if was := c.keys[key]; key != "" && was != "" && was != s.ID {
				c.t.Errorf("%s has the runs %s and %s", key, was, s.ID)
			}
			c.keys[key] = s.ID
		}
		c.mu.Unlock()
	}
}

// judge checks that the logs keep what the engine promises.
func (c *chaos) judge() {
	t := c.t
	outcomes, fails, told := map[string]int{}, map[string]int{}, map[string]int{}
	for _, m := range c.members {
		for _, sh := range m.router.Shards() {
			for entry, err := range sh.Lease.Read(t.Context(), 1) {
				if err != nil {
					t.Fatal(err)
				}
				_, err := machine.ReadEntry(entry.Data, func(_ machine.Header, rec *machine.Record) error {
					count(rec, outcomes, told)
					if rec.Kind == machine.Failed {
						fails[rec.Run.String()]++
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, id := range c.acked {
		if outcomes[id] != 1 || told[id] != 1 {
			info, err := c.members[0].Get(t.Context(), id)
			t.Errorf("run %s has %d outcomes, told of %d times: %+v, %v", id, outcomes[id], told[id], info, err)
		}
	}
	for id, n := range outcomes {
		if n != 1 || fails[id] > stormAttempts {
			t.Errorf("run %s has %d outcomes and %d failures", id, n, fails[id])
		}
	}
	lost := uint64(0)
	for _, w := range must(c.members[0].Stats(t.Context())).Workflows {
		lost += w.Totals.Lost
	}
	t.Logf("%d acknowledged, %d unknown, %d outcomes, %d attempts lost", len(c.acked), c.unknown, len(outcomes), lost)
}
