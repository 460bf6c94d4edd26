package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal/memlog"
)

// crashCluster is a cluster in which runs kill the processes that work on them.
type crashCluster struct {
	t       *testing.T
	store   *memlog.Store
	die     chan *member // whose process was killed
	members []*member
	deaths  int
}

// join adds a process, which knows the workflows of [newCrashLoop].
func (c *crashCluster) join() *member {
	c.t.Helper()
	m := new(member)
	killer := must(NewWorkflow("killer", Step("kill", func(ctx context.Context, after time.Duration) (int, error) {
		select {
		case <-time.After(after):
			m.log.Kill() // at once: it must not be handed over before the process dies
			c.die <- m
			<-ctx.Done()
		case <-ctx.Done():
		}
		return 0, ctx.Err()
	})))
	steady := must(NewWorkflow("steady", Step("work", func(ctx context.Context, lasts time.Duration) (int, error) {
		select {
		case <-time.After(lasts):
			return 0, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})))
	m.log = c.store.Join(fmt.Sprint("process-", len(c.members)))
	m.Engine = must(Open(c.t.Context(), Config{Workflows: []*Workflow{killer, steady}, Log: m.log, Logger: quiet()}))
	c.t.Cleanup(func() { _ = m.Close(gone()) })
	c.members = append(c.members, m)
	return m
}

// pass lets virtual time pass. A killed process is started again a second later.
func (c *crashCluster) pass(d time.Duration) {
	c.t.Helper()
	killed := map[*member]bool{}
	for end := time.After(d); ; {
		select {
		case m := <-c.die:
			if killed[m] {
				continue
			}
			killed[m] = true
			c.deaths++
			m.kill()
			time.Sleep(time.Second)
			synctest.Wait()
			c.join()
		case <-end:
			return
		}
	}
}

// finished reports whether all runs have ended.
func (c *crashCluster) finished(ids []string) bool {
	for _, id := range ids {
		i, err := c.members[len(c.members)-1].Get(c.t.Context(), id)
		if err != nil || !i.Finished() {
			return false
		}
	}
	return true
}

// Runs that kill processes of a cluster must not make runs of other shards die.
func TestClusterFindsRunsThatKillTheProcess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ processes, killers int }{{1, 1}, {1, 10}, {3, 1}, {3, 10}} {
		t.Run(fmt.Sprintf("%d in %d processes", c.killers, c.processes), func(t *testing.T) {
			t.Parallel()
			together(t, func(t *testing.T, s *memlog.Store) {
				cluster := &crashCluster{t: t, store: s, die: make(chan *member, 1000)}
				for range c.processes {
					cluster.join()
				}
				settled(t, cluster.members...)
				start := func(workflow string, i int, d time.Duration) string {
					e := cluster.members[0].Engine
					w, _ := e.Workflow(workflow)
					return started(t, e, w, d, Key(fmt.Sprint(workflow, i))).ID
				}
				var ids []string
				for i := range 10 {
					ids = append(ids, start("steady", i, 3*time.Second))
				}
				for i := range c.killers {
					ids = append(ids, start("killer", i, time.Second))
				}
				for n := 0; n < 100 && !cluster.finished(ids); n++ {
					cluster.pass(time.Minute)
				}
				for _, id := range ids {
					i := must(cluster.members[len(cluster.members)-1].Get(t.Context(), id))
					switch {
					case i.Workflow == "steady" && i.State != StateSucceeded:
						t.Errorf("a harmless run is %s (%s): %s", i.State, i.Reason, i.Error)
					case i.Workflow == "killer" && (i.State != StateDead || i.Reason != "lost" || !strings.HasSuffix(i.Error, "no other attempt ran")):
						t.Errorf("a run that kills the process is %s (%s): %s", i.State, i.Reason, i.Error)
					}
				}
				if most := c.killers * (DefaultMaxLost + 1); cluster.deaths > most || cluster.deaths <= DefaultMaxLost {
					t.Errorf("processes died %d times, want at most %d", cluster.deaths, most)
				}
				t.Log(cluster.deaths, "deaths")
			})
		})
	}
}
