package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/engine/move"
)

// failing makes reading a shard fail, both with a lease and with Peek.
func failing(err error, shards ...int) func(memlog.Operation) memlog.Fault {
	return func(op memlog.Operation) (f memlog.Fault) {
		if (op.Name == "lease" || op.Name == "peek") && slices.Contains(shards, op.Shard) {
			f.Before = err
		}
		return f
	}
}

var errDeleted = fmt.Errorf("%w: the stream was deleted", journal.ErrDamaged)

// spreadRuns returns a cluster with runs in all shards, and how many each has.
func spreadRuns(t *testing.T, w *Workflow) (s *memlog.Store, at [4]int) {
	t.Helper()
	s = &memlog.Store{Shards: len(at)}
	a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
	settled(t, a)
	for i := range 60 {
		run := started(t, a.Engine, w, i, Key(fmt.Sprint(i)))
		waited(t, run)
	}
	for n := range at {
		at[n] = int(must(a.router.At(t.Context(), n, &shard.Call{Op: shard.OpStats})).Stats.Workflows[0].Totals.Succeeded)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, at
}

// lists waits until an engine lists this many runs.
func lists(t *testing.T, e *Engine, want int) {
	t.Helper()
	until(t, fmt.Sprintf("%d runs are there", want), func() bool {
		return len(must(e.List(t.Context(), Filter{Limit: 1000})).Runs) == want
	})
}

func succeeds(t *testing.T) *Workflow {
	t.Helper()
	return one(t, func(_ context.Context, n int) (int, error) { return n, nil })
}

func TestAMoveWithoutLostShards(t *testing.T) {
	t.Parallel()
	for _, lost := range [][]int{{0}, {2}, {0, 3}} {
		t.Run(fmt.Sprint("shards ", lost), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { moveWithoutShards(t, lost) })
		})
	}
}

func moveWithoutShards(t *testing.T, lost []int) {
	t.Helper()
	w := succeeds(t)
	s, at := spreadRuns(t, w)
	want := at[0] + at[1] + at[2] + at[3]
	for _, n := range lost {
		want -= at[n]
	}
	from := s.Join("mover")
	from.Disturb(failing(errDeleted, lost...))
	dir := filepath.Join(t.TempDir(), "to")
	to := folder(t, dir)
	_, err := move.Move(t.Context(), from, to, move.Options{})
	if e, ok := errors.AsType[*move.LostShardError](err); !ok || e.Shard != lost[0] || !errors.Is(err, journal.ErrDamaged) {
		t.Fatalf("Move of a cluster with a lost shard = %v; want which", err)
	}
	opts := move.Options{From: "old", To: dir, WithoutShards: append(lost, lost[0])}
	count := must(move.Move(t.Context(), from, to, move.Options{WithoutShards: lost, DryRun: true}))
	moved := must(move.Move(t.Context(), from, to, opts))
	for _, m := range []move.Moved{count, moved} {
		if m.Runs["succeeded"] != want || m.FromShards != 4 || len(m.LeftOut) != len(lost) {
			t.Fatalf("Move = %+v; want %d runs without the shards %v", m, want, lost)
		}
		for i, l := range m.LeftOut {
			if l.Shard != lost[i] || !strings.Contains(l.Error, "the stream was deleted") {
				t.Errorf("left out: %+v; want shard %d and why", l, lost[i])
			}
		}
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	e := opened(t, Config{Dir: dir, Workflows: []*Workflow{w}, uptime: noUptime})
	lists(t, e, want)
	// The source is marked as moved, except in the lost shards.
	again := s.Join("again")
	again.Disturb(failing(errDeleted, lost...))
	_, err = Open(t.Context(), Config{Log: again, Workflows: []*Workflow{w}, Logger: quiet()})
	if _, ok := errors.AsType[*move.MovedError](err); !ok {
		t.Errorf("Open of the old place = %v; want that it was moved", err)
	}
}

func TestShardsThatAreNotLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, shardsThatAreNotLeftOut)
}

func shardsThatAreNotLeftOut(t *testing.T) {
	t.Helper()
	w := succeeds(t)
	s, _ := spreadRuns(t, w)
	for _, c := range []struct {
		name    string
		without []int
		fault   func(memlog.Operation) memlog.Fault
		want    string
	}{
		{"one that can be read", []int{1}, nil, "shard 1 of the source can't be left out: it can be read"},
		{"one of two, the other is lost", []int{1, 2}, failing(errDeleted, 1), "shard 2 of the source can't be left out: it can be read"},
		{"one that servers are needed for", []int{1}, failing(errors.New("no quorum"), 1), "it is not lost, and may be read later: no quorum"},
		{"one that another process has", []int{1}, failing(journal.ErrLocked, 1), "it is not lost, and may be read later: " + journal.ErrLocked.Error()},
		{"one that is not there", []int{4}, nil, "shard 4 can't be left out: the source has the shards 0 to 3"},
		{"one below all", []int{-1}, nil, "shard -1 can't be left out"},
		{"all", []int{0, 1, 2, 3}, failing(errDeleted, 0, 1, 2, 3), "nothing would be left"},
		{"another than the one that is lost", []int{1}, failing(errDeleted, 0), "shard 0 of the source: " + errDeleted.Error()},
	} {
		from := s.Join("mover")
		from.Disturb(c.fault)
		dir := t.TempDir()
		_, err := move.Move(t.Context(), from, folder(t, dir), move.Options{WithoutShards: c.without})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Move = %v; want %q", c.name, err, c.want)
		}
		if err := from.Close(); err != nil {
			t.Fatal(err)
		}
	}
	plain := new(memlog.Store)
	_, err := move.Move(t.Context(), plain.Open(), newRooms(2), move.Options{WithoutShards: []int{0}})
	if err == nil || !strings.Contains(err.Error(), "shard 0 can't be left out: the source has only one shard") {
		t.Errorf("Move of a log that is no cluster = %v", err)
	}
	// Nothing of this has marked it.
	moved := must(move.Move(t.Context(), s.Join("mover"), newRooms(2), move.Options{}))
	if moved.Runs["succeeded"] != 60 || moved.LeftOut != nil {
		t.Errorf("Move = %+v; want all 60 runs", moved)
	}
}

// TestAMoveGoesOnWhenALostShardIsBack interrupts a move without the first shard.
func TestAMoveGoesOnWhenALostShardIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, moveWhenALostShardIsBack)
}

func moveWhenALostShardIsBack(t *testing.T) {
	t.Helper()
	w := succeeds(t)
	s, _ := spreadRuns(t, w)
	from := s.Join("mover")
	from.Disturb(func(op memlog.Operation) (f memlog.Fault) {
		f = failing(errDeleted, 0)(op)
		if op.Name == "put" && op.Shard == 2 { // the mark
			f.Before = errors.New("told to end")
		}
		return f
	})
	to := newRooms(3)
	_, err := move.Move(t.Context(), from, to, move.Options{WithoutShards: []int{0}})
	if err == nil || !strings.Contains(err.Error(), "told to end") {
		t.Fatalf("Move = %v; want that it is interrupted", err)
	}
	from.Disturb(nil)
	moved := must(move.Move(t.Context(), from, to, move.Options{}))
	if moved.Runs["succeeded"] != 60 {
		t.Errorf("Move = %+v; want all 60 runs", moved)
	}
}

func TestABackupWithoutLostShards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, backupWithoutLostShards)
}

func backupWithoutLostShards(t *testing.T) {
	t.Helper()
	w := succeeds(t)
	s, at := spreadRuns(t, w)
	a := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
	settled(t, a)
	dir := filepath.Join(t.TempDir(), "copy")
	if _, err := a.Operator().BackupWithout(t.Context(), dir, []int{3}); err == nil || !strings.Contains(err.Error(), "shard 3 of the source can't be left out: it can be read") {
		t.Errorf("BackupWithout a shard that can be read = %v", err)
	}
	a.log.Disturb(failing(errDeleted, 3))
	err := a.Backup(t.Context(), dir)
	if e, ok := errors.AsType[*move.LostShardError](err); !ok || e.Shard != 3 {
		t.Errorf("Backup = %v; want that shard 3 is lost", err)
	}
	want := 60 - at[3]
	copied := must(a.Operator().BackupWithout(t.Context(), dir, []int{3}))
	if len(copied.LeftOut) != 1 || copied.LeftOut[0].Shard != 3 || copied.Runs["succeeded"] != want || copied.FromShards != 4 {
		t.Errorf("BackupWithout = %+v; want %d runs, without shard 3", copied, want)
	}
	a.log.Disturb(nil)
	e := opened(t, Config{Dir: dir, Workflows: []*Workflow{w}, uptime: noUptime})
	lists(t, e, want)
	if _, err := e.Operator().BackupWithout(t.Context(), t.TempDir(), []int{0}); err == nil || !strings.Contains(err.Error(), "this is no cluster") {
		t.Errorf("BackupWithout of a folder = %v", err)
	}
}
