package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/retry"
)

// oldLog is the log of a process whose release knows only format 1. What has a newer format looks
// to the engine like a format that it does not know.
type oldLog struct{ journal.Log }

func (o oldLog) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	l, err := o.Log.Lease(ctx, shard)
	return oldLease{l, l}, err
}

// oldMember is oldLog for a member of a cluster.
type oldMember struct{ *logMember }

type logMember = memlog.Member // it has a method Member, so it can't be embedded by that name

var _ journal.Cluster = oldMember{}

func (o oldMember) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	l, err := o.logMember.Lease(ctx, shard)
	if err != nil {
		return nil, err
	}
	return oldShared{oldLease{l, l}, l.(journal.Shared)}, nil
}

func (o oldMember) Peek(ctx context.Context, shard int) (journal.Reader, error) {
	r, err := o.logMember.Peek(ctx, shard)
	return oldReader{r}, err
}

type oldLease struct {
	journal.Lease
	reader journal.Reader
}

func (l oldLease) Read(ctx context.Context, from uint64) iter.Seq2[journal.Entry, error] {
	return oldReader{l.reader}.Read(ctx, from)
}

func (l oldLease) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	return oldReader{l.reader}.Get(ctx, name)
}

type oldShared struct {
	oldLease
	shared journal.Shared
}

func (l oldShared) Serve(answer journal.Answer) error { return l.shared.Serve(answer) }

type oldReader struct{ journal.Reader }

func (r oldReader) Read(ctx context.Context, from uint64) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		for e, err := range r.Reader.Read(ctx, from) {
			if err == nil && e.Data[0] > machine.FirstFormat {
				e.Data = bytes.Clone(e.Data)
				e.Data[0] = machine.Format + 1
				resum(e.Data)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (r oldReader) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	blob, err := r.Reader.Get(ctx, name)
	if _, snapshot := store.ParseName(name, store.SnapshotPrefix); err != nil || !snapshot {
		return blob, err
	}
	defer blob.Close()
	data, err := io.ReadAll(blob)
	if err != nil {
		return nil, err
	}
	block, format := stateBlock(data)
	if *format > machine.FirstFormat {
		*format = machine.Format + 1
		_, n := binary.Uvarint(block[1:])
		resum(block[1+n:])
	}
	zipped := store.NewEncoder(nil).EncodeAll(block, nil)
	rest := data[4+binary.LittleEndian.Uint32(data):]
	return io.NopCloser(bytes.NewReader(slices.Concat(binary.LittleEndian.AppendUint32(nil, uint32(len(zipped))), zipped, rest))), nil
}

// stateBlock returns the first block of a snapshot, decompressed, and the format in it. The
// block is a frame with the state: its kind, its size, the state, and a checksum of the state.
func stateBlock(snapshot []byte) (block []byte, format *byte) {
	zip := must(zstd.NewReader(nil))
	defer zip.Close()
	block = must(zip.DecodeAll(snapshot[4:4+binary.LittleEndian.Uint32(snapshot)], nil))
	_, n := binary.Uvarint(block[1:])
	return block, &block[1+n]
}

// resum computes the checksum at the end of the data again.
func resum(data []byte) {
	body := data[:len(data)-crc32.Size]
	binary.LittleEndian.PutUint32(data[len(body):], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

// formats counts the entries and snapshots of a shard by their formats.
func formats(t *testing.T, r journal.Reader) map[int]int {
	t.Helper()
	count := map[int]int{}
	from, _, err := r.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range r.Read(t.Context(), from) {
		if err != nil {
			t.Fatal(err)
		}
		count[int(e.Data[0])]++
	}
	for _, b := range must(r.Blobs(t.Context())) {
		if _, ok := store.ParseName(b.Name, store.SnapshotPrefix); ok {
			blob := must(r.Get(t.Context(), b.Name))
			_, format := stateBlock(must(io.ReadAll(blob)))
			count[int(*format)]++
			_ = blob.Close()
		}
	}
	return count
}

// joinedOld is joined for a member of a release that knows only format 1.
func joinedOld(t *testing.T, s *memlog.Store, name string, cfg Config) *member {
	t.Helper()
	m := &member{log: s.JoinOlder(name, machine.FirstFormat)}
	cfg.Log, cfg.Logger = oldMember{m.log}, quiet()
	m.Engine = must(Open(t.Context(), cfg))
	t.Cleanup(func() { _ = m.Close(gone()) })
	return m
}

// executions counts what operations and steps did, in all processes of a test.
type executions struct {
	mu    sync.Mutex
	count map[string]int
}

func (x *executions) add(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.count == nil {
		x.count = map[string]int{}
	}
	x.count[what]++
}

// of returns how often it was done.
func (x *executions) of(what string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.count[what]
}

// flow returns a workflow as code that sleeps between its operations.
func (x *executions) flow(name string, sleep time.Duration) *Workflow {
	return MustFlow(name, func(f *Flow, key string) (string, error) {
		before, err := Do(f, "before", func(context.Context) (string, error) { x.add(key + " before"); return key + "!", nil })
		if err != nil {
			return "", err
		}
		parts, err := Map(f, "each", []int{1, 2}, func(_ context.Context, n int) (string, error) {
			x.add(fmt.Sprint(key, " each ", n))
			return fmt.Sprint(before, n), nil
		})
		if err != nil {
			return "", err
		}
		if err := Sleep(f, "pause", sleep); err != nil {
			return "", err
		}
		return Do(f, "after", func(context.Context) (string, error) { x.add(key + " after"); return strings.Join(parts, " "), nil })
	})
}

// check checks that the run has ended after its sleep, and that each operation was executed once.
func (x *executions) check(t *testing.T, i *Info, sleep time.Duration) {
	t.Helper()
	if want := fmt.Sprintf("%q", i.Key+"!1 "+i.Key+"!2"); i.State != "succeeded" || string(i.Output) != want {
		t.Errorf("%s is %s with the output %s, want %s; %s", i.Key, i.State, i.Output, want, i.Error)
	}
	if i.Ended == nil || i.Ended.Sub(i.Created) < sleep {
		t.Errorf("%s began at %v and ended at %v, before its sleep was over", i.Key, i.Created, i.Ended)
	}
	for _, op := range []string{"before", "each 1", "each 2", "after"} {
		if n := x.of(i.Key + " " + op); n != 1 {
			t.Errorf("%s of %s was executed %d times", op, i.Key, n)
		}
	}
}

// fails returns a step that fails.
func fails(name string) Part {
	return Step(name, func(context.Context, string) (string, error) { return "", retry.Permanent(errors.New("no")) })
}

func TestStepsAreStoredInTheFirstFormat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s memlog.Store
		var x executions
		told := must(NewWorkflow("told", nothingOf[Ended]()))
		w := must(NewWorkflow("steps", fails("a"), OnEnd(told), OnGiveUp(must(NewWorkflow("gave-up", nothingOf[GaveUp]())))))
		flow := x.flow("flow", time.Hour)
		cfg := Config{Workflows: []*Workflow{w, flow}, Logger: quiet(), snapshotAfter: 2000}
		open := func() *Engine {
			cfg.Log = s.Open()
			return must(Open(t.Context(), cfg))
		}
		cfg.Log = hoard{s.Open()} // keeps all entries
		e := must(Open(t.Context(), cfg))
		if err := e.SetSchedules(t.Context(), []Schedule{{Name: "often", Workflow: "steps", Cron: "* * * * *", Input: []byte(`""`)}}); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			waited(t, started(t, e, w, ""))
		}
		time.Sleep(10 * time.Minute)
		if got := formats(t, e.shard().Lease); got[1] < 10 || len(got) != 1 {
			t.Errorf("an engine without flows has written formats %v", got)
		}
		_ = e.Close(t.Context())
		if e, err := Open(t.Context(), Config{Log: oldLog{s.Open()}, Workflows: []*Workflow{w}, Logger: quiet()}); err != nil {
			t.Errorf("the release before can't open it: %v", err)
		} else {
			_ = e.Close(t.Context())
		}
		e = open()
		run := started(t, e, flow, "k", Key("k"))
		time.Sleep(time.Minute)
		_ = e.Close(t.Context())
		entry := fmt.Sprintf("stored by a newer version: entry has format %d, this version knows formats up to %d", machine.Format+1, machine.Format)
		if _, err := Open(t.Context(), Config{Log: oldLog{s.Open()}, Logger: quiet()}); !errors.Is(err, machine.ErrFormat) || !strings.Contains(err.Error(), entry) {
			t.Errorf("the release before opens a log with a flow: %v", err)
		}
		e = open()
		for range 50 {
			waited(t, started(t, e, w, ""))
		}
		time.Sleep(10 * time.Minute) // until only a snapshot has the flow
		got := formats(t, e.shard().Lease)
		_ = e.Close(t.Context())
		if got[2] == 0 {
			t.Errorf("formats %v", got)
		}
		if _, err := Open(t.Context(), Config{Log: oldLog{s.Open()}, Logger: quiet()}); !errors.Is(err, machine.ErrFormat) || !strings.Contains(err.Error(), "snapshot") {
			t.Errorf("the release before opens a snapshot with a flow: %v", err)
		}
		e = open()
		x.check(t, must(e.Wait(t.Context(), run.ID)), time.Hour)
		_ = e.Close(t.Context())
	})
}

// nothingOf returns a step that does nothing with its input.
func nothingOf[T any]() Part {
	return Step("nothing", func(context.Context, T) (string, error) { return "", nil })
}

func TestClusterRefusesFlowsWhileAMemberIsOld(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		var x executions
		flow := x.flow("flow", time.Hour)
		ended := MustFlow("ended", func(f *Flow, e Ended) (string, error) { x.add("ended " + e.Key); return "", nil })
		gaveUp := MustFlow("gave-up", func(f *Flow, g GaveUp) (string, error) { x.add("gave up " + g.Key); return "", nil })
		onEnd := must(NewWorkflow("on-end", fails("a"), OnEnd(ended)))
		onGiveUp := must(NewWorkflow("on-give-up", fails("a"), OnGiveUp(gaveUp)))
		steps := must(NewWorkflow("steps", nothing()))
		cfg := Config{Workflows: []*Workflow{flow, onEnd, onGiveUp, steps}}
		a, b := joined(t, s, "a", cfg), joined(t, s, "b", cfg)
		old := joinedOld(t, s, "old", Config{Workflows: []*Workflow{steps}})
		settled(t, a, b, old)
		if err := a.SetSchedules(t.Context(), []Schedule{{Name: "hourly", Workflow: "flow", Cron: "0 * * * *", Input: []byte(`"scheduled"`)}}); err != nil {
			t.Fatal(err)
		}
		refused := func(what string, err error) {
			t.Helper()
			const text = "a member of the cluster has an older release: old (old-3) can read stored data up to format 1, and a workflow as code needs format 2: " +
				"finish the rolling deploy, then start the run again"
			if !errors.Is(err, ErrOldMember) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for i := range 8 {
			for _, w := range []*Workflow{flow, onEnd, onGiveUp} {
				_, err := a.Start(t.Context(), w, "k", Key(fmt.Sprint(w.Name(), i)))
				refused("start of "+w.Name(), err)
			}
			// The owner checks too: this process may not know the old member yet.
			_, err := a.router.At(t.Context(), i, &shard.Call{Op: shard.OpStartFlow, Start: &shard.Start{ID: newRunID(i), Definition: flow.core.Def.Text(), Def: flow.core.Def}})
			refused(fmt.Sprint("start in shard ", i), err)
			if i := waited(t, started(t, a.Engine, steps, i, Key(fmt.Sprint(i)))); i.State != "succeeded" {
				t.Errorf("a run of steps is %s", i.State)
			}
		}
		time.Sleep(3 * time.Hour) // the schedule is due
		list := must(a.Schedules(t.Context()))
		if len(list) != 1 || list[0].Refused == nil {
			t.Fatalf("schedules: %+v", list)
		}
		refused("the schedule", fmt.Errorf("%w%s", ErrOldMember, strings.TrimPrefix(list[0].Refused.Error, ErrOldMember.Error())))
		for n := range s.Shards {
			if got := formats(t, must(a.log.Peek(t.Context(), n))); got[1] == 0 || len(got) != 1 {
				t.Errorf("shard %d has formats %v", n, got)
			}
		}
		_ = old.Close(t.Context())
		settled(t, a, b)
		time.Sleep(10 * time.Second)
		page := must(a.List(t.Context(), Filter{Workflow: "flow"}))
		if len(page.Runs) != 1 || !strings.HasPrefix(page.Runs[0].Key, "schedule/hourly/") {
			t.Errorf("the schedule has started %+v; want the start that was due", page.Runs)
		}
		if list := must(b.Schedules(t.Context())); list[0].Refused != nil || a.Troubles() != nil || b.Troubles() != nil {
			t.Errorf("after the deploy: %+v, %v, %v", list, a.Troubles(), b.Troubles())
		}
		x.check(t, waited(t, started(t, a.Engine, flow, "k", Key("k"))), time.Hour)
		waited(t, started(t, a.Engine, onEnd, "", Key("e")))
		waited(t, started(t, b.Engine, onGiveUp, "", Key("g")))
		time.Sleep(time.Minute)
		if ended, gaveUp := x.of("ended e"), x.of("gave up g"); ended != 1 || gaveUp != 1 {
			t.Errorf("%d follow-up runs of an end, %d of giving up; want one of each", ended, gaveUp)
		}
	})
}

func TestClusterOldMemberCantOpenShardsWithFlows(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		var x executions
		flow := x.flow("flow", time.Hour)
		cfg := Config{Workflows: []*Workflow{flow}}
		a, b := joined(t, s, "a", cfg), joined(t, s, "b", cfg)
		settled(t, a, b)
		var runs []Started
		for i := range 30 { // in every shard
			key := fmt.Sprint("k", i)
			runs = append(runs, started(t, a.Engine, flow, key, Key(key)))
		}
		time.Sleep(time.Minute)
		last := lastEntries(t, a)
		old := joinedOld(t, s, "old", Config{})
		time.Sleep(time.Minute)
		assigned, _ := old.log.Assigned()
		if len(assigned) == 0 || len(old.router.Shards()) != 0 {
			t.Fatalf("the old member has opened %d of %d shards", len(old.router.Shards()), len(assigned))
		}
		troubles := old.Troubles()
		if len(troubles) != len(assigned) || !strings.Contains(troubles[0].Error, "stored by a newer version") {
			t.Errorf("the old member has the troubles %+v", troubles)
		}
		now := lastEntries(t, a)
		for _, n := range assigned {
			if now[n] != last[n] {
				t.Errorf("the old member has written to shard %d", n)
			}
		}
		_ = old.Close(t.Context())
		for _, run := range runs {
			x.check(t, waited(t, run), time.Hour)
		}
	})
}

// lastEntries returns the sequence of the last entry of each shard.
func lastEntries(t *testing.T, m *member) (last []uint64) {
	t.Helper()
	for _, s := range must(m.log.Status(t.Context())).Shards {
		last = append(last, s.Last)
	}
	return last
}

// TestClusterRollingDeployOfFlows replaces the members of a cluster by those of a release that has
// flows, while runs of steps are started and wait.
func TestClusterRollingDeployOfFlows(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		var x executions
		ready := false
		steps := must(NewWorkflow("steps",
			Step("wait", func(_ context.Context, key string) (string, error) {
				x.mu.Lock()
				defer x.mu.Unlock()
				if !ready {
					return "", errors.New("not yet")
				}
				return "", nil
			}, Policy("fixed(7s) attempts=unlimited")),
			Step("work", func(_ context.Context, key string) (string, error) { x.add(key); return key, nil }, After("wait"))))
		flow := x.flow("flow", time.Minute)
		var members []*member
		for _, name := range []string{"a", "b", "c"} {
			members = append(members, joinedOld(t, s, name, Config{Workflows: []*Workflow{steps}}))
		}
		settled(t, members...)
		var runs []Started
		start := func(n int) {
			for range n {
				key := fmt.Sprint("s", len(runs))
				runs = append(runs, started(t, members[len(runs)%3].Engine, steps, key, Key(key)))
			}
		}
		start(20)
		for i, name := range []string{"d", "e", "f"} {
			if i == 1 {
				members[i].kill() // one of them dies
			} else if err := members[i].Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			members[i] = joined(t, s, name, Config{Workflows: []*Workflow{steps, flow}})
			settled(t, members...)
			start(20)
			if _, err := members[i].Start(t.Context(), flow, "f", Key("f")); (err == nil) != (i == 2) || err != nil && !errors.Is(err, ErrOldMember) {
				t.Errorf("start of a flow when %d members are new: %v", i+1, err)
			}
		}
		var flows []Started
		for i := range 20 {
			key := fmt.Sprint("f", i)
			flows = append(flows, started(t, members[i%3].Engine, flow, key, Key(key)))
		}
		x.mu.Lock()
		ready = true
		x.mu.Unlock()
		for _, run := range flows {
			x.check(t, waited(t, Started{ID: run.ID, e: members[0].Engine}), time.Minute)
		}
		for i, run := range runs {
			info := waited(t, Started{ID: run.ID, e: members[0].Engine})
			if key := fmt.Sprint("s", i); info.State != "succeeded" || info.Key != key || x.of(key) != 1 {
				t.Errorf("%s is %s, and was executed %d times", key, info.State, x.of(key))
			}
		}
	})
}

func TestMovesAndBackupsKeepFlows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var x executions
		flow := x.flow("flow", time.Hour)
		again := MustFlow("again", func(f *Flow, n int) (int, error) {
			if err := Sleep(f, "pause", 20*time.Minute); err != nil || n == 0 {
				return n, err
			}
			return 0, Again(f, n-1)
		})
		cfg := Config{Workflows: []*Workflow{flow, again}, Logger: quiet(), snapshotAfter: 3000, uptime: noUptime}
		dir := t.TempDir()
		open := func(log journal.Log, dir string) *Engine {
			cfg.Log, cfg.Dir = log, dir
			return must(Open(t.Context(), cfg))
		}
		ids := map[string]string{} // by key
		start := func(e *Engine, n int) {
			for range n {
				key := fmt.Sprint("k", len(ids))
				ids[key] = started(t, e, flow, key, Key(key)).ID
			}
			time.Sleep(10 * time.Minute)
		}
		// In a folder.
		e := open(nil, filepath.Join(dir, "folder"))
		chain := started(t, e, again, 4, Key("chain"))
		start(e, 10)
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		// In a cluster.
		s := &memlog.Store{Shards: 4}
		log := folder(t, filepath.Join(dir, "folder"))
		mover := s.Join("mover")
		moved := must(move.Move(t.Context(), log, mover, move.Options{Limited: limitedOf(flow, again)}))
		_, _ = log.Close(), mover.Close()
		if moved.Runs["scheduled"]+moved.Runs["waiting"] < 10 {
			t.Errorf("moved: %+v", moved)
		}
		a, b := joined(t, s, "a", cfg), joined(t, s, "b", cfg)
		settled(t, a, b)
		start(a.Engine, 10)
		copied := filepath.Join(dir, "copy")
		if err := a.Backup(t.Context(), copied); err != nil {
			t.Fatal(err)
		}
		_, _ = a.Close(t.Context()), b.Close(t.Context())
		// In a folder again.
		back := filepath.Join(dir, "back")
		log, mover = folder(t, back), s.Join("mover")
		must(move.Move(t.Context(), mover, log, move.Options{Limited: limitedOf(flow, again)}))
		_, _ = log.Close(), mover.Close()
		e = open(nil, back)
		defer e.Close(t.Context())
		start(e, 10)
		for key, id := range ids {
			if again := started(t, e, flow, key, Key(key)); again.ID != id || !again.Existing {
				t.Errorf("%s is run %s, was %s", key, again.ID, id)
			}
			x.check(t, must(e.Wait(t.Context(), id)), time.Hour)
		}
		links := 0
		for id := chain.ID; id != ""; links++ {
			must(e.Wait(t.Context(), id))
			i := must(e.Get(t.Context(), id))
			if i.State != "succeeded" || i.Ended.Sub(i.Created) < 20*time.Minute {
				t.Errorf("run %d of the chain is %s, from %v to %v", links, i.State, i.Created, i.Ended)
			}
			id = i.ContinuedBy
		}
		if links != 5 {
			t.Errorf("the chain has %d runs", links)
		}
		// The backup has the flows in their sleep: they end there too.
		x.mu.Lock()
		x.count = nil
		x.mu.Unlock()
		e2 := open(nil, copied)
		defer e2.Close(t.Context())
		for i := range 20 {
			info := must(e2.Wait(t.Context(), ids[fmt.Sprint("k", i)]))
			if info.State != "succeeded" || x.of(info.Key+" after") != 1 || x.of(info.Key+" before") != 0 {
				t.Errorf("%s of the backup is %s; its last operation was executed %d times, its first %d times",
					info.Key, info.State, x.of(info.Key+" after"), x.of(info.Key+" before"))
			}
		}
	})
}
