package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// TestStoredAndSentBytesOfAClusterStayTheSame is TestStoredBytesStayTheSame for a cluster of two
// members with a shard each. It compares the records of both logs, and the calls of each member to the
// shard of the other, without repeated ones. The ids of started runs are made of random numbers that a
// test can't choose: they are replaced by numbers.
func TestStoredAndSentBytesOfAClusterStayTheSame(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	synctest.Test(t, func(t *testing.T) {
		store := &memlog.Store{Shards: 2}
		calls := &goldenCalls{seen: map[string]bool{}}
		var members []*goldenMember
		for i, name := range []string{"a", "b"} {
			log := &goldenLog{random: rand.New(rand.NewPCG(1, uint64(i)))}
			members = append(members, &goldenMember{store.Join(name), log, calls})
		}
		var engines []*goldenEngine
		for _, m := range members {
			e := &goldenEngine{t: t, workflows: clusterWorkflows()}
			cfg := engine.Config{Log: m, Rand: m.log.draw, Workflows: e.workflows, Logger: slog.New(slog.DiscardHandler)}
			var err error
			if e.Engine, err = engine.Open(context.Background(), cfg); err != nil {
				t.Fatal(err)
			}
			engines = append(engines, e)
			e.elapse(10 * time.Second)
		}
		runGoldenCluster(engines[0])
		ids := replacedIDs(members) // before a member closes: the other one would take over its shard
		for _, m := range members {
			fmt.Fprintf(&text, "The log of member %s:\n", m.Member())
			moments := joinMoments(t, m.log.entries)
			for i := range moments {
				moments[i].records = ids(moments[i].records)
			}
			dumpMoments(&text, moments, true)
		}
		fmt.Fprintf(&text, "\nCalls:\n")
		lines := map[string]bool{}
		for line := range calls.seen {
			lines[string(ids([]byte(line)))] = true
		}
		for _, line := range slices.Sorted(maps.Keys(lines)) {
			fmt.Fprintln(&text, line)
		}
		for _, e := range engines {
			e.check(e.Close(context.Background()))
		}
	})
	compareGolden(t, filepath.Join("testdata", "golden", "cluster.txt"), text.String())
}

// replacedIDs returns a function that replaces the random part of the ids of all runs of the members'
// logs, as bytes, text and JSON, by the number of the run among those of its shard.
func replacedIDs(members []*goldenMember) func([]byte) []byte {
	var pairs [][2][]byte
	for _, m := range members {
		known := map[[16]byte]bool{}
		for _, e := range m.log.entries {
			for _, rec := range cutRecords(entryRecords(e.Data)) {
				if machine.Kind(rec[0]) != machine.Started {
					continue
				}
				in := codec.Reader{Data: rec[1:]}
				in.Uvarint() // mask
				in.Varint()  // time
				id := in.Array()
				if known[id] {
					continue
				}
				known[id] = true
				plain := id
				clear(plain[6:14])
				plain[13] = byte(len(known))
				pairs = append(pairs, [2][]byte{id[:], plain[:]}, [2][]byte{[]byte(codec.FormatID(id)), []byte(codec.FormatID(plain))},
					[2][]byte{must(json.Marshal(id)), must(json.Marshal(plain))})
			}
		}
	}
	return func(data []byte) []byte {
		for _, p := range pairs {
			data = bytes.ReplaceAll(data, p[0], p[1])
		}
		return data
	}
}

// entryRecords returns the records of an entry.
func entryRecords(data []byte) []byte {
	in := codec.Reader{Data: data[1 : len(data)-4]}
	in.Varint() // time
	in.Varint() // time since boot
	return in.Data
}

// goldenMember is a member of a cluster that records what it stores and sends.
type goldenMember struct {
	journal.Cluster
	log   *goldenLog
	calls *goldenCalls
}

func (m *goldenMember) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	lease, err := m.Cluster.Lease(ctx, shard)
	if err != nil {
		return nil, err
	}
	return &goldenShared{goldenLease{lease, m.log}}, nil
}

// Call records the call and its answer.
func (m *goldenMember) Call(ctx context.Context, shard int, request []byte) ([]byte, error) {
	answer, err := m.Cluster.Call(ctx, shard, request)
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	m.calls.seen[fmt.Sprintf("%s\n\t%s %v", request, answer, err)] = true
	return answer, err
}

type goldenCalls struct {
	mu   sync.Mutex
	seen map[string]bool
}

// goldenShared is a lease of a cluster's log.
type goldenShared struct{ goldenLease }

func (l *goldenShared) Serve(answer journal.Answer) error {
	return l.Lease.(journal.Shared).Serve(answer)
}

func (l *goldenShared) SinceBoot() (time.Duration, string) {
	return l.Lease.(journal.Clocked).SinceBoot()
}

func (l *goldenShared) Ahead(ctx context.Context, boot string) (time.Duration, bool) {
	return l.Lease.(journal.Clocked).Ahead(ctx, boot)
}

// clusterWorkflows returns workflows, of which limited has all its runs in one shard.
func clusterWorkflows() []*engine.Workflow {
	limited := must(engine.NewWorkflow("limited", engine.MaxRuns(1), engine.Step("do", func(ctx context.Context, n int) (int, error) {
		return n + 1, work(ctx, time.Duration(n)*ms)
	})))
	family := engine.MustFlow("family", func(f *engine.Flow, n int) (int, error) {
		one, err := engine.Child[int](f, "one", limited, n)
		if err != nil {
			return 0, err
		}
		return engine.Child[int](f, "two", limited, one*one)
	})
	return slices.Concat([]*engine.Workflow{limited, family}, goldenSignals(), goldenUndos(), goldenPauses())
}

// runGoldenCluster sends each command to runs of both shards.
func runGoldenCluster(e *goldenEngine) {
	ctx := e.t.Context()
	for shard := range 2 {
		n := 0
		start := func(workflow string, input any, opts ...engine.StartOption) string {
			for ; machine.KeySlot(fmt.Sprint(workflow, n))%2 != shard; n++ {
			}
			defer func() { n++ }()
			return e.start(workflow, input, append(opts, engine.Key(fmt.Sprint(workflow, n)))...)
		}
		e.wait(start("family", 100, engine.Source("ann")), engine.StateSucceeded)
		canceled := start("family", 60_000)
		e.elapse(time.Second)
		e.check(e.Cancel(ctx, canceled, "ann"))
		e.elapse(10 * time.Second)

		run := start("approval", "7 EUR", engine.In(time.Minute))
		e.check(e.Signal(ctx, run, "begin", "go", engine.ID("1"), engine.SentBy("ann")))
		e.elapse(2 * time.Minute)
		e.check(e.Signal(ctx, run, "amount", 7, engine.ID("2")))
		e.elapse(time.Second)
		e.check(e.Answer(ctx, run, "approve", engine.Answer{Choice: engine.Approve, By: "ann", Words: "cheap"}))
		e.elapse(time.Second)
		e.check(e.Pause(ctx, run, "ben"))
		e.elapse(time.Second)
		e.check(e.Resume(ctx, run, "ben"))
		e.elapse(time.Hour)
		e.check(e.Signal(ctx, run, "more", "x", engine.ID("3")))
		e.elapse(time.Second)
		e.check(e.Signal(ctx, run, "more", "y", engine.ID("4")))
		e.wait(run, engine.StateSucceeded)

		stuck := start("saga", "stuck")
		e.wait(stuck, engine.StateDead)
		e.check(e.Retry(ctx, stuck, "ben"))
		e.wait(stuck, engine.StateDead)
		e.check(e.Abandon(ctx, stuck, "ben"))

		e.check(e.PauseWorkflow(ctx, "slow", "carl"))
		slow := start("slow", "a", engine.RunTimeout(time.Hour))
		e.elapse(time.Minute)
		e.check(e.ResumeWorkflow(ctx, "slow", "carl"))
		e.elapse(30 * time.Second)
		e.check(e.Wake(ctx, slow, "carl"))
		e.wait(slow, engine.StateSucceeded)
		s, err := e.Replay(ctx, slow, nil, "dora")
		e.check(err)
		e.wait(s.ID, engine.StateSucceeded)
	}
}
