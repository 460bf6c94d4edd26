package jetstream

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/journaltest"
	"github.com/tideover/tideover/internal/testwait"
)

// suiteNodes is the size of the clusters of the suites, which ask for nothing that depends on replicas.
var suiteNodes = flag.Int("conformance.nodes", 1, "servers on which the suites of a journal run: 1 or 3")

func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		os.Exit(childMain(url, os.Getenv(childNameEnv)))
	}
	// Run many tests at once: most of them wait for servers most of the time.
	flag.Parse()
	flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0))))
	code := m.Run()
	natstest.StopShared()
	if code == 0 {
		if left := testwait.Goroutines("engine/jetstream.", "nats%2ego.(*Conn)"); left != "" {
			fmt.Fprintln(os.Stderr, "goroutines are left after all tests:\n"+left)
			code = 1
		}
	}
	os.Exit(code)
}

// mustOpen opens a log. Unless the configuration has a lease time, it is so long that
// leases do not end on a slow machine.
func mustOpen(t *testing.T, cfg Config) *Log {
	t.Helper()
	if cfg.LeaseTime == 0 {
		cfg.LeaseTime = MaxLeaseTime
		cfg.beat = max(cfg.beat, time.Second)
	}
	cfg.requestTime = time.Minute
	log, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// shardLog makes one shard of a cluster a log of its own.
type shardLog struct {
	journal.Cluster
	shard int
}

func (l shardLog) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	return l.Cluster.Lease(ctx, l.shard+shard)
}

// conformance runs the suite [journaltest.Run]. Each of its tests has a shard of its own.
// Several tests share a cluster, because each cluster needs two more streams.
func conformance(t *testing.T, nodes *natstest.Cluster) {
	t.Helper()
	const shards = 8
	name, numbers := newName(), map[string]int{} // of the tests, by folder
	journaltest.Run(t, func(t *testing.T, dir string) journal.Log {
		t.Helper()
		n, known := numbers[dir]
		if !known {
			n = len(numbers)
			numbers[dir] = n
		}
		cfg := Config{URL: nodes.URL(), Name: fmt.Sprint(name, "-", n/shards), Shards: shards}
		return shardLog{mustOpen(t, cfg), n % shards}
	})
}

// suiteCluster returns the servers for a suite.
func suiteCluster(t *testing.T) *natstest.Cluster {
	t.Helper()
	if *suiteNodes == 1 {
		return natstest.SharedNode(t)
	}
	return natstest.Shared(t)
}

func TestConformance(t *testing.T) { conformance(t, suiteCluster(t)) }

// killable is a member that can be killed.
type killable struct {
	*Log
	t    *testing.T
	kept *members
}

// members has the members of all clusters of a suite that were not killed.
type members struct {
	mu   sync.Mutex
	list []*Log
}

// Kill implements [journaltest.Process]. It makes the other members expel this one at
// once, before the lease time has passed.
func (k *killable) Kill() {
	id := k.Member()
	k.kill()
	k.kept.mu.Lock()
	defer k.kept.mu.Unlock()
	for _, other := range k.kept.list {
		if other != k.Log && other.backend.cfg.Name == k.backend.cfg.Name && other.backend.life.Err() == nil {
			expel(k.t, other, id, other.backend.timing.expelAt)
			return
		}
	}
}

// kill ends the member as the end of its process does, without a message to the others.
func (l *Log) kill() {
	l.leases.close()
	l.end()
	l.backend.c.nc.Close()
	l.leases.endAll(errors.New("the process was killed"))
}

func TestConformanceOfClusters(t *testing.T) {
	nodes := suiteCluster(t)
	names := map[string]string{}
	var kept members
	journaltest.RunCluster(t, func(t *testing.T, dir string, shards int) journaltest.Process {
		t.Helper()
		if names[dir] == "" {
			names[dir] = newName()
		}
		log := mustOpen(t, Config{URL: nodes.URL(), Name: names[dir], Shards: shards})
		kept.mu.Lock()
		defer kept.mu.Unlock()
		kept.list = append(kept.list, log)
		return &killable{log, t, &kept}
	})
}
