package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
)

// TestClusterLivesOn is like TestClusterGetsThrough, and also uses folders, snapshots, commands,
// waits and lists.
func TestClusterLivesOn(t *testing.T) {
	t.Parallel()
	for seed := range (*chaosSeeds + 3) / 4 {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &life{storm: newStorm(t, seed), keys: map[string]string{}, ran: map[int]map[string]bool{}, acked: map[string]int{}, canceled: map[string]bool{}, errs: map[string]int{}}
				c.runScenario()
			})
		})
	}
}

type life struct {
	storm

	number   int
	acked    map[string]int // run -> number
	keys     map[string]string
	ran      map[int]map[string]bool // number -> runs whose handler was called
	canceled map[string]bool
	errs     map[string]int
	waits    int
}

func (c *life) runScenario() {
	c.cfg = func(w *Workflow) Config {
		return Config{Workflows: []*Workflow{w}, Dir: c.t.TempDir(), snapshotAfter: 2000, Concurrency: 4}
	}
	c.begun = func(ctx context.Context, n int) time.Duration {
		task, _ := TaskOf(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ran[n] == nil {
			c.ran[n] = map[string]bool{}
		}
		c.ran[n][task.Run] = true
		if n%3 == 0 {
			return 0
		}
		return time.Duration(c.random.IntN(2000)) * time.Millisecond
	}
	people := []func(){c.command, c.command, c.watch}
	for n := range 2 {
		people = append(people, func() { c.startRuns(n) })
	}
	c.rage(people...)
	c.judge()
}

func (c *life) failed(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := err.Error()
	if i := len(text); i > 150 {
		text = text[:150]
	}
	c.errs[what+": "+text]++
}

// startRuns starts runs until the failures end.
func (c *life) startRuns(caller int) {
	for n := 0; ; n++ {
		time.Sleep(time.Duration(c.draw(300)) * time.Millisecond)
		m, calm := c.any()
		if calm {
			return
		}
		c.mu.Lock()
		c.number++
		number := c.number
		c.mu.Unlock()
		var opts []StartOption
		key := ""
		if n%2 == 0 {
			key = fmt.Sprint("key ", caller/2, " ", n)
			opts = append(opts, Key(key))
		}
		w, _ := m.Workflow("one")
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		s, err := m.Start(ctx, w, number, opts...)
		cancel()
		if err != nil {
			c.failed("start", err)
			continue
		}
		c.mu.Lock()
		c.acked[s.ID] = number
		if was := c.keys[key]; key != "" && was != "" && was != s.ID {
			c.t.Errorf("%s has the runs %s and %s", key, was, s.ID)
		}
		if key != "" {
			c.keys[key] = s.ID
		}
		c.mu.Unlock()
	}
}

func (c *life) command() {
	for {
		time.Sleep(time.Duration(c.draw(500)) * time.Millisecond)
		m, calm := c.any()
		if calm {
			return
		}
		c.mu.Lock()
		id := ""
		for k := range c.acked {
			if id = k; c.random.IntN(5) == 0 {
				break
			}
		}
		c.mu.Unlock()
		if id == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		switch c.draw(3) {
		case 0:
			err := m.Cancel(ctx, id, "me")
			if err == nil {
				c.mu.Lock()
				c.canceled[id] = true
				c.mu.Unlock()
			} else if !errors.Is(err, ErrState) {
				c.failed("cancel", err)
			}
		case 1:
			if _, err := m.Get(ctx, id); err != nil {
				if errors.Is(err, ErrNotFound) {
					c.t.Errorf("%s is not found", id)
				}
				c.failed("get", err)
			}
		case 2:
			if _, err := m.Wait(ctx, id); err != nil {
				if errors.Is(err, ErrNotFound) {
					c.t.Errorf("%s is not found", id)
				}
				c.failed("wait", err)
			} else {
				c.mu.Lock()
				c.waits++
				c.mu.Unlock()
			}
		}
		cancel()
	}
}

// watch lists runs again and again until the failures end.
func (c *life) watch() {
	for {
		time.Sleep(2 * time.Second)
		m, calm := c.any()
		if calm {
			return
		}
		f := Filter{Limit: 7}
		seen := map[string]bool{}
		for range 1000 {
			page, err := m.List(context.Background(), f)
			if err != nil {
				c.failed("list", err)
				break
			}
			for _, r := range page.Runs {
				if seen[r.ID] {
					c.t.Errorf("%s is listed twice", r.ID)
				}
				seen[r.ID] = true
			}
			if f.After = page.Next; f.After == "" {
				break
			}
		}
	}
}

func (c *life) judge() {
	t := c.t
	listed := map[string]Info{}
	f := Filter{Limit: 13}
	for {
		page := must(c.members[0].List(t.Context(), f))
		for _, r := range page.Runs {
			if _, twice := listed[r.ID]; twice {
				t.Errorf("%s twice", r.ID)
			}
			listed[r.ID] = r
		}
		if f.After = page.Next; f.After == "" {
			break
		}
	}
	for id, n := range c.acked {
		info, err := c.members[0].Get(t.Context(), id)
		if err != nil {
			t.Errorf("run %s: %v", id, err)
			c.autopsy(id)
			continue
		}
		if !info.Finished() {
			t.Errorf("run %s (%d) is %s", id, n, info.State)
		}
		if c.canceled[id] && info.State != "canceled" {
			t.Errorf("run %s was canceled and is %s", id, info.State)
		}
		if l, ok := listed[id]; !ok || l.State != info.State {
			t.Errorf("run %s is %s and listed as %q", id, info.State, l.State)
		}
	}
	for id, r := range listed {
		if _, err := c.members[0].Get(t.Context(), id); err != nil {
			t.Errorf("%s is listed as %s: %v", id, r.State, err)
		}
	}
	c.judgeEnds(listed)
	inputs := map[string]string{}
	for id, r := range listed {
		if other := inputs[r.InputPreview]; other != "" {
			t.Errorf("input %s has the runs %s and %s", r.InputPreview, id, other)
		}
		inputs[r.InputPreview] = id
	}
	for n, runs := range c.ran {
		if len(runs) > 1 {
			t.Errorf("number %d: %d runs", n, len(runs))
		}
	}
	stats := must(c.members[0].Stats(t.Context()))
	var ended, dead, started, canceled uint64
	for _, w := range stats.Workflows {
		ended += w.Totals.Succeeded
		dead += w.Totals.Dead
		started += w.Totals.Started
		canceled += w.Totals.Canceled
	}
	if int(started) != len(listed) || ended+dead+canceled < started {
		t.Errorf("counts: %d started, %d listed, %d succeeded, %d dead, %d canceled", started, len(listed), ended, dead, canceled)
	}
	for _, w := range stats.Workflows {
		for state, n := range w.States {
			if state != "dead" {
				t.Errorf("%d are %s", n, state)
			}
		}
	}
	for i, m := range c.members {
		if n := m.process.Admission.Counts(); n.Attempts != 4 || n.Waiting > 0 {
			t.Errorf("member %d: %d places are free, %d shards wait", i, n.Attempts, n.Waiting)
		}
	}
	t.Logf("%d acked, %d listed, %d canceled, %d waits", len(c.acked), len(listed), len(c.canceled), c.waits)
	for text, n := range c.errs {
		t.Logf("%d × %s", n, text)
	}
}

// judgeEnds checks that the end of each run was reported once.
func (c *life) judgeEnds(listed map[string]Info) {
	told := map[string]int{}
	for id, r := range listed {
		if r.Workflow == "told" {
			info := must(c.members[0].Get(c.t.Context(), id))
			told[strings.TrimPrefix(info.Source, "on-end of ")]++
		}
	}
	for id, r := range listed {
		if want := map[string]int{"one": 1}[r.Workflow]; told[id] != want {
			c.t.Errorf("run %s of %s is %s, and its end was reported %d times, want %d", id, r.Workflow, r.State, told[id], want)
		}
	}
}

// autopsy describes where the records of a missing run are, for the failure message.
func (c *life) autopsy(id string) {
	run := must(machine.ParseID(id))
	for _, m := range c.members {
		sh := m.shardAt(run.Slot() % 5)
		if sh == nil {
			continue
		}
		f, err := store.Fold(c.t.Context(), sh.Lease)
		if err != nil {
			c.t.Logf("fold: %v", err)
			return
		}
		_, there := f.Machine.Run(run)
		first, last, _ := sh.Lease.Bounds(c.t.Context())
		c.t.Logf("shard %d of %s: in the state: %v; log %d..%d", sh.Number, m.log.Member(), there, first, last)
		for _, b := range must(sh.Lease.Blobs(c.t.Context())) {
			c.t.Logf("   blob %s %d", b.Name, b.Size)
		}
		for _, name := range f.Archives {
			err := store.ReadArchive(c.t.Context(), sh.Lease, name, f.Machine, func(r *machine.Run) error {
				if r.ID == run {
					c.t.Logf("   in %s as %s, ended %v", name, r.State(), time.Unix(0, r.Ended))
				}
				return nil
			})
			if err != nil {
				c.t.Logf("   %s: %v", name, err)
			}
		}
		for entry, err := range sh.Lease.Read(c.t.Context(), first) {
			if err != nil {
				break
			}
			machine.ReadEntry(entry.Data, func(_ machine.Header, rec *machine.Record) error {
				if rec.Run == run {
					c.t.Logf("   entry %d: %s", entry.Seq, rec.Kind)
				}
				return nil
			})
		}
	}
}
