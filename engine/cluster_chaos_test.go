package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal/memlog"
)

var chaosSeeds = flag.Int("cluster.seeds", 12, "clusters that are made to suffer")

// TestClusterGetsThrough has processes killed, frozen and cut off at random, and
// appends and calls fail in every way, while others start runs. An oracle that
// knows nothing of the engine says what must have come of it.
func TestClusterGetsThrough(t *testing.T) {
	t.Parallel()
	for seed := range *chaosSeeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Helper()
				c := &chaos{t: t, store: &memlog.Store{Shards: 5}, random: rand.New(rand.NewPCG(uint64(seed), 1)), keys: map[string]string{}}
				c.run()
			})
		})
	}
}

type chaos struct {
	t       *testing.T
	store   *memlog.Store
	members []*member

	mu      sync.Mutex
	random  *rand.Rand
	calm    bool
	acked   []string          // starts that were acknowledged
	keys    map[string]string // the run of each key that was
	unknown int               // starts of which nobody knows
}

const chaosAttempts = 4

func (c *chaos) run() {
	for range 3 {
		c.join()
	}
	settled(c.t, c.members...)
	var callers sync.WaitGroup
	for n := range 4 {
		callers.Go(func() { c.call(n) })
	}
	for range 25 {
		time.Sleep(time.Duration(c.draw(3000)) * time.Millisecond)
		c.harm()
	}
	c.mu.Lock()
	c.calm = true
	c.mu.Unlock()
	callers.Wait()
	time.Sleep(time.Minute)
	settled(c.t, c.members...)
	c.judge()
}

func (c *chaos) draw(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

// join adds a process.
func (c *chaos) join() {
	w := one(c.t, func(ctx context.Context, n int) (int, error) {
		select {
		case <-time.After(time.Duration(c.draw(4000)) * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		if task, _ := TaskOf(ctx); task.Spent+1 < n%6 { // some need more attempts than there are
			return 0, errors.New("flaky")
		}
		return n, nil
	}, Policy(fmt.Sprintf("fixed(700ms) attempts=%d", chaosAttempts)), MaxLost(1000))
	m := joined(c.t, c.store, "p", Config{Workflows: []*Workflow{w}})
	m.log.Disturb(c.disturb)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = append(c.members, m)
}

// leave takes a process away.
func (c *chaos) leave(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = slices.Delete(slices.Clone(c.members), i, i+1)
}

// disturb makes one of twenty operations fail in some way.
func (c *chaos) disturb(op memlog.Operation) (f memlog.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calm || c.random.IntN(20) > 0 {
		return f
	}
	f.Delay = time.Duration(c.random.IntN(1000)) * time.Millisecond
	switch c.random.IntN(4) {
	case 0:
		f.Before = fmt.Errorf("%s: not sent", op.Name)
	case 1:
		f.After = fmt.Errorf("%s: answer lost", op.Name)
	case 2:
		f.After = fmt.Errorf("%s: on its way", op.Name)
		f.Late = time.Duration(c.random.IntN(3000)) * time.Millisecond
	}
	return f
}

// harm does something bad to a process.
func (c *chaos) harm() {
	i := c.draw(len(c.members))
	m := c.members[i]
	long := time.Duration(c.draw(12000)) * time.Millisecond
	switch c.draw(4) {
	case 0:
		m.kill()
		c.leave(i)
		c.join()
	case 1:
		m.log.Freeze()
		time.AfterFunc(long, m.log.Thaw)
	case 2:
		m.log.Cut()
		time.AfterFunc(long, m.log.Heal)
	case 3:
		if len(c.members) > 4 {
			_ = m.Close(context.Background())
			c.leave(i)
			return
		}
		c.join()
	}
}

// call starts runs until there is calm.
func (c *chaos) call(caller int) {
	for n := 0; ; n++ {
		time.Sleep(time.Duration(c.draw(400)) * time.Millisecond)
		c.mu.Lock()
		calm, m := c.calm, c.members[c.random.IntN(len(c.members))]
		c.mu.Unlock()
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

// judge holds the logs against what was promised.
func (c *chaos) judge() {
	t := c.t
	outcomes, fails := map[string]int{}, map[string]int{}
	for _, m := range c.members {
		for _, sh := range m.cluster.own() {
			for entry, err := range sh.lease.Read(t.Context(), 1) {
				if err != nil {
					t.Fatal(err)
				}
				_, err := machine.ReadEntry(entry.Data, func(rec *machine.Record) error {
					if rec.Ends != machine.Undecided {
						outcomes[rec.Run.String()]++
					}
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
		if outcomes[id] != 1 {
			info, err := c.members[0].Get(t.Context(), id)
			t.Errorf("run %s has %d outcomes: %+v, %v", id, outcomes[id], info, err)
		}
	}
	for id, n := range outcomes {
		if n != 1 || fails[id] > chaosAttempts {
			t.Errorf("run %s has %d outcomes and %d failures", id, n, fails[id])
		}
	}
	if len(c.acked) < 20 {
		t.Errorf("%d starts were acknowledged, which is too few to learn from", len(c.acked))
	}
	lost := uint64(0)
	for _, w := range must(c.members[0].Stats(t.Context())).Workflows {
		lost += w.Totals.Lost
	}
	t.Logf("%d acknowledged, %d unknown, %d outcomes, %d attempts lost", len(c.acked), c.unknown, len(outcomes), lost)
}
