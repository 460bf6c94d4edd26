package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/engine/move"
)

func nothing() Part {
	return Step("do", func(context.Context, int) (int, error) { return 0, nil })
}

func TestClusterStartWithoutKeyGoesElsewhere(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := must(NewWorkflow("wide", nothing()))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		settled(t, a)
		_ = a.Close(t.Context())
		a = joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			if op.Name == "read" && op.Shard == 3 {
				f.Before = fmt.Errorf("entry 7: %w", journal.ErrDamaged)
			}
			return f
		})
		time.Sleep(10 * time.Second)
		for range 50 {
			begin := time.Now()
			if _, err := a.Start(t.Context(), w, 1); err != nil || time.Since(begin) > 5*time.Second {
				t.Fatalf("start = %v, after %v", err, time.Since(begin))
			}
		}
		a.log.Disturb(nil)
	})
}

func TestClusterScheduleMovesOnce(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		wide, narrow := must(NewWorkflow("wide", nothing())), must(NewWorkflow("narrow", MaxRuns(2), nothing()))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{wide, narrow}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{wide, narrow}})
		settled(t, a, b)
		if a.shardAt(machine.WorkflowSlot("narrow")%8) == nil {
			a, b = b, a
		}
		plan := func(workflow string) error {
			return a.SetSchedules(t.Context(), []Schedule{
				{Name: keyIn(b, 1), Workflow: workflow, Cron: "*/10 * * * *", Input: []byte("1")},
			})
		}
		if err := plan("wide"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + time.Minute)
		before := len(must(a.List(t.Context(), Filter{})).Runs)
		a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			if op.Name == "call" {
				f.Before = errors.New("no route")
			}
			return f
		})
		if err := plan("narrow"); err == nil || !strings.Contains(err.Error(), "did not answer") {
			t.Errorf("SetSchedules = %v while the old home is away; want an error that says so", err)
		}
		a.log.Disturb(nil)
		time.Sleep(time.Hour)
		if n, list := len(must(a.List(t.Context(), Filter{})).Runs)-before, must(a.Schedules(t.Context())); n != 6 || len(list) != 1 {
			t.Errorf("%d starts in an hour, want 6; schedules: %v", n, list)
		}
		if err := plan("narrow"); err != nil {
			t.Fatal(err)
		}
		if list := must(a.Schedules(t.Context())); len(list) != 1 || list[0].Workflow != "narrow" {
			t.Errorf("schedules: %v; want the one that was set", list)
		}
	})
}

// A schedule that is paused stays paused if the process that moves it to another shard dies,
// wherever that is. When it is resumed, it starts each run once.
func TestClusterScheduleThatMovesStaysPaused(t *testing.T) {
	t.Parallel()
	for sent := range 8 { // how many shards the process has changed when it dies
		for _, again := range []bool{false, true} { // the schedules are set again before the schedule is resumed
			together(t, func(t *testing.T, s *memlog.Store) {
				wide, narrow := must(NewWorkflow("wide", nothing())), must(NewWorkflow("narrow", MaxRuns(2), nothing()))
				cfg := Config{Workflows: []*Workflow{wide, narrow}}
				a, b := joined(t, s, "a", cfg), joined(t, s, "b", cfg)
				settled(t, a, b)
				if a.shardAt(machine.WorkflowSlot("narrow")%8) == nil {
					a, b = b, a
				}
				name := ""
				for n := range 1000 { // in another shard of a than the runs of narrow
					if name = keyIn(a, n); machine.KeySlot(name)%8 != machine.WorkflowSlot("narrow")%8 {
						break
					}
				}
				plan := func(m *member, workflow string) error {
					return m.SetSchedules(t.Context(), []Schedule{{Name: name, Workflow: workflow, Cron: "*/10 * * * *", Input: []byte("1")}})
				}
				if err := errors.Join(plan(a, "wide"), a.PauseSchedule(t.Context(), name, "ann")); err != nil {
					t.Fatal(err)
				}
				var changed atomic.Int32
				b.calls.before.Store(new(func(c *shard.Call) error {
					if c.Op == shard.OpSchedule && int(changed.Add(1)) > sent {
						return errors.New("no route")
					}
					return nil
				}))
				_ = plan(b, "narrow") // it dies, or has done all
				b.kill()
				settled(t, a)
				if again {
					if err := plan(a, "narrow"); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Hour)
				if list := must(a.Schedules(t.Context())); len(list) != 1 || list[0].Paused == nil || list[0].Paused.By != "ann" {
					t.Fatalf("after %d changes, again %v: schedules %+v; want one that ann has paused", sent, again, list)
				}
				if err := a.ResumeSchedule(t.Context(), name, "ann"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				if n := len(must(a.List(t.Context(), Filter{Fresh: true})).Runs); n != 6 {
					t.Errorf("after %d changes, again %v: %d starts in an hour, want 6", sent, again, n)
				}
			})
		}
	}
}

// A pause that is stored while another process moves the schedule to another shard is not lost.
func TestClusterScheduleIsPausedWhileItMoves(t *testing.T) {
	t.Parallel()
	for at := range int32(6) { // how many shards the other process has changed
		together(t, func(t *testing.T, s *memlog.Store) {
			wide, narrow := must(NewWorkflow("wide", nothing())), must(NewWorkflow("narrow", MaxRuns(2), nothing()))
			cfg := Config{Workflows: []*Workflow{wide, narrow}}
			a, b := joined(t, s, "a", cfg), joined(t, s, "b", cfg)
			settled(t, a, b)
			if a.shardAt(machine.WorkflowSlot("narrow")%8) == nil {
				a, b = b, a
			}
			name := ""
			for n := range 1000 { // in another shard of a than the runs of narrow
				if name = keyIn(a, n); machine.KeySlot(name)%8 != machine.WorkflowSlot("narrow")%8 {
					break
				}
			}
			plan := func(m *member, workflow string) error {
				return m.SetSchedules(t.Context(), []Schedule{{Name: name, Workflow: workflow, Cron: "*/10 * * * *", Input: []byte("1")}})
			}
			check(t, plan(a, "wide"))
			var sent atomic.Int32
			var paused error
			b.calls.before.Store(new(func(c *shard.Call) error {
				if c.Op == shard.OpSchedule && sent.Add(1) == at+1 {
					paused = a.PauseSchedule(t.Context(), name, "ann")
				}
				return nil
			}))
			check(t, plan(b, "narrow"))
			if sent.Load() <= at {
				return // it has changed fewer shards
			}
			if paused != nil && (at == 0 || !errors.Is(paused, ErrNoSchedule)) {
				t.Errorf("after %d changes: PauseSchedule() = %v", at, paused)
			}
			list := must(a.Schedules(t.Context()))
			if len(list) != 1 || list[0].Workflow != "narrow" || (list[0].Paused == nil) != (paused != nil) {
				t.Errorf("after %d changes: schedules %+v, and PauseSchedule() = %v", at, list, paused)
			}
			var holders []int
			for n := range 8 {
				if len(must(a.router.At(t.Context(), n, &shard.Call{Op: shard.OpSchedules})).Schedules) > 0 {
					holders = append(holders, n)
				}
			}
			if !slices.Equal(holders, []int{machine.WorkflowSlot("narrow") % 8}) {
				t.Errorf("after %d changes the shards %v have the schedule", at, holders)
			}
		})
	}
}

func TestClusterScheduleOfAWorkflowThatOthersKnow(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		narrow, other := must(NewWorkflow("narrow", MaxRuns(2), nothing())), must(NewWorkflow("other", nothing()))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{narrow, other}})
		settled(t, a)
		list := []Schedule{{Name: "n", Workflow: "narrow", Cron: "*/10 * * * *", Input: []byte("1")}}
		if err := a.SetSchedules(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		b := joined(t, s, "b", Config{Workflows: []*Workflow{other}}) // an older program
		settled(t, a, b)
		if err := b.SetSchedules(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		runs := must(a.List(t.Context(), Filter{})).Runs
		for _, r := range runs {
			if n := must(machine.ParseID(r.ID)).Slot() % 8; n != machine.WorkflowSlot("narrow")%8 {
				t.Errorf("a run is in shard %d, which does not count the runs of its workflow", n)
			}
		}
		if len(runs) == 0 && a.shardAt(machine.WorkflowSlot("narrow")%8) != nil {
			t.Error("the schedule has started nothing in an hour")
		}
	})
}

func TestClusterFolderOfAnotherCluster(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := must(NewWorkflow("wide", nothing()))
		fill := func(s *memlog.Store, dir string, n int) (runs []Started) {
			m := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Dir: dir})
			settled(t, m)
			for i := range n {
				runs = append(runs, started(t, m.Engine, w, i, Key(fmt.Sprint(i))))
				waited(t, runs[i])
			}
			_ = m.Close(t.Context())
			return runs
		}
		dir := t.TempDir()
		fill(&memlog.Store{Shards: 8}, dir, 40)
		runs := fill(s, t.TempDir(), 80)
		m := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Dir: dir})
		settled(t, m)
		for _, r := range runs {
			if _, err := m.Get(t.Context(), r.ID); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestClusterSearchIsThatOfOne(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := must(NewWorkflow("wide", nothing()))
		m := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Dir: t.TempDir()})
		settled(t, m)
		alone := opened(t, Config{Workflows: []*Workflow{w}, Dir: t.TempDir()})
		for _, e := range []*Engine{m.Engine, alone} {
			for i := range 3 {
				started(t, e, w, 1, Key(fmt.Sprint("invoice ", i)))
			}
			for i := range 40 { // words that only begin so
				started(t, e, w, 1, Key(fmt.Sprint("invoicecorrection", i)))
			}
		}
		time.Sleep(10 * time.Second)
		for _, search := range []string{"invoice", "invoicecorr", "voicecor", "invoicecorrection7", "nowhere"} {
			var found [2]int
			for i, e := range []*Engine{m.Engine, alone} {
				for f := (Filter{Search: search, Limit: 2}); ; {
					page := must(e.List(t.Context(), f))
					found[i] += len(page.Runs)
					if f.After = page.Next; f.After == "" {
						break
					}
				}
			}
			if found[0] != found[1] {
				t.Errorf("search for %q: a cluster finds %d, alone %d", search, found[0], found[1])
			}
		}
	})
}

func TestClusterMoveBackWithOneKeyOfTwo(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		wide, narrow := must(NewWorkflow("wide", nothing())), must(NewWorkflow("narrow", MaxRuns(2), nothing()))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{wide, narrow}})
		settled(t, a)
		for _, w := range []*Workflow{wide, narrow} {
			started(t, a.Engine, w, 1, Key("order 7"))
		}
		_ = a.Close(t.Context())
		_, err := move.Move(t.Context(), s.Join("mover"), new(memlog.Store).Open(), move.Options{Limited: limitedOf(wide, narrow)})
		if err == nil || !strings.Contains(err.Error(), "workflow wide") || !strings.Contains(err.Error(), "workflow narrow") {
			t.Errorf("Move = %v; want an error that names both workflows", err)
		}
	})
}
