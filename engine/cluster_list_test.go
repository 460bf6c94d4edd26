package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

func TestClusterRunsHaveAHome(t *testing.T) {
	t.Parallel()
	_ = exec.Command
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		dir := t.TempDir()
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Dir: dir})
		settled(t, a)
		a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			if op.Name == "append" {
				f.Delay = 3 * time.Millisecond // three copies on disk
			}
			return f
		})
		var each sync.WaitGroup
		for k := range 64 {
			each.Go(func() {
				for i := range 10 {
					started(t, a.Engine, w, i*k)
				}
			})
		}
		each.Wait()
		time.Sleep(10 * time.Second)
		_ = a.Close(t.Context())
		var runs, aside int64
		files, _ := filepath.Glob(filepath.Join(dir, "shard-*", "view.db"))
		for _, f := range files {
			c := must(sqlite.OpenConn(f, sqlite.OpenReadOnly))
			for q, n := range map[string]*int64{"SELECT count(*) FROM runs": &runs, "SELECT count(*) FROM aside": &aside} {
				_ = sqlitex.ExecuteTransient(c, q, &sqlitex.ExecOptions{ResultFunc: func(st *sqlite.Stmt) error { *n += st.ColumnInt64(0); return nil }})
			}
			_ = c.Close()
		}
		t.Logf("%d runs, %d of them aside", runs, aside)
		if aside > runs/5 {
			t.Errorf("%d of %d runs are aside", aside, runs)
		}
	})
}

func TestClusterListsHaveEachRunOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(*chaosSeeds+3) / 4 {
		together(t, func(t *testing.T, s *memlog.Store) {
			random := rand.New(rand.NewPCG(seed, 7))
			do := func(_ context.Context, n int) (int, error) {
				switch n % 5 {
				case 0:
					return 0, retry.Permanent(fmt.Errorf("bad number %d of things", n))
				case 1:
					return 0, errors.New("flaky thing")
				case 2:
					return 0, Snooze(time.Duration(n)*time.Hour, "later")
				}
				return n, nil
			}
			ws := []*Workflow{
				must(NewWorkflow("alpha", Step("do", do, Policy("fixed(1h) attempts=5")))),
				must(NewWorkflow("beta.x", Step("do", do, Policy("fixed(1ms) attempts=2")))),
				must(NewWorkflow("gamma", MaxRuns(3), Step("do", do, Policy("fixed(1h) attempts=3")))),
			}
			a := joined(t, s, "a", Config{Workflows: ws, Dir: t.TempDir()})
			b := joined(t, s, "b", Config{Workflows: ws, Dir: t.TempDir()})
			settled(t, a, b)
			all := map[string]Info{}
			for i := range 50 {
				var opts []StartOption
				switch random.IntN(4) {
				case 0:
					opts = append(opts, Key(fmt.Sprint("key", i)))
				case 1:
					opts = append(opts, In(time.Duration(random.IntN(5)+1)*time.Hour))
				}
				m := []*member{a, b}[random.IntN(2)]
				run := started(t, m.Engine, ws[random.IntN(3)], random.IntN(1000), opts...)
				all[run.ID] = Info{}
				if random.IntN(10) == 0 {
					time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
				}
			}
			time.Sleep(10 * time.Second) // views and search
			for id := range all {
				all[id] = *must(a.Get(t.Context(), id))
			}
			states := []string{"scheduled", "queued", "running", "waiting", "succeeded", "dead"}
			for range 10 {
				f := Filter{Order: []string{"", "newest", "oldest", "next"}[random.IntN(4)], Limit: []int{0, 1, 3, 7, 50, 1000}[random.IntN(6)]}
				if random.IntN(2) == 0 {
					f.States = []string{states[random.IntN(len(states))], states[random.IntN(len(states))]}
				}
				if random.IntN(3) == 0 {
					f.Workflow = []string{"alpha", "beta.x", "gamma", "none"}[random.IntN(4)]
				}
				if random.IntN(3) == 0 {
					f.Exclude = [][]string{{"alpha"}, {"beta.*"}, {"*ma"}}[random.IntN(3)]
				}
				if random.IntN(4) == 0 {
					f.Search = []string{"flaky", "bad", "things", "key1", "flak", "17", "ey2"}[random.IntN(7)]
				}
				if random.IntN(5) == 0 {
					f.MinAttempts = random.IntN(3)
				}
				want := map[string]bool{}
				for id, i := range all {
					if wants(&f, &i) {
						want[id] = true
					}
				}
				got := map[string]bool{}
				var last *Info
				for pages := 0; ; pages++ {
					page := must([]*member{a, b}[random.IntN(2)].List(t.Context(), f))
					if len(page.Silent) > 0 {
						t.Fatalf("silent: %v", page.Silent)
					}
					for i := range page.Runs {
						r := &page.Runs[i]
						if got[r.ID] {
							t.Fatalf("%+v: %s is there twice", f, r.ID)
						}
						got[r.ID] = true
						if f.Limit != 0 && last != nil && comesBefore(&f, r, last) && r.Created.UnixMilli() != last.Created.UnixMilli() {
							t.Errorf("%+v: %v/%v after %v/%v", f, r.Created, r.Next, last.Created, last.Next)
						}
						last = r
					}
					if page.Next == "" {
						break
					}
					f.After = page.Next
					if pages > 1000 {
						t.Fatal("endless")
					}
				}
				if f.Search != "" {
					continue // judged below
				}
				for id := range want {
					if !got[id] {
						t.Errorf("%+v: %s is missing: %+v", f, id, all[id].State)
					}
				}
				for id := range got {
					if !want[id] {
						t.Errorf("%+v: %s is not wanted", f, id)
					}
				}
			}
			for _, text := range []string{"flaky", "bad", "things", "key1", "flak"} {
				near := map[string]bool{}
				for f := (Filter{Search: text, Limit: 7}); ; {
					page := must(a.List(t.Context(), f))
					for _, r := range page.Runs {
						near[r.ID] = true
					}
					if f.After = page.Next; f.After == "" {
						break
					}
				}
				words := 0
				for id, i := range all {
					hit := strings.Contains(" "+i.Error+" ", text) || i.Key == text
					if hit {
						words++
						if !near[id] {
							t.Errorf("search %q: %s is missing: %q %q", text, id, i.Error, i.Key)
						}
					}
				}
				t.Logf("%q: %d found, %d by hand", text, len(near), words)
			}
			page := must(a.DeadGroups(t.Context(), 100)).Groups
			n := 0
			for _, g := range page {
				n += g.Count
			}
			dead := 0
			for _, i := range all {
				if i.State == "dead" {
					dead++
				}
			}
			if n != dead {
				t.Errorf("groups have %d, dead are %d", n, dead)
			}
		})
	}
}

func TestClusterLargePagesAreInOrder(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Dir: t.TempDir()})
		settled(t, a)
		// the newest 1100 are all in one shard, and a page has 1000
		in := func(shard, n int) string {
			for i := 0; ; i++ {
				if k := fmt.Sprint(n, "-", i); machine.KeySlot(k)%8 == shard {
					return k
				}
			}
		}
		for i := range 100 {
			started(t, a.Engine, w, i, Key(in(1, i)), In(24*time.Hour))
		}
		time.Sleep(time.Second)
		for i := range 1100 {
			started(t, a.Engine, w, i, Key(in(0, i)), In(24*time.Hour))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		f := Filter{Limit: 2000}
		var last *Info
		n := 0
		for {
			page := must(a.List(t.Context(), f))
			for i := range page.Runs {
				n++
				if r := &page.Runs[i]; last != nil && r.Created.After(last.Created) {
					t.Fatalf("%d: %v after %v", n, r.Created, last.Created)
				}
				last = &page.Runs[i]
			}
			if f.After = page.Next; f.After == "" {
				break
			}
		}
		t.Log(n)
	})
}

func TestClusterGroupsCount(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, text string) (int, error) { return 0, retry.Permanent(errors.New(text)) })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Dir: t.TempDir()})
		settled(t, a)
		in := func(shard int, n string) string {
			for i := 0; ; i++ {
				if k := fmt.Sprint(n, "-", i); machine.KeySlot(k)%8 == shard {
					return k
				}
			}
		}
		letters := "abcdefgh"
		for shard := range 8 {
			for i := range 3 { // of each shard's own
				waited(t, started(t, a.Engine, w, "own "+strings.Repeat(letters[shard:shard+1], 5), Key(in(shard, fmt.Sprint("own", shard, i)))))
			}
			for i := range 2 { // of all
				waited(t, started(t, a.Engine, w, "common", Key(in(shard, fmt.Sprint("common", shard, i)))))
			}
		}
		time.Sleep(5 * time.Second)
		groups := must(a.DeadGroups(t.Context(), 1)).Groups
		if len(groups) != 1 || groups[0].Error != "common" || groups[0].Count != 16 {
			t.Errorf("the largest group of 16 is not first: %+v", groups)
		}
	})
}

func TestClusterListWithoutOneView(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Dir: t.TempDir()})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}, Dir: t.TempDir()})
		settled(t, a, b)
		for i := range 20 {
			started(t, a.Engine, w, i, Key(fmt.Sprint(i)))
		}
		time.Sleep(5 * time.Second)
		_ = must(b.router.Shards()[0].View()).Close()
		page, err := a.List(t.Context(), Filter{})
		if err != nil || len(page.Silent) != 1 {
			t.Errorf("%d runs, silent %v, %v", len(page.Runs), page.Silent, err)
		}
	})
}

func TestClusterPagesOverATakeover(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, Dir: t.TempDir(), snapshotAfter: 1000})
		settled(t, a)
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}, Dir: t.TempDir(), snapshotAfter: 1000})
		settled(t, a, b)
		b.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			if op.Name == "call" {
				f.Delay = 3 * time.Millisecond // as a network has
			}
			return f
		})
		var each sync.WaitGroup
		for i := range 100 {
			each.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond) // of many in one, some change places
				opts := []StartOption{Key(keyIn(a, i))}
				if i%2 == 0 {
					opts = append(opts, In(time.Hour))
				}
				started(t, b.Engine, w, i, opts...)
			})
		}
		each.Wait()
		b.log.Disturb(nil)
		time.Sleep(20 * time.Second)
		f := Filter{Limit: 10}
		seen := map[string]int{}
		for pages := 0; ; pages++ {
			page := must(b.List(t.Context(), f))
			for _, r := range page.Runs {
				seen[r.ID]++
			}
			if pages == 5 {
				_ = a.Close(t.Context())
				settled(t, b)
				time.Sleep(time.Second)
			}
			if f.After = page.Next; f.After == "" {
				break
			}
		}
		twice := 0
		for _, n := range seen {
			if n > 1 {
				twice++
			}
		}
		if len(seen) != 100 || twice > 0 {
			t.Errorf("%d of 100 were listed, %d of them twice", len(seen), twice)
		}
	})
}

func wants(f *Filter, i *Info) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, i.State)) && (f.Workflow == "" || f.Workflow == i.Workflow) &&
		!(f.Exclude != nil && (f.Exclude[0] == "alpha" && i.Workflow == "alpha" || f.Exclude[0] == "beta.*" && i.Workflow == "beta.x" || f.Exclude[0] == "*ma" && i.Workflow == "gamma")) &&
		i.Attempts >= f.MinAttempts && (f.Order != "next" || i.Next != nil)
}

// comesBefore reports whether the run a comes before the run b in the order of the filter.
func comesBefore(f *Filter, a, b *Info) bool {
	switch {
	case f.Order == "oldest":
		return a.Created.Before(b.Created)
	case f.Order == "next" && a.Next != nil && b.Next != nil:
		return a.Next.Before(*b.Next)
	default:
		return b.Created.Before(a.Created)
	}
}
